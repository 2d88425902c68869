# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What recipes are made of. build.sh sources this, then one recipe, then calls the recipe's build().
#
# A recipe sets
#   version        of the allocator, as people know it
#   source         crate:NAME (pinned by sources/Cargo.toml and Cargo.lock), debian:PACKAGE=VERSION, or system:SONAME
#                  for a library that the machine may or may not have when it runs
#   glue           files of glue/ it uses besides those that each uses (build.sh: stamp_of)
#   needs          commands it runs that a bare gcc does not bring (optional)
#   hooks          weak names in the upstream that nobody defines, and may stay so (optional)
#   exports        names that it shows besides those of exports.map (optional): say why
#   libraries      what it cannot do without besides libc: say why, and say so in the catalogue (optional)
#   loader_tls     "yes" where a part reaches its thread data through the loader: say why it is safe (optional)
#   build_seconds  about how long it takes; the slow ones are built last
# and defines build(), which runs in a fresh folder, finds the sources in $SOURCE (read only) and ends
# with one link_library.

# Optimised as upstreams optimise. No builtin malloc: gcc would turn the glue's own
# malloc-and-clear into a call of calloc. Initial-exec TLS: malloc must never enter the loader.
COMMON_FLAGS=(-O3 -fPIC -pipe -pthread -fvisibility=hidden -ftls-model=initial-exec -fno-builtin-malloc
    -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free -fno-semantic-interposition
    -ffunction-sections -fdata-sections)
LTO_FLAGS=(-flto=auto)
GLUE_FLAGS=(-std=gnu11 -Wall -Wextra -Werror)
UPSTREAM_FLAGS=(-DNDEBUG -D_GNU_SOURCE -include "$ALLOCATORS/glue/keep_errno.h" "-I$ALLOCATORS/glue")
LINK_FLAGS=(-shared -Wl,-Bsymbolic -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack -Wl,--gc-sections -Wl,--as-needed
    -Wl,-S -Wl,--version-script=exports.map -Wl,--no-undefined)

# compile_c [flags] -- files: one object a file in the current folder, named in OBJECTS.
compile_c()
{
    # An undeclared function would be taken to return int: half a pointer.
    compile_each "${CC:-gcc}" -Werror=implicit-function-declaration "$@"
}

compile_cxx()
{
    compile_each "${CXX:-g++}" "$@"
}

compile_each()
{
    # Upstreams print __FILE__ in their messages: not where this machine keeps its crates.
    local compiler=$1 flags=("-ffile-prefix-map=$SOURCE/=$name/") file object
    shift
    while [ "$1" != -- ]; do
        flags+=("$1")
        shift
    done
    shift
    local commands=()
    for file in "$@"; do
        object=$(object_of "$file")
        OBJECTS+=("$object")
        commands+=("$object" "$file")
    done
    printf '%s\0' "${commands[@]}" | xargs -0 -n 2 -P "$JOBS" \
        "$ALLOCATORS/lib/compile.sh" "$compiler" "${COMMON_FLAGS[@]}" "${LTO_FLAGS[@]}" "${UPSTREAM_FLAGS[@]}" "${flags[@]}" --
}

