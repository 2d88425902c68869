// SPDX-License-Identifier: Apache-2.0
//! Whether the candidate of a program is settled.

use imas_core::Reason;

use crate::program_view::ProgramView;

/// The candidate that was learned for the program; `None` while its tests are not done or when nothing can
/// serve it.
#[must_use]
pub fn settled(state: &ProgramView) -> Option<&str> {
    let decision = &state.decision;
    let decided = match decision.reason {
        Reason::Pinned => true,
        Reason::Excluded | Reason::NoData | Reason::NoCandidate | Reason::TrialDue => false,
        Reason::OwnMalloc | Reason::AllocatorInterface => false,
        Reason::Sanitizer | Reason::OwnFilter | Reason::StoodAside => false,
        _ => state.profile.usable_picks.is_some() && state.profile.next_test.is_none(),
    };
    // What a trial that is under way brings may change it.
    (decided && !decision.trial && state.under_way.is_none()).then_some(decision.candidate.as_str())
}
