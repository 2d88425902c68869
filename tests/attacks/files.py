# SPDX-License-Identifier: Apache-2.0
"""A known program is replaced by another kind of file at its path."""

from harness import TIMEOUT_S, Failed, run


def becomes_a_trial_and_is_replaced(world, name, replacement):
    """The path of Mallory's program changes to another kind of file during a trial. The trial ends, and imasd
    judges it."""
    path, _ = world.notice("mallory", name)
    trial = world.under_trial("mallory", path, "1000")
    world.shell("mallory", f'rm "$1" && {replacement}', path)
    world.kill(trial)
    world.serves(name)
    return path


def tools_of_root_answer(world):
    for words in [["status"], ["show", "--system"]]:
        try:
            done = run("imas", *words, timeout=TIMEOUT_S)
        except Exception as why:
            raise Failed(f"imas {' '.join(words)} of root: {why}") from None
        world.expect("root's tool ends by itself", done.returncode in (0, 1), done)


def a_fifo_in_place_of_a_program(world):
    path = becomes_a_trial_and_is_replaced(world, "fifo", 'mkfifo "$1"')
    tools_of_root_answer(world)
    for number, in world.rows("SELECT id FROM program WHERE path = ?", str(path)):
        done = run("imas", "explain", "--system", number, timeout=TIMEOUT_S)
        world.expect("explain ends by itself", done.returncode in (0, 1, 2), done)
    world.expect("imasd ends when it is to", world.stop() == 0)
    world.start()
    world.serves("fifo-restart")


def a_folder_in_place_of_a_program(world):
    becomes_a_trial_and_is_replaced(world, "folder", 'mkdir "$1"')
    tools_of_root_answer(world)


def a_link_to_a_device_in_place_of_a_program(world):
    becomes_a_trial_and_is_replaced(world, "device", 'ln -s /dev/tty "$1"')
    tools_of_root_answer(world)


def a_socket_in_place_of_a_program(world):
    listen = 'python3 -c "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])" "$1"'
    becomes_a_trial_and_is_replaced(world, "socket", listen)


ATTACKS = [
    a_fifo_in_place_of_a_program,
    a_folder_in_place_of_a_program,
    a_link_to_a_device_in_place_of_a_program,
    a_socket_in_place_of_a_program,
]
