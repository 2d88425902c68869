# SPDX-License-Identifier: Apache-2.0
"""Information about other users in what imasd publishes."""

from harness import STATE, run

READ_ALL = 'find /run/imas -type f -readable -exec cat {} + 2>/dev/null; true'


def paths_of_others_in_what_everybody_may_read(world):
    secret = world.program("alice", "secret-sshd")
    world.as_user("alice", secret, "1000")
    excluded = world.program("alice", "sshd")
    world.as_user("alice", excluded, "1000")
    world.wait("imasd knows the one", lambda: str(secret) in world.known())
    world.notice("alice", "secret-later")
    world.wait("root sees what is left alone", lambda: str(excluded) in run("imas", "status").stdout)
    world.expect("the public file has a count of them", world.status()["ineligible"] >= 1, world.status())
    seen = world.shell("mallory", READ_ALL)
    world.expect("mallory reads nothing of alice's", "alice" not in seen and "secret" not in seen, seen[:300])
    world.expect("the details are root's", (STATE / "ineligible.json").stat().st_mode & 0o077 == 0)
    for words in [["status"], ["status", "--json"]]:
        done = world.run_as("mallory", "/usr/bin/imas", *words)
        world.expect("the tools show mallory nothing of alice's", "/home/alice/s" not in done.stdout + done.stderr, done.stdout)


ATTACKS = [paths_of_others_in_what_everybody_may_read]
