# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# nedmalloc, as git carries it. Any git of the distribution will do: the files are old and checked here.
version=1.05
source=debian:git
glue=(nedmalloc.c nedmalloc_unit.c shifted_chunk.h thread_end.h)
build_seconds=8

build()
{
    local folder=$SOURCE/compat/nedmalloc
    (cd "$folder" && sha256sum --check --quiet) <<'END'
314d2839b11d1d89acd65ea7219aa9a6e37c25ed9a336c52a442e895c4c974cc  nedmalloc.c
f8fd88e11c0949a0cc91b1289acbf47410b119e7de3e00c031212cc26143b473  nedmalloc.h
46e81189ec1d42351316c2d07515cedcbbba01d9414e4639be1a9ed83326d5f1  malloc.c.h
END
    # Caches are handed back by threads that end (glue), so that 4,096 suffice. The name with _np is for programs that
    # were linked long ago, and is missing on younger machines.
    compile_c -std=gnu99 -DMALLOC_ALIGNMENT=16 -DNO_MALLINFO=1 -DNO_MALLOC_STATS=1 -DTHREADCACHEMAXCACHES=4096 \
        -Dpthread_mutexattr_setkind_np=pthread_mutexattr_settype \
        "-DNEDMALLOC_SOURCE=\"$folder/nedmalloc.c\"" "-I$folder" -- "$ALLOCATORS/glue/nedmalloc_unit.c"
    link_library "${OBJECTS[@]}"
}
