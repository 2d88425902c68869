// SPDX-License-Identifier: Apache-2.0

// A static program with a run-time of its own: nothing can be preloaded into it.
package main

import "fmt"

func main() {
	kept := make(map[int][]byte)
	for i := 0; i < 20000; i++ {
		kept[i%500] = make([]byte, i%3000+1)
	}
	if len(kept) == 500 {
		fmt.Println("fine")
	}
}
