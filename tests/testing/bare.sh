# SPDX-License-Identifier: Apache-2.0
# A Debian that has nothing of ours, for tests in shell that source it after checks.sh. It is made once, in the user's cache:
# that needs root, debootstrap and the network.
# shellcheck shell=sh disable=SC2154 # root

skip() { # WHY: what needs the Debian is not tried
    echo "SKIPPED: $bare_test: $1"
    finish "$bare_test"
    exit 0
}

# bare NAME: sets $bare to the folder of the Debian; without it the test NAME ends as skipped.
bare() {
    bare_test=$1
    [ "$(id -u)" -eq 0 ] || skip 'root alone can make a bare Debian'
    command -v debootstrap >/dev/null 2>&1 || skip 'debootstrap is not installed'
    # shellcheck disable=SC2016 # apt is to replace it
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
    [ -n "$mirror" ] || skip 'apt knows no mirror of Debian'
    cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/imas
    bare=$cache/bare-bookworm
    mkdir -p "$cache"
    exec 9>"$cache/bare.lock"
    flock 9
    if [ ! -e "$bare/.complete" ]; then
        rm -rf "$bare"
        debootstrap --variant=minbase bookworm "$bare" "$mirror" >"$bare.log" 2>&1 9>&- || skip "debootstrap failed, see $bare.log"
        : >"$bare/.complete"
    fi
    exec 9>&-
}

# inside ROOT WORD...: a command in the root, in namespaces of its own; the words may begin with NAME=VALUE.
inside() {
    # shellcheck disable=SC2016 # the inner shell replaces them
    unshare --mount --pid --fork sh -c 'root=$1; shift; mount -t proc proc "$root/proc" && exec chroot "$root" /usr/bin/env -i "$@"' sh "$@"
}
