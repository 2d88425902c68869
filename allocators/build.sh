#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the packaged allocators: build.sh [--musl] [--strict] [--force] [--list | --default | NAME...]
# With --musl those for programs of musl (lib/musl.sh), in build/lib/imas/musl.
#
# Every recipe (recipes/NAME.sh) becomes build/lib/imas/allocators/libNAME.so, put in place by rename.
# A recipe whose inputs have not changed is not built again. A recipe that fails writes its reason to
# build/lib/imas/allocators/NAME.failed and leaves the others untouched; the exit status is still 0,
# unless --strict is given. docs/adding-an-allocator.md describes recipes.

# Recipes and lib/ set and read variables of this file; shellcheck sees one file at a time.
# shellcheck disable=SC1090,SC1091,SC2034,SC2154
set -euo pipefail

ALLOCATORS=$(cd "$(dirname "$0")" && pwd)
BUILD=${IMAS_BUILD:-$(dirname "$ALLOCATORS")/build}
WORK=$BUILD/allocators
SOURCES=$WORK/sources
PRODUCTS=$BUILD/lib/imas
JOBS=${JOBS:-$(nproc)}
export ALLOCATORS
strict=0
force=0
musl=0

. "$ALLOCATORS/lib/sources.sh"

die()
{
    echo "imas: $1" >&2
    [ -z "${2:-}" ] || echo "hint: $2" >&2
    exit 2
}

# Recipe names, quick ones first.
all_names()
{
    grep -H '^build_seconds=' "$ALLOCATORS"/recipes/*.sh |
        sed -E 's|.*/([^/]+)\.sh:build_seconds=([0-9]+).*|\2 \1|' | sort -n | cut -d' ' -f2
}

# Recipes of what the catalogue's default set needs.
default_names()
{
    awk -F'"' '/^\[\[candidate\]\]/ { library = "" }
        /^library = / { library = $2 }
        /^default = true/ && library != "" { sub(".*/lib", "", library); sub("[.]so$", "", library); print library }
        ' "$ALLOCATORS/catalogue.toml" | sort -u
}

# A hash of all inputs of the build. Runs in the subshell that has sourced the recipe.
stamp_of()
{
    local files=("$ALLOCATORS/recipes/$name.sh" "$ALLOCATORS/lib/recipe.sh" "$ALLOCATORS/lib/compile.sh"
        "$ALLOCATORS/glue/family.h" "$ALLOCATORS/glue/family_fork.h" "$ALLOCATORS/glue/fork_order.h"
        "$ALLOCATORS/glue/large_calloc.h" "$ALLOCATORS/glue/old_libc.c"
        "$ALLOCATORS/glue/kernel_call.h" "$ALLOCATORS/glue/kernel.c" "$ALLOCATORS/../hook/loaded.c" "$ALLOCATORS/../hook/loaded.h"
        "$ALLOCATORS/../hook/text.h" "$ALLOCATORS/glue/keep_errno.h" "$ALLOCATORS/glue/exports.map")
    local file
    for file in "${glue[@]}"; do
        files+=("$ALLOCATORS/glue/$file")
    done
    {
        # Contents only: a checkout elsewhere has the same stamp.
        cat "${files[@]}"
        echo "$source"
        [ "${source#crate:}" = "$source" ] || crate_pin "${source#crate:}"
        "${CC:-gcc}" -dumpfullversion -dumpmachine
    } | sha256sum | cut -d' ' -f1
}

