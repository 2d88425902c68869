// SPDX-License-Identifier: Apache-2.0
//! Running processes: which program each runs and which allocator it is on.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use procfs::process::{MMapPath, Process};

use crate::catalogue::{Candidate, SYSTEM};
use crate::given::Given;
use crate::program::Program;

/// A process that may be looked into.
#[derive(Debug, Clone)]
pub struct Running {
    /// Its number.
    pub pid: u32,
    /// What it runs.
    pub program: Program,
    /// The systemd service it belongs to, by its control group.
    pub unit: Option<String>,
    /// Every file mapped into it.
    mapped: BTreeSet<PathBuf>,
    /// The environment it was started with, `NAME=VALUE` each.
    environment: Vec<OsString>,
}

/// Every process that this user may look into, but kernel threads.
#[must_use]
pub fn all() -> Vec<Running> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    processes.filter_map(|process| of(&process)).collect()
}

/// What the process runs; `None` when it is gone or may not be looked into.
#[must_use]
pub fn program_of(pid: u32) -> Option<Program> {
    program(&Process::new(i32::try_from(pid).ok()?).ok()?)
}

fn of(process: &Process) -> Option<Running> {
    let maps = process.maps().ok()?;
    let mapped = maps.iter().filter_map(|map| match &map.pathname {
        MMapPath::Path(path) => Some(path.clone()),
        _ => None,
    });
    let pid = u32::try_from(process.pid()).ok()?;
    Some(Running {
        pid,
        program: program(process)?,
        unit: unit(process),
        mapped: mapped.collect(),
        environment: crate::process::environment(pid).unwrap_or_default(),
    })
}

fn program(process: &Process) -> Option<Program> {
    let path = process.exe().ok()?;
    let folder = process.cwd().ok();
    let arguments = crate::process::arguments(u32::try_from(process.pid()).ok()?).ok()?.into_iter().skip(1);
    // A script is often named from where the program was started.
    let arguments: Vec<_> = arguments
        .map(|word| match &folder {
            Some(folder) if Path::new(&word).is_relative() && folder.join(&word).is_file() => {
                folder.join(&word).into_os_string()
            }
            _ => word,
        })
        .collect();
    Some(Program { detail: Given::to(&path, &arguments).detail(), path })
}

fn unit(process: &Process) -> Option<String> {
    let groups = process.cgroups().ok()?;
    let names = groups.into_iter().filter_map(|group| {
        let last = group.pathname.rsplit('/').next()?.to_owned();
        last.ends_with(".service").then_some(last)
    });
    names.into_iter().next()
}

/// What a process is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// That candidate, for certain.
    Yes,
    /// Another one, for certain.
    No,
    /// Settings leave no trace by which they could be told.
    Unknown,
}

impl Running {
    /// Whether the process is on the candidate. `others` are the catalogue's.
    #[must_use]
    pub fn is_on(&self, candidate: &Candidate, others: &[Candidate]) -> On {
        let loaded = self.loaded(others);
        match &candidate.library {
            // Untouched, or settings of glibc: no library of the catalogue is there.
            None if loaded => On::No,
            None if candidate.is_system() => self.without_settings(others),
            None => self.has_settings(candidate),
            Some(library) if !self.maps(library) => On::No,
            Some(_) if candidate.environment.is_empty() => On::Yes,
            Some(_) => self.has_settings(candidate),
        }
    }

    /// The candidate it is on, as far as that can be told.
    #[must_use]
    pub fn candidate<'a>(&self, among: &'a [Candidate]) -> Option<&'a Candidate> {
        // One with settings says more than the same library without.
        let mut sure: Vec<_> = among.iter().filter(|c| self.is_on(c, among) == On::Yes).collect();
        sure.sort_by_key(|candidate| std::cmp::Reverse(candidate.environment.len()));
        sure.into_iter().next()
    }

    fn maps(&self, library: &Path) -> bool {
        let real = std::fs::canonicalize(library).unwrap_or_else(|_| library.to_owned());
        self.mapped.contains(&real)
    }

    fn loaded(&self, candidates: &[Candidate]) -> bool {
        candidates.iter().filter_map(|candidate| candidate.library.as_ref()).any(|library| self.maps(library))
    }

    /// The guard takes the settings out of the environment again, so that only their presence says something.
    fn has_settings(&self, candidate: &Candidate) -> On {
        let is_set = |(name, value): (&String, &String)| {
            self.environment.iter().filter_map(|pair| pair.to_str()).any(|pair| {
                let set = pair.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('='));
                set.is_some_and(|set| set == value || set.split(':').any(|one| one == value))
            })
        };
        if candidate.environment.iter().all(is_set) { On::Yes } else { On::Unknown }
    }

    fn without_settings(&self, others: &[Candidate]) -> On {
        let guarded = self.mapped.iter().any(|file| {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name == "libimas-guard.so" || name == "libimas.so"
        });
        let settings = others.iter().filter(|other| other.library.is_none() && other.name != SYSTEM);
        let set = settings.into_iter().any(|other| self.has_settings(other) == On::Yes);
        match (guarded, set) {
            (true, _) => On::Unknown,
            (false, true) => On::No,
            (false, false) => On::Yes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, library: Option<&str>, settings: &[(&str, &str)]) -> Candidate {
        Candidate {
            name: name.into(),
            library: library.map(PathBuf::from),
            environment: settings.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            ..Candidate::default()
        }
    }

    fn process(mapped: &[&str], environment: &[&str]) -> Running {
        Running {
            pid: 1,
            program: Program { path: "/p".into(), detail: String::new() },
            unit: None,
            mapped: mapped.iter().map(PathBuf::from).collect(),
            environment: environment.iter().map(OsString::from).collect(),
        }
    }

    #[test]
    fn what_a_process_is_on() {
        let all = [
            candidate(SYSTEM, None, &[]),
            candidate("arena1", None, &[("GLIBC_TUNABLES", "a=1")]),
            candidate("je", Some("/l/je.so"), &[]),
            candidate("je:mem", Some("/l/je.so"), &[("CONF", "x")]),
        ];
        let on = |process: &Running| process.candidate(&all).map(|found| found.name.clone());
        assert_eq!(on(&process(&["/p"], &["A=b"])).unwrap(), "system");
        assert_eq!(on(&process(&["/p"], &["GLIBC_TUNABLES=b=2:a=1"])).unwrap(), "arena1");
        assert_eq!(on(&process(&["/p", "/l/je.so"], &[])).unwrap(), "je");
        assert_eq!(on(&process(&["/p", "/l/je.so"], &["CONF=x"])).unwrap(), "je:mem");
        // The guard may have taken the settings out again.
        assert_eq!(on(&process(&["/p", "/i/libimas-guard.so"], &[])), None);
        assert_eq!(process(&["/l/je.so"], &[]).is_on(&all[3], &all), On::Unknown);
        assert_eq!(process(&["/l/je.so"], &[]).is_on(&all[0], &all), On::No);
        assert_eq!(process(&[], &[]).is_on(&all[2], &all), On::No);
    }

    #[test]
    fn this_process_is_found() {
        let me = std::process::id();
        let program = program_of(me).unwrap();
        assert_eq!(program.path, std::fs::canonicalize(std::env::current_exe().unwrap()).unwrap());
        let found = all().into_iter().find(|running| running.pid == me).unwrap();
        assert_eq!(found.program, program);
        assert!(found.maps(&program.path));
    }
}
