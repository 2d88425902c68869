// SPDX-License-Identifier: Apache-2.0
//! Divides the CPUs between server and load.

use imas_core::server_run::CpuShare;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// With fewer CPUs than this, server and load share all of them. A server on one CPU would not show effects
/// of arenas and caches.
const FEWEST_TO_SHARE_OUT: usize = 4;

/// With four or more CPUs, the last quarter of this process's CPUs is for the load.
pub(crate) fn shared_out() -> CpuShare {
    share(allowed())
}

/// One CPU for the server, the others for the load. The server's is the last that this process may use: the
/// first serves most of the machine's interrupts.
pub(crate) fn one_for_the_server() -> CpuShare {
    one_of(allowed())
}

fn one_of(mut cpus: Vec<usize>) -> CpuShare {
    CpuShare { server: cpus.pop().into_iter().collect(), load: cpus }
}

fn share(mut cpus: Vec<usize>) -> CpuShare {
    if cpus.len() < FEWEST_TO_SHARE_OUT {
        return CpuShare::default();
    }
    let load = cpus.split_off(cpus.len() - cpus.len() / 4);
    CpuShare { server: cpus, load }
}

/// The CPUs that this process may use.
fn allowed() -> Vec<usize> {
    let cpus = |set: CpuSet| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    sched_getaffinity(None).ok().map(cpus).unwrap_or_default()
}

/// While it exists, the processes that this thread starts stay on these CPUs.
#[derive(Debug)]
pub(crate) struct KeptOn {
    before: Option<CpuSet>,
}

impl KeptOn {
    /// An empty list, or a refusal by the kernel, leaves all CPUs allowed.
    pub(crate) fn new(cpus: &[usize]) -> Self {
        let before = sched_getaffinity(None).ok().filter(|_| !cpus.is_empty());
        let mut wanted = CpuSet::new();
        cpus.iter().for_each(|&cpu| wanted.set(cpu));
        let before = before.filter(|_| sched_setaffinity(None, &wanted).is_ok());
        Self { before }
    }
}

impl Drop for KeptOn {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before); // cannot fail: these CPUs were allowed before
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_for_the_load_where_there_are_four() {
        assert_eq!(share(vec![0, 1]), CpuShare::default());
        assert_eq!(share(vec![0, 1, 2, 3]), CpuShare { server: vec![0, 1, 2], load: vec![3] });
        let eight = share((0..8).collect());
        assert_eq!((eight.server.len(), eight.load), (6, vec![6, 7]));
    }

    #[test]
    fn a_server_on_one_cpu_leaves_the_others_to_the_load() {
        assert_eq!(one_of(vec![0, 1, 2]), CpuShare { server: vec![2], load: vec![0, 1] });
        assert_eq!(one_of(vec![3]), CpuShare { server: vec![3], load: vec![] });
    }
}
