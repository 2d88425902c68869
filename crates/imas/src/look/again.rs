// SPDX-License-Identifier: Apache-2.0
//! When a decision is looked at again, in words.

use imas_core::adaptive::AdaptiveState;
use imas_core::{ProfileView, Reason};
use imas_linux::clock::now_unix_s;

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
        _ if state.unfit => "when the program's file changes".to_owned(),
        _ if outside::lacks_trials(&state.decision) => "when it can be measured from outside".to_owned(),
        _ => match &state.profile.adaptive {
            Some(known) => adaptive(known, state),
            None => paper(&state.profile),
        },
    }
}

fn adaptive(known: &AdaptiveState, state: &ProgramView) -> String {
    const CHANGES: &str = "when the program, an allocator, the page settings or the CPUs change";
    match known.next_trial(state.weight) {
        Some(due) if due.is_now => "at the next start".to_owned(),
        Some(due) => {
            let what = if due.is_watch { "whether it still holds, by" } else { "the question is open:" };
            let name = &state.profile.candidates[due.candidate].name;
            // By time alone nothing will ever be due.
            if !due.at_s.is_finite() {
                return CHANGES.to_owned();
            }
            format!("from {} on ({what} a trial of {name}), or {CHANGES}", when(due.at_s))
        }
        None => {
            format!("when its trials are {:.0} days old, or {CHANGES}", known.settings.max_age_s / DAY_S)
        }
    }
}

/// The end of the first wait, or that nothing is left to be tested.
fn paper(profile: &ProfileView) -> String {
    let left =
        profile.candidates.iter().filter(|view| view.is_usable() && !view.summary.is_spent(&profile.limits));
    let ends = left
        .map(|view| view.summary.last_trial_s().map_or(0.0, |last_s| last_s + profile.limits.retest_s))
        .min_by(f64::total_cmp);
    match ends {
        Some(end_s) if end_s > now_unix_s() => format!("from {} on, by a further test", when(end_s)),
        Some(_) => "at the next start".to_owned(),
        None => "when the program or an allocator changes: all tests are done".to_owned(),
    }
}
