// SPDX-License-Identifier: Apache-2.0
//! `imas trim`: running processes give their free pages back now ([`imas_linux::process_trim`]): one waiting thread of each
//! calls `malloc_trim(0)`.
//!
//! `imas trim UNIT --every TIME`: a timer of systemd that trims a service, without imasd. Shown first; written, and taken
//! away, only with --write.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_cli::format::mib;
use imas_cli::message::{self, Hinted};
use imas_cli::{output, table};
use imas_engine::context::Context;
use imas_engine::drop_in::{self, Found};
use imas_engine::memory_look::remedy::LEAST_TRIM;
use imas_linux::heap::figures::NotReadable;
use imas_linux::index::ServiceUnit;
use imas_linux::process_trim::{self, FromOutside, LeftAlone};
use imas_linux::running::{self, Running};
use imas_linux::running_runtime::{RunningRuntime, name_of_candidate};
use imas_linux::serving::RealCandidates;
use imas_linux::{foreign_process, process, trust};
use serde::Serialize;
use serde_json::json;

use super::unit::{self, Unit, systemctl};
use super::{LEFT_ALONE, left_alone};
use crate::command_line::cli::JsonArgs;
use crate::command_line::service_args::{TrimArgs, TrimEvery, WriteArgs};

/// Exit status when nothing was given back by any process.
const NO_ANSWER: u8 = 1;
/// Fewest free bytes for which a process is disturbed that nobody has named.
const LEAST_OF_ALL: u64 = 32 << 20;
/// The processes of one owner that were not named may take so long together: they decide how long each takes.
const MOST_OF_AN_OWNER: Duration = Duration::from_secs(30);

/// One process, and what came of trimming it.
#[derive(Debug, Serialize)]
struct Row {
    pid: u32,
    program: String,
    unit: Option<ServiceUnit>,
    candidate: Option<String>,
    /// Bytes that a trim would return, by a look into its heaps before; None where these cannot be read.
    returnable_bytes: Option<u64>,
    /// Bytes that it gave back.
    returned_bytes: Option<u64>,
    /// Time of the trim itself.
    took_ms: Option<f64>,
    /// The thread that stood still, and for how long; None where the process was left alone.
    thread: Option<i32>,
    stood_ms: Option<f64>,
    /// Reason why nothing was given back.
    why: Option<String>,
}

/// A process that is to give back.
struct Trimming {
    row: Row,
    owner: Option<u64>,
    start_ticks: u64,
}

pub(crate) fn run(args: &TrimArgs, context: &Context) -> Result<ExitCode> {
    if let Some(every) = args.every {
        return run_timer(args, every, "");
    }
    let candidates = RealCandidates::of(context.catalogue.all());
    let processes = meant(args)?;
    let least = args.at_least.unwrap_or(if args.all { LEAST_OF_ALL } else { LEAST_TRIM });
    let mut all: Vec<Trimming> =
        processes.iter().map(|process| Trimming::begin(process, &candidates, least)).collect();
    let mut spent = BTreeMap::new();
    for trimming in all.iter_mut().filter(|one| one.row.why.is_none()) {
        let spent = spent.entry(trimming.owner).or_insert(Duration::ZERO);
        if args.all && *spent > MOST_OF_AN_OWNER {
            trimming.end("the other processes of its owner took too long");
            continue;
        }
        let begun = Instant::now();
        trimming.trim_outside();
        *spent += begun.elapsed();
    }
    let rows: Vec<Row> = all.into_iter().map(|trimming| trimming.row).collect();
    let sum = rows.iter().filter_map(|row| row.returned_bytes).fold(0, u64::saturating_add);
    let document = json!({ "schema": 1, "returned_bytes": sum, "processes": rows });
    output::json_or(args.json.json, &document, || page(&rows, sum, args.all))?;
    let any = rows.iter().any(Row::is_trimmed);
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::from(NO_ANSWER) })
}

