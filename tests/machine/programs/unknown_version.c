// SPDX-License-Identifier: Apache-2.0
/* Refers to a name in a version of the C library that no C library has. */
int imas_test_of_the_future(void);
int imas_test_calls(void);
int imas_test_calls(void) {
    return imas_test_of_the_future();
}
