// SPDX-License-Identifier: Apache-2.0
//! `imas-lab record`: runs a command under `system` and writes its malloc calls into a trace.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use imas_cli::format::counted;
use imas_linux::catalogue::SYSTEM;
use imas_linux::environment::Variables;
use imas_linux::process;
use imas_linux::program::Command;
use imas_linux::start_program::{ChildSetup, ProgramStart};
use imas_replay::recording::{RecordedRun, Recording, RecordingLimits};
use imas_replay::trace::file::{TraceHeader, TraceProcess};
use imas_replay::trace::raw::Stop;
use imas_runs::command::Recorder;
use imas_runs::interruption::HandingOn;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use super::args::RecordArgs;
use imas_cli::message::{self, Hinted};
use imas_cli::output;
use imas_engine::context::Context;
use imas_engine::entry;

/// Exit status of a command that ended by SIGSYS.
const ENDED_BY_FILTER: i32 = 128 + 31;

/// Message about such a command. The recorder stops when it sees a filter.
const FILTERED: &str = "the command was ended by a filter of system calls (SIGSYS)\n\
     hint: does it end so without 'imas record'? If not, it sets the filter by an instruction of its own, and cannot be \
     recorded";

/// Message where a process is left that still runs. The first process of a daemon ends as soon as the others
/// run.
const STILL_RUNS: &str = "the command has ended, and a process that it left behind still runs: its calls from \
     here on are not in the trace\n\
     hint: give the program its option for the foreground";

pub(crate) fn run(args: &RecordArgs, context: &Context) -> Result<ExitCode> {
    let command = match Command::resolve(&args.command, std::env::var_os("PATH").as_deref()) {
        Ok(command) => command,
        Err(error) => return Ok(entry::exit_status(error)),
    };
    let executable = imas_engine::inspect::command(&command, None)?;
    if let Some(why) = &executable.unfit {
        return Err(Hinted::error(
            format!("{}: cannot be recorded: {why}", command.program.path.display()),
            "record another program, or the program that this one starts",
        ));
    }
    let limits = RecordingLimits { bytes: args.limit, duration: args.duration };
    let recording = begin(&args.out, limits)?;
    // imas does not end by them, because it still has to write the trace.
    let handing_on = HandingOn::begin(&[])?;
    let header = recorded(&command, &recording, &args.out, context)?;
    drop(handing_on);
    show(args, &header)?;
    Ok(ExitCode::from(u8::try_from(header.exit & 0xFF).unwrap_or(1)))
}

/// Begins a recording beside the trace. What keeps the trace from being written is found out before the
/// command runs, because its calls would be lost.
fn begin(trace: &Path, limits: RecordingLimits) -> Result<Recording> {
    let unwritable =
        |what: String| Hinted::error(what, "name a file in a folder that is there and yours: -o FILE");
    if trace.is_dir() {
        return Err(unwritable(format!("{}: is a folder", trace.display())));
    }
    let folder = trace.parent().filter(|folder| !folder.as_os_str().is_empty());
    Recording::begin(folder.unwrap_or_else(|| Path::new(".")), limits)
        .map_err(|error| unwritable(message::text(&error)))
}

/// Runs the command under the recorder and writes the trace.
fn recorded(
    command: &Command,
    recording: &Recording,
    trace: &Path,
    context: &Context,
) -> Result<TraceHeader> {
    let inherited = Variables::inherited();
    let run = watch(command, &variables(&recording.recorder(context)?, &inherited, context)?)?;
    if run.exit == ENDED_BY_FILTER {
        message::warning(FILTERED);
    }
    if process::is_in_use(recording.folder()) {
        message::warning(STILL_RUNS);
    }
    recording.write(trace, run)
}

/// The environment of a recorded start.
fn variables(recorder: &Recorder, inherited: &Variables, context: &Context) -> Result<Variables> {
    recorder.variables(context.candidate(SYSTEM)?, inherited, &context.libraries)
}

/// Runs the command to its end. It inherits standard input and outputs.
fn watch(command: &Command, variables: &Variables) -> Result<RecordedRun> {
    let begun = Instant::now();
    let start = ProgramStart { file: &command.file, argv: &command.argv, variables };
    let child = start.spawn(&ChildSetup::default()).with_context(|| command.file.display().to_string())?;
    let status = child.wait()?;
    Ok(RecordedRun {
        cpu_s: cpu_of_children()?,
        wall_s: begun.elapsed().as_secs_f64(),
        exit: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
    })
}

fn cpu_of_children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a run are far below 2^52")]
    Ok(micros as f64 / 1e6)
}

fn show(args: &RecordArgs, header: &TraceHeader) -> Result<()> {
    let bytes = std::fs::metadata(&args.out)?.len();
    for warning in warnings(header) {
        message::warning(&warning);
    }
    if args.json.json {
        return output::json(&serde_json::json!({ "schema": 1, "bytes": bytes, "trace": header }));
    }
    let calls: u64 = header.processes.iter().map(|process| process.counts.calls).sum();
    let mib = bytes as f64 / f64::from(1 << 20);
    let per_call = bytes as f64 / calls.max(1) as f64;
    message::say(&format!(
        "{}: {} of {}, {mib:.1} MiB, {per_call:.2} bytes a call",
        args.out.display(),
        counted(calls, "call"),
        counted(header.processes.len(), "process")
    ));
    Ok(())
}

/// Processes were recorded, and none of them made a call.
fn is_empty(header: &TraceHeader) -> bool {
    let has_none = |process: &TraceProcess| process.stop == Stop::None && process.counts.calls == 0;
    !header.processes.is_empty() && header.processes.iter().all(has_none)
}

/// Messages about calls that are not in the trace.
fn warnings(header: &TraceHeader) -> Vec<String> {
    let count = |is: &dyn Fn(Stop) -> bool| header.processes.iter().filter(|p| is(p.stop)).count();
    let lost: u64 = header.processes.iter().map(|process| process.lost).sum();
    let known = [
        (count(&|stop| stop == Stop::Limit), "stopped at --limit before they ended"),
        (count(&|stop| stop == Stop::Time), "stopped at --for before they ended"),
        (count(&|stop| stop == Stop::File), "stopped because the raw file could not be written"),
        (
            count(&|stop| stop == Stop::Sandbox),
            "stopped because they set a filter of system calls, or are about to",
        ),
        (count(&|stop| stop == Stop::Unfit), "have an allocator of their own and were not recorded"),
        (
            usize::try_from(header.left_out).unwrap_or(0),
            "left no record: --limit was reached, or the disk full",
        ),
    ];
    let mut all: Vec<String> = known
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("processes that {what}: {count}"))
        .collect();
    if header.processes.is_empty() && header.left_out == 0 {
        all.push(
            "nothing was recorded: the program is static or privileged, or it drops LD_PRELOAD\n\
             hint: record the program that it starts"
                .to_owned(),
        );
    } else if is_empty(header) {
        all.push(
            "nothing was recorded: no process made a call of malloc while it was recorded\n\
             hint: a program with an allocator of its own does not call malloc"
                .to_owned(),
        );
    }
    if lost > 0 {
        all.push(format!("not in the trace: {} from signal handlers", counted(lost, "call")));
    }
    all
}
