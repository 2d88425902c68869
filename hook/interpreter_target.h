// SPDX-License-Identifier: Apache-2.0
/*
 * interpreter_target.h - what an interpreter is to run (a script, a module, a jar, code on the command line):
 * programs that share an executable are distinguished by it.
 *
 * Arguments are read as crates/imas-linux/src/interpreter_target.rs reads them; tests/hook/preload.py
 * compares the two.
 */
#ifndef IMAS_HOOK_INTERPRETER_TARGET_H
#define IMAS_HOOK_INTERPRETER_TARGET_H

#include <stdbool.h>

#include "index.h"

/* Writes the target into the key's detail and the word of the command line that names it into `word`. False
 * when `executable` is no known interpreter, or its arguments name nothing to run. */
bool interpreter_target_find(struct index_key *key, const char *executable, int argc, char **argv, const char **word);

#endif
