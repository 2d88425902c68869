# SPDX-License-Identifier: Apache-2.0
# What the packages do around installing and removing; put in front of each deb and rpm script by packaging/package.
# Builtins of sh and our static tools only, wherever the machine's programs may be failing because of a broken preload.

entry='/run/imas/$LIB/libimas-preload.so'
units='imasd.service imas-boot.service imas-emergency.path imas-emergency.service run-imas-state-u.mount'

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
    # Without these links, children of another libc or width start as well as they did before there were any.
    sh /usr/lib/imas/link-preload /usr/lib/imas || true
    ! booted || systemctl daemon-reload || true
}

# After an upgrade on a machine where it is enabled: what root approved were the old files. The new ones are looked at as at
# boot, which approves them or takes the entry out; then the daemon is the new one.
renew() {
    enabled || return 0
    imas system boot ||
        echo "imas: warning: the new version did not pass its checks here; programs start untouched ('imas system verify' says why)" >&2
    ! booted || systemctl try-restart imasd.service || true
}

# Before the files go: nothing may name them any more. Fails, so that the files stay, when the entry cannot be taken out.
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
    rm -rf /usr/lib/imas/preload
    return 0
}

# After the files went: what lives until the next boot. Pages of running trials go with it; what was learned stays.
clear_run() {
    rm -rf /run/imas || true # a mount that is still in use goes with the boot
    ! booted || systemctl daemon-reload || true
}

# Configuration and everything that was learned. The user imas stays: a file of its may be in a backup.
clear_all() {
    rm -rf /etc/imas /var/lib/imas
    rm -rf /run/imas || true
}