/// The processes that are meant.
fn meant(args: &TrimArgs) -> Result<Vec<Running>> {
    let own = std::process::id();
    let Some(word) = &args.what else {
        return Ok(running::all().into_iter().filter(|process| process.pid != own).collect());
    };
    if let Ok(pid) = word.parse() {
        let found = running::one(pid).ok_or_else(|| {
            message::not_seen(pid, "root may trim another user's processes: sudo imas trim PID")
        })?;
        return Ok(vec![found]);
    }
    let of_container = |process: &Running| process.is_of_container(word);
    let found: Vec<Running> = running::all().into_iter().filter(of_container).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let name = unit::full_name(word)?;
    let of_unit = |process: &Running| process.system_unit() == Some(name.as_str());
    let found: Vec<Running> = running::all().into_iter().filter(of_unit).collect();
    if found.is_empty() {
        return Err(Hinted::error(
            format!("{name}: no process of it runs, or they belong to another user"),
            "'systemctl status' shows the processes of a service, 'docker ps --no-trunc' and 'crictl ps' the id of a \
             container; root may trim all of them: sudo imas trim UNIT",
        ));
    }
    Ok(found)
}

impl Trimming {
    /// Looks into the heaps of the process for whether it has enough to give back.
    fn begin(process: &Running, candidates: &RealCandidates, least: u64) -> Self {
        let pid = process.pid;
        let runtime = || Some(RunningRuntime::of(process)?.found.runtime);
        let row = Row {
            pid,
            program: process.program.to_string(),
            unit: process.unit.clone(),
            candidate: name_of_candidate(process, candidates, runtime).map(str::to_owned),
            returnable_bytes: None,
            returned_bytes: None,
            took_ms: None,
            thread: None,
            stood_ms: None,
            why: None,
        };
        let start_ticks = process::start_ticks(pid).unwrap_or(0);
        let mut trimming = Self { row, owner: foreign_process::owner_of(pid), start_ticks };
        trimming.look_at_heaps(least);
        trimming
    }

    /// Whether there is enough to give back, where that can be read.
    fn look_at_heaps(&mut self, least: u64) {
        if process::resident_bytes(self.row.pid).is_some_and(|bytes| bytes < least) {
            return self.end(&format!("it holds less than {} MiB in all", mib(least as f64)));
        }
        let Ok(heaps) = process_trim::heaps_of(self.row.pid) else { return };
        let free = heaps.bytes.returnable;
        self.row.returnable_bytes = Some(free);
        if free < least {
            self.end(&format!(
                "{} MiB are free, less than {} MiB (--at-least)",
                mib(free as f64),
                mib(least as f64)
            ));
        }
    }

    fn trim_outside(&mut self) {
        if process::start_ticks(self.row.pid).ok() != Some(self.start_ticks) {
            return self.end("it has ended");
        }
        let done = match process_trim::from_outside(self.row.pid) {
            Ok(FromOutside::Done(done)) => done,
            Ok(FromOutside::LeftAlone(reason)) => return self.end(&say_left_alone(&reason)),
            Ok(FromOutside::NotReadable(reason)) => return self.end(&reason.to_string()),
            Err(error) => return self.end(&refused(&error)),
        };
        self.row.returned_bytes = done.resident.map(|(before, after)| before.saturating_sub(after));
        self.row.took_ms = done.trim_ms;
        self.row.thread = Some(done.thread);
        self.row.stood_ms = Some(done.stood_ms);
        if done.trim_ms.is_none() {
            self.row.why = Some("it was not seen to be done in time".to_owned());
        }
    }

    fn end(&mut self, why: &str) {
        self.row.why = Some(why.to_owned());
    }
}

fn say_left_alone(reason: &LeftAlone) -> String {
    match reason {
        LeftAlone::NotAllowed => not_allowed(),
        _ if reason.may_pass() => format!("{reason}; a later try may find it otherwise"),
        _ => reason.to_string(),
    }
}

