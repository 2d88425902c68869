// SPDX-License-Identifier: Apache-2.0

// execs_itself LEFT: prints what serves malloc, by the names of mapped files, and becomes its own file with LEFT - 1,
// as Go does: by an instruction of its own. Built with -tags plain it has nothing that does that.
package main

// #include <stdlib.h>
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

func serves() string {
	maps, _ := os.Open("/proc/self/maps")
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if strings.Contains(lines.Text(), "libmimalloc") {
			return "mimalloc"
		}
	}
	return "libc"
}

func main() {
	C.free(C.malloc(10))
	left, _ := strconv.Atoi(os.Args[1])
	fmt.Println(left, serves(), os.Getenv("LD_PRELOAD") != "")
	if left > 0 {
		again(strconv.Itoa(left - 1))
	}
}
