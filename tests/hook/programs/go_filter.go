// SPDX-License-Identifier: Apache-2.0

// go_filter: sets a filter of system calls as Go does, by an instruction of its own, and then allocates through C. What the
// hook would do in a trial is death.
package main

// #include <stdlib.h>
// static void churn(void) { void *block[20000]; for (int i = 0; i < 20000; i++) block[i] = malloc(300); for (int i = 0; i < 20000; i++) free(block[i]); }
import "C"

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

type instruction struct {
	code        uint16
	hit, missed uint8
	value       uint32
}

type program struct {
	length uint16
	first  *instruction
}

const (
	load, equal, answer = 0x20, 0x15, 0x06
	kill, allow         = 0x80000000, 0x7fff0000
)

func forbid(number int) []instruction {
	return []instruction{{equal, 0, 1, uint32(number)}, {answer, 0, 0, kill}}
}

func main() {
	filter := []instruction{{load, 0, 0, 0}}
	for _, number := range []int{syscall.SYS_CLOCK_GETTIME, syscall.SYS_OPENAT, syscall.SYS_GETRUSAGE} {
		filter = append(filter, forbid(number)...)
	}
	filter = append(filter, instruction{answer, 0, 0, allow})
	set := program{uint16(len(filter)), &filter[0]}
	C.churn()
	syscall.RawSyscall6(syscall.SYS_PRCTL, 38, 1, 0, 0, 0, 0) // PR_SET_NO_NEW_PRIVS
	// PR_SET_SECCOMP, for the calling thread
	if _, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, 22, 2, uintptr(unsafe.Pointer(&set))); failed != 0 {
		fmt.Println(failed)
		os.Exit(1)
	}
	for i := 0; i < 100; i++ {
		C.churn()
	}
	fmt.Println("fine")
}
