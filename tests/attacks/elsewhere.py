# SPDX-License-Identifier: Apache-2.0
"""A system program mounted at another path, in the user's own namespace."""

import pathlib
import shutil

# In their own user namespace users may mount: here a system file at another path.
BIND = 'touch "$2" && exec unshare --user --map-root-user --mount sh -c \'mount --bind "$1" "$2" && exec "$2" 1000\' sh "$1" "$2"'


def system_program(name):
    """A program of root's that was never run."""
    path = pathlib.Path("/usr/bin") / name
    shutil.copy("/usr/bin/sleep", path)
    return path


def taken_in(world, path):
    root = world.as_user("root", path, "1000")
    world.wait(f"root's {path} becomes known", lambda: str(path) in world.known())
    world.kill(root)


def a_new_system_program_bind_mounted_elsewhere(world):
    path = system_program("new-in-the-system")
    world.shell("mallory", "unshare --user --map-root-user --mount true")
    process = world.as_user("mallory", "/bin/sh", "-c", BIND, "sh", path, "/home/mallory/elsewhere")
    still_eligible(world, path, process)


def a_new_system_program_under_an_excluded_name(world):
    """sshd is on the list of exclusions, which match names."""
    path = system_program("newer-in-the-system")
    world.shell("mallory", "mkdir bin")
    process = world.as_user("mallory", "/bin/sh", "-c", BIND, "sh", path, "/home/mallory/bin/sshd")
    still_eligible(world, path, process)


def still_eligible(world, path, process):
    """imasd has seen the process of that system program, which runs elsewhere, and root's program is eligible."""
    world.wait("it runs there", lambda: executable_of(process) == path.stat().st_ino)
    world.notice("mallory", "looked-at-since")
    world.expect("it runs on", process.poll() is None)
    taken_in(world, path)


def executable_of(process):
    try:
        return pathlib.Path(f"/proc/{process.pid}/exe").stat().st_ino
    except OSError:
        return None


ATTACKS = [a_new_system_program_bind_mounted_elsewhere, a_new_system_program_under_an_excluded_name]
