// SPDX-License-Identifier: Apache-2.0
/*
 * jvm.h - settings of a JVM, set in its own flags before it reads its options.
 *
 * Every other way is seen by the program: the JVM shows arguments, JDK_JAVA_OPTIONS, JAVA_TOOL_OPTIONS and files of flags to it
 * (RuntimeMXBean.getInputArguments), and programs hand those to JVMs that they start, which may have another collector.
 * HotSpot's library exports tables of its flags for debuggers. docs/decisions/0056 has the reasons.
 */
#ifndef IMAS_HOOK_JVM_H
#define IMAS_HOOK_JVM_H

/* Notes what this process is to set. The words and entries are not copied. */
void jvm_keep(char **arguments, char **environment);

/* Called when the JVM asks for its options: sets the flags, all of them or none. It allocates nothing. */
void jvm_set(char **environment);

#endif
