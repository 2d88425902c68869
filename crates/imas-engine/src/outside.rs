// SPDX-License-Identifier: Apache-2.0
//! Programs into which nothing of ours is loaded, measured from outside (docs/decisions/0044). `imas run` asks imasd for
//! the account of its own process, right before the exec: by an empty file in the user's folder of imasd's. When the
//! process has ended, imasd puts what the kernel accounted to it in the place of that file. The next harvest adds it to
//! the page of the start.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use imas_core::decision::{Decision, Evidence};
use imas_core::sample::MEASURED_OUTSIDE;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::ingest::{ParsedPage, State};
use imas_linux::{files, page, process};

use crate::context::Context;
use crate::daemon_status::{ACCOUNTED, DaemonStatus};
use crate::inspect::ExecutableFacts;
use crate::runtime_command::{self, is_served_by_settings};

/// Name of the evidence that says why there are no trials.
const NO_TRIALS: &str = "no trials";
/// Ending of the name of a request and of its answer.
const SUFFIX: &str = ".account";
/// Bytes of an answer.
const MOST_BYTES: usize = 4096;

/// Whether trials of the program can only be measured from outside, and there is something to try.
#[must_use]
pub fn is_measurable(executable: &ExecutableFacts) -> bool {
    executable.unfit.is_some() && (is_served_by_settings(executable) || executable.fits_musl)
}

/// Whether such a program can be given the candidate.
#[must_use]
pub fn takes(context: &Context, executable: &ExecutableFacts, candidate: &CatalogueCandidate) -> bool {
    let is_settings = candidate.runtime.is_some() && candidate.library.is_none();
    candidate.is_system()
        || candidate.is_huge_pages()
        || (is_settings && is_served_by_settings(executable))
        || (executable.fits_musl && runtime_command::candidate_of_musl(context, candidate).is_ok())
}

/// Evidence about trials in the decision for such a program, in words.
pub fn words(decision: &Decision) -> impl Iterator<Item = String> {
    let of_trials = |one: &&Evidence| [MEASURED_OUTSIDE, NO_TRIALS].contains(&one.name.as_str());
    decision.evidence.iter().filter(of_trials).map(|one| format!("{}: {}", one.name, one.value))
}

/// Whether the decision says that there are no trials of such a program.
#[must_use]
pub fn lacks_trials(decision: &Decision) -> bool {
    decision.evidence.iter().any(|one| one.name == NO_TRIALS)
}

/// Adds how the trials of such a program are measured, or why there are none.
pub(crate) fn add_evidence(decision: &mut Decision, unfit: &str, no_trials: Option<&str>) {
    let (name, value) = match no_trials {
        None => (MEASURED_OUTSIDE, unfit.to_owned()),
        Some(why) => (NO_TRIALS, format!("{unfit}, and {why}")),
    };
    decision.evidence.push(Evidence { name: name.to_owned(), value });
}

/// Folder in which this user asks imasd for accounts.
///
/// # Errors
/// Why imasd gives none, as a clause for people.
pub fn folder() -> Result<PathBuf, String> {
    let status = DaemonStatus::read(&run_folder()).ok_or("imasd does not run")?;
    if status.accounts != ACCOUNTED {
        let why =
            if status.accounts.is_empty() { "it is of an earlier version" } else { status.accounts.as_str() };
        return Err(format!("imasd has no accounts of processes ({why})"));
    }
    if !process::is_in_first_pid_namespace() {
        return Err("the processes of a container have other numbers for imasd".to_owned());
    }
    let folder = place();
    let is_there = page::check_private(&folder).map(|()| folder);
    is_there.map_err(|_| "imasd has made no folder for this user yet".to_owned())
}

/// Asks imasd for the account of this very process.
///
/// # Errors
/// When the request cannot be written, or an earlier program of this process has asked already.
pub fn ask() -> io::Result<()> {
    let pid = std::process::id();
    let start_ticks = process::start_ticks(pid).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(place().join(request_name(pid, start_ticks))).map(drop)
}

/// The page of an ended process; of one that was measured from outside with its account. `None` while imasd may still
/// write that.
#[must_use]
pub fn with_account(page: ParsedPage) -> Option<ParsedPage> {
    if !is_outside(&page) {
        return Some(page);
    }
    let Ok(answer) = files::read_plain(&request(&page), MOST_BYTES) else { return Some(page.unaccounted()) };
    if let Ok(account) = serde_json::from_slice(&answer) {
        return Some(page.accounted(&account));
    }
    let is_awaited = answer.is_empty() && DaemonStatus::read(&run_folder()).is_some();
    (!is_awaited).then(|| page.unaccounted())
}

/// Removes the account of a start whose page was stored.
pub fn forget(page: &ParsedPage) {
    if page.served == MEASURED_OUTSIDE {
        let _ = std::fs::remove_file(request(page)); // imasd removes it in a day
    }
}

/// Process and start, in clock ticks, of a request of that name.
#[must_use]
pub fn requested(name: &str) -> Option<(u32, u64)> {
    let (pid, start_ticks) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let process = (pid.parse().ok()?, start_ticks.parse().ok()?);
    (request_name(process.0, process.1) == name).then_some(process)
}

/// Whether a file of that name is a request or an answer.
#[must_use]
pub fn is_request(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

fn request_name(pid: u32, start_ticks: u64) -> String {
    format!("{pid}-{start_ticks}{SUFFIX}")
}

fn request(page: &ParsedPage) -> PathBuf {
    place().join(request_name(page.pid, page.process_start_ticks))
}

fn is_outside(page: &ParsedPage) -> bool {
    page.served == MEASURED_OUTSIDE && page.state == State::Armed
}

fn place() -> PathBuf {
    run_folder().join("state/u").join(nix::unistd::getuid().to_string())
}

/// The run folder of the imasd that serves this process: the machine's, or the folder of a user's own tree.
fn run_folder() -> PathBuf {
    let own = std::env::var_os(imas_abi::env::RUN).filter(|folder| !folder.is_empty());
    own.map_or_else(|| PathBuf::from(imas_abi::RUN_FOLDER), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_process() {
        assert_eq!(requested(&request_name(12, 3456)), Some((12, 3456)));
        for other in
            ["12-3456.page", "12.account", "+12-3.account", "012-3.account", "-1-3.account", ".account"]
        {
            assert_eq!(requested(other), None, "{other}");
        }
        assert!(is_request("x.account") && !is_request("x.account.new"));
    }

    #[test]
    fn programs_with_a_hook_are_not_measured_from_outside() {
        let mut facts = ExecutableFacts {
            unfit: Some("it is statically linked".to_owned()),
            build_id: String::new(),
            defines: vec![],
            runtimes: vec![],
            fits_musl: false,
            execs_itself: false,
        };
        assert!(!is_measurable(&facts), "there is nothing to try");
        facts.fits_musl = true;
        assert!(is_measurable(&facts));
        facts.unfit = None;
        assert!(!is_measurable(&facts));
    }

    #[test]
    fn a_decision_says_how_its_trials_are_measured() {
        let mut decision = crate::decide::untouched(imas_core::Reason::NoData, "");
        add_evidence(&mut decision, "it is static", None);
        assert!(!lacks_trials(&decision));
        add_evidence(&mut decision, "it is static", Some("imasd does not run"));
        assert!(lacks_trials(&decision));
        let words: Vec<String> = words(&decision).collect();
        let expected =
            ["measured from outside: it is static", "no trials: it is static, and imasd does not run"];
        assert_eq!(words, expected);
    }
}
