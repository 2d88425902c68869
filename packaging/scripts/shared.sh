# SPDX-License-Identifier: Apache-2.0
# Functions for installing and removing; packaging/package puts them in front of each deb and rpm script. They
# use only builtins of sh and our static tools where a broken preload may keep the machine's programs from
# starting.

entry='/run/imas/$LIB/libimas-preload.so'
units='imas-serve.service imasd.service imas-boot.service imas-emergency.path imas-emergency.service run-imas-state-u.mount'

booted() { [ -d /run/systemd/system ] && command -v systemctl >/dev/null 2>&1; }

# Is the entry in /etc/ld.so.preload?
enabled() {
    [ -r /etc/ld.so.preload ] || return 1
    while IFS= read -r line || [ -n "$line" ]; do
        case ${line%%#*} in *"$entry"*) return 0 ;; esac
    done </etc/ld.so.preload
    return 1
}

# The user, the folders and systemd's view of the units. Starts and enables nothing.
prepare() {
    if [ -e /usr/lib/sysusers.d/imas.conf ] && command -v systemd-sysusers >/dev/null 2>&1; then
        systemd-sysusers imas.conf || return 1
    fi
    if [ -e /usr/lib/tmpfiles.d/imas.conf ] && command -v systemd-tmpfiles >/dev/null 2>&1; then
        systemd-tmpfiles --create imas.conf || return 1
    fi
    # Without these links, children of another libc or width still start, with messages of the loader or not
    # at all (docs/decisions/0020).
    sh /usr/lib/imas/link-preload /usr/lib/imas || true
    ! booted || systemctl daemon-reload || true
}

# After an upgrade: what runs is the old program. On an enabled machine root approved the old files. The new ones are
# tested as at boot, which approves them or takes the entry out. Then the new daemon is started.
renew() {
    if enabled; then
        imas system boot ||
            echo "imas: warning: the new version did not pass its checks here; programs start untouched ('imas system verify' shows why)" >&2
        ! booted || systemctl try-restart imasd.service || true
    fi
    ! booted || systemctl try-restart imas-serve.service || true
}

# Ends the watches of `imas apply --watch`: the program of their units is about to go. The drop-ins stay.
end_watches() {
    for watcher in /etc/systemd/system/imas-watch-*.service; do
        [ -e "$watcher" ] || [ -L "$watcher" ] || continue
        ! booted || systemctl disable --quiet --now -- "${watcher##*/}" 2>/dev/null || true
        rm -f "$watcher" "/etc/systemd/system/multi-user.target.wants/${watcher##*/}"
    done
}

# Drop-ins of `imas apply` go on without the package: they name a library that is about to go.
name_drop_ins() {
    for drop_in in /etc/systemd/system/*.d/50-imas.conf; do
        [ -e "$drop_in" ] || continue
        echo "imas: $drop_in stays; to end it: remove it, systemctl daemon-reload, restart its unit" >&2
    done
}

# Before the files are removed, no entry may name them. Fails if the entry cannot be taken out, so that the
# files stay.
take_out() {
    if enabled && ! /usr/sbin/imas-ldpreload remove "$entry"; then
        echo "imas: the package is not removed: /etc/ld.so.preload still names $entry" >&2
        echo "hint: take that entry out of the file (is it immutable? lsattr /etc/ld.so.preload), then try again" >&2
        return 1
    fi
    if booted; then
        # shellcheck disable=SC2086 # a list of words is meant
        systemctl disable --quiet --now $units 2>/dev/null || true
    fi
    end_watches
    name_drop_ins
    rm -rf /usr/lib/imas/preload
    return 0
}

# After the files are removed: removes what would last until the next boot, pages of running trials included.
# What was learned stays.
clear_run() {
    rm -rf /run/imas || true # a mount that is still in use disappears at the next boot
    ! booted || systemctl daemon-reload || true
}

# Configuration and everything that was learned. The user imas stays: a backup may hold files of this user.
clear_all() {
    end_watches
    rm -rf /etc/imas /var/lib/imas /var/lib/imas-watch /var/cache/imas
    rm -rf /run/imas || true
}
