// SPDX-License-Identifier: Apache-2.0
//! How a process ended.

use imas_core::sample::{Ended, is_crash_signal};

/// Signals by which a process comes to its end through its own doing: ILL, TRAP, ABRT, BUS, FPE, SEGV, STKFLT, SYS. All others are sent by
/// people, timers, limits, systemd: not the allocator's doing.
const FAULTS: [u32; 8] = [4, 5, 6, 7, 8, 11, 16, 31];

/// How it ended: what the page says, corrected by what the kernel told, if it `tells` at all.
pub(crate) fn ended(said: Ended, signal: Option<u32>, tells: bool) -> Ended {
    match (said, signal) {
        (Ended::Signal { .. } | Ended::Killed { .. }, _) => said,
        // After a clean end too: a child of vfork notes its own on its parent's page.
        (_, Some(signal)) if is_crash_signal(signal) => Ended::Signal { signal },
        // Killed by somebody in its first moments.
        (Ended::NeverEntered, Some(signal)) if signal != 0 && !FAULTS.contains(&signal) => Ended::Unknown,
        // The word was lost, or came while we were away: that may have been so too.
        (Ended::NeverEntered, None) if tells => Ended::Unknown,
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_corrects_what_the_page_could_not_say() {
        let killed = Ended::Signal { signal: 11 };
        let told = |said, signal| ended(said, signal, true);
        assert_eq!(told(Ended::Unknown, Some(11)), killed);
        assert_eq!(told(Ended::NeverEntered, Some(11)), killed);
        for asked in [1, 2, 3, 9, 10, 13, 14, 15, 24] {
            assert_eq!(told(Ended::NeverEntered, Some(asked)), Ended::Unknown, "{asked}");
        }
        for own in [0, 5, 8] {
            assert_eq!(told(Ended::NeverEntered, Some(own)), Ended::NeverEntered, "{own}");
        }
        assert_eq!(told(Ended::NeverEntered, None), Ended::Unknown, "its word was lost");
        assert_eq!(ended(Ended::NeverEntered, None, false), Ended::NeverEntered, "it tells of nobody");
        let clean = Ended::Clean { status: Some(0) };
        assert_eq!(told(clean, Some(0)), clean);
        assert_eq!(told(clean, Some(11)), killed, "what was clean was a child's end");
        assert_eq!(told(Ended::Signal { signal: 6 }, Some(11)), Ended::Signal { signal: 6 });
        let by_watchdog = Ended::Killed { signal: 6 };
        assert_eq!(told(by_watchdog, Some(6)), by_watchdog, "another process sent it");
    }
}
