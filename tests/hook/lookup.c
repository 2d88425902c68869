// SPDX-License-Identifier: Apache-2.0
/*
 * lookup - the code of libimas-preload.so that reads index and catalogue, as an ordinary program.
 *
 * lookup given EXECUTABLE WORDS...          the detail of a command line: kind and two numbers
 * lookup unit FILE                          the service in a text like /proc/PID/cgroup
 * lookup damage INDEX CATALOGUE EXE N SEED  N damaged copies of both files, which must never crash the reader
 * nor choose
 *                                           a library that the sound catalogue does not hold
 * lookup time INDEX EXE N                   nanoseconds per lookup: opening, header, stat, two probes, closing; each time
 *                                           of another key, so that no two look at the same place
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../hook/fnv.h"
#include "../../hook/index.h"
#include "../../hook/interpreter_target.h"
#include "../../hook/sample.h"
#include "../../hook/service_unit.h"
#include "../../hook/sys.h"
#include "../../hook/table.h"

static int fail(const char *what) {
    perror(what);
    return 2;
}

static int print_arguments(int argc, char **argv) {
    struct index_key key = {0};
    const char *word;
    interpreter_target_find(&key, argv[0], argc, argv, &word);
    printf("%u %" PRIx64 " %" PRIx64 "\n", key.detail_kind, key.detail[0], key.detail[1]);
    return 0;
}

static int print_unit(const char *path) {
    char text[8192];
    size_t length = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return fail(path);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *service = service_unit_in(text, &length);
    char unit[UNIT_BYTES] = "-";
    if (service != NULL && length < UNIT_BYTES)
        service_unit_program(service, length, unit);
    printf("%s\n", unit);
    return 0;
}

/* ---- lookups ------------------------------------------------------------------------------------------- */

