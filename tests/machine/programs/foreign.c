// SPDX-License-Identifier: Apache-2.0
/* Defines one harmless name. */
int imas_test_foreign(void);
int imas_test_foreign(void) {
    return 1;
}
