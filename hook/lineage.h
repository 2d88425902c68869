// SPDX-License-Identifier: Apache-2.0
/* lineage.h - child processes: a forked child must not count into its parent's page; with IMAS_TREE=1 each
 * gets its own. */
#ifndef IMAS_HOOK_LINEAGE_H
#define IMAS_HOOK_LINEAGE_H

#include <stdbool.h>

#include "../abi/imas_abi.h"

/* Remembers where the launcher's page lies and whether children are counted; watches fork. */
void lineage_install(const char *page_path, bool tree);

/* A page for this process, which was started under the tree whose first page is at `page_path`, or NULL. */
struct imas_page *lineage_page_for_us(const char *page_path);

/* Makes `page` the page that all notes go to, and starts counting. */
void lineage_begin(struct imas_page *page);

/* Called when this process turns out to be a child for which no fork handler ran (clone, _Fork): it stops
 * counting. */
void lineage_lost(void);

#endif
