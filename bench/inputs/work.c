// SPDX-License-Identifier: Apache-2.0
/*
 * work.c - something for the C compiler to chew: ordinary functions on lists, tables, text and matrices,
 * repeated under other names and for other types. Never run.
 */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST(T, NAME)                                                                                                  \
    struct NAME##_node {                                                                                               \
        struct NAME##_node *next;                                                                                      \
        T value;                                                                                                       \
    };                                                                                                                 \
    struct NAME##_node *NAME##_push(struct NAME##_node *head, T value) {                                               \
        struct NAME##_node *node = malloc(sizeof *node);                                                               \
        if (node == NULL)                                                                                              \
            return head;                                                                                               \
        *node = (struct NAME##_node){head, value};                                                                     \
        return node;                                                                                                   \
    }                                                                                                                  \
    struct NAME##_node *NAME##_reverse(struct NAME##_node *head) {                                                     \
        struct NAME##_node *done = NULL;                                                                               \
        while (head != NULL) {                                                                                         \
            struct NAME##_node *next = head->next;                                                                     \
            head->next = done;                                                                                         \
            done = head;                                                                                               \
            head = next;                                                                                               \
        }                                                                                                              \
        return done;                                                                                                   \
    }                                                                                                                  \
    T NAME##_greatest(const struct NAME##_node *head, T least) {                                                       \
        for (; head != NULL; head = head->next)                                                                        \
            least = head->value > least ? head->value : least;                                                         \
        return least;                                                                                                  \
    }

#define TABLE(T, NAME)                                                                                                 \
    struct NAME##_table {                                                                                              \
        size_t places, used;                                                                                           \
        struct {                                                                                                       \
            uint64_t key;                                                                                              \
            T value;                                                                                                   \
        } * place;                                                                                                     \
    };                                                                                                                 \
    static size_t NAME##_find(const struct NAME##_table *table, uint64_t key) {                                        \
        size_t at = key * UINT64_C(0x9E3779B97F4A7C15) >> 20;                                                          \
        for (at %= table->places; table->place[at].key != 0 && table->place[at].key != key;)                           \
            at = (at + 1) % table->places;                                                                             \
        return at;                                                                                                     \
    }                                                                                                                  \
    int NAME##_grow(struct NAME##_table *table) {                                                                      \
        struct NAME##_table bigger = {.places = table->places * 2 + 16, .used = table->used};                          \
        bigger.place = calloc(bigger.places, sizeof *bigger.place);                                                    \
        if (bigger.place == NULL)                                                                                      \
            return -1;                                                                                                 \
        for (size_t i = 0; i < table->places; i++)                                                                     \
            if (table->place[i].key != 0)                                                                              \
                bigger.place[NAME##_find(&bigger, table->place[i].key)].value = table->place[i].value;                 \
        free(table->place);                                                                                            \
        *table = bigger;                                                                                               \
        return 0;                                                                                                      \
    }                                                                                                                  \
    int NAME##_put(struct NAME##_table *table, uint64_t key, T value) {                                                \
        if (table->used * 4 >= table->places * 3 && NAME##_grow(table) != 0)                                           \
            return -1;                                                                                                 \
        size_t at = NAME##_find(table, key);                                                                           \
        table->used += table->place[at].key == 0;                                                                      \
        table->place[at].key = key;                                                                                    \
        table->place[at].value = value;                                                                                \
        return 0;                                                                                                      \
    }

#define MATRIX(T, NAME)                                                                                                \
    void NAME##_multiply(size_t n, T a[n][n], T b[n][n], T c[n][n]) {                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            for (size_t j = 0; j < n; j++) {                                                                           \
                T sum = 0;                                                                                             \
                for (size_t k = 0; k < n; k++)                                                                         \
                    sum += a[i][k] * b[k][j];                                                                          \
                c[i][j] = sum;                                                                                         \
            }                                                                                                          \
    }                                                                                                                  \
    T NAME##_trace(size_t n, T a[n][n]) {                                                                              \
        T sum = 0;                                                                                                     \
        for (size_t i = 0; i < n; i++)                                                                                 \
            sum += a[i][i];                                                                                            \
        return sum;                                                                                                    \
    }

#define TEXT(NAME, LETTER)                                                                                             \
    size_t NAME##_words(const char *text, char (*words)[32], size_t most) {                                            \
        size_t count = 0;                                                                                              \
        while (*text != '\0' && count < most) {                                                                        \
            size_t length = strcspn(text, " \t\n");                                                                    \
            if (length > 0 && length < 32 && tolower((unsigned char)*text) != LETTER) {                                \
                memcpy(words[count], text, length);                                                                    \
                words[count++][length] = '\0';                                                                         \
            }                                                                                                          \
            text += length + (text[length] != '\0');                                                                   \
        }                                                                                                              \
        return count;                                                                                                  \
    }                                                                                                                  \
    const char *NAME##_kind(int code) {                                                                                \
        switch (code) {                                                                                                \
        case 0: return #NAME " nothing";                                                                               \
        case LETTER: return #NAME " letter";                                                                           \
        case '0' ... '9': return #NAME " digit";                                                                       \
        case '+': case '-': case '*': case '/': return #NAME " operator";                                              \
        default: return code < 32 ? #NAME " control" : #NAME " other";                                                 \
        }                                                                                                              \
    }

#define ALL(T, NAME) LIST(T, NAME) TABLE(T, NAME) MATRIX(T, NAME) TEXT(NAME, 'a')
#define TYPES(PREFIX)                                                                                                  \
    ALL(int, PREFIX##_int) ALL(long, PREFIX##_long) ALL(float, PREFIX##_float) ALL(double, PREFIX##_double)            \
    ALL(uint16_t, PREFIX##_short)

TYPES(red)
TYPES(green)
