// SPDX-License-Identifier: Apache-2.0
//! Why a decision was taken: each reason has an id, a sentence and a way to undo it.

use serde::{Deserialize, Serialize};

/// Reasons of a decision. Serialised as their id.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The operator keeps IMAS away from the program.
    Excluded,
    /// The operator chose.
    Pinned,
    /// The operator chose a candidate that crashes the program.
    PinnedQuarantined,
    /// The operator chose a candidate that is not available here.
    PinnedUnavailable,
    /// The program brings a malloc of its own.
    OwnMalloc,
    /// The program calls functions of its allocator's own beside malloc.
    AllocatorInterface,
    /// The program is built with a sanitizer.
    Sanitizer,
    /// The hook did nothing in the program's last trials: a seccomp filter, a limit of its address space, a
    /// switch.
    StoodAside,
    /// A candidate has tests left.
    TrialDue,
    /// CPU is short.
    FastestCpuShort,
    /// Memory is short.
    LeanestMemoryShort,
    /// Neither CPU nor memory is short, or both are.
    Balanced,
    /// The user's objective is CPU time.
    FastestWanted,
    /// The user's objective is memory.
    LeanestWanted,
    /// The user's objective weighs both alike.
    BalancedWanted,
    /// No candidate is proven better than `system`.
    NothingProven,
    /// The pick crashed the program; the next best is used.
    Quarantined,
    /// The pick is not available any more; the next best is used.
    PickUnavailable,
    /// Nothing has been measured yet.
    NoData,
    /// No candidate may be used.
    NoCandidate,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 20] = [
        Self::Excluded,
        Self::Pinned,
        Self::PinnedQuarantined,
        Self::PinnedUnavailable,
        Self::OwnMalloc,
        Self::AllocatorInterface,
        Self::Sanitizer,
        Self::StoodAside,
        Self::TrialDue,
        Self::FastestCpuShort,
        Self::LeanestMemoryShort,
        Self::Balanced,
        Self::FastestWanted,
        Self::LeanestWanted,
        Self::BalancedWanted,
        Self::NothingProven,
        Self::Quarantined,
        Self::PickUnavailable,
        Self::NoData,
        Self::NoCandidate,
    ];

    /// Stable kebab-case word for stores, JSON and logs.
    pub fn id(self) -> &'static str {
        match self {
            Self::Excluded => "excluded",
            Self::Pinned => "pinned",
            Self::PinnedQuarantined => "pinned-quarantined",
            Self::PinnedUnavailable => "pinned-unavailable",
            Self::OwnMalloc => "own-malloc",
            Self::AllocatorInterface => "allocator-interface",
            Self::Sanitizer => "sanitizer",
            Self::StoodAside => "stood-aside",
            Self::TrialDue => "trial-due",
            Self::FastestCpuShort => "fastest-cpu-short",
            Self::LeanestMemoryShort => "leanest-memory-short",
            Self::Balanced => "balanced",
            Self::FastestWanted => "fastest-wanted",
            Self::LeanestWanted => "leanest-wanted",
            Self::BalancedWanted => "balanced-wanted",
            Self::NothingProven => "nothing-proven",
            Self::Quarantined => "quarantined",
            Self::PickUnavailable => "pick-unavailable",
            Self::NoData => "no-data",
            Self::NoCandidate => "no-candidate",
        }
    }

    /// The reason as one sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Excluded => "The program is excluded: it runs untouched and is not measured.",
            Self::Pinned => "The program is pinned to this candidate.",
            Self::PinnedQuarantined => {
                "The program is pinned to a candidate that crashed it; it runs untouched instead."
            }
            Self::PinnedUnavailable => {
                "The program is pinned to a candidate that cannot be used here; it runs untouched instead."
            }
            Self::OwnMalloc => "The program brings a malloc of its own, which no candidate can replace.",
            Self::AllocatorInterface => {
                "The program calls its allocator's own functions beside malloc, and no other allocator can free what they return."
            }
            Self::Sanitizer => "The program runs under a sanitizer, which needs its own malloc.",
            Self::StoodAside => {
                "The hook stood aside in the program's last three trials, so that nothing can be measured for now."
            }
            Self::TrialDue => "This candidate is due for a trial.",
            Self::FastestCpuShort => "CPU is short and memory suffices, so the fastest candidate is used.",
            Self::LeanestMemoryShort => "Memory is short and CPU is not, so the leanest candidate is used.",
            Self::Balanced => {
                "CPU and memory both suffice, or both are short, so the balanced candidate is used."
            }
            Self::FastestWanted => "The objective is CPU time, so the fastest candidate is used.",
            Self::LeanestWanted => "The objective is memory, so the leanest candidate is used.",
            Self::BalancedWanted => {
                "The objective is CPU and memory alike, so the balanced candidate is used."
            }
            Self::NothingProven => {
                "No candidate is proven better than system, so the program runs untouched."
            }
            Self::Quarantined => "The best candidate crashed the program, so the next best stands in.",
            Self::PickUnavailable => "The best candidate cannot be used here, so the next best stands in.",
            Self::NoData => "Nothing has been measured yet, so the program runs untouched.",
            Self::NoCandidate => "No candidate may be used, so the program runs untouched.",
        }
    }

    /// The command that undoes or changes the decision, with PROGRAM for the program; None where nothing can
    /// be changed.
    pub fn undo(self) -> Option<&'static str> {
        match self {
            Self::Excluded => Some("imas exclude remove PROGRAM"),
            Self::Pinned | Self::PinnedQuarantined | Self::PinnedUnavailable => Some("imas unpin PROGRAM"),
            Self::OwnMalloc | Self::AllocatorInterface | Self::Sanitizer | Self::StoodAside => None,
            Self::NoCandidate => Some("imas doctor"),
            Self::TrialDue
            | Self::FastestCpuShort
            | Self::LeanestMemoryShort
            | Self::Balanced
            | Self::FastestWanted
            | Self::LeanestWanted
            | Self::BalancedWanted
            | Self::NothingProven
            | Self::Quarantined
            | Self::PickUnavailable
            | Self::NoData => Some("imas pin PROGRAM system"),
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_distinct_and_what_serde_writes() {
        let ids: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.id()).collect();
        assert_eq!(ids.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{}\"", reason.id()));
            assert!(reason.sentence().ends_with('.'), "{reason}");
        }
    }
}
