# SPDX-License-Identifier: Apache-2.0
"""Names that others may give: of services."""

import contextlib
import ctypes
import os
import pathlib
import tempfile

from harness import TIMEOUT_S, Skipped, run, until

GROUPS = [pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/systemd")]
MANAGER = "user.slice/user-2001.slice/user@2001.service"
# Each holds a service of that name, and none of these is the system's.
PLACES = [f"{MANAGER}/app.slice/cron.service", f"{MANAGER}/cron.service", f"{MANAGER}/app.slice/a.service/cron.service",
          f"{MANAGER}/app.slice/a.scope/cron.service", "user.slice/user-2001.slice/session-1.scope/cron.service",
          "system.slice/docker-1.scope/system.slice/cron.service", "system.slice/a.service/cron.service"]
SYSTEM = "system.slice/cron.service"
# What the service manager says, which does not run in these namespaces; tests/machine has the real one.
SYSTEMCTL = """#!/bin/sh
echo "$*" >>/tmp/systemctl.log
case $* in
list-units*) echo cron.service ;;
*LoadState*) printf 'LoadState=loaded\\nMainPID=%s\\nControlGroup=/system.slice/cron.service\\n' "$(cat /tmp/main-pid)" ;;
esac
"""


@contextlib.contextmanager
def groups(names):
    """Makes control groups where systemd keeps processes, in a namespace of their own, and removes them."""
    top = next((top for top in GROUPS if (top / "cgroup.procs").exists()), None)
    if top is None:
        raise Skipped("there are no control groups of systemd here")
    try:
        own = pathlib.Path(tempfile.mkdtemp(prefix="imas-attacks-", dir=top))
        (own / "cgroup.procs").write_text("0")
        if ctypes.CDLL(None).unshare(0x02000000) != 0:  # CLONE_NEWCGROUP
            raise Skipped("no namespace of control groups can be made here")
    except OSError as why:
        raise Skipped(f"no control group can be made here: {why}") from None
    try:
        for name in names:
            (own / name).mkdir(parents=True, exist_ok=True)
        yield own
    finally:
        (top / "cgroup.procs").write_text("0")
        for folder, _, _ in os.walk(own, topdown=False):
            until(lambda folder=folder: not (pathlib.Path(folder) / "cgroup.procs").read_text(), TIMEOUT_S)
            os.rmdir(folder)


def begin(world, top, user, group):
    """A process of the user in that group, which holds much free memory."""
    process = world.holds_free(user, 100000)
    (top / group / "cgroup.procs").write_text(str(process.pid))
    return process


def units_of_others_by_a_name_of_the_systems(world):
    """Mallory's services are called as one of the system: root changes, restarts and trims the system's for none of them."""
    systemctl, log = pathlib.Path("/usr/bin/systemctl"), pathlib.Path("/tmp/systemctl.log")
    systemctl.unlink(missing_ok=True)
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    drop_in = pathlib.Path("/etc/systemd/system/cron.service.d")
    with groups([*PLACES, SYSTEM]) as top:
        own, theirs = world.as_user("root", "/usr/bin/sleep", "1000"), []
        try:
            pathlib.Path("/tmp/main-pid").write_text(str(own.pid))
            (top / SYSTEM / "cgroup.procs").write_text(str(own.pid))
            theirs.extend(begin(world, top, "mallory", place) for place in PLACES)
            log.write_text("")
            said = run("imas", "apply", "--auto", "--write", timeout=TIMEOUT_S)
            asked = log.read_text()
            world.expect("nothing is written for them", not drop_in.exists() and "restart" not in asked, said.stderr + asked)
            world.expect("the system's was looked at", "show" in asked, asked)
            advice = run("imas", "advise", timeout=TIMEOUT_S).stdout
            world.expect("all are advised of", all(str(process.pid) in advice for process in theirs), advice)
            world.expect("root is not told to change the system's", "imas apply cron.service" not in advice, advice)
            world.expect("a user's is shown as that user's", advice.count("cron.service of user 2001 (") == 2, advice)
            trimmed = run("imas", "trim", "cron", "--json", timeout=TIMEOUT_S)
            pids = [str(process.pid) for process in theirs if str(process.pid) in trimmed.stdout]
            world.expect("they are not asked to give back as the system's", not pids, trimmed.stdout)
            # The other side: what is true of the system's own is still found.
            world.kill(own)
            own = begin(world, top, "root", SYSTEM)
            pathlib.Path("/tmp/main-pid").write_text(str(own.pid))
            said = run("imas", "apply", "--auto", timeout=TIMEOUT_S)
            world.expect("the system's own is still found", "cron.service: " in said.stderr and "that a trim returns" in said.stderr, said.stderr)
        finally:
            for process in [own, *theirs]:
                world.kill(process)


ATTACKS = [units_of_others_by_a_name_of_the_systems]
