// SPDX-License-Identifier: Apache-2.0
//! How much free memory is touched before each run, and what that shows of the machine.

use std::cell::{Cell, RefCell};

use imas_linux::pace::{Touch, enough_for, prefault_after_a_while};

/// Touching that takes this multiple of its shortest time waits for the host ...
const TIMES: f64 = 5.0;
/// ... if it takes a second a GiB at least: small pages cleared by the kernel take half of that.
const S_PER_GIB: f64 = 1.0;

/// Most memory of the runs so far, and the times of touching free memory.
#[derive(Debug, Default)]
pub struct Prefault {
    most_bytes: Cell<u64>,
    touches: RefCell<Vec<Touch>>,
}

impl Prefault {
    /// How much to touch before the next run, in bytes.
    pub fn bytes(&self) -> u64 {
        enough_for(self.most_bytes.get())
    }

    /// A run was made that took that number of bytes; None where no memory was touched before it.
    pub fn saw(&self, peak_bytes: u64, touch: Option<Touch>) {
        self.most_bytes.set(self.most_bytes.get().max(peak_bytes));
        self.touches.borrow_mut().extend(touch);
    }

    /// Note for readers on a machine that gives free memory back to its host.
    pub fn note(&self) -> Option<String> {
        self.extremes().and_then(Extremes::note)
    }

    /// Gives free memory the time to go, and looks again.
    pub fn look_after_a_while(&self) {
        self.touches.borrow_mut().extend(prefault_after_a_while());
    }

    /// The quickest and the slowest touch of free memory; None before anything was touched.
    pub fn extremes(&self) -> Option<Extremes> {
        let costs: Vec<f64> = self.touches.borrow().iter().map(Touch::s_per_gib).collect();
        Extremes::of(&costs)
    }
}

/// Time of touching free memory, in seconds a GiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extremes {
    /// Seconds a GiB at its quickest.
    pub least: f64,
    /// Seconds a GiB at its slowest.
    pub most: f64,
}

impl Extremes {
    fn of(costs: &[f64]) -> Option<Self> {
        let least = costs.iter().copied().min_by(f64::total_cmp)?;
        let most = costs.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { least, most })
    }

    /// Free memory was away now and then.
    pub fn is_given_back(self) -> bool {
        self.most >= S_PER_GIB && self.most >= TIMES * self.least
    }

    fn note(self) -> Option<String> {
        let Self { least, most } = self;
        self.is_given_back().then(|| {
            format!(
                "free memory is not always there on this machine, which seems to give it back to a host: touching it took {most:.1} s of CPU a GiB at worst, {least:.2} s at best; it is touched before each run, so that none of \
                 this is in the figures. A program that starts when nothing was freed for seconds pays it, most with candidates that use huge pages"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_only_for_a_machine_whose_free_memory_is_sometimes_away() {
        let note = |costs: &[f64]| Extremes::of(costs).and_then(Extremes::note);
        assert!(note(&[]).is_none());
        assert!(note(&[0.05, 0.06, 0.4]).is_none(), "large ratio, little time");
        assert!(note(&[1.2, 1.1, 1.4]).is_none(), "a slow machine");
        let note_text = note(&[0.07, 2.52, 0.08]).unwrap();
        assert!(note_text.contains("2.5 s of CPU a GiB") && note_text.contains("0.07 s"), "{note_text}");
    }
}
