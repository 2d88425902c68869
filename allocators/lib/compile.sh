#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile.sh COMPILER FLAGS... -- OBJECT FILE: one compilation, for xargs. Through ccache where it is installed: a
# change of the glue then costs a link, not minutes.
set -eu
command=$(command -v ccache || true)
while [ "$1" != -- ]; do
    # Flags carry no newline and no single quote (they are ours).
    command="$command '$1'"
    shift
done
shift
eval "exec $command" '-c "$2" -o "$1"'
