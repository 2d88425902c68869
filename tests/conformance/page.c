// SPDX-License-Identifier: Apache-2.0 Says what the hook or the guard noted in a trial or flight page: its
// state and what served, parted by a tab.
#include <stdio.h>

#include "../../abi/imas_abi.h"

static const char *word_for(uint32_t state)
{
    static const char *const words[] = { "armed", "entered", "active", "trial", "pass" };
    return state < sizeof words / sizeof *words ? words[state] : "unknown";
}

int main(int argc, char **argv)
{
    static struct imas_page_header header;
    FILE *stream = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (stream == NULL || fread(&header, sizeof header, 1, stream) != 1) {
        fprintf(stderr, "page: cannot read %s\n", argc == 2 ? argv[1] : "nothing");
        return 2;
    }
    fclose(stream);
    printf("%s\t%.*s\n", word_for(header.state), (int)IMAS_SERVED_BYTES, header.served);
    return 0;
}
