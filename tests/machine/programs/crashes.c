// SPDX-License-Identifier: Apache-2.0
/* Dies in its constructor. */
__attribute__((constructor)) static void crash(void) {
    __builtin_trap();
}
