// SPDX-License-Identifier: Apache-2.0
// go_cgo work|crash|catch: goroutines that call C malloc; a fault in C; a fault in Go that is recovered from.
package main

/*
#include <stdlib.h>
#include <string.h>
static int churn(int rounds) {
    int sum = 0;
    for (int i = 0; i < rounds; i++) {
        char *p = malloc(16 + i % 5000);
        memset(p, i, 16 + i % 5000);
        sum += p[7] & 1;
        free(p);
    }
    return sum;
}
static void crash(void) { *(volatile int *)8 = 1; }
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
)

func work() {
	var group sync.WaitGroup
	sums := make([]int, 16)
	for i := range sums {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := 0; n < 50; n++ {
				sums[i] += int(C.churn(200)) + len(make([]byte, 100*n))
			}
		}()
	}
	group.Wait()
	fmt.Println(sums)
}

func catch() {
	defer func() { fmt.Println("recovered:", recover()) }()
	var nothing *int
	fmt.Println(*nothing)
}

func main() {
	switch os.Args[1] {
	case "work":
		work()
	case "crash":
		C.crash()
	case "catch":
		catch()
	}
}
