// SPDX-License-Identifier: Apache-2.0
//! `imas trim`: asks running processes to give their free pages back now ([`imas_linux::process_trim`]).
//!
//! Only a process that was started under a candidate that gives back can answer. Of the others it says what a restart
//! would bring. Nothing is put into a process.

use imas_linux::index::ServiceUnit;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_cli::format::mib;
use imas_cli::message::{self, Hinted};
use imas_cli::{output, table};
use imas_engine::context::Context;
use imas_linux::heap::figures::NotReadable;
use imas_linux::running::{self, Running};
use imas_linux::running_runtime::name_of_candidate;
use imas_linux::serving::candidate::RealCandidates;
use imas_linux::serving::chooser::{Choice, Chooser};
use imas_linux::trim_word::{Answers, Asked};
use imas_linux::{process, process_heaps, process_trim};
use imas_view::keeps_away;
use serde::Serialize;
use serde_json::json;

use super::unit;
use crate::command_line::service_args::TrimArgs;

/// Exit status when no process answered.
const NO_ANSWER: u8 = 1;
/// Time between two looks for answers.
const BETWEEN: Duration = Duration::from_millis(50);
/// Processes that cannot be asked and whose heaps are read: each may take a second.
const MOST_LOOKED_AT: usize = 16;

/// One process, and what came of asking it.
#[derive(Debug, Serialize)]
struct Row {
    pid: u32,
    program: String,
    unit: Option<ServiceUnit>,
    candidate: Option<String>,
    /// Whether it could be asked.
    asked: bool,
    answered: bool,
    /// Bytes that it gave back.
    returned_bytes: Option<u64>,
    /// Time of the trim itself.
    took_ms: Option<f64>,
    /// Time until the answer was there.
    waited_ms: Option<f64>,
    /// Reason why there is no answer.
    why: Option<String>,
    /// Bytes that it could give back under `restart_under`, where it cannot be asked and that can be read.
    returnable_bytes: Option<u64>,
    restart_under: Option<String>,
}

/// A process that was asked.
struct Asking {
    row: Row,
    start_ticks: u64,
    /// Number of the request; None where there is nothing to wait for.
    request: Option<u64>,
    begun: Instant,
    resident: Option<u64>,
}

pub(crate) fn run(args: &TrimArgs, context: &Context) -> Result<ExitCode> {
    let candidates = RealCandidates::of(context.catalogue.all());
    let processes = meant(&args.what)?;
    let mut all: Vec<Asking> = processes.iter().map(|process| Asking::begin(process, &candidates)).collect();
    wait_for_answers(&mut all, Duration::from_secs_f64(args.wait));
    let advised = keeps_away::candidate(&candidates);
    let unasked = all.iter_mut().filter(|asking| !asking.row.asked);
    unasked.take(MOST_LOOKED_AT).for_each(|asking| asking.row.look_at_heaps(advised));
    let rows: Vec<Row> = all.into_iter().map(|asking| asking.row).collect();
    let sum = rows.iter().filter_map(|row| row.returned_bytes).fold(0, u64::saturating_add);
    let document = json!({ "schema": 1, "returned_bytes": sum, "processes": rows });
    output::json_or(args.json.json, &document, || page(&rows, sum))?;
    let any = rows.iter().any(|row| row.answered);
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::from(NO_ANSWER) })
}

/// The process of that id, or all processes of the service.
fn meant(word: &str) -> Result<Vec<Running>> {
    if let Ok(pid) = word.parse() {
        let found = running::one(pid).ok_or_else(|| {
            message::not_seen(pid, "another user's processes can be asked by root: sudo imas trim PID")
        })?;
        return Ok(vec![found]);
    }
    let name = unit::full_name(word)?;
    let of_unit = |process: &Running| process.system_unit() == Some(name.as_str());
    let found: Vec<Running> = running::all().into_iter().filter(of_unit).collect();
    if found.is_empty() {
        return Err(Hinted::error(
            format!("{name}: no process of it runs, or they belong to another user"),
            "'systemctl status' shows the processes of a service; root may ask all of them: sudo imas trim UNIT",
        ));
    }
    Ok(found)
}

impl Asking {
    fn begin(process: &Running, candidates: &RealCandidates) -> Self {
        let pid = process.pid;
        let row = Row {
            pid,
            program: process.program.to_string(),
            unit: process.unit.clone(),
            candidate: name_of_candidate(process, candidates).map(str::to_owned),
            asked: false,
            answered: false,
            returned_bytes: None,
            took_ms: None,
            waited_ms: None,
            why: None,
            returnable_bytes: None,
            restart_under: None,
        };
        let start_ticks = process::start_ticks(pid).unwrap_or(0);
        let resident = process::resident_bytes(pid);
        let mut asking = Self { row, start_ticks, request: None, begun: Instant::now(), resident };
        match process_trim::ask(pid) {
            Ok(Some(word)) => asking.was_asked(&word),
            Ok(None) => asking.row.why = Some(why_not(process).to_owned()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                asking.row.why = Some(
                    "the kernel lets root alone ask it: it cannot be dumped, or kernel.yama.ptrace_scope is 1 or more"
                        .to_owned(),
                );
            }
            Err(error) => asking.row.why = Some(NotReadable::of(&error).to_string()),
        }
        asking
    }

