// SPDX-License-Identifier: Apache-2.0
//! Settled starts: what was decided for a program's next starts, in one small file, so that such a start reads that
//! file alone and opens no store (docs/decisions/0036).
//!
//! A start is settled when it is asked for without options, the file is this user's and unchanged, its basis holds (files,
//! variables, time and pressure), and no page waits for a harvest. The command line and the environment may differ, unless
//! the candidates of the program's runtime would set something else for them. Every other start goes the long way and
//! writes the file anew.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use imas_core::ProfileView;
use imas_core::adaptive::{Objective, weight};
use imas_core::decision::{Conditions, RestsOn};
use imas_engine::context::Context;
use imas_engine::decide::valid_until_s;
use imas_engine::flags::variable;
use imas_engine::inspect::ExecutableFacts;
use imas_engine::runtime_command::{RuntimeCommand, of_program};
use imas_engine::{config, folders, pending};
use imas_linux::c_bytes::fnv64;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Libraries, Variables};
use imas_linux::files::{StampedPath, replace};
use imas_linux::host::now_unix_s;
use imas_linux::page;
use imas_linux::program::{Command, Program};
use imas_linux::runtime_start::Fitted;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

use crate::command_line::cli::{Places, RunArgs};

/// Variables that load something of the user's into the program. Such a start is looked at anew each time.
const LOADING: [&str; 3] = ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"];

/// The settled start of the command's program, where one holds now, and its candidate as this command gets it.
pub(crate) fn find(
    args: &RunArgs,
    places: &Places,
    command: &Command,
    environment: &Variables,
) -> Option<(SettledStart, Fitted)> {
    if !args.is_plain || loads_something(environment) {
        return None;
    }
    let store = folders::real_store(&folders::store_path(places.store.as_deref()).ok()?);
    let pages = page::place_of_store(&store);
    page::check_private(&page::place()).and_then(|()| page::check_private(&pages)).ok()?;
    let settled = read_file(&pages, &command.program)?;
    let holds = settled.is_of(&command.program) && settled.basis.holds(&Asked::of(args, places));
    let fitted = holds.then(|| settled.fitted(command, environment)).flatten()?;
    (!pending::is_harvest_due(&pages)).then_some((settled, fitted))
}

fn loads_something(environment: &Variables) -> bool {
    LOADING.iter().any(|name| environment.get(OsStr::new(name)).is_some_and(|value| !value.is_empty()))
}

/// A decision that may be kept: what it is, and for which command it was made.
pub(crate) struct Kept<'a> {
    pub(crate) of_command: &'a RuntimeCommand<'a>,
    /// The candidate as the catalogue has it. If it is settings of a runtime, that is known to take them.
    pub(crate) candidate: &'a CatalogueCandidate,
    pub(crate) rests_on: RestsOn,
}

/// Keeps the decision for the next starts. `basis` was read before the decision was made: what changed meanwhile makes
/// the file stale. A failure costs the next start its speed, nothing else.
pub(crate) fn keep(context: &Context, basis: Option<Basis>, kept: &Kept<'_>) {
    let Some(basis) = basis.filter(|_| kept.rests_on != RestsOn::Moment) else { return };
    let (libraries, candidate) = (&context.libraries, kept.candidate);
    let settings = candidate.runtime.is_some().then_some(&libraries.settings);
    let ours = [Some(&libraries.guard), settings];
    let used = ours.into_iter().chain([candidate.library.as_ref(), candidate.needs.as_ref()]);
    let basis = basis.under(kept.rests_on).with(used.flatten());
    let of_runtime = of_program(&context.catalogue, kept.of_command.executable).cloned().collect();
    let settled = SettledStart::new(kept.of_command, candidate, of_runtime, libraries, basis);
    let _ = context.page_folder().map(|pages| write_file(&pages, &settled)); // the next start goes the long way
}

// The contents of the small file: one program's decision. A line with a check sum, then JSON.

/// The decision for the next starts of a program, with all that is needed to make one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SettledStart {
    path: PathBuf,
    detail: String,
    executable: ExecutableFacts,
    candidate: CatalogueCandidate,
    /// The candidates of the program's runtime, and what each would set for the command of the decision.
    of_runtime: Vec<CatalogueCandidate>,
    offers: Vec<Option<String>>,
    pub(crate) libraries: Libraries,
    pub(super) basis: Basis,
}

