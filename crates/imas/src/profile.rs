// SPDX-License-Identifier: Apache-2.0
//! What the store and the catalogue together know of one program, made ready for the policy.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Result, bail};
use imas_core::profile::known_of;
use imas_core::{Candidate, History, ProfileView, TrialRecord};
use imas_linux::catalogue;
use imas_linux::clock::now_unix_s;
use imas_store::Store;
use imas_store::samples::Program;

use crate::cli::RulesArgs;
use crate::context::Context;
use crate::message::Hinted;

/// Everything that a decision about one program rests on.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) program: Program,
    pub(crate) build_id: String,
    pub(crate) records: Vec<TrialRecord>,
    candidates: Vec<Candidate>,
    pinned: Option<String>,
    excluded: bool,
    lifted_at: BTreeMap<String, f64>,
    /// Pages and CPUs as they are now.
    pub(crate) machine: String,
}

impl Known {
    /// Gathers it. `build_id` is that of the executable as it is now.
    pub(crate) fn gather(context: &Context, store: &Store, program: Program, build_id: &str) -> Result<Self> {
        let pinned = store.pinned(program.id)?;
        let records = store.trials(program.id)?;
        let candidates = candidates(context, store, pinned.as_deref(), &known_of(&records, build_id));
        Ok(Self {
            records,
            excluded: store.is_excluded(&program.path, &program.detail)?,
            lifted_at: store.lifts(program.id)?,
            candidates,
            pinned,
            build_id: build_id.to_owned(),
            machine: imas_linux::host::machine_state(),
            program,
        })
    }

    /// The profile at this moment.
    pub(crate) fn profile(&self, context: &Context, rules: &RulesArgs) -> ProfileView {
        let policy = context.config.policy(rules, &self.program.path, &self.program.detail);
        let history = History {
            records: &self.records,
            candidates: &self.candidates,
            build_id: &self.build_id,
            pinned: self.pinned.as_deref(),
            excluded: self.excluded,
            lifted_at: &self.lifted_at,
            limits: context.limits,
            now_unix_s: now_unix_s(),
            machine: &self.machine,
        };
        ProfileView::under(&history, &policy)
    }
}

/// The test set; those that the catalogue's default set has no longer and of which something is known with the program; and the candidate it is pinned to when that lies outside.
fn candidates(
    context: &Context,
    store: &Store,
    pinned: Option<&str>,
    known: &BTreeSet<&str>,
) -> Vec<Candidate> {
    let is_tested = |candidate: &catalogue::Candidate| context.is_tested(candidate);
    // A set that the user names is the user's last word: who is not in it is not used either.
    let is_kept = |name: &str| context.config.candidates.is_none() && known.contains(name);
    let is_known = |candidate: &&catalogue::Candidate| {
        let name = candidate.name.as_str();
        is_tested(candidate) || is_kept(name) || pinned == Some(name)
    };
    let found = context.catalogue.candidates().iter().filter(is_known);
    let ready = |candidate| {
        let obstacle = context.obstacle(candidate, Some(store));
        Candidate { tested: is_tested(candidate), ..for_policy(candidate, obstacle) }
    };
    found.map(ready).collect()
}

/// Every candidate of the catalogue, whether or not it can be used here now: what was measured under it can be replayed all the same.
pub(crate) fn to_replay(context: &Context) -> Vec<Candidate> {
    context.catalogue.candidates().iter().map(|candidate| for_policy(candidate, None)).collect()
}

fn for_policy(candidate: &catalogue::Candidate, obstacle: Option<String>) -> Candidate {
    let version = candidate.version.clone().unwrap_or_default();
    let serves = match &candidate.library {
        _ if candidate.is_system() => vec![],
        // Settings of glibc: glibc itself has to serve.
        None => vec!["libc.so.6".to_owned()],
        Some(library) => {
            let file = library.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
            let said = if candidate.needs.is_some() { catalogue::INSTALLED } else { &version };
            // One allocator may be built as several libraries, each of which gives its own name: libmimalloc2.so.
            let own = file.trim_start_matches("lib").trim_end_matches(".so");
            vec![format!("{own} {said}"), format!("{} {said}", candidate.allocator), file]
        }
    };
    Candidate { name: candidate.name.clone(), version, serves, available: obstacle.is_none(), tested: true }
}

/// The program of the store that the user means: a number, a path, or a name found in PATH.
pub(crate) fn find(store: &Store, word: &OsStr) -> Result<Program> {
    let mut found = all_meant(store, word)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Hinted::error(
            format!("{}: nothing is known of this program", word.to_string_lossy()),
            "start it with 'imas run -- PROGRAM ...'; 'imas show' lists what is known",
        )),
        _ => {
            let lines: Vec<_> = found.iter().map(|program| format!("{:>5}  {program}", program.id)).collect();
            Err(Hinted::error(
                format!("{} runs several programs:\n{}", word.to_string_lossy(), lines.join("\n")),
                "name the script, or give the number",
            ))
        }
    }
}

fn all_meant(store: &Store, word: &OsStr) -> Result<Vec<Program>> {
    let text = word.to_string_lossy();
    if let Ok(number) = text.parse() {
        return Ok(store.program_numbered(number)?.into_iter().collect());
    }
    let mut found = store.programs_at(&resolved(word)?)?;
    if found.len() > 1 {
        // `imas show python3` with one plain python3 among its scripts still means several.
        found.sort_by_key(|program| program.id);
    }
    Ok(found)
}

/// The path under which the store knows a program that is to be named by path or by name in PATH, installed or not.
pub(crate) fn resolved(word: &OsStr) -> Result<String> {
    let found = imas_linux::program::find(word, std::env::var_os("PATH").as_deref());
    let path = match found {
        Ok(path) => path,
        // It may have been removed or lost its execute bit since; what is known of it can still be shown.
        // A script of this folder that an interpreter was given, as in `perl words.pl`, need not be in PATH or executable.
        Err(_) if word.to_string_lossy().contains('/') || Path::new(word).is_file() => {
            std::path::absolute(word)?
        }
        Err(error) => bail!(error),
    };
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    Ok(path.to_string_lossy().into_owned())
}
