// SPDX-License-Identifier: Apache-2.0
//! When a decision is looked at again, in words.

use imas_core::Reason;
use imas_core::decision::next_trial;

use imas_cli::when::when;
use imas_engine::outside;
use imas_engine::program_view::ProgramView;

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