    fn was_asked(&mut self, word: &Asked) {
        let is_alone = process::threads(self.row.pid) == Some(1);
        self.row.why = match word.answers {
            Answers::Nobody => Some("it forbade itself system calls, or is about to end".to_owned()),
            Answers::Thread if is_alone => {
                Some("it has one thread, under a filter of system calls from its start".to_owned())
            }
            _ => None,
        };
        if self.row.why.is_none() {
            self.row.asked = true;
            self.request = Some(word.request);
        }
    }

    /// Takes the answer in if it is there.
    fn look(&mut self) {
        let Some(request) = self.request else { return };
        let pid = self.row.pid;
        let word = process_trim::look(pid);
        if process::start_ticks(pid).ok() != Some(self.start_ticks) {
            return self.end("it has ended");
        }
        match word {
            Ok(Some(word)) if word.answered >= request => self.take(&word),
            Ok(Some(word)) if word.answers == Answers::Nobody => self.end("it is about to end"),
            Ok(Some(_)) => {}
            Ok(None) => self.end("it runs another program by now"),
            Err(error) => self.end(&NotReadable::of(&error).to_string()),
        }
    }

    fn take(&mut self, word: &Asked) {
        let fell = || self.resident?.checked_sub(process::resident_bytes(self.row.pid)?);
        let page_bytes = rustix::param::page_size() as u64;
        // It cannot have returned more than it held, whatever it says.
        let most = self.resident.unwrap_or(0);
        let counted = word.returned_pages.map(|pages| pages.saturating_mul(page_bytes).min(most));
        self.row.returned_bytes = counted.or_else(fell);
        self.row.took_ms = Some(word.took_ns as f64 / 1e6);
        self.row.waited_ms = Some(self.begun.elapsed().as_secs_f64() * 1e3);
        self.row.answered = true;
        self.request = None;
    }

    fn end(&mut self, why: &str) {
        self.row.why = Some(why.to_owned());
        self.request = None;
    }
}

/// Waits until each answered, or the time is over. A request without an answer stays: it is answered later.
fn wait_for_answers(all: &mut [Asking], longest: Duration) {
    let until = Instant::now() + longest;
    while all.iter().any(|asking| asking.request.is_some()) && Instant::now() < until {
        sleep(BETWEEN);
        all.iter_mut().for_each(Asking::look);
    }
    for asking in all.iter_mut().filter(|asking| asking.request.is_some()) {
        let why = match process::threads(asking.row.pid) {
            Some(1) => "no answer yet: it has one thread, and answers when that is next about to wait",
            _ => "no answer yet: is it stopped, frozen or short of CPU time?",
        };
        asking.end(why);
    }
}

/// Reason why the process cannot be asked.
fn why_not(process: &Running) -> &'static str {
    match Choice::of(process).by {
        Chooser::Trial | Chooser::Guard => "it was started without give-back",
        _ => "it was started without IMAS",
    }
}

impl Row {
    /// Says what a restart would bring, where that can be read. One under the same candidate brings nothing.
    fn look_at_heaps(&mut self, advised: Option<&str>) {
        if let Ok(heaps) = process_heaps::of(self.pid) {
            self.returnable_bytes = Some(heaps.bytes.returnable);
            let other = advised.filter(|name| self.candidate.as_deref() != Some(*name));
            self.restart_under = other.map(str::to_owned);
        }
    }

    fn words(&self) -> String {
        let why = self.why.as_deref().unwrap_or_default();
        match (self.returnable_bytes, &self.restart_under) {
            (Some(bytes), Some(name)) => {
                format!(
                    "{why}; {} MiB are free: a restart under {name} would give them back",
                    mib(bytes as f64)
                )
            }
            (Some(bytes), None) => format!("{why}; {} MiB are free", mib(bytes as f64)),
            _ => why.to_owned(),
        }
    }
}

fn page(rows: &[Row], sum: u64) -> String {
    let in_mib = |bytes: u64| mib(bytes as f64);
    let shown = rows.iter().map(|row| {
        vec![
            row.pid.to_string(),
            row.program.clone(),
            row.candidate.clone().unwrap_or_default(),
            row.returned_bytes.map_or_else(String::new, in_mib),
            row.took_ms.map_or_else(String::new, |ms| format!("{ms:.1}")),
            row.words(),
        ]
    });
    let table = table::plain(&["pid", "program", "on", "MiB returned", "ms", ""], shown);
    if rows.len() > 1 { format!("{table}{} MiB in all\n", in_mib(sum)) } else { table }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            pid: 7,
            program: "x".into(),
            unit: None,
            candidate: None,
            asked: false,
            answered: false,
            returned_bytes: None,
            took_ms: None,
            waited_ms: None,
            why: Some("it was started without IMAS".into()),
            returnable_bytes: None,
            restart_under: None,
        }
    }

    #[test]
    fn what_a_restart_would_bring_is_said_where_it_is_known() {
        assert_eq!(row().words(), "it was started without IMAS");
        let known =
            Row { returnable_bytes: Some(9 << 20), restart_under: Some("glibc:lean-trim".into()), ..row() };
        assert_eq!(
            known.words(),
            "it was started without IMAS; 9.00 MiB are free: a restart under glibc:lean-trim would give them back"
        );
        let mut own = Row { pid: std::process::id(), candidate: Some("glibc:lean-trim".into()), ..row() };
        own.look_at_heaps(Some("glibc:lean-trim"));
        assert_eq!(own.restart_under, None, "it is on that already");
    }
}