/// Sentence on who may trace the process, by the machine's yama and by who asks.
fn not_allowed() -> String {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    let who = match scope.trim() {
        "3" => "nobody may trace here until the next boot (kernel.yama.ptrace_scope = 3)",
        _ if is_root => "root lacks CAP_SYS_PTRACE here ('docker run --cap-add SYS_PTRACE' gives it)",
        "1" => {
            "its parents and root alone may (kernel.yama.ptrace_scope = 1): sudo imas trim, or start it by 'imas run --trim'"
        }
        "2" => "root alone may (kernel.yama.ptrace_scope = 2): sudo imas trim",
        _ => "its owner may, if it can be dumped, and root: sudo imas trim",
    };
    format!("it may not be traced: {who}")
}

fn refused(error: &Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => not_allowed(),
        ErrorKind::TimedOut => "it took too long, and was not seen to be done".to_owned(),
        _ => NotReadable::of(error).to_string(),
    }
}

impl Row {
    /// Whether one of its threads was let go into malloc_trim.
    fn is_trimmed(&self) -> bool {
        self.thread.is_some()
    }

    /// Whether it is of interest among all processes: it gave back, or had enough and was left alone.
    fn is_shown(&self) -> bool {
        self.is_trimmed() || self.returnable_bytes.is_some_and(|bytes| bytes >= LEAST_OF_ALL)
    }

    fn words(&self) -> String {
        let stood = self.thread.zip(self.stood_ms);
        let stood = stood.map(|(thread, ms)| format!("thread {thread} stood still for {ms:.1} ms"));
        stood.into_iter().chain(self.why.clone()).collect::<Vec<_>>().join("; ")
    }
}

fn page(rows: &[Row], sum: u64, is_all: bool) -> String {
    let in_mib = |bytes: Option<u64>| bytes.map_or_else(String::new, |bytes| mib(bytes as f64));
    let in_ms = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("{ms:.1}"));
    let shown: Vec<&Row> = rows.iter().filter(|row| !is_all || row.is_shown()).collect();
    let others = rows.len() - shown.len();
    let lines = shown.iter().map(|row| {
        vec![
            row.pid.to_string(),
            row.program.clone(),
            row.candidate.clone().unwrap_or_default(),
            in_mib(row.returnable_bytes),
            in_mib(row.returned_bytes),
            in_ms(row.took_ms),
            row.words(),
        ]
    });
    let mut text = table::plain(&["pid", "program", "on", "MiB free", "MiB returned", "ms", ""], lines);
    if rows.len() > 1 {
        text.push_str(&format!("{} MiB in all\n", mib(sum as f64)));
    }
    if others > 0 {
        text.push_str(&format!("{others} other processes hold too little that is free, or cannot be read\n"));
    }
    text
}

/// Least pages that are worth a thread's pause again and again, MiB.
const LEAST_MIB: u64 = 32;
/// Folder of imas in packages, for an image.
const INSTALLED: &str = "/usr/bin/imas";

/// The two files of a service's timer.
struct TrimTimer {
    service: PathBuf,
    timer: PathBuf,
    /// Name of the timer, as systemd has it.
    name: String,
}

impl TrimTimer {
    fn of(unit: &str, root: &Path) -> Self {
        let stem = format!("imas-trim-{}", unit.trim_end_matches(".service"));
        let folder = root.join("etc/systemd/system");
        Self {
            service: folder.join(format!("{stem}.service")),
            timer: folder.join(format!("{stem}.timer")),
            name: format!("{stem}.timer"),
        }
    }

