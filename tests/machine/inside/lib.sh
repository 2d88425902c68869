# SPDX-License-Identifier: Apache-2.0
# Functions for the steps of the machine test. A step runs as root in the booted machine, writes one line for
# each check into /imas-test/results, and ends with `finished`; a step without that line did not end normally.
# shellcheck shell=sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root
cd /imas-test || exit 2

ok() { printf 'ok\t%s\n' "$1" >>results; }
no() { printf 'no\t%s\t%s\n' "$1" "$(printf %s "$2" | tail -n 12 | tr '\n\t' '| ')" >>results; }
note() { printf 'note\t%s\n' "$1" >>results; }
skip() { printf 'skip\t%s\t%s\n' "$1" "$2" >>results; }
finished() { printf 'end\n' >>results; }

# check NAME COMMAND...: the command must succeed.
check() {
    check_name=$1
    shift
    if "$@" >output 2>&1 </dev/null; then ok "$check_name"; else no "$check_name" "exit $?: $* :: $(cat output)"; fi
}

# refute NAME COMMAND...: the command must fail.
refute() {
    check_name=$1
    shift
    if "$@" >output 2>&1 </dev/null; then no "$check_name" "succeeded: $* :: $(cat output)"; else ok "$check_name"; fi
}

# silent NAME COMMAND...: the command must succeed and write nothing to standard error.
silent() {
    check_name=$1
    shift
    if "$@" >output 2>errors </dev/null && [ ! -s errors ]; then ok "$check_name"; else no "$check_name" "$* :: $(cat errors output)"; fi
}

# same NAME FILE FILE: byte for byte.
same() {
    if cmp -s "$2" "$3"; then ok "$1"; else no "$1" "$(diff "$2" "$3" 2>&1 | head -n 20)"; fi
}

# until_true SECONDS COMMAND...: waits until the command succeeds; on a busy machine, six times as long, on an emulated
# one IMAS_TEST_SLOWNESS times that.
until_true() {
    until_left=$(($1 * 30 * ${IMAS_TEST_SLOWNESS:-1}))
    shift
    until "$@" >/dev/null 2>&1; do
        until_left=$((until_left - 1))
        [ "$until_left" -gt 0 ] || return 1
        sleep 0.2
    done
}

# The state of /etc/ld.so.preload as one text: kind, owner and content.
preload_state() {
    if [ -e /etc/ld.so.preload ]; then
        stat -c '%F %a %U:%G' /etc/ld.so.preload
        od -An -tx1 </etc/ld.so.preload
    else
        echo absent
    fi
}

# Every file that a package may leave behind. Logs, caches, dpkg's own records and files that last only until
# the next boot change without us.
tree() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /imas-test -o -path /var/log \
        -o -path /var/cache -o -path /var/tmp -o -path /var/lib/dpkg -o -path /var/lib/systemd -o -path /var/lib/postgresql -o -path /var/lib/redis \
        -o -path /root \) -prune -o -printf '%y %m %u:%g %p %l\n' | LC_ALL=C sort
}
