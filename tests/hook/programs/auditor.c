// SPDX-License-Identifier: Apache-2.0
/* A library for LD_AUDIT that uses most of the room for thread data that ld.so keeps then. */
__thread char data[1400] __attribute__((tls_model("initial-exec")));

unsigned la_version(unsigned version) {
    data[0] = 1;
    return version;
}
