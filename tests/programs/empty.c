// SPDX-License-Identifier: Apache-2.0
/* empty.c - a library that loads and does nothing: as an allocator it is a silent fall-back to the
 * system's. */
int imas_test_empty;
