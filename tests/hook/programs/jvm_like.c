// SPDX-License-Identifier: Apache-2.0
/* Has the tables in which a JVM describes its flags to debuggers, asks for its options, and prints what its flags are then. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static _Bool UseSerialGC, UseG1GC;
static uint64_t MinHeapFreeRatio = 40;
static uint32_t TrimNativeHeapInterval[2]; /* the second has to stay as it is */
static const char *ErrorFile = "none";

struct JVMFlag {
    void *address;
    const char *name;
    int32_t origin;
#ifdef TEXTS
    const char *type;
#define TYPE(number, text) text
#else
    int32_t type;
#define TYPE(number, text) number
#endif
};

static struct JVMFlag table[] = {
    {&UseSerialGC, "UseSerialGC", 16, TYPE(0, "bool")},
    {&UseG1GC, "UseG1GC", 0, TYPE(0, "bool")},
    {&MinHeapFreeRatio, "MinHeapFreeRatio", 0, TYPE(4, "uintx")},
    {TrimNativeHeapInterval, "TrimNativeHeapInterval", 0, TYPE(2, "uint")},
    {&ErrorFile, "ErrorFile", 0, TYPE(8, "ccstr")},
    {NULL, NULL, 0, TYPE(0, "bool")},
};
static struct JVMFlag *flags = table;
static size_t numFlags = sizeof table / sizeof *table;

struct field {
    const char *type, *name, *of_type;
    int32_t is_static;
    uint64_t offset;
    void *address;
};
struct type {
    const char *name, *super;
    int32_t is_oop, is_integer, is_unsigned;
    uint64_t size;
};
#define MEMBER(name, of_type, member) {"JVMFlag", name, of_type, 0, offsetof(struct JVMFlag, member), NULL}
static struct field fields[] = {
    {"Universe", "flags", "int", 1, 0, NULL},
    MEMBER("_addr", NULL, address),
    MEMBER("_name", "const char*", name),
    MEMBER("_flags", "JVMFlag::Flags", origin),
    MEMBER("_type", TYPE("int", "const char*"), type),
    {"JVMFlag", "flags", "JVMFlag*", 1, 0, &flags},
    {"JVMFlag", "numFlags", "size_t", 1, 0, &numFlags},
    {0},
};
static struct type types[] = {{.name = "Universe", .size = 1}, {.name = "JVMFlag", .size = sizeof(struct JVMFlag)}, {0}};

struct field *gHotSpotVMStructs = fields;
struct type *gHotSpotVMTypes = types;
uint64_t gHotSpotVMStructEntryTypeNameOffset = offsetof(struct field, type);
uint64_t gHotSpotVMStructEntryFieldNameOffset = offsetof(struct field, name);
uint64_t gHotSpotVMStructEntryTypeStringOffset = offsetof(struct field, of_type);
uint64_t gHotSpotVMStructEntryOffsetOffset = offsetof(struct field, offset);
uint64_t gHotSpotVMStructEntryAddressOffset = offsetof(struct field, address);
#ifdef OTHER_LAYOUT
uint64_t gHotSpotVMStructEntryArrayStride = 2 * sizeof(struct field);
#else
uint64_t gHotSpotVMStructEntryArrayStride = sizeof(struct field);
#endif
uint64_t gHotSpotVMTypeEntryTypeNameOffset = offsetof(struct type, name);
uint64_t gHotSpotVMTypeEntrySizeOffset = offsetof(struct type, size);
uint64_t gHotSpotVMTypeEntryArrayStride = sizeof(struct type);

int main(void) {
    const char *options = getenv("JAVA_TOOL_OPTIONS");
    printf("%d %d %ju %u %u %s %d %s\n", UseSerialGC, UseG1GC, (uintmax_t)MinHeapFreeRatio, TrimNativeHeapInterval[0],
           TrimNativeHeapInterval[1], ErrorFile, table[0].origin, options != NULL ? options : "-");
    printf("%s\n", getenv("IMAS_JVM_FLAGS") != NULL ? "seen" : "hidden");
}