impl SettledStart {
    pub(super) fn new(
        of_command: &RuntimeCommand<'_>,
        candidate: &CatalogueCandidate,
        of_runtime: Vec<CatalogueCandidate>,
        libraries: &Libraries,
        basis: Basis,
    ) -> Self {
        let Program { path, detail } = of_command.command.program.clone();
        Self {
            path,
            detail,
            executable: of_command.executable.clone(),
            candidate: candidate.clone(),
            offers: of_command.offers(&of_runtime),
            of_runtime,
            libraries: libraries.clone(),
            basis,
        }
    }

    /// The program: the file's name has only its hash.
    pub(super) fn program(&self) -> Program {
        Program { path: self.path.clone(), detail: self.detail.clone() }
    }

    pub(super) fn is_of(&self, program: &Program) -> bool {
        self.path == program.path && self.detail == program.detail
    }

    pub(crate) fn executable(&self) -> &ExecutableFacts {
        &self.executable
    }

    pub(crate) fn build_id(&self) -> &str {
        &self.executable.build_id
    }

    /// The candidate as this command gets it. None where a candidate of the runtime, the decided one or another,
    /// would set something else for it than for the command of the decision.
    pub(crate) fn fitted(&self, command: &Command, environment: &Variables) -> Option<Fitted> {
        let of_command =
            RuntimeCommand { command, executable: &self.executable, environment, has_files: true };
        let is_offered_the_same = of_command.offers(&self.of_runtime) == self.offers;
        is_offered_the_same.then(|| of_command.fitted_unasked(&self.candidate, None).ok()).flatten()
    }

    /// None for what JSON cannot express, such as a path that is not UTF-8.
    pub(super) fn encoded(&self) -> Option<String> {
        let text = serde_json::to_string(self).ok()?;
        Some(format!("{:016x}\n{text}", fnv64(text.as_bytes())))
    }

    /// None for a text that was damaged, or is of another version.
    pub(super) fn decoded(encoded: &str) -> Option<Self> {
        let (sum, text) = encoded.split_once('\n')?;
        let is_whole = sum == format!("{:016x}", fnv64(text.as_bytes()));
        is_whole.then(|| serde_json::from_str(text).ok()).flatten()
    }
}

// The small file of a program: in the folder of the store's pages, which is this user's alone and in memory.

const FOLDER: &str = "settled";
/// Most files; beyond it all are removed: programs with ever new names must not fill the memory.
const MOST_FILES: usize = 500;
/// A longer file is none of ours.
const MOST_BYTES: u64 = 64 << 10;

fn place(pages: &Path, program: &Program) -> PathBuf {
    let key = [program.path.as_os_str().as_encoded_bytes(), b"\0", program.detail.as_bytes()].concat();
    pages.join(FOLDER).join(format!("{:016x}", fnv64(&key)))
}

/// The program's settled start, if its file is there, is this user's, and is whole.
pub(super) fn read_file(pages: &Path, program: &Program) -> Option<SettledStart> {
    let path = place(pages, program);
    page::check_private(path.parent()?).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = std::fs::File::from(open(&path, flags, Mode::empty()).ok()?);
    let about = file.metadata().ok()?;
    let is_ours = about.is_file()
        && about.uid() == nix::unistd::getuid().as_raw()
        && about.mode() & 0o022 == 0
        && about.len() <= MOST_BYTES;
    let mut text = String::new();
    let read = is_ours.then(|| file.take(MOST_BYTES).read_to_string(&mut text).ok()).flatten();
    read.and_then(|_| SettledStart::decoded(&text))
}

/// Writes the file in place of an earlier one. None where that fails.
pub(super) fn write_file(pages: &Path, settled: &SettledStart) -> Option<()> {
    let path = place(pages, &settled.program());
    let folder = path.parent()?;
    page::private_folder(folder).ok()?;
    if std::fs::read_dir(folder).ok()?.count() > MOST_FILES {
        std::fs::remove_dir_all(folder).ok()?;
        page::private_folder(folder).ok()?;
    }
    replace(&path, settled.encoded()?.as_bytes()).ok()
}

// The basis of a settled decision: files, variables, time and pressure. The decision holds while they are unchanged.

/// Variables that lead to other files.
const VARIABLES: [&str; 5] = ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "IMAS_LIB_DIR", "IMAS_STORE"];
/// Changes whenever libraries of the system do; and what every process is given.
const OF_THE_LOADER: [&str; 2] = ["/etc/ld.so.cache", "/etc/ld.so.preload"];
/// A decision without a profile is looked at again after this time, in seconds.
const LONGEST_S: f64 = 3600.0;

