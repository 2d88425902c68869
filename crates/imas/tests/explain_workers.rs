// SPDX-License-Identifier: Apache-2.0
//! `imas explain` of a program that forks its workers without exec: they cannot get different candidates.

use crate::support::{World, output, piped, real, stdout, succeeded, wait_until};

const FORKS: &str = "
import os, sys
r, w = os.pipe()
if os.fork() == 0:
    os.close(w)
    os.read(r, 1)
    os._exit(0)
print('x', flush=True)
sys.stdin.read()
os.close(w)
os.wait()
";

#[test]
fn workers_that_only_fork_are_counted() {
    let world = World::new();
    let script = world.work().join("server.py");
    std::fs::write(&script, format!("#!{}\n{FORKS}", real("python3").display())).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    succeeded(output(world.imas(["pin"]).arg(&script).arg("hoard")));
    let explain = || stdout(&output(world.imas(["explain"]).arg(&script)));
    assert!(!explain().contains("workers"), "no worker runs");
    let server = piped::start(world.command(real("python3")).arg(&script));
    // On a busy machine the time for looks at processes may be over before both were looked at.
    let counted = "1 of its 2 running processes are workers that were forked";
    wait_until("both are looked at", || explain().contains(counted));
    piped::end(server);
}
