# SPDX-License-Identifier: Apache-2.0
# The harness of the tests in shell, which source it with `root` set to a temporary folder: checks and their counts.
# shellcheck shell=sh disable=SC2154 # root
passed=0 failed=0 began=$(date +%s)

check() { # NAME COMMAND...
    name=$1
    shift
    if "$@" >"$root/output" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
        cat "$root/output"
    fi
}

finish() { # NAME: prints the counts; fails if a check did
    echo "$1: $passed passed, $failed failed, $(($(date +%s) - began)) s"
    [ "$failed" -eq 0 ]
}
