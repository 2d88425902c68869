// SPDX-License-Identifier: Apache-2.0
/* Stands in for the C library when unknown-version.so is linked; never loaded. */
int imas_test_of_the_future(void);
int imas_test_of_the_future(void) {
    return 1;
}
