// SPDX-License-Identifier: Apache-2.0
//! Profile and present decision of one program, as every command that shows them needs it.

use anyhow::Result;
use imas_core::adaptive::{self, Judgement};
use imas_core::decision::Decision;
use imas_core::{ProfileView, Reason};
use imas_engine::context::Context;
use imas_engine::flags::RulesArgs;
use imas_engine::fleet_turn::TrialSharing;
use imas_engine::inspect::{self, ExecutableFacts};
use imas_engine::musl;
use imas_engine::outside;
use imas_engine::runtime_command::is_served_by_settings;
use imas_engine::start_plan::{StartPlan, untouched};
use imas_engine::state::ProgramState;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::clock::now_unix_s;
use imas_linux::program::{Command, Program};
use imas_store::Store;
use imas_store::samples::StoredProgram;

use imas_engine::conditions::conditions;
use imas_engine::profile;
use imas_engine::under_way::{self, UnderWay};

/// Profile and present decision of a program.
#[derive(Debug)]
pub struct ProgramView {
    /// Everything that the decision rests on.
    pub known: ProgramState,
    /// The figures computed from that state.
    pub profile: ProfileView,
    /// What the next start gets.
    pub decision: Decision,
    /// The trial that another start is making, and that the next start therefore does not make.
    pub under_way: Option<UnderWay>,
    /// How `adaptive` sees the candidates now; None under `paper`.
    pub judgement: Option<Judgement>,
    /// Weight of CPU in the score, 0 to 1, by the machine's state or the user's word.
    pub weight: f64,
    /// How the fleet shares out its trials, where imasd takes part in one.
    pub sharing: Option<TrialSharing>,
    /// Nothing may be preloaded into the program as it is on disk now, and nothing is measured from outside.
    pub unfit: bool,
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

/// The program's view as [`state`] works it out, where the caller knows which candidates can be used here. To
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
    let known = profile::state_where(context, store, program, &build_id, is_usable)?;
    let profile = profile::profile(&known, context, rules);
    // imasd decides by the machine alone, whatever group we are in.
    let conditions = match context.of_the_system {
        true => imas_linux::conditions::now()?,
        false => conditions()?,
    };
    let pinned = match &executable {
        Some(executable) => pinned_unfit(context, store, &known, executable)?,
        None => None,
    };
    // imasd makes no such trials: they are of the starts by 'imas run'.
    let may_be_outside = known.program.domain.is_own();
    let without_hook = executable.as_ref().filter(|one| may_be_outside && outside::is_measurable(one));
    let unfit = executable.as_ref().filter(|_| without_hook.is_none()).and_then(|one| one.unfit.as_deref());
    let plan = StartPlan::of(&profile, &conditions);
    let plan = match without_hook {
        Some(executable) => outside::planned(plan, &profile, executable),
        None => plan,
    };
    let (decision, under_way) = match (pinned, unfit) {
        (Some(pinned), _) => (pinned, None),
        (None, Some(why)) => (untouched(Reason::NoCandidate, why), None),
        (None, None) => under_way::next((context, store), (&known.program, seen), plan)?,
    };
    let objective = profile.adaptive.as_ref().map(|known| known.settings.objective);
    let weight = adaptive::weight(&conditions, objective.unwrap_or_default()).w;
    let judgement = profile.adaptive.as_ref().map(|known| known.judge(weight));
    let policy = context.config.policy(rules, &known.program.path, &known.program.detail);
    let sharing = known.sharing(&policy, now_unix_s()).filter(|_| unfit.is_none());
    Ok(ProgramView {
        known,
        profile,
        decision,
        under_way,
        judgement,
        weight,
        sharing,
        unfit: unfit.is_some(),
    })
}

/// The candidate to which a program was pinned into which no library for glibc can be loaded: settings of its runtime, or
/// an allocator that is built for musl.
fn pinned_unfit(
    context: &Context,
    store: &Store,
    known: &ProgramState,
    executable: &ExecutableFacts,
) -> Result<Option<Decision>> {
    let pinned = store.pinned(known.program.id)?.and_then(|name| context.catalogue.find(&name));
    let is_given = |candidate: &&CatalogueCandidate| match candidate.runtime {
        Some(_) => is_served_by_settings(executable),
        None => executable.fits_musl && musl::candidate(context, candidate).is_ok(),
    };
    Ok(pinned.filter(is_given).map(|candidate| Decision {
        candidate: candidate.name.clone(),
        reason: Reason::Pinned,
        ..untouched(Reason::Pinned, "")
    }))
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
