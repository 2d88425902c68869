// SPDX-License-Identifier: Apache-2.0
//! `imas explain`: what was decided for a program, why, on which evidence, and how to undo it.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use imas_core::adaptive::{self, Expected};
use imas_core::paper::Pick;
use imas_core::quarantine::Quarantine;
use imas_core::sample::Ended;
use imas_store::decisions::Decided;
use serde_json::json;

use crate::cli::ExplainArgs;
use crate::context::Context;
use crate::output;
use crate::profile::find;
use crate::show::{State, next_line, splits, state, table};

/// How many of the past decisions are shown.
const PAST: u32 = 10;

pub(crate) fn run(args: &ExplainArgs, context: &Context) -> Result<ExitCode> {
    let store = context.open_store()?;
    crate::harvest::harvest_quietly(context, &store);
    let state = state(context, &store, find(&store, &args.program.program)?, &args.rules)?;
    let past = store.decisions(state.known.program.id, PAST)?;
    if args.json.json {
        let quarantines: Vec<_> =
            state.profile.candidates.iter().filter_map(|view| view.quarantine.as_ref()).collect();
        output::json(&json!({
            "schema": 1,
            "program": state.known.program,
            "next": state.decision,
            "sentence": state.decision.reason.sentence(),
            "undo": undo(&state),
            "confidence": state.profile.adaptive.as_ref().map(|known| known.settings.confidence),
            "standings": state.judgement.as_ref().map(|judgement| &judgement.standings),
            "expected_gain": expected_gains(&state)
                .iter()
                .map(|one| json!({
                    "pick": one.pick,
                    "candidate": state.profile.candidates[one.candidate].name,
                    "gain": one.gain,
                    "interval": one.interval,
                    "rounds": one.rounds,
                }))
                .collect::<Vec<_>>(),
            "looked_at_again": again(&state),
            "quarantined": quarantines,
            "candidates": state.profile.candidates,
            "past": past,
        }))?;
    } else {
        output::text(&page(&state, &past)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(state: &State, past: &[Decided]) -> Result<String> {
    let mut text = format!("{}\n\n{}", state.known.program, next_line(&state.decision));
    for evidence in &state.decision.evidence {
        writeln!(text, "  {}: {}", evidence.name, evidence.value)?;
    }
    for one in expected_gains(state) {
        writeln!(text, "  {}", gain_line(&one, &state.profile.candidates[one.candidate].name))?;
    }
    if let Some(undo) = undo(state) {
        writeln!(text, "  to change it: {undo}")?;
    }
    if let Some(again) = again(state) {
        writeln!(text, "  looked at again: {again}")?;
    }
    for view in &state.profile.candidates {
        if let Some(quarantine) = &view.quarantine {
            writeln!(text, "\n{}", quarantined(quarantine, state.known.program.id))?;
        }
        for left_out in &view.left_out {
            writeln!(text, "a trial of {} does not count: {}", view.name, why(&left_out.why)?)?;
        }
    }
    writeln!(text, "\n{}", table(state))?;
    text.push_str(&splits(state));
    if !past.is_empty() {
        writeln!(text, "decisions so far, newest first:")?;
    }
    for decided in past {
        let kind = if decided.trial { "trial of " } else { "" };
        writeln!(text, "  {}  {kind}{}: {}", when(decided.at_s), decided.candidate, decided.because)?;
    }
    Ok(text)
}

/// Of the three picks; none under `paper`.
fn expected_gains(state: &State) -> Vec<Expected> {
    state.profile.adaptive.as_ref().map_or_else(Vec::new, adaptive::expected)
}

fn gain_line(one: &Expected, candidate: &str) -> String {
    let (pick, what) = match one.pick {
        Pick::Fastest => ("fastest", "CPU"),
        Pick::Leanest => ("leanest", "memory"),
        Pick::Balanced => ("balanced", "CPU and memory together"),
    };
    let percent = |fraction: f64| format!("{:+.1}", fraction * 100.0);
    match one.interval {
        Some((lo, hi)) => format!(
            "expected gain of the {pick}, {candidate}: {} % [{}, {}] of {what}, over {} rounds",
            percent(one.gain),
            percent(lo),
            percent(hi),
            one.rounds
        ),
        None => format!("expected gain of the {pick}, {candidate}: none, as no candidate is proven better"),
    }
}

/// When the decision is looked at again, and what would change it sooner.
fn again(state: &State) -> Option<String> {
    let known = state.profile.adaptive.as_ref()?;
    let judgement = state.judgement.as_ref()?;
    if judgement.next.is_some() {
        return Some("at the next start".to_owned());
    }
    let days = known.settings.max_age_s / (24.0 * 3600.0);
    let changes = "when the program, an allocator, the page settings or the CPUs change";
    Some(match known.watch_at_s(judgement.pick) {
        Some(at_s) => format!("from {} on, or {changes}", when(at_s)),
        None => format!("when its trials are {days:.0} days old, or {changes}"),
    })
}

fn undo(state: &State) -> Option<String> {
    let undo = state.decision.reason.undo()?;
    let program = &state.known.program;
    // The number always names exactly this program; exclusions go by path.
    let word = if undo.contains("exclude") { program.path.clone() } else { program.id.to_string() };
    Some(undo.replace("PROGRAM", &word))
}

fn quarantined(quarantine: &Quarantine, program: i64) -> String {
    let how = match quarantine.ended {
        Ended::Signal { signal } => imas_linux::process::signal_name(i32::try_from(signal).unwrap_or(0)),
        _ => "death before its first instruction".to_owned(),
    };
    let name = &quarantine.candidate;
    let (crashes, system) = (quarantine.under_candidate, quarantine.under_system);
    format!(
        "{name} is quarantined since {}: {how}; {} of {} starts under it crashed, {} of {} under system.\n  \
         It is tried again when the program or {name} changes, or after: imas pin --lift {program} {name}",
        when(quarantine.since_unix_s),
        crashes.crashed,
        crashes.starts,
        system.crashed,
        system.starts
    )
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

/// A moment in local time.
pub(crate) fn when(at_s: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds are meant")]
    let stamp = jiff::Timestamp::from_second(at_s as i64);
    stamp.map_or_else(
        |_| "-".to_owned(),
        |stamp| stamp.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}
