// SPDX-License-Identifier: Apache-2.0
/*
 * preload32.c - libimas-preload.so for 32-bit programs. It does nothing; with it ld.so prints no error about
 * the wrong class. As children below imas bench and --follow they find it for every library there is
 * (packaging/link-preload).
 */
void imas_preload_enter(void);

__attribute__((visibility("hidden"))) void imas_preload_enter(void) {
}
