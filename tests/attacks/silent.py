# SPDX-License-Identifier: Apache-2.0
"""Names that lead where nothing answers: to a FUSE file system of Mallory's, or through the memory of a process that holds
its lock. Each way to name such a file has a process of its own, and every verb of root's that looks at processes or at the
programs of the machine's store ends all the same. How long each took is printed."""

import http.client
import os
import pathlib
import signal
import subprocess
import threading
import time

from harness import SLOWNESS, Skipped, fields_of, maps, run
from processes import HOLDS, SILENT, fuse_device
from units import SYSTEMCTL, groups

FOLDER = "/home/mallory/silent"
FLAG = pathlib.Path("/tmp/silent-now")
# Numbers of nanosleep and clock_nanosleep.
NANOSLEEP = {"x86_64": ("35", "230"), "aarch64": ("101", "115")}[os.uname().machine]
# A verb may start a helper, which is given up after a second without an answer, and look at 64 processes.
MOST_S = 20
PORT = 4628
OUTPUT = pathlib.Path("/tmp/verbs")
# Maps the files that are named, and waits.
MAPS = """
import mmap, os, sys, time
held = [mmap.mmap(os.open(name, os.O_RDONLY), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) for name in sys.argv[1:]]
print("mapped", flush=True)
time.sleep(1000)
"""
# A container of Kubernetes, by the name of its group.
CONTAINER = "kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice/cri-containerd-" + "5" * 64 + ".scope"


# ---- what is silent ---------------------------------------------------------------------------------------------


def mount(world):
    """Mallory's file system, which falls silent as soon as FLAG is there."""
    device, output = fuse_device(), pathlib.Path("/tmp/silent")
    FLAG.unlink(missing_ok=True)
    run("umount", "--lazy", FOLDER)  # of the attack before
    world.shell("mallory", f"cd; chmod 755 .; mkdir -p {FOLDER}")
    with open(output, "wb") as written:
        words = ["/usr/bin/python3", "-c", SILENT, device, FOLDER, "/usr/bin/sleep", FLAG]
        world.as_user("root", *words, stdout=written, stderr=written)
    if not world.holds(20, lambda: "mounted" in output.read_text()):
        raise Skipped(f"no FUSE file system can be mounted here: {output.read_text()[-200:]}")


def started(world, *words, executable=None, **more):
    """A process of Mallory's that sleeps."""
    process = world.as_user("mallory", *words, executable=executable, **more)
    name = pathlib.Path(executable or words[0]).name
    world.wait(f"{name} sleeps", lambda: state_of(process.pid) == "S")
    return process


def state_of(pid):
    return (fields_of(pathlib.Path(f"/proc/{pid}/stat")) or ["Z"])[0]


def is_in_nanosleep(pid):
    """Whether the process is in time.sleep, and no longer reads its script."""
    try:
        return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] in NANOSLEEP
    except OSError:
        return False


def with_output(world, name, words):
    """A process of Mallory's that has said that it is ready, by that word."""
    output = pathlib.Path(f"/tmp/{name}")
    with open(output, "wb") as written:
        process = world.as_user("mallory", *words, stdout=written, stderr=written)
    if not world.holds(20, lambda: name in output.read_text()):
        raise Skipped(f"it is not {name}: {output.read_text()[-200:]}")
    return process


# ---- the verbs --------------------------------------------------------------------------------------------------


def with_a_service(pid):
    """A service manager that says that this process is the main one of a service."""
    systemctl = pathlib.Path("/usr/bin/systemctl")
    systemctl.unlink(missing_ok=True)
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    pathlib.Path("/tmp/main-pid").write_text(str(pid))


def verbs(pid, numbers):
    """The verbs that look at running processes, and those that look at the programs of the machine's store."""
    of_processes = [["explain", "--pid", pid], ["trim", pid], ["trim", "cron"], ["advise"], ["top", "--once"], ["status"], ["doctor"],
                    ["apply", "--auto"], ["apply", "cron", "--candidate", "jemalloc"]]
    of_the_store = [["advise", "--system"], ["top", "--once", "--system"], ["show", "--system"],
                    ["report", "--system", "--html", "/tmp/report.html"], *(["explain", "--system", number] for number in numbers)]
    return of_processes + of_the_store


def all_end(world, kind, pid, extra=()):
    """Starts all verbs beside one another. Each ends in time, the server of pages too."""
    numbers = [number for number, in world.rows("SELECT id FROM program WHERE path LIKE '/home/mallory/%'")][:2]
    with_a_service(pid)
    OUTPUT.mkdir(exist_ok=True)
    begun = time.monotonic()
    running = {" ".join(map(str, words)).replace(str(pid), "PID"): begin("imas", *words) for words in [*verbs(pid, numbers), *extra]}
    server = begin("imas-serve", "--listen", f"127.0.0.1:{PORT}")
    took = {}
    asking = threading.Thread(target=ask, args=(took, begun))
    asking.start()
    while time.monotonic() < begun + MOST_S * SLOWNESS and len(took) <= len(running):
        ended = [name for name, process in running.items() if name not in took and process.poll() is not None]
        took.update((name, time.monotonic() - begun) for name in ended)
        time.sleep(0.02)
    asking.join()
    server.send_signal(signal.SIGTERM)
    is_over = world.holds(MOST_S, lambda: server.poll() is not None)
    hang = [name for name in [*running, "serve"] if name not in took] + ([] if is_over else ["the end of serve"])
    each = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in sorted(took.items(), key=lambda one: one[1]))
    print(f"  {kind}: {each}", flush=True)
    for process in [*running.values(), server]:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # what waits in the kernel ends with the file system
            world.others.append(process)
    world.expect(f"all {len(running) + 1} verbs of root's end within {MOST_S} s", not hang, f"these do not: {', '.join(hang)}")


