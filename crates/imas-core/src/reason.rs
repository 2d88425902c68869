// SPDX-License-Identifier: Apache-2.0
//! Why a decision was taken: each reason has an id, a sentence and a way to undo it.

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($name:ident, $id:literal, $undo:expr, $sentence:literal;)*) => {
        /// Reasons of a decision. Serialised as their id.
        #[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[serde(rename_all = "kebab-case")]
        pub enum Reason {
            $(#[doc = $sentence] $name,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: [Self; 21] = [$(Self::$name),*];

            /// Stable kebab-case word for stores, JSON and logs.
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)*
                }
            }

            /// The reason as one sentence for people.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }

            /// The command that undoes or changes the decision, with PROGRAM for the program; None where nothing
            /// can be changed.
            pub fn undo(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => $undo,)*
                }
            }
        }
    };
}

reasons! {
    Excluded, "excluded", Some("imas exclude remove PROGRAM"),
        "The program is excluded: it runs untouched and is not measured.";
    Pinned, "pinned", Some("imas unpin PROGRAM"),
        "The program is pinned to this candidate.";
    PinnedQuarantined, "pinned-quarantined", Some("imas unpin PROGRAM"),
        "The program is pinned to a candidate that crashed it; it runs untouched instead.";
    PinnedUnavailable, "pinned-unavailable", Some("imas unpin PROGRAM"),
        "The program is pinned to a candidate that cannot be used here; it runs untouched instead.";
    OwnMalloc, "own-malloc", None,
        "The program brings a malloc of its own, which no candidate can replace.";
    AllocatorInterface, "allocator-interface", None,
        "The program calls its allocator's own functions beside malloc, and no other allocator can free what they return.";
    Sanitizer, "sanitizer", None,
        "The program runs under a sanitizer, which needs its own malloc.";
    OwnFilter, "own-filter", None,
        "The program sets a filter of system calls by an instruction of its own, under which a trial may be its end.";
    // By a seccomp filter, a limit of the program's address space, or a switch.
    StoodAside, "stood-aside", None,
        "The hook stood aside in the program's last three trials, so that nothing can be measured for now.";
    TrialDue, "trial-due", Some("imas pin PROGRAM system"),
        "This candidate is due for a trial.";
    FastestCpuShort, "fastest-cpu-short", Some("imas pin PROGRAM system"),
        "CPU is short and memory suffices, so the fastest candidate is used.";
    LeanestMemoryShort, "leanest-memory-short", Some("imas pin PROGRAM system"),
        "Memory is short and CPU is not, so the leanest candidate is used.";
    Balanced, "balanced", Some("imas pin PROGRAM system"),
        "CPU and memory both suffice, or both are short, so the balanced candidate is used.";
    FastestWanted, "fastest-wanted", Some("imas pin PROGRAM system"),
        "The objective is CPU time, so the fastest candidate is used.";
    LeanestWanted, "leanest-wanted", Some("imas pin PROGRAM system"),
        "The objective is memory, so the leanest candidate is used.";
    BalancedWanted, "balanced-wanted", Some("imas pin PROGRAM system"),
        "The objective is CPU and memory alike, so the balanced candidate is used.";
    NothingProven, "nothing-proven", Some("imas pin PROGRAM system"),
        "No candidate is proven better than system, so the program runs untouched.";
    Quarantined, "quarantined", Some("imas pin PROGRAM system"),
        "The best candidate crashed the program, so the next best stands in.";
    PickUnavailable, "pick-unavailable", Some("imas pin PROGRAM system"),
        "The best candidate cannot be used here, so the next best stands in.";
    NoData, "no-data", Some("imas pin PROGRAM system"),
        "Nothing has been measured yet, so the program runs untouched.";
    NoCandidate, "no-candidate", Some("imas doctor"),
        "No candidate may be used, so the program runs untouched.";
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
