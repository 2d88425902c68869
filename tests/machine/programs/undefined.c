// SPDX-License-Identifier: Apache-2.0
/* Refers to data that nobody defines. */
extern int imas_test_nobody_defines_this;
int *imas_test_refers(void);
int *imas_test_refers(void) {
    return &imas_test_nobody_defines_this;
}