/// The rules and the variables by which a start is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    rules: String,
    variables: Vec<Option<String>>,
}

impl Asked {
    pub(crate) fn of(args: &RunArgs, places: &Places) -> Self {
        let value = |name: &&str| variable(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            rules: format!("{:?} {:?}", args.rules.policy, places.retest),
            variables: VARIABLES.iter().map(value).collect(),
        }
    }
}

/// All that a decision rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Basis {
    asked: Asked,
    files: Vec<StampedPath>,
    rests_on: RestsOn,
    /// Unix time in seconds: from when, and until when at most, it holds.
    from_s: f64,
    until_s: f64,
}

impl Basis {
    /// The basis as it is now: read before the decision is made. `executable` is the program's file.
    pub(crate) fn now(asked: Asked, context: &Context, executable: &Path) -> Self {
        let from_s = now_unix_s();
        let files = files(context, executable).iter().map(|file| StampedPath::now(file)).collect();
        Self { asked, files, rests_on: RestsOn::Nothing, from_s, until_s: from_s + LONGEST_S }
    }

    /// Limits the basis to the time at which this profile may lead to another decision.
    pub(crate) fn until(self, profile: &ProfileView) -> Self {
        Self { until_s: valid_until_s(profile, self.from_s), ..self }
    }

    pub(super) fn under(self, rests_on: RestsOn) -> Self {
        Self { rests_on, ..self }
    }

    pub(super) fn with<'a>(mut self, files: impl Iterator<Item = &'a PathBuf>) -> Self {
        self.files.extend(files.map(|file| StampedPath::now(file)));
        self
    }

    /// Whether the decision still stands. What costs least is asked first.
    pub(super) fn holds(&self, asked: &Asked) -> bool {
        self.asked == *asked
            && (self.from_s..self.until_s).contains(&now_unix_s())
            && self.files.iter().all(StampedPath::is_unchanged)
            && self.is_under_the_same_pressure()
    }

    fn is_under_the_same_pressure(&self) -> bool {
        let RestsOn::Weight(w) = self.rests_on else { return true };
        // Damped by the weight of the decision: it stands until the weight has moved.
        imas_engine::decide::conditions().is_ok_and(|now| {
            let now = Conditions { weight_before: Some(w), ..now };
            weight(&now, Objective::Auto).w == w
        })
    }
}

/// The files: the store and its log, this program, what is started, catalogues, configuration.
fn files(context: &Context, executable: &Path) -> Vec<PathBuf> {
    let mut log = context.store_path.clone().into_os_string();
    log.push("-wal");
    let ours = std::env::current_exe().unwrap_or_default();
    let mut files = vec![context.store_path.clone(), log.into(), ours, executable.to_owned()];
    files.extend(OF_THE_LOADER.map(PathBuf::from));
    files.extend(config::files());
    files.extend(folders::catalogue_folders());
    files.extend(folders::catalogues_of_user(&context.lib_dir));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked { rules: String::new(), variables: vec![None] }
    }

    fn basis(file: &Path) -> Basis {
        let now_s = now_unix_s();
        Basis {
            asked: asked(),
            files: vec![StampedPath::now(file)],
            rests_on: RestsOn::Nothing,
            from_s: now_s - 1.0,
            until_s: now_s + 1000.0,
        }
    }

    #[test]
    fn it_holds_until_a_file_a_variable_or_the_time_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let fresh = basis(&file);
        assert!(fresh.holds(&asked()));
        assert!(!fresh.holds(&Asked { variables: vec![Some("/other".to_owned())], ..asked() }));
        assert!(!fresh.holds(&Asked { rules: "paper".to_owned(), ..asked() }));
        let late = now_unix_s() + 1000.0;
        assert!(!Basis { until_s: now_unix_s() - 0.5, ..fresh.clone() }.holds(&asked()), "it is over");
        assert!(
            !Basis { from_s: late, until_s: late + 1.0, ..fresh.clone() }.holds(&asked()),
            "the clock was set back"
        );
        std::fs::write(&file, "").unwrap();
        assert!(!fresh.holds(&asked()));
    }

    #[test]
    fn it_follows_the_pressure_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let now = imas_engine::decide::conditions().unwrap();
        let w = weight(&Conditions { weight_before: None, ..now }, Objective::Auto).w;
        let other = if w < 0.5 { 1.0 } else { 0.0 };
        let under = |w| basis(&folder.path().join("none")).under(RestsOn::Weight(w));
        assert!(!under(other).holds(&asked()), "the weight is {w} now");
    }
}
