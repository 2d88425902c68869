// SPDX-License-Identifier: Apache-2.0
//! How a process ended.

use imas_core::sample::{Ended, is_crash_signal};

/// Signals by which a process ends itself: ILL, TRAP, ABRT, BUS, FPE, SEGV,
/// STKFLT, SYS. All others are sent by people, timers, limits, systemd: not the allocator's doing.
const FAULTS: [u32; 8] = [4, 5, 6, 7, 8, 11, 16, 31];

/// The exit status of a process: that of its page, corrected by the kernel's exit event. `reports` is whether
/// the kernel sends such events.
pub(crate) fn ended(noted: Ended, signal: Option<u32>, reports: bool) -> Ended {
    match (noted, signal) {
        (Ended::Signal { .. } | Ended::Killed { .. }, _) => noted,
        // After a clean end too: a child of vfork notes its own on its parent's page.
        (_, Some(signal)) if is_crash_signal(signal) => Ended::Signal { signal },
        // Killed in its first moments.
        (Ended::NeverEntered, Some(signal)) if signal != 0 && !FAULTS.contains(&signal) => Ended::Unknown,
        // The event was lost, or came while the daemon did not run: that may have been so too.
        (Ended::NeverEntered, None) if reports => Ended::Unknown,
        _ => noted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_corrects_what_the_page_could_not_note() {
        let killed = Ended::Signal { signal: 11 };
        let corrected = |noted, signal| ended(noted, signal, true);
        assert_eq!(corrected(Ended::Unknown, Some(11)), killed);
        assert_eq!(corrected(Ended::NeverEntered, Some(11)), killed);
        for asked in [1, 2, 3, 9, 10, 13, 14, 15, 24] {
            assert_eq!(corrected(Ended::NeverEntered, Some(asked)), Ended::Unknown, "{asked}");
        }
        for own in [0, 5, 8] {
            assert_eq!(corrected(Ended::NeverEntered, Some(own)), Ended::NeverEntered, "{own}");
        }
        assert_eq!(corrected(Ended::NeverEntered, None), Ended::Unknown, "its event was lost");
        assert_eq!(
            ended(Ended::NeverEntered, None, false),
            Ended::NeverEntered,
            "the kernel reports no exits"
        );
        let clean = Ended::Clean { status: Some(0) };
        assert_eq!(corrected(clean, Some(0)), clean);
        assert_eq!(corrected(clean, Some(11)), killed, "what was clean was a child's end");
        assert_eq!(corrected(Ended::Signal { signal: 6 }, Some(11)), Ended::Signal { signal: 6 });
        let by_watchdog = Ended::Killed { signal: 6 };
        assert_eq!(corrected(by_watchdog, Some(6)), by_watchdog, "another process sent it");
    }
}
