// SPDX-License-Identifier: Apache-2.0
//! Profile and present decision of one program, as every command that shows them needs it: is it settled, what would a
//! restart bring, how does the fleet share out its trials.

use anyhow::Result;
use imas_cli::format::when;
use imas_core::adaptive::{self, Judgement};
use imas_core::compare::Answer;
use imas_core::decision::Decision;
use imas_core::sample::PageKind;
use imas_core::stats::{Interval, median};
use imas_core::{ProfileView, TrialRecord};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::host::now_unix_s;
use imas_linux::program::{Command, Program};
use imas_store::Store;
use imas_store::samples::StoredProgram;

use crate::context::Context;
use crate::decide::{self, Giving, NextStart, Starter, UnderWay, conditions, decide};
use crate::flags::RulesArgs;
use crate::fleet_turn::{AloneReason, TrialSharing};
use crate::inspect;
use crate::state::{self, ProgramState};

/// Profile and present decision of a program.
#[derive(Debug)]
pub struct ProgramView {
    /// Everything that the decision rests on.
    pub known: ProgramState,
    /// The figures computed from that state.
    pub profile: ProfileView,
    /// Way in which the executable lets something be given to it.
    pub giving: Giving,
    /// Plan of its next starts.
    pub next: NextStart,
    /// Decision for the next start beside a trial that is under way.
    pub decision: Decision,
    /// The trial that another start is making, and that the next start therefore does not make.
    pub under_way: Option<UnderWay>,
    /// How `adaptive` sees the candidates now; None under `paper`.
    pub judgement: Option<Judgement>,
    /// Weight of CPU in the score, 0 to 1, by the machine's state or the user's word.
    pub weight: f64,
    /// How the fleet shares out its trials, where imasd takes part in one.
    pub sharing: Option<TrialSharing>,
}

/// Works out the view of a program from the store, for the executable as it is on disk now.
///
/// # Errors
/// When the store or /proc cannot be read.
pub fn state(
    context: &Context,
    store: &Store,
    program: StoredProgram,
    rules: &RulesArgs,
) -> Result<ProgramView> {
    let is_usable = |candidate: &CatalogueCandidate| context.obstacle(candidate, Some(store)).is_none();
    state_where((context, store), program, rules, &is_usable)
}

/// The program's view as [`state()`] works it out, where the caller knows which candidates can be used here. To
/// find that out takes a process each.
///
/// # Errors
/// When the store or /proc cannot be read.
pub fn state_where(
    (context, store): (&Context, &Store),
    program: StoredProgram,
    rules: &RulesArgs,
    is_usable: &dyn Fn(&CatalogueCandidate) -> bool,
) -> Result<ProgramView> {
    let command = stored_command(&program);
    // A program that is gone can still be shown, by the build its last trial was of.
    let executable = inspect::stored(&program, &command, store).ok();
    let last_build = store.trials(program.id)?.pop().map(|record| record.build_id).unwrap_or_default();
    let build_id = executable.as_ref().map_or(last_build, |executable| executable.build_id.clone());
    // Before the trials are read: what ends from here on is not looked at.
    let seen = store.newest_trial()?;
    let known = state::state_where(context, store, program, &build_id, is_usable)?;
    let profile = state::profile_of(&known, context, rules);
    // imasd decides by the machine alone, whatever group we are in.
    let conditions = match context.of_the_system {
        true => imas_linux::host::conditions()?,
        false => conditions()?,
    };
    // imasd makes no trial from outside: they are of the starts by 'imas run'.
    let starter = if known.program.domain.is_own() { Starter::Run } else { Starter::Stub };
    let giving = executable.map_or_else(Giving::default, |found| Giving::of(&found, starter));
    let next = decide(&profile, &giving, &conditions);
    let (decision, under_way) = decide::after_others((context, store), (&known.program, seen), next.clone())?;
    let objective = profile.adaptive().map(|known| known.settings.objective);
    let weight = adaptive::weight(&conditions, objective.unwrap_or_default()).w;
    let judgement = profile.adaptive().map(|known| known.judge(weight));
    let policy = context.config.policy(rules, &known.program.path, &known.program.detail);
    let sharing = known.sharing(&policy, now_unix_s()).filter(|_| giving.nothing().is_none());
    Ok(ProgramView { known, profile, next, giving, decision, under_way, judgement, weight, sharing })
}

impl ProgramView {
    /// Whether nothing can be given to the program as it is on disk now.
    #[must_use]
    pub fn is_left_alone(&self) -> bool {
        self.giving.nothing().is_some()
    }

    /// The candidate that was learned for the program, or chosen by a person; None while its tests are not done.
    #[must_use]
    pub fn settled(&self) -> Option<&str> {
        // A trial that is under way may change it.
        self.next.settled().filter(|_| self.under_way.is_none())
    }
}

/// The command of a stored program: enough to inspect its executable, and what it is given to run. Other arguments are
/// not known.
#[must_use]
pub fn stored_command(program: &StoredProgram) -> Command {
    // `dotnet exec app.dll` is the one whose file does not come first.
    let given = program.detail.strip_prefix("exec ").unwrap_or(&program.detail);
    Command {
        file: program.path.clone().into(),
        argv: vec![],
        arguments: given.starts_with('/').then(|| given.into()).into_iter().collect(),
        program: Program { path: program.path.clone().into(), detail: program.detail.clone() },
        privileged: false,
    }
}