# In a subshell: source the recipe, and build unless the stamp is current. Prints "current" or
# nothing on file descriptor 3.
build_one()
{
    OBJECTS=() GLUE_DEFINES=() needs=() glue=() hooks=() exports=() libraries=() loader_tls=no
    . "$ALLOCATORS/lib/recipe.sh"
    . "$ALLOCATORS/recipes/$name.sh"
    if [ "$musl" = 1 ]; then
        . "$ALLOCATORS/lib/musl.sh"
        musl_recipe
    fi
    local stamp command
    stamp=$(stamp_of)
    if [ "$force" = 0 ] && [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ] && [ -e "$product" ]; then
        echo current >&3
        return
    fi
    rm -f "$folder/stamp"
    for command in "${needs[@]}"; do
        command -v "$command" >/dev/null || { echo "$command is not installed" >&2; return 1; }
    done
    SOURCE=$(fetch_source "$source")
    rm -rf "$folder/work"
    mkdir -p "$folder/work"
    cd "$folder/work"
    build
    cp "lib$name.so" "$product.part"
    mv "$product.part" "$product"
    # The conformance kit's result for the previous library.
    rm -f "$product.withheld"
    echo "$stamp" >"$folder/stamp"
    cd "$folder"
    rm -rf "$folder/work"
}

# The first line of the log that names the error (tools' last lines only state that there was one).
reason_in()
{
    grep -E 'error: |undefined reference|^check: |^E: |not installed|could not be|No such file' "$1" |
        grep -vE '^(collect2|cc1|cc1plus|make)' | head -n 1 | sed "s|$ALLOCATORS/|allocators/|g" || true
}

report_failure()
{
    local log=$1 reason
    reason=$(reason_in "$log")
    # The library that is there was built from other inputs than those of the catalogue.
    rm -f "$product"
    printf '%s; log: %s\n' "${reason:-the recipe ended with an error}" "${log#"$(dirname "$ALLOCATORS")/"}" >"$failed.part"
    mv "$failed.part" "$failed"
    echo "imas: allocator $name: not built: $(cat "$failed")" >&2
}

run_recipe()
{
    name=$1
    folder=$WORK/$name
    product=$PRODUCTS/allocators/lib$name.so
    failed=$PRODUCTS/allocators/$name.failed
    mkdir -p "$folder"
    local start=$SECONDS status=0 result
    # The recipe must stop at its first failing command, but bash ignores `set -e` in whatever runs
    # inside a condition: hence no `if` and no `||` around this, here or at the caller.
    set +e
    result=$( (set -e; build_one) 3>&1 >"$folder/build.log" 2>&1)
    status=$?
    set -e
    if [ "$status" != 0 ]; then
        failures=$((failures + 1))
        report_failure "$folder/build.log"
        return
    fi
    rm -f "$failed"
    if [ "$result" = current ]; then
        echo "  $name: up to date"
    else
        echo "  $name: built in $((SECONDS - start)) s"
    fi
}

# The catalogue names libraries relative to itself, so it is in the folder above them.
install_catalogue()
{
    cp "$ALLOCATORS/catalogue.toml" "$PRODUCTS/catalogue.toml.part"
    mv "$PRODUCTS/catalogue.toml.part" "$PRODUCTS/catalogue.toml"
}

names=()
while [ $# -gt 0 ]; do
    case $1 in
    --strict) strict=1 ;;
    --musl) musl=1 ;;
    --force) force=1 ;;
    --list)
        all_names
        exit 0
        ;;
    --default) mapfile -t names < <(default_names) ;;
    -*) die "build.sh: unknown option $1" "build.sh [--musl] [--strict] [--force] [--list | --default | NAME...]" ;;
    *)
        [ -e "$ALLOCATORS/recipes/$1.sh" ] || die "build.sh: no recipe named $1" "build.sh --list shows them"
        names+=("$1")
        ;;
    esac
    shift
done
mkdir -p "$WORK" "$SOURCES"
# Two builds at once would share folders.
exec 9>"$WORK/lock"
flock 9

if [ "$musl" = 1 ]; then
    . "$ALLOCATORS/lib/musl.sh"
    musl_prepare
    [ ${#names[@]} -gt 0 ] || names=("${MUSL_NAMES[@]}")
fi
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(all_names)
mkdir -p "$PRODUCTS/allocators"

failures=0
[ "$musl" = 1 ] || install_catalogue
for each in "${names[@]}"; do
    run_recipe "$each"
done
[ "$musl" = 1 ] || "$ALLOCATORS/../packaging/link-preload" "$PRODUCTS"
[ "$strict" = 0 ] || [ "$failures" = 0 ]
