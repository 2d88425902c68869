// SPDX-License-Identifier: Apache-2.0
//! `imas explain`: what was decided for a program, why, on which evidence, and how to undo it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use imas_cli::format::{counted, when};
use imas_cli::message::{self, Hinted};
use imas_cli::output;
use imas_core::Reason;
use imas_core::adaptive::Expired;
use imas_core::decision::next_trial;
use imas_core::hang::Excess;
use imas_core::profile::CandidateView;
use imas_core::quarantine::Quarantine;
use imas_core::sample::Ended;
use imas_engine::context::Context;
use imas_engine::limit_note::LimitNote;
use imas_engine::live::process_state;
use imas_engine::picks::trial_count;
use imas_engine::program_view::{ProgramView, state};
use imas_engine::{lives, outside, picks};
use imas_linux::interpreter_target::is_meant;
use imas_linux::program::Command;
use imas_linux::running::{Running, is_copy_of_its_parent};
use imas_store::Store;
use imas_store::decisions::Decided;
use imas_store::samples::StoredProgram;
use serde_json::json;

use crate::command_line::cli::ExplainArgs;
use crate::look::process_memory;
use crate::look::runtime::{self, RuntimeView};
use crate::look::show::{count_of_bench, next_line, of_bench, splits, table};
use crate::stored::find;

/// Number of past decisions that are shown.
const PAST: u32 = 10;

pub(crate) fn run(args: &ExplainArgs, context: &Context) -> Result<ExitCode> {
    match (args.pid, &args.program) {
        (Some(pid), _) => process_memory::run(pid, args, context),
        (None, Some(word)) if is_service(word) => of_service(&word.to_string_lossy(), args),
        (None, Some(word)) => match process_meant(word, context)? {
            Some(pid) => process_memory::run(pid, args, context),
            None if args.leaks || args.time.is_some() => bail!("--leaks and --for look at a running process"),
            None => of_program(word, args, context),
        },
        (None, None) => bail!("name a program, or a process by its number"),
    }
}

/// The process that a number means: a number may also be a program's of the store, which comes first, and a file in
/// this folder is given as `./7`.
fn process_meant(word: &OsStr, context: &Context) -> Result<Option<u32>> {
    let number = word.to_str().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    let Some(pid) = number.and_then(|number| number.parse::<u32>().ok()) else { return Ok(None) };
    let store = crate::stored::view(context)?;
    let is_program = store.programs()?.iter().any(|program| program.id == i64::from(pid));
    let is_process = imas_linux::process::start_ticks(pid).is_ok();
    if is_program && is_process && !context.of_the_system {
        message::warning(&format!("{pid} is a program's number here; the process: imas explain --pid {pid}"));
    }
    // Neither: a number is a process that has ended, rather than a program that nobody knows.
    Ok((!is_program).then_some(pid))
}

/// Whether the word is a service's name, and no file here.
fn is_service(word: &OsStr) -> bool {
    word.as_encoded_bytes().ends_with(b".service") && !Path::new(word).exists()
}

/// What a service held when it was near its limit of memory.
fn of_service(unit: &str, args: &ExplainArgs) -> Result<ExitCode> {
    let run_dir = Path::new(imas_abi::RUN_FOLDER);
    let note = LimitNote::read(run_dir, unit).map_err(|error| {
        let hint = "root may see what services hold: sudo imas explain UNIT";
        Hinted::error(format!("the notes of imasd: {error}"), hint)
    })?;
    let Some(note) = note else {
        return Err(Hinted::error(
            format!("{unit}: imasd has no note that it came near its limit of memory"),
            "'note_near_limits = true' in /etc/imas/imasd.toml makes imasd write them; 'systemctl status UNIT' shows the \
             processes of a service that runs: imas explain PID",
        ));
    };
    output::json_or(args.json.json, &note, || note.text(&when(note.at_unix_s)))?;
    Ok(ExitCode::SUCCESS)
}

