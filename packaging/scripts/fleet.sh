# SPDX-License-Identifier: Apache-2.0
# Functions for installing and removing imas-fleet; packaging/package puts them in front of each of its scripts.

booted() { [ -d /run/systemd/system ] && command -v systemctl >/dev/null 2>&1; }

# The agent's user, the exchange folder and systemd's view of the unit. Starts and enables nothing.
prepare() {
    if command -v systemd-sysusers >/dev/null 2>&1; then
        systemd-sysusers imas.conf imas-fleet.conf || return 1
    fi
    if command -v systemd-tmpfiles >/dev/null 2>&1; then
        systemd-tmpfiles --create imas-fleet.conf || return 1
    fi
    ! booted || systemctl daemon-reload || true
}

# After an upgrade: an agent that runs is the old program.
renew() { ! booted || systemctl try-restart imas-fleet.service || true; }

stop_agent() { ! booted || systemctl disable --quiet --now imas-fleet.service 2>/dev/null || true; }

forget_unit() { ! booted || systemctl daemon-reload || true; }

# Messages that wait, statistics that were received, and the settings. Certificates stay: they are the operator's.
clear_exchange() { rm -rf /var/lib/imas/fleet /etc/imas/fleet.toml; }