// The change that a restart under the pick would bring, by the judge that made the pick.

/// The pick compared with the candidate that a process runs under.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Restart {
    /// Ratio of CPU time, pick to present candidate, with its 95 % interval; None without trials of both.
    pub cpu: Option<Interval>,
    /// Ratio of memory, with its 95 % interval.
    pub memory: Option<Interval>,
    /// Median of the resident bytes in the trials of the present candidate.
    pub memory_bytes: Option<f64>,
    /// Number of trials with figures, of the present candidate and of the pick.
    pub trials: [usize; 2],
    /// Whether the policy takes the pick for proven better than the present candidate.
    pub is_proven: bool,
}

impl Restart {
    /// The restart from candidate `on` to candidate `pick`. Under `paper` nothing is proven.
    #[must_use]
    pub fn of(state: &ProgramView, on: &str, pick: &str) -> Self {
        let index = |name: &str| state.profile.candidates.iter().position(|view| view.name == name);
        let change = state.profile.adaptive().and_then(|known| {
            let (from, to) = index(on).zip(index(pick))?;
            Some(known.change(from, to, state.weight))
        });
        Self {
            cpu: change.and_then(|change| change.cpu),
            memory: change.and_then(|change| change.memory),
            memory_bytes: memory_bytes(state, on),
            trials: change.map_or([0, 0], |change| change.trials.map(|trials| trials as usize)),
            is_proven: change.is_some_and(|change| change.answer == Answer::Better),
        }
    }
}

/// Resident bytes in the trials of a candidate with the present build.
fn memory_bytes(state: &ProgramView, candidate: &str) -> Option<f64> {
    let resident = |record: &TrialRecord| {
        let sample = &record.sample;
        let counts = sample.candidate == candidate
            && sample.kind == PageKind::Trial
            && record.is_of_build(&state.known.build_id)
            && sample.memory.snapshots > 0
            && sample.memory.resident() > 0;
        counts.then(|| sample.memory.resident() as f64)
    };
    median(&state.known.records.iter().filter_map(resident).collect::<Vec<_>>())
}

// How a fleet shares out a program's trials, in words.

/// How the trials are shared out, in a sentence.
#[must_use]
pub fn sharing_words(sharing: &TrialSharing) -> String {
    const ALONE: &str = "this host tries as if it were alone";
    let TrialSharing { hosts, in_trial, .. } = sharing;
    match sharing.alone {
        Some(AloneReason::NoStatistics) => format!("it has no statistics of this program yet: {ALONE}"),
        Some(AloneReason::NoOtherHost) => format!("no other host is known to run this program: {ALONE}"),
        Some(AloneReason::FleetGone) => format!("it was not reached for a week: {ALONE}"),
        None if *in_trial == 0 => {
            format!("about {hosts} hosts run this program; no trials are lacking, none is in one")
        }
        None => format!(
            "about {in_trial} of {hosts} hosts are in a trial at a time; this host's turn: {}",
            turn(sharing)
        ),
    }
}

/// How the trials are shared out, in a word or two for a table.
#[must_use]
pub fn sharing_short(sharing: &TrialSharing) -> String {
    match sharing.alone {
        Some(_) => "as if alone".to_owned(),
        None if sharing.in_trial == 0 => "no trials lacking".to_owned(),
        None => format!("turn: {}", turn(sharing)),
    }
}

fn turn(sharing: &TrialSharing) -> String {
    match (&sharing.candidate, &sharing.next) {
        (Some(candidate), _) => format!("{candidate}, until {}", when(sharing.until_unix_s)),
        (None, Some(next)) => format!("{}, from {} on", next.candidate, when(next.at_unix_s)),
        (None, None) => "none within a day".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet_turn::NextTurn;

    #[test]
    fn the_turn_is_now_or_later_or_not_needed() {
        let of = |in_trial, candidate: Option<&str>, next: Option<&str>| TrialSharing {
            alone: None,
            hosts: 41,
            in_trial,
            candidate: candidate.map(str::to_owned),
            until_unix_s: 600.0,
            next: next.map(|candidate| NextTurn { at_unix_s: 1200.0, candidate: candidate.to_owned() }),
        };
        let now = sharing_words(&of(3, Some("jemalloc"), Some("mimalloc")));
        let begin = "about 3 of 41 hosts are in a trial at a time; this host's turn: jemalloc, until 1970-";
        assert!(now.starts_with(begin), "{now}");
        let later = sharing_words(&of(3, None, Some("mimalloc")));
        assert!(later.contains("turn: mimalloc, from 1970-") && later.ends_with(" on"), "{later}");
        assert!(sharing_words(&of(3, None, None)).ends_with("none within a day"));
        assert!(sharing_words(&of(0, None, None)).contains("no trials are lacking"));
        let gone = TrialSharing { alone: Some(AloneReason::FleetGone), ..of(0, None, None) };
        assert!(
            sharing_words(&gone).contains("as if it were alone") && sharing_short(&gone) == "as if alone"
        );
    }
}
