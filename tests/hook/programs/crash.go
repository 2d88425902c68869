// SPDX-License-Identifier: Apache-2.0

// crash: a fault in C, which Go's own handler sees.
package main

/*
#include <stdlib.h>
static void crash(void) { *(volatile int *)8 = 1; }
static void *get(void) { return malloc(10); }
*/
import "C"
import "fmt"

func main() {
	fmt.Println("go", C.get() != nil)
	C.crash()
}
