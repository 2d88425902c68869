// SPDX-License-Identifier: Apache-2.0
//! What does not change between two execs of a process: its program, service and allocator. It is read once,
//! because it takes some five files of `/proc`.

use imas_linux::index::ServiceUnit;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use imas_linux::living_thread;
use imas_linux::process;
use imas_linux::program::Program;
use imas_linux::running::{self, Running};
use imas_linux::serving::candidate::RealCandidates;
use imas_linux::serving::injected::Injected;
use imas_linux::serving::wanted::asked_in_vain;

use crate::trial_page;

/// Beginnings of the names of variables that set an allocator.
const SETTINGS: [&str; 9] = [
    "GLIBC_TUNABLES",
    "HOARD_",
    "JE_MALLOC_CONF",
    "MALLOC_",
    "MIMALLOC_",
    "SCUDO_OPTIONS",
    "SNMALLOC_",
    "TCMALLOC_",
    "_RJEM_MALLOC_CONF",
];

/// What one process is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) program: Program,
    pub(crate) unit: Option<ServiceUnit>,
    pub(crate) allocator: String,
    pub(crate) candidate: Option<String>,
    pub(crate) settings: Option<BTreeMap<String, String>>,
    pub(crate) injected: Injected,
    /// The library that its environment asks for and that it lacks.
    pub(crate) lost: Option<String>,
    /// The page of the process's trial.
    pub(crate) page: Option<PathBuf>,
}

/// What looking at a process brought.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Identified {
    Known(Box<Identity>),
    /// The process belongs to another user.
    Hidden,
    /// The process has ended, or executes another program at this moment.
    NotNow,
}

/// Looks at the process.
pub(crate) fn identify(pid: u32, candidates: &RealCandidates) -> Identified {
    match std::fs::read_link(format!("/proc/{}/exe", living_thread::of(pid))) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Identified::Hidden,
        Err(_) => return Identified::NotNow,
        Ok(_) => {}
    }
    let running = running::one(pid);
    running
        .and_then(|running| of(&running, candidates))
        .map_or(Identified::NotNow, |identity| Identified::Known(Box::new(identity)))
}

fn of(running: &Running, candidates: &RealCandidates) -> Option<Identity> {
    Some(Identity {
        uid: std::fs::metadata(format!("/proc/{}", running.pid)).ok()?.uid(),
        program: running.program.clone(),
        unit: running.unit.clone(),
        allocator: running.allocator(candidates),
        candidate: running.name_of_candidate(candidates).map(str::to_owned),
        settings: settings(running),
        injected: running.injected(),
        lost: asked_in_vain(running.pid),
        page: trial_page::mapped_page(running),
    })
}

/// None where the environment may not be read: a process always has some variable.
fn settings(running: &Running) -> Option<BTreeMap<String, String>> {
    let is_readable = process::environment(running.pid).is_ok();
    let is_setting = |name: &str| SETTINGS.iter().any(|setting| name.starts_with(setting));
    is_readable.then(|| running.variables(is_setting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_on_glibc_and_the_first_one_may_be_hidden() {
        let candidates = RealCandidates::default();
        let Identified::Known(own) = identify(std::process::id(), &candidates) else { panic!("not known") };
        assert_eq!((own.allocator.as_str(), own.injected, own.page), ("glibc", Injected::Nothing, None));
        assert_eq!(own.program.path, std::fs::canonicalize(std::env::current_exe().unwrap()).unwrap());
        assert!(own.settings.is_some());
        assert_eq!(identify(u32::MAX, &candidates), Identified::NotNow);
    }
}
