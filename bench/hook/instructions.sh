#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# instructions.sh - user instructions per malloc+free pair: plain, under the guard, under a trial.
#
# Counted by callgrind, which needs no hardware counter and repeats exactly: the difference between two run lengths,
# divided by the difference in pairs. The hook measured is built with -DIMAS_COUNT_UNDER_VALGRIND, because the real
# one stands aside there. valgrind starts itself anew before the program, so the environment must stay (-f, -t).
# usage: instructions.sh [ALLOCATOR...] (names of build/lib/imas/allocators/lib*.so)
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
lib=$root/build/lib/imas
work=$root/build/bench/hook
mkdir -p "$work"
make -s -C "$root/hook" BUILD="$work" EXTRA_CFLAGS=-DIMAS_COUNT_UNDER_VALGRIND
${CC:-cc} -O2 -o "$work/pairs" "$root/bench/hook/pairs.c"
${CC:-cc} -std=gnu11 -O2 -o "$work/launch" "$root/tests/hook/launch.c"

# count MODE LIBRARIES KIND PAIRS: instructions of one run
count() {
    case $1 in
        plain) set -- env "LD_PRELOAD=$2" "$work/pairs" "$3" "$4" ;;
        guard) set -- "$work/launch" -g -f -p "$work/page" -l "$2" -- "$work/pairs" "$3" "$4" ;;
        trial) set -- "$work/launch" -t -p "$work/page" -l "$2" -- "$work/pairs" "$3" "$4" ;;
    esac
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --trace-children=yes "$@" 2>"$work/log"
    rm -f "$work"/*.page
    sed -n 's/.*Collected : //p' "$work/log" | tail -n 1
}

# pair MODE LIBRARIES KIND: instructions of one pair
pair() {
    short=$(count "$1" "$2" "$3" 20000)
    long=$(count "$1" "$2" "$3" 1020000)
    echo "$short $long" | awk '{ printf "%.2f", ($2 - $1) / 1000000 }'
}

printf '%-14s %-6s %9s %9s %9s %8s\n' allocator pairs plain guard trial 'trial +'
for name in system "$@"; do
    allocator=
    [ "$name" = system ] || allocator=$lib/allocators/lib$name.so
    for kind in same mixed; do
        plain=$(pair plain "$allocator" $kind)
        guard=$(pair guard "$lib/libimas-guard.so${allocator:+:$allocator}" $kind)
        trial=$(pair trial "$work/lib/imas/libimas.so${allocator:+:$allocator}" $kind)
        printf '%-14s %-6s %9s %9s %9s %8s\n' "$name" $kind "$plain" "$guard" "$trial" \
            "$(echo "$trial $plain" | awk '{ printf "%+.2f", $1 - $2 }')"
    done
done