# Files of one name in two folders keep apart.
object_of()
{
    local name=${1//\//_}
    echo "${name//../}.o"
}

# link_library [inputs and flags]: the glue's family file NAME.c and the inputs become libNAME.so,
# which is checked.
link_library()
{
    write_exports_map
    "${CC:-gcc}" "${COMMON_FLAGS[@]}" "${LTO_FLAGS[@]}" "${GLUE_FLAGS[@]}" \
        "-DIMAS_ALLOCATOR_NAME=\"$name $version\"" "-I$ALLOCATORS/glue" "${GLUE_DEFINES[@]}" \
        -c "$ALLOCATORS/glue/${glue[0]}" -o family.o
    "${CC:-gcc}" "${COMMON_FLAGS[@]}" "${GLUE_FLAGS[@]}" -D_GNU_SOURCE -c "$ALLOCATORS/glue/kernel.c" -o kernel.o
    "${CC:-gcc}" "${COMMON_FLAGS[@]}" "${GLUE_FLAGS[@]}" -D_GNU_SOURCE -c "$ALLOCATORS/../hook/loaded.c" -o loaded.o
    "${CC:-gcc}" "${COMMON_FLAGS[@]}" "${GLUE_FLAGS[@]}" -D_GNU_SOURCE "${exports[@]/#/-DEXPORTS_}" \
        -c "$ALLOCATORS/glue/old_libc.c" -o old_libc.o
    "${CC:-gcc}" "${COMMON_FLAGS[@]}" "${LTO_FLAGS[@]}" "${LINK_FLAGS[@]}" -Wl,-soname,"lib$name.so" \
        family.o kernel.o loaded.o old_libc.o "$@" "${libraries[@]/#/-l}" -o "lib$name.so"
    check_library "lib$name.so"
}

# exports.map with the recipe's own names, in the current folder.
write_exports_map()
{
    local name names=''
    for name in "${exports[@]}"; do
        names+="        $name;\n"
    done
    sed "s/^    local:/$names&/" "$ALLOCATORS/glue/exports.map" >exports.map
}

# For sources in C++ whose library is linked by link_cxx_library.
CXX_FLAGS=(-fno-exceptions -fno-rtti -fno-threadsafe-statics)

# link_cxx_library [inputs and flags]: the same for an allocator in C++ (compiled without exceptions).
link_cxx_library()
{
    "${CXX:-g++}" "${COMMON_FLAGS[@]}" -std=gnu++17 "${CXX_FLAGS[@]}" -Wall -Wextra -Werror \
        "-DIMAS_ALLOCATOR_NAME=\"$name $version\"" -c "$ALLOCATORS/glue/cxx_runtime.cpp" -o cxx_runtime.o
    link_library "$@" cxx_runtime.o -l:libstdc++.a
}

# For source=system:SONAME: an empty library of that soname with the names in hooks, so that linking needs no package.
stub_library()
{
    local name
    for name in "${hooks[@]}"; do
        echo "void $name(void); void $name(void) {}"
    done >stub.c
    "${CC:-gcc}" -shared -fPIC -fno-builtin -Wl,-soname,"${source#system:}" stub.c -o "lib${libraries[0]}.so"
}

# A library that drags in libstdc++ costs a millisecond at every start of every program.
check_library()
{
    local dynamic
    dynamic=$(readelf -dW "$1")
    refuse_if "$(needed_by "$1" | grep -v '^ld-linux' | grep -vxF "$(printf 'lib%s\n' c "${libraries[@]}")")" . "$1 needs a library that it must not"
    refuse_if "$dynamic" 'TEXTREL' "$1 has text relocations"
    refuse_unless "$dynamic" 'FLAGS_1.*NOW' "$1 is not bound at load"
    refuse_unless "$dynamic" '\(SYMBOLIC\)|FLAGS .*SYMBOLIC' "$1 is not bound to itself"
    refuse_if "$(readelf -lW "$1")" 'GNU_STACK.*RWE' "$1 wants an executable stack"
    check_imports "$1"
    check_exports "$1"
}

# "libc" for libc.so.6, one a line.
needed_by()
{
    readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\.so.*\]/\1/p'
}

refuse_if()
{
    if grep -qE "$2" <<<"$1"; then
        echo "check: $3" >&2
        return 1
    fi
}

refuse_unless()
{
    if ! grep -qE "$2" <<<"$1"; then
        echo "check: $3" >&2
        return 1
    fi
}

# Only libc's versioned names. A weak one that nobody defines is a function silently not called (so
# glibc's pthread_atfork, which is not in libc.so, when the reference is weak).
check_imports()
{
    local imports
    imports=$("$(tool nm)" -D --undefined-only "$1" | awk '{ print $2 }' |
        grep -vxE '_ITM_.*|__gmon_start__|imas_replay_clock|_r_debug' | grep -vxF "$(printf '%s\n' none "${hooks[@]}")" || true)
    # Some processors have a relocation for it (TLSDESC) and import no function.
    [ "$loader_tls" = yes ] || refuse_if "$imports"$'\n'"$(readelf -rW "$1")" '^__tls_get_addr|TLSDESC' \
        "$1 reaches thread data through the loader"
    # Other libraries' names are bound by the linker, which leaves nothing undefined.
    refuse_if "$(grep -vE '@(GLIBC_2|GLIBCXX_|CXXABI_|GCC_)' <<<"$imports")" '.' "$1 refers to what no library has"
}

# A tool of the compiler's own machine.
tool()
{
    "${CC:-gcc}" -print-prog-name="$1"
}

# The processor that the compiler makes code for: x86_64, aarch64.
machine()
{
    "${CC:-gcc}" -dumpmachine | cut -d- -f1
}

# for_machine MACHINE FLAGS: the flags where the compiler makes code for that machine.
for_machine()
{
    [ "$(machine)" != "$1" ] || echo "${@:2}"
}

# Exactly the names of write_exports_map: one missing means glibc's heap would answer for it, one more could
# replace something in the program.
check_exports()
{
    local wanted found
    wanted=$(sed -n '/global:/,/local:/p' exports.map | grep -oE '[a-z_0-9]+;' | tr -d ';' | sort)
    found=$("$(tool nm)" -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sort)
    if [ "$wanted" != "$found" ]; then
        echo "check: $1 exports other names than exports.map and its recipe say:" >&2
        diff <(echo "$wanted") <(echo "$found") >&2
        return 1
    fi
}
