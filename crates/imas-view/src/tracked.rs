// SPDX-License-Identifier: Apache-2.0
//! One process over several looks.

use std::time::{Duration, Instant};

use imas_linux::foreign_process;
use imas_linux::process_heaps;
use imas_linux::serving::candidate::RealCandidates;
use imas_linux::serving::injected::Injected;
use imas_linux::standstill::age_s;

use crate::identity::{Identified, Identity, identify};
use crate::reading::Reading;
use crate::trial_page;

/// A process younger than this may not have loaded its libraries yet: it is looked at once more.
const YOUNG_S: f64 = 3.0;
/// An allocator that was loaded later is found after this time.
const IDENTITY_LASTS: Duration = Duration::from_secs(600);
/// Growth over a shorter time is noise.
const LEAST_GROWTH_S: f64 = 10.0;
/// Shortest time between two looks at the heaps of a process. A look that took long is made again later still, so that
/// 300 processes take less than a hundredth of a CPU together.
const HEAPS_LAST: Duration = Duration::from_secs(60);
const HEAPS_SHARE: u32 = 50_000;
/// A process with less memory holds no free pages that matter.
const HEAPS_FROM: u64 = 16 << 20;

/// One process.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) now: Reading,
    pub(crate) identity: Option<Identity>,
    pub(crate) is_hidden: bool,
    /// The last closer look at it was not made, or not to its end.
    pub(crate) is_unseen: bool,
    pub(crate) cpu_share: Option<f64>,
    pub(crate) live_bytes: Option<u64>,
    /// Free pages in its heaps that a trim would return, bytes.
    pub(crate) returnable_bytes: Option<u64>,
    first: (Instant, u64),
    seen: Instant,
    /// When the identity was read, and whether it is final by the age of the process.
    identified: Option<(Instant, bool)>,
    /// When its heaps are looked at next.
    heaps_due: Option<Instant>,
}

impl Tracked {
    /// A process that is seen for the first time.
    pub(crate) fn new(now: Reading, at: Instant) -> Self {
        Self {
            first: (at, now.resident_bytes),
            seen: at,
            now,
            identity: None,
            is_hidden: false,
            is_unseen: false,
            cpu_share: None,
            live_bytes: None,
            returnable_bytes: None,
            identified: None,
            heaps_due: None,
        }
    }

    /// Takes the next reading of the same process.
    pub(crate) fn update(&mut self, now: Reading, at: Instant) {
        let since_s = at.duration_since(self.seen).as_secs_f64();
        if since_s > 0.0 {
            self.cpu_share = Some(((now.cpu_s - self.now.cpu_s) / since_s).max(0.0));
        }
        if now.image != self.now.image {
            // It has executed another program.
            self.identified = None;
            self.first = (at, now.resident_bytes);
        }
        if now.resident_bytes < HEAPS_FROM {
            self.returnable_bytes = None; // its heaps are looked at no more
        }
        (self.now, self.seen) = (now, at);
    }

    /// Whether the process has to be looked at more closely now.
    pub(crate) fn needs_identity(&self) -> bool {
        self.identified.is_none_or(|(at, is_final)| {
            let lasts = if is_final { IDENTITY_LASTS } else { Duration::ZERO };
            at.elapsed() > lasts
        })
    }

    /// Looks at the process more closely.
    pub(crate) fn identify(&mut self, candidates: &RealCandidates) {
        let is_old = age_s(self.now.start_ticks).is_none_or(|age_s| age_s > YOUNG_S);
        match identify(self.now.pid, candidates) {
            Identified::Known(identity) => {
                let is_same = self.identity.as_ref().is_some_and(|known| *known == *identity);
                // Right after an exec its libraries are not loaded yet.
                let is_settled = is_old && identity.lost.is_none();
                if !is_same {
                    // They were of what it executed before.
                    (self.live_bytes, self.returnable_bytes) = (None, None);
                }
                (self.identity, self.is_hidden) = (Some(*identity), false);
                self.identified = Some((Instant::now(), is_settled || is_same));
            }
            Identified::Hidden => {
                (self.identity, self.is_hidden) = (None, true);
                self.identified = Some((Instant::now(), true));
            }
            Identified::NotNow => {}
        }
        self.is_unseen = self.is_among_unseen();
    }

    /// The library that it asked for and lacks, at two looks.
    pub(crate) fn lost(&self) -> Option<&str> {
        let is_final = self.identified.is_some_and(|(_, is_final)| is_final);
        self.identity.as_ref()?.lost.as_deref().filter(|_| is_final)
    }

    fn is_among_unseen(&self) -> bool {
        foreign_process::take_unseen().contains(&self.now.pid)
    }

    /// Whether the page of its trial is to be read.
    pub(crate) fn is_trial(&self) -> bool {
        self.identity.as_ref().is_some_and(|one| one.injected == Injected::Hook && one.page.is_some())
    }

    /// Reads the page of its trial.
    pub(crate) fn read_page(&mut self) {
        let Some(page) = self.identity.as_ref().and_then(|identity| identity.page.as_ref()) else { return };
        let page = trial_page::read(page, self.now.pid, self.now.start_ticks);
        self.live_bytes = page.map(|page| page.live_bytes_now()).filter(|bytes| *bytes > 0);
    }

    /// Whether its heaps are to be looked at: it may be on glibc's malloc, with enough memory.
    pub(crate) fn needs_heaps(&self) -> bool {
        let is_plain = |one: &Identity| one.candidate.as_deref() == Some(imas_core::SYSTEM);
        self.identity.as_ref().is_some_and(is_plain)
            && self.now.resident_bytes >= HEAPS_FROM
            && self.heaps_due.is_none_or(|due| Instant::now() >= due)
    }

    /// Looks at its heaps.
    pub(crate) fn look_at_heaps(&mut self) {
        let begun = Instant::now();
        self.returnable_bytes = process_heaps::of(self.now.pid).ok().map(|heaps| heaps.bytes.returnable);
        self.is_unseen = self.is_among_unseen();
        self.heaps_due = Some(begun + HEAPS_LAST.max(begun.elapsed() * HEAPS_SHARE));
    }

    /// Change of the resident memory per hour, bytes.
    pub(crate) fn growth_per_hour(&self) -> Option<f64> {
        let (at, bytes) = self.first;
        let s = self.seen.duration_since(at).as_secs_f64();
        let grown = self.now.resident_bytes as f64 - bytes as f64;
        (s >= LEAST_GROWTH_S).then(|| grown * 3600.0 / s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ProcessReader;

    #[test]
    fn what_is_no_more_is_not_shown() {
        let all = ProcessReader::default().all();
        let now = all.into_iter().find(|reading| reading.pid == std::process::id()).unwrap();
        let (at, candidates) = (Instant::now(), RealCandidates::default());
        let with = |resident_bytes| Reading { resident_bytes, ..now.clone() };
        let mut own = Tracked::new(with(HEAPS_FROM), at);
        own.is_hidden = true;
        own.identify(&candidates);
        assert!(own.identity.is_some() && !own.is_hidden);
        own.returnable_bytes = Some(8 << 20);
        own.update(with(HEAPS_FROM), at);
        own.identify(&candidates);
        assert_eq!(own.returnable_bytes, Some(8 << 20));
        own.update(with(HEAPS_FROM - 1), at);
        assert_eq!(own.returnable_bytes, None, "more than it holds at all");
        own.live_bytes = Some(1);
        own.identity.as_mut().unwrap().allocator = "of another program".to_owned();
        own.identify(&candidates);
        assert_eq!(own.live_bytes, None);
    }
}
