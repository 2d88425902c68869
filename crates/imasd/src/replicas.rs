// SPDX-License-Identifier: Apache-2.0
//! How many instances of a program live side by side: workers of a service that are started one by one,
//! instances of a template unit.
//!
//! Such a program may have several trials at the same time, each under another candidate. They are then
//! compared under the same load, and one restart of all instances gives an answer. Programs that end soon
//! have one trial at a time: their next start is soon.

use std::time::{Duration, Instant};

use imas_linux::running::is_copy_of_its_parent;
use imas_linux::standstill::age_s;

use crate::process_info::{Identity, is_running};

/// Instances that were started within this time are replicas of each other.
const TOGETHER: Duration = Duration::from_secs(3600);
/// Number of processes that are remembered.
const MOST: usize = 16;

/// Processes of one program.
#[derive(Debug, Default, Clone)]
pub(crate) struct Replicas {
    seen: Vec<(Identity, Instant)>,
    /// The most that were seen side by side and had lived long enough, and when.
    side_by_side: Option<(usize, Instant)>,
}

impl Replicas {
    /// A process of the program was seen. One that was forked without exec does not count: it has its
    /// parent's allocator.
    pub(crate) fn note(&mut self, identity: Identity) {
        if self.seen.iter().any(|(known, _)| *known == identity) || is_copy_of_its_parent(identity.pid) {
            return;
        }
        self.seen.retain(|(known, _)| is_running(*known));
        if self.seen.len() == MOST {
            self.seen.remove(0);
        }
        self.seen.push((identity, Instant::now()));
    }

    /// Replicas that live.
    pub(crate) fn living(&self) -> impl Iterator<Item = Identity> {
        self.seen.iter().map(|(identity, _)| *identity).filter(|identity| is_running(*identity))
    }

    /// Whether several processes of the program were seen, however young.
    pub(crate) fn are_possible(&self) -> bool {
        self.seen.len() >= 2
    }

    /// Number of replicas that are side by side, or were within the last hour, and had lived for `least_s` or
    /// longer; 0 for a program that lives alone.
    pub(crate) fn count(&mut self, least_s: f64) -> usize {
        let is_old = |identity: &Identity| age_s(identity.start_ticks).is_some_and(|age_s| age_s >= least_s);
        let old = self.seen.iter().filter(|(identity, _)| is_running(*identity) && is_old(identity));
        let now = old.count();
        self.side_by_side = self.side_by_side.filter(|(most, at)| *most > now && at.elapsed() < TOGETHER);
        if self.side_by_side.is_none() && now >= 2 {
            self.side_by_side = Some((now, Instant::now()));
        }
        self.side_by_side.map_or(0, |(most, _)| most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_info::life;

    #[test]
    fn two_that_live_side_by_side_are_replicas_and_are_remembered() {
        let start = || imas_testing::Running(std::process::Command::new("sleep").arg("100").spawn().unwrap());
        let running = [start(), start()];
        running.iter().for_each(|process| imas_testing::wait_for_exec(&process.0));
        let identities = running.each_ref().map(|process| life(process.0.id()).unwrap().identity);
        let mut replicas = Replicas::default();
        replicas.note(identities[0]);
        replicas.note(identities[0]);
        assert_eq!(replicas.count(0.0), 0, "one");
        replicas.note(identities[1]);
        assert_eq!(replicas.count(1e6), 0, "too young");
        assert_eq!(replicas.count(0.0), 2);
        drop(running);
        assert_eq!(replicas.count(1e6), 2, "their restart is the occasion");
    }

    const FORKS: &str = "
import os, sys
r, w = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.close(w)
        os.read(r, 1)
        os._exit(0)
print('x', flush=True)
sys.stdin.read()
os.close(w)
os.wait()
os.wait()
";

    #[test]
    fn what_was_forked_without_exec_is_no_replica() {
        let piped = std::process::Stdio::piped;
        let mut command = std::process::Command::new("python3");
        let mut server = command.args(["-c", FORKS]).stdin(piped()).stdout(piped()).spawn().unwrap();
        std::io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let mut replicas = Replicas::default();
        replicas.note(life(server.id()).unwrap().identity);
        let is_child = |pid: &u32| parent(*pid) == Some(server.id());
        let all = procfs::process::all_processes().unwrap().flatten();
        let children: Vec<u32> = all.filter_map(|one| u32::try_from(one.pid).ok()).filter(is_child).collect();
        assert_eq!(children.len(), 2);
        children.iter().for_each(|pid| replicas.note(life(*pid).unwrap().identity));
        assert_eq!(replicas.count(0.0), 0);
        drop(server.stdin.take());
        server.wait().unwrap();
    }

    fn parent(pid: u32) -> Option<u32> {
        let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
        u32::try_from(process.stat().ok()?.ppid).ok()
    }
}
