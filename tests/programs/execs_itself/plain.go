// SPDX-License-Identifier: Apache-2.0

//go:build plain

package main

func again(left string) {
}