    /// The first of the files that is there and not as imas wrote it.
    fn foreign(&self, root: &Path) -> Result<Option<&Path>> {
        for file in [&self.service, &self.timer] {
            drop_in::check_below(root, file)?;
            if drop_in::find(file)? == Found::Edited {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

/// Writes the timer of the service, or takes it away. `origin` stands in the timer.
fn run_timer(args: &TrimArgs, every: TrimEvery, origin: &str) -> Result<ExitCode> {
    let word = args.what.as_deref().unwrap_or_default();
    if word.parse::<u32>().is_ok() {
        return Err(Hinted::error(
            format!("--every is for services, and {word} is a process"),
            "'systemctl status PID' shows the service of a process",
        ));
    }
    let root = args.root.as_deref().unwrap_or_else(|| Path::new("/"));
    let name = unit::full_name(word)?;
    let files = TrimTimer::of(&name, root);
    if let Some(file) = files.foreign(root)? {
        left_alone(file);
        return Ok(ExitCode::from(LEFT_ALONE));
    }
    match every {
        TrimEvery::Off => take_away(&files, &name, args),
        TrimEvery::Seconds(seconds) => put_there(&files, &name, seconds, args, origin),
    }
}

/// Time between two trims of a service whose candidate goes with trims, s.
const BESIDE_A_CANDIDATE_S: u64 = 60;
/// Line in the timer of a service that 'imas apply' trims beside its candidate.
const WITH_CANDIDATE: &str = "# It goes with the candidate: 'imas unapply' takes both away\n";

/// Writes the timer that goes with a candidate, where the candidate is written too.
pub(super) fn beside_candidate(name: &str, how: &WriteArgs, is_written: bool) -> Result<()> {
    if !is_written {
        message::say(&format!("and a timer that trims it each minute: imas trim {name} --every 1m --write"));
        return Ok(());
    }
    let every = TrimEvery::Seconds(BESIDE_A_CANDIDATE_S);
    let json = JsonArgs { json: how.json.json };
    let root = how.root.clone();
    let what = Some(name.to_owned());
    let args = TrimArgs { what, all: false, at_least: None, every: Some(every), write: true, root, json };
    run_timer(&args, every, WITH_CANDIDATE).map(drop)
}

/// Takes the timer away that went with the candidate, where the candidate's drop-in is written anew or taken away. A timer
/// that the user asked for himself stays.
pub(super) fn end_beside_candidate(name: &str, how: &WriteArgs, is_written: bool) -> Result<()> {
    let root = how.root.as_deref().unwrap_or_else(|| Path::new("/"));
    let files = TrimTimer::of(name, root);
    let is_beside = match drop_in::find(&files.timer)? {
        Found::Ours(text) => text.contains(WITH_CANDIDATE),
        _ => false,
    };
    if !is_beside || files.foreign(root)?.is_some() {
        return Ok(());
    }
    message::say(&format!("{}, which went with the candidate, is taken away too", files.name));
    if is_written { remove(&files, how.root.as_deref()) } else { Ok(()) }
}

fn put_there(files: &TrimTimer, name: &str, seconds: u64, args: &TrimArgs, origin: &str) -> Result<ExitCode> {
    Unit::read(name, args.root.as_deref())?; // a service that is not known is an error
    let program = program(args.root.as_deref())?;
    let least = args.at_least.map_or_else(|| format!("{LEAST_MIB}M"), |bytes| bytes.to_string());
    let service = service_text(name, &program, &least);
    let timer = timer_text(name, seconds, origin);
    if !args.json.json {
        output::text(&format!(
            "{}:\n{service}\n{}:\n{timer}",
            files.service.display(),
            files.timer.display()
        ))?;
    }
    if !args.write {
        message::say("nothing was written; to do it: the same with --write");
        return Ok(ExitCode::SUCCESS);
    }
    for (file, text) in [(&files.service, &service), (&files.timer, &timer)] {
        drop_in::write(file, text).map_err(drop_in::advised)?;
    }
    match args.root.as_deref() {
        None => {
            systemctl(&["daemon-reload"])?;
            systemctl(&["enable", "--now", "--", &files.name])?;
        }
        Some(root) => of_image(root, "enable", &files.name)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Enables or disables a timer in an image, whose systemd does not run.
fn of_image(root: &Path, verb: &str, name: &str) -> Result<()> {
    let root = root.to_str().context("--root has a name that systemctl cannot be given")?;
    systemctl(&["--root", root, verb, "--", name]).map(drop)
}

fn take_away(files: &TrimTimer, name: &str, args: &TrimArgs) -> Result<ExitCode> {
    if !files.timer.exists() && !files.service.exists() {
        message::say(&format!("imas: {name} has no timer of 'imas trim'"));
        return Ok(ExitCode::from(LEFT_ALONE));
    }
    if !args.write {
        message::say(&format!("{} would be taken away; to do it: the same with --write", files.name));
        return Ok(ExitCode::SUCCESS);
    }
    remove(files, args.root.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the timer and removes its files.
fn remove(files: &TrimTimer, root: Option<&Path>) -> Result<()> {
    match root {
        None => drop(systemctl(&["disable", "--now", "--", &files.name])?),
        Some(root) => of_image(root, "disable", &files.name)?,
    }
    for file in [&files.timer, &files.service].into_iter().filter(|file| file.exists()) {
        drop_in::remove(file).map_err(drop_in::advised)?;
    }
    if root.is_none() {
        systemctl(&["daemon-reload"])?;
    }
    Ok(())
}

/// The imas that root is to run again and again: nobody else may be able to change it.
fn program(root: Option<&Path>) -> Result<PathBuf> {
    if root.is_some() {
        return Ok(INSTALLED.into());
    }
    let program = std::env::current_exe().context("the path of imas")?;
    match trust::untrusted(&program, 0) {
        None => Ok(program),
        Some(why) => Err(Hinted::error(
            format!("root would run a program that others could change: {why}"),
            "install imas first (docs/install.md), then use /usr/bin/imas",
        )),
    }
}

fn service_text(name: &str, program: &Path, least: &str) -> String {
    drop_in::marked(&format!(
        "# Free memory of {name} is given back; to end it: imas trim {name} --every off --write\n\
         [Unit]\n\
         Description=IMAS: give back free memory of {name}\n\
         Documentation=man:imas-trim(1)\n\
         After={name}\n\n\
         [Service]\n\
         Type=oneshot\n\
         ExecStart=\"{}\" trim --at-least {least} -- {name}\n\
         # Nothing to give back, or a service that does not run, is no failure.\n\
         SuccessExitStatus=1 2\n\
         # Tracing, the memory of other users, and reading their filters of system calls.\n\
         CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_SYS_ADMIN CAP_SYS_PTRACE\n\
         NoNewPrivileges=yes\n\
         ProtectSystem=strict\n\
         ProtectHome=yes\n\
         PrivateNetwork=yes\n\
         RestrictAddressFamilies=AF_UNIX\n\
         Nice=10\n",
        program.display().to_string().replace('%', "%%")
    ))
}

fn timer_text(name: &str, seconds: u64, origin: &str) -> String {
    drop_in::marked(&format!(
        "# Free memory of {name} is given back each {seconds} s\n{origin}\
         [Unit]\n\
         Description=IMAS: give back free memory of {name} each {seconds} s\n\n\
         [Timer]\n\
         OnActiveSec={seconds}\n\
         OnUnitActiveSec={seconds}\n\
         AccuracySec=10\n\n\
         [Install]\n\
         WantedBy=timers.target\n"
    ))
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
            returnable_bytes: None,
            returned_bytes: None,
            took_ms: None,
            thread: None,
            stood_ms: None,
            why: None,
        }
    }

    #[test]
    fn among_all_those_are_shown_that_matter() {
        let gave = Row { thread: Some(7), stood_ms: Some(1.0), returned_bytes: Some(40 << 20), ..row() };
        let left = Row { returnable_bytes: Some(LEAST_OF_ALL), why: Some("it is stopped".into()), ..row() };
        let little = || Row { returnable_bytes: Some(LEAST_OF_ALL - 1), why: Some("scarce".into()), ..row() };
        let text = page(&[gave, left, little(), row()], 40 << 20, true);
        assert!(text.contains("it is stopped") && !text.contains("scarce"), "{text}");
        assert!(text.contains("2 other processes") && text.contains("40.0 MiB in all"), "{text}");
        assert!(page(&[little()], 0, false).contains("scarce"), "one that was named is always shown");
    }
}