static bool look_up(const char *path, const char *exe, uint64_t other, struct imas_index_entry *entry) {
    struct index index;
    struct stat file;
    if (!index_open(&index, path))
        return false;
    bool found = stat(exe, &file) == 0;
    const struct index_key key = {.exe_dev = file.st_dev, .exe_ino = file.st_ino + other, .uid = getuid()};
    found = found && index_find_for(&index, key, entry);
    index_close(&index);
    return found;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int print_time(const char *index, const char *exe, long count) {
    struct imas_index_entry entry;
    long found = 0;
    uint64_t began = now_ns();
    for (long i = 0; i < count; i++)
        found += look_up(index, exe, (uint64_t)i, &entry);
    printf("%.1f ns a lookup, %ld of %ld found\n", (double)(now_ns() - began) / (double)count, found, count);
    return 0;
}

/* ---- damage -------------------------------------------------------------------------------------------- */

struct bytes {
    unsigned char *at;
    size_t length;
};

static struct bytes read_all(const char *path) {
    struct bytes bytes = {malloc(1 << 20), 0};
    FILE *file = fopen(path, "r");
    if (file == NULL || bytes.at == NULL)
        exit(fail(path));
    bytes.length = fread(bytes.at, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

static void write_all(const char *path, struct bytes bytes) {
    FILE *file = fopen(path, "w");
    if (file == NULL || fwrite(bytes.at, 1, bytes.length, file) != bytes.length)
        exit(fail(path));
    fclose(file);
}

/* A bit, a run of bytes, a number made huge, or the end cut off. */
static void damage(struct bytes *bytes, uint64_t *random) {
    size_t at = bytes->length ? sample_random(random) % bytes->length : 0;
    size_t run = sample_random(random) % 64 + 1;
    switch (sample_random(random) % 5) {
    case 0:
        bytes->at[at] ^= (unsigned char)(1u << sample_random(random) % 8);
        break;
    case 1:
        for (size_t i = at; i < bytes->length && i < at + run; i++)
            bytes->at[i] = (unsigned char)sample_random(random);
        break;
    case 2:
        for (size_t i = at & ~(size_t)7; i < bytes->length && i < (at & ~(size_t)7) + 8; i++)
            bytes->at[i] = 0xff;
        break;
    case 3:
        bytes->length = at;
        break;
    default:
        for (size_t i = at; i + 128 < bytes->length && i < at + 128; i++)
            bytes->at[i] = bytes->at[i + 128];
        break;
    }
}

static void seal(unsigned char *record, size_t size, size_t check) {
    uint32_t sum = fnv32_record(record, size, check);
    memcpy(record + check, &sum, sizeof sum);
}

/* Check sums are against damage, not forgery: a forger's are right. */
static void forge(struct bytes *bytes, size_t header, size_t header_check, size_t entry, size_t entry_check) {
    if (bytes->length >= header)
        seal(bytes->at, header, header_check);
    for (size_t at = header; at + entry <= bytes->length; at += entry)
        seal(bytes->at + at, entry, entry_check);
}

static bool known_library(struct bytes catalogue, const char *library) {
    for (size_t at = IMAS_CATALOGUE_ENTRY_BYTES; at + sizeof(struct imas_catalogue_entry) <= catalogue.length; at += IMAS_CATALOGUE_ENTRY_BYTES) {
        const struct imas_catalogue_entry *entry = (const void *)(catalogue.at + at);
        if (strcmp(entry->library, library) == 0)
            return true;
    }
    return false;
}

/* What the stub would choose; counts in `chosen`. False when it is none of the approved. */
static bool choose(const char *index_path, const char *table_path, const char *exe, struct bytes approved, long *chosen) {
    struct imas_index_entry entry;
    struct imas_catalogue_entry candidate;
    struct table table;
    struct index index;
    bool good = true;
    if (!look_up(index_path, exe, 0, &entry) || !table_open(&table, table_path, getuid()))
        return true;
    if (index_open(&index, index_path)) {
        if (index_trusted(&index, getuid(), getuid()) && table_candidate(&table, entry.candidate, &candidate)) {
            good = known_library(approved, candidate.library);
            ++*chosen;
        }
        index_close(&index);
    }
    table_close(&table);
    return good;
}

static int damage_all(const char *index_path, const char *table_path, const char *exe, long count, uint64_t seed) {
    struct bytes index = read_all(index_path), table = read_all(table_path);
    struct bytes bad = {malloc(1 << 20), 0};
    char bad_index[64], bad_table[64];
    long chosen = 0, wrong = 0;
    snprintf(bad_index, sizeof bad_index, "damaged-index.%d", (int)getpid());
    snprintf(bad_table, sizeof bad_table, "damaged-table.%d", (int)getpid());
    for (long i = 0; i < count; i++) {
        bool of_index = i % 2 == 0, forged = i % 4 >= 2;
        struct bytes sound = of_index ? index : table;
        memcpy(bad.at, sound.at, sound.length);
        bad.length = sound.length;
        for (uint64_t n = sample_random(&seed) % 4 + 1; n > 0; n--)
            damage(&bad, &seed);
        if (forged && of_index)
            forge(&bad, sizeof(struct imas_index_header), offsetof(struct imas_index_header, check), sizeof(struct imas_index_entry),
                  offsetof(struct imas_index_entry, check));
        else if (forged)
            forge(&bad, sizeof(struct imas_catalogue_header), offsetof(struct imas_catalogue_header, check),
                  sizeof(struct imas_catalogue_entry), offsetof(struct imas_catalogue_entry, check));
        write_all(of_index ? bad_index : bad_table, bad);
        wrong += !choose(of_index ? bad_index : index_path, of_index ? table_path : bad_table, exe, table, &chosen);
    }
    unlink(bad_index);
    unlink(bad_table);
    free(index.at);
    free(table.at);
    free(bad.at);
    printf("%ld damaged, %ld still chose, %ld wrongly\n", count, chosen, wrong);
    return wrong != 0;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "given") == 0 && argc > 2)
        return print_arguments(argc - 2, argv + 2);
    if (strcmp(verb, "unit") == 0 && argc == 3)
        return print_unit(argv[2]);
    if (strcmp(verb, "time") == 0 && argc == 5)
        return print_time(argv[2], argv[3], atol(argv[4]));
    if (strcmp(verb, "damage") == 0 && argc == 7)
        return damage_all(argv[2], argv[3], argv[4], atol(argv[5]), strtoull(argv[6], NULL, 10) | 1);
    fprintf(stderr, "usage: see the head of lookup.c\n");
    return 2;
}