def begin(*words):
    """The command of root's, whose output nobody waits for."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    with open(OUTPUT / "-".join(str(word).strip("/").replace("/", "-") for word in words), "wb") as written:
        return subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=written, stderr=written, env=environment,
                                cwd="/", start_new_session=True)


def ask(took, begun):
    """Asks the server of pages until it gives one."""
    while time.monotonic() < begun + MOST_S * SLOWNESS:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=MOST_S * SLOWNESS)
        try:
            connection.request("GET", "/metrics")
            if connection.getresponse().status == 200:
                took["serve"] = time.monotonic() - begun
                return
        except OSError:
            time.sleep(0.05)  # it does not listen yet
        finally:
            connection.close()


# ---- the attacks ------------------------------------------------------------------------------------------------


def argv_0(world):
    """The name by which a process says that it was started."""
    mount(world)
    process = started(world, f"{FOLDER}/program", "1000", executable="/usr/bin/sleep")
    FLAG.touch()
    all_end(world, "argv[0]", process.pid)


def argv_0_in_the_memory_of_another(world):
    """A path below /proc/PID/map_files is looked up under the lock of that process's memory."""
    world.shell("mallory", "mkdir -p ~/held")
    holder = with_output(world, "held", ["/usr/bin/python3", "-c", HOLDS, fuse_device(), "/home/mallory/held"])
    process = started(world, f"/proc/{holder.pid}/map_files/1000-2000", "1000", executable="/usr/bin/sleep")
    all_end(world, "argv[0] in held memory", process.pid, [["explain", "--pid", holder.pid]])


def executable(world):
    """What a process runs. imasd knows it: it is a program of the machine's store."""
    mount(world)
    process = started(world, f"{FOLDER}/program", "1000")
    world.wait("the program is known", lambda: f"{FOLDER}/program" in world.known())
    FLAG.touch()
    all_end(world, "executable", process.pid)


def mapped_library(world):
    """What a process has mapped, as its loader does with a library."""
    mount(world)
    process = with_output(world, "mapped", ["/usr/bin/python3", "-c", MAPS, f"{FOLDER}/liba.so"])
    FLAG.touch()
    all_end(world, "mapped library", process.pid)


def mapped_page(world):
    """What a process has mapped, as one in a trial does with its page."""
    mount(world)
    process = with_output(world, "mapped", ["/usr/bin/python3", "-c", MAPS, f"{FOLDER}/libimas.so", f"{FOLDER}/a.page"])
    FLAG.touch()
    all_end(world, "mapped page", process.pid)


def working_directory(world):
    """A script that is named from where its process is."""
    mount(world)
    process = started(world, "/bin/sh", "-c", f"cd {FOLDER} && exec /usr/bin/python3 a.py")
    world.wait("it is there", lambda: os.readlink(f"/proc/{process.pid}/cwd") == FOLDER and state_of(process.pid) == "S")
    world.wait("Python has read it", lambda: is_in_nanosleep(process.pid))
    FLAG.touch()
    all_end(world, "working directory", process.pid)


def script(world):
    """A script that an interpreter runs."""
    mount(world)
    process = started(world, "/usr/bin/python3", f"{FOLDER}/a.py")
    world.wait("the script is known", lambda: world.rows("SELECT 1 FROM program WHERE detail = ?", f"{FOLDER}/a.py"))
    FLAG.touch()
    all_end(world, "script", process.pid)


def preload(world):
    """A library that a process was asked to preload."""
    mount(world)
    other = "/usr/lib/imas/allocators/libjemalloc.so"  # the order of two matters
    process = started(world, "/usr/bin/sleep", "1000", env={"LD_PRELOAD": f"{FOLDER}/none:{other}"})
    world.wait("the allocator is mapped", lambda: other.encode() in maps(process.pid))
    FLAG.touch()
    all_end(world, "LD_PRELOAD", process.pid)


def container(world):
    """The same in a container of Kubernetes: a look at a node."""
    mount(world)
    with groups([CONTAINER]) as top:
        process = started(world, f"{FOLDER}/program", "1000")
        try:
            (top / CONTAINER / "cgroup.procs").write_text(str(process.pid))
            FLAG.touch()
            all_end(world, "container", process.pid, [["kube", "node", "--advise"], ["kube", "node", "--json"]])
        finally:
            world.kill(process)


ATTACKS = [argv_0, argv_0_in_the_memory_of_another, executable, mapped_library, mapped_page, working_directory, script, preload, container]
