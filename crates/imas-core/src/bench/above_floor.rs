// SPDX-License-Identifier: Apache-2.0
//! Which criteria can be compared: those of which the program uses enough.

use super::floor::Floor;
use super::pairs::Criterion;
use super::run::MedianRun;
use crate::run::RawRun;

/// Which criteria can be compared, judged by the figures of `system`.
pub(super) struct AboveFloor {
    pub(super) cpu: bool,
    pub(super) memory: bool,
}

impl AboveFloor {
    pub(super) fn of(system: &[RawRun], floor: Floor) -> Self {
        let median = MedianRun::of(system).unwrap_or_default();
        Self { cpu: median.cpu_s >= floor.cpu_s, memory: median.mean_bytes >= floor.memory_bytes }
    }

    pub(super) fn has(&self, criterion: Criterion) -> bool {
        match criterion {
            Criterion::Cpu => self.cpu,
            Criterion::Memory => self.memory,
            Criterion::Wall | Criterion::Peak => true,
            Criterion::Balance => self.cpu && self.memory,
        }
    }
}