fn of_program(program: &OsStr, args: &ExplainArgs, context: &Context) -> Result<ExitCode> {
    let store = crate::stored::view(context)?;
    let stored = match find(&store, program) {
        Ok(stored) => stored,
        Err(error) => return never_started(program, args, context, &store).unwrap_or(Err(error)),
    };
    let runtime = runtime::view_stored(&stored, context, &store);
    let state = state(context, &store, stored, &args.rules)?;
    let past = store.decisions(state.known.program.id, PAST)?;
    let word = word_of(&state.known.program, &store, context);
    if args.json.json {
        let all = picks::picks(&state.profile);
        let quarantines: Vec<_> =
            state.profile.candidates.iter().filter_map(|view| view.quarantine.as_ref()).collect();
        output::json(&json!({
            "schema": 1,
            "program": state.known.program,
            "next": state.decision,
            "under_way": state.under_way,
            "sentence": state.decision.reason.sentence(),
            "undo": undo(&state, context, &word),
            "confidence": state.profile.adaptive().map(|known| known.settings.confidence),
            "standings": state.judgement.as_ref().map(|judgement| &judgement.standings),
            "picks": picks::names_json(&all),
            "expected_gain": picks::gains_json(&all),
            "looked_at_again": again(&state),
            "sharing": state.sharing,
            "lives": lives::lives(&state),
            "of_bench": count_of_bench(&state),
            "workers": forked_workers(&state),
            "expired": expired(&state),
            "quarantined": quarantines,
            "runtime": runtime,
            "left_out": state.known.left_out().iter().map(|(name, why)| json!({"candidate": name, "why": why})).collect::<Vec<_>>(),
            "candidates": state.profile.candidates,
            "past": past,
        }))?;
    } else {
        let text = match hardly_known(&state).filter(|_| runtime.is_none()) {
            Some(line) => line,
            None => page(&state, runtime.as_ref(), &past, (context, &word))?,
        };
        output::text(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fewest rounds of a candidate whose figures are shown, and not their number alone.
const SHOWN_ROUNDS: u32 = 3;

/// The one line for a program none of whose figures mean much yet. None for any other.
fn hardly_known(state: &ProgramView) -> Option<String> {
    let judgement = state.judgement.as_ref()?;
    let is_new = judgement.standings.iter().all(|one| one.proof.is_none() && one.rounds < SHOWN_ROUNDS);
    let is_usual = matches!(state.decision.reason, Reason::TrialDue | Reason::NoData | Reason::NothingProven);
    let harmed = |view: &CandidateView| view.quarantine.is_some() || !view.left_out.is_empty();
    let is_more = state.sharing.is_some() || state.under_way.is_some();
    if !is_new || !is_usual || is_more || state.profile.candidates.iter().any(harmed) {
        return None;
    }
    let next = match next_trial(&state.profile, state.weight) {
        Some(due) => format!("; next: {}", state.profile.candidates[due.candidate].name),
        None => String::new(),
    };
    let trials = counted(trial_count(state), "trial");
    Some(format!("{}: nothing proven: {trials}{next}\n", state.known.program))
}

/// A word by which the user names this program and no other: its script, its name or its path, else its number. In a store
/// of others' programs it is the number: nothing that they named is resolved or printed in a command.
fn word_of(program: &StoredProgram, store: &Store, context: &Context) -> String {
    const COMMAND: &str = "imas explain";
    let is_plain = |word: &String| {
        let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte);
        !word.is_empty() && word.bytes().all(is_usual)
    };
    if context.of_the_system || context.on_this_store(COMMAND) != COMMAND {
        return program.id.to_string();
    }
    let name = Path::new(&program.path).file_name().map(|name| name.to_string_lossy().into_owned());
    let words = [Some(program.detail.clone()), name, Some(program.path.clone())];
    let is_it = |word: &String| find(store, OsStr::new(word)).is_ok_and(|found| found.id == program.id);
    let word = words.into_iter().flatten().filter(is_plain).find(is_it);
    word.unwrap_or_else(|| program.id.to_string())
}

/// The runtime of a program that was not started yet; `None` where it has none.
fn never_started(
    program: &OsStr,
    args: &ExplainArgs,
    context: &Context,
    store: &Store,
) -> Option<Result<ExitCode>> {
    let command = Command::resolve(&[program.to_owned()], std::env::var_os("PATH").as_deref()).ok()?;
    let runtime = runtime::view(&command, context, Some(store))?;
    let shown = if args.json.json {
        output::json(&json!({ "schema": 1, "program": command.program.to_string(), "runtime": runtime }))
    } else {
        let text = runtime::text(&runtime);
        output::text(&format!("{}\n\nIt was not started yet.\n\n{text}", command.program))
    };
    Some(shown.map(|()| ExitCode::SUCCESS))
}

fn page(
    state: &ProgramView,
    runtime: Option<&RuntimeView>,
    past: &[Decided],
    (context, word): (&Context, &str),
) -> Result<String> {
    let now = process_state(state, None).words();
    let mut text = format!("{}\n\nstate: {now}\n{}", state.known.program, next_line(state));
    for evidence in &state.decision.evidence {
        writeln!(text, "  {}: {}", evidence.name, evidence.value)?;
    }
    for line in picks::change_lines(&picks::picks(&state.profile)) {
        writeln!(text, "  {line}")?;
    }
    if let Some(confidence) = confidence(state) {
        writeln!(text, "  confidence: {confidence}")?;
    }
    if let Some(sharing) = &state.sharing {
        writeln!(text, "  fleet: {}", imas_engine::program_view::sharing_words(sharing))?;
    }
    if let Some(undo) = undo(state, context, word) {
        writeln!(text, "  to change it: {undo}")?;
    }
    writeln!(text, "  looked at again: {}", again(state))?;
    if let Some(of_bench) = of_bench(state) {
        writeln!(text, "  {of_bench}")?;
    }
    if let Some(workers) = forked_workers(state) {
        writeln!(text, "  {workers}")?;
    }
    if let Some(expired) = expired(state) {
        writeln!(text, "  {expired}")?;
    }
    if let Some(runtime) = runtime {
        write!(text, "\n{}", runtime::text(runtime))?;
    }
    for (name, why) in state.known.left_out() {
        writeln!(text, "\n{name} is left out: {why}")?;
    }
    for view in &state.profile.candidates {
        if let Some(quarantine) = &view.quarantine {
            writeln!(text, "\n{}", quarantined(quarantine, word, context))?;
        }
        for (why, trials) in left_out(view)? {
            let (s, does) = if trials == 1 { ("", "does") } else { ("s", "do") };
            writeln!(text, "{trials} trial{s} of {} {does} not count: {why}", view.name)?;
        }
    }
    // Into an unfit program no candidate of the table can be loaded.
    if !state.is_left_alone() {
        writeln!(text, "\n{}", table(state))?;
        text.push_str(&splits(state));
    }
    text.push_str(&lives::text(&lives::lives(state)));
    if !past.is_empty() {
        writeln!(text, "decisions so far, newest first:")?;
    }
    for decided in past {
        let kind = if decided.trial { "trial of " } else { "" };
        writeln!(text, "  {}  {kind}{}: {}", when(decided.at_s), decided.candidate, decided.because)?;
    }
    Ok(text)
}

/// How sure the answer is.
fn confidence(state: &ProgramView) -> Option<String> {
    let known = state.profile.adaptive().filter(|_| !state.is_left_alone())?;
    let standing = state.judgement.as_ref()?.standings.iter().find(|one| one.proof.is_some());
    let percent = known.settings.confidence * 100.0;
    Some(match standing {
        Some(_) => format!(
            "{percent:.0} % that a pick beside system truly differs for the better, over all candidates and looks"
        ),
        None => format!("nothing is proven yet with {percent:.0} %, over all candidates and looks"),
    })
}

/// Running processes of the program that cannot differ from their parent, in words.
fn forked_workers(state: &ProgramView) -> Option<String> {
    let program = &state.known.program;
    let is_it = |process: &&Running| {
        process.program.path.as_os_str() == program.path.as_str()
            && is_meant(&program.detail, &process.program.detail)
    };
    let running = imas_linux::running::all();
    let own: Vec<_> = running.iter().filter(is_it).collect();
    let copies = own.iter().filter(|process| is_copy_of_its_parent(process.pid)).count();
    (copies > 0).then(|| {
        format!(
            "{copies} of its {} running processes are workers that were forked and executed nothing: they have the allocator of \
             their parent and cannot be given different ones for a comparison",
            own.len()
        )
    })
}

/// Trials of this build that no longer count, in words.
fn expired(state: &ProgramView) -> Option<String> {
    let known = state.profile.adaptive()?;
    let Expired { by_age, by_machine } = known.expired;
    let days = known.settings.max_age_s / (24.0 * 3600.0);
    let age = (by_age > 0).then(|| format!("{by_age} are older than {days:.0} days"));
    let machine = (by_machine > 0)
        .then(|| format!("{by_machine} are of another machine state than now ({})", state.known.machine));
    let reasons: Vec<_> = age.into_iter().chain(machine).collect();
    (!reasons.is_empty()).then(|| format!("trials that no longer count: {}", reasons.join("; ")))
}

fn undo(state: &ProgramView, context: &Context, word: &str) -> Option<String> {
    let undo = state.decision.reason.undo()?;
    // Exclusions go by path.
    let word = if undo.contains("exclude") { &state.known.program.path } else { word };
    Some(context.on_this_store(&undo.replace("PROGRAM", word)))
}

fn quarantined(quarantine: &Quarantine, program: &str, context: &Context) -> String {
    let lift = context.on_this_store(&format!("imas pin --unblock {program} {}", quarantine.candidate));
    let how = quarantine.excess.map_or_else(|| how_it_ended(quarantine), excess_text);
    let name = &quarantine.candidate;
    let until = quarantine.until_unix_s.map_or_else(String::new, |until| format!(", {}", when(until)));
    let (crashes, system) = (quarantine.under_candidate, quarantine.under_system);
    format!(
        "{name} is quarantined since {}: {how}; {} of {} starts under it crashed{}, {} of {} under system.\n  \
         It is tried again when the program or {name} changes{until}, or after: {lift}",
        when(quarantine.since_unix_s),
        crashes.crashed,
        crashes.starts,
        match (quarantine.is_hang(), quarantine.is_excess()) {
            (true, _) => " or hung",
            (_, true) => " or took far too much",
            _ if quarantine.is_failure() => " or failed",
            _ => "",
        },
        system.crashed,
        system.starts
    )
}

fn how_it_ended(quarantine: &Quarantine) -> String {
    match (quarantine.ended, quarantine.hung) {
        (_, Some(hang)) => format!(
            "hung: it was idle for {:.0} s, waiting for a lock, and was killed; under system it never ran longer than {:.1} s",
            hang.still_s, hang.longest_s
        ),
        (Ended::Hung, _) => "hung: it was idle until imas bench ended it".to_owned(),
        (Ended::Excess, _) => {
            "took many times what it takes under system, until imas bench ended it".to_owned()
        }
        (Ended::Signal { signal }, _) => imas_linux::process::signal_name(i32::try_from(signal).unwrap_or(0)),
        (Ended::OutOfMemory, _) => "the kernel killed it at the limit of its memory".to_owned(),
        (Ended::Clean { status: Some(status) }, _) => format!("exit status {status}"),
        (Ended::Failed { status }, _) => {
            format!("exit status {status} in imas bench, which it never had under system")
        }
        _ => "death before its first instruction".to_owned(),
    }
}

fn excess_text(excess: Excess) -> String {
    match excess {
        Excess::Time { took_s, most_s } => {
            format!("its malloc took {took_s:.1} s, under system at most {most_s:.2} s for as many calls")
        }
        Excess::Memory { took, most } => {
            let mib = |bytes: f64| bytes / 1_048_576.0;
            format!(
                "it held {:.0} MiB, under system at most {:.0} MiB for as much to hold",
                mib(took),
                mib(most)
            )
        }
    }
}

/// How many trials do not count for each reason, in the order in which they first occur.
fn left_out(view: &CandidateView) -> Result<Vec<(String, usize)>> {
    let mut counts: Vec<(String, usize)> = vec![];
    for one in &view.left_out {
        let why = why(&one.why)?;
        match counts.iter_mut().find(|(known, _)| *known == why) {
            Some((_, count)) => *count += 1,
            None => counts.push((why, 1)),
        }
    }
    Ok(counts)
}

/// The reason as its word, with what it names.
fn why(why: &imas_core::candidate::NotCounted) -> Result<String> {
    Ok(match serde_json::to_value(why)? {
        serde_json::Value::String(word) => word,
        serde_json::Value::Object(map) => map
            .iter()
            .map(|(word, value)| format!("{word} ({})", value.as_str().unwrap_or_default()))
            .collect(),
        other => other.to_string(),
    })
}

const DAY_S: f64 = 24.0 * 3600.0;

/// Time when the decision is looked at again, and what would change it sooner, in words.
pub(crate) fn again(state: &ProgramView) -> String {
    if let Some(under_way) = &state.under_way {
        return under_way.again();
    }
    match state.decision.reason {
        Reason::TrialDue => "at the next start".to_owned(),
        Reason::Excluded => "not before it is included again".to_owned(),
        Reason::Pinned | Reason::PinnedQuarantined | Reason::PinnedUnavailable => {
            "not before it is unpinned".to_owned()
        }
        Reason::OwnMalloc | Reason::AllocatorInterface | Reason::Sanitizer => {
            "a week after its last trial, or when the program changes".to_owned()
        }
        Reason::OwnFilter => "when the program changes".to_owned(),
        Reason::StoodAside => "a day after its last trial, or when the program changes".to_owned(),
        _ if state.is_left_alone() => "when the program's file changes".to_owned(),
        _ if outside::lacks_trials(&state.decision) => "when it can be measured from outside".to_owned(),
        _ => by_policy(state),
    }
}

fn by_policy(state: &ProgramView) -> String {
    const CHANGES: &str = "when the program, an allocator, the page settings or the CPUs change";
    match next_trial(&state.profile, state.weight) {
        Some(due) if due.is_now => "at the next start".to_owned(),
        // By time alone nothing will ever be due.
        Some(due) if !due.at_s.is_finite() => CHANGES.to_owned(),
        Some(due) => {
            let what = if due.is_watch { "whether it still holds, by" } else { "the question is open:" };
            let name = &state.profile.candidates[due.candidate].name;
            format!("from {} on ({what} a trial of {name}), or {CHANGES}", when(due.at_s))
        }
        None => match state.profile.adaptive() {
            Some(known) => {
                format!("when its trials are {:.0} days old, or {CHANGES}", known.settings.max_age_s / DAY_S)
            }
            None => CHANGES.to_owned(),
        },
    }
}
