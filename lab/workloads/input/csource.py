# SPDX-License-Identifier: Apache-2.0
# csource.py FUNCTIONS [SEED]: one C file on standard output, which compiles alone and prints a checksum.
import random
import sys

functions = int(sys.argv[1])
random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
print("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
print("struct node { struct node *next; long key; double weight; char name[16]; };\n")
for n in range(functions):
    cases = "\n".join(
        f"        case {c}: x = (x {random.choice('+-^')} {random.randint(1, 9999)}) * {random.randint(3, 99)}; break;"
        for c in range(random.randint(3, 12))
    )
    call = f"f{random.randrange(n)}(x & 1023, list)" if n else "1"
    print(
        f"""static long f{n}(long x, struct node *list) {{
    long sum = {n};
    static int depth;
    for (struct node *at = list; at; at = at->next) {{
        if (at->key % {random.randint(2, 9)} == {random.randint(0, 1)}) sum += at->key * {random.randint(2, 50)};
        else sum ^= (long)(at->weight * {random.random() * 10:.4f}) + at->name[{random.randrange(16)}];
    }}
    switch (x & 15) {{
{cases}
        default: x ^= sum;
    }}
    if (depth < 3 && (x & 7) == {random.randrange(8)}) {{ depth++; sum += {call}; depth--; }}
    for (int i = 0; i < {random.randint(4, 30)}; i++) sum = (sum << 1) ^ (x * i + {random.randint(1, 999)});
    return sum;
}}
"""
    )
print("int main(void) {\n    struct node *list = NULL;\n    for (int i = 0; i < 40; i++) {")
print("        struct node *at = calloc(1, sizeof *at);\n        at->next = list; at->key = i * 37; at->weight = i / 3.0; memset(at->name, 'a' + i % 26, 16); list = at;\n    }")
print("    long sum = 0;")
for n in range(functions):
    print(f"    sum += f{n}(sum & 255, list);")
print('    printf("%ld\\n", sum);\n    return 0;\n}')
