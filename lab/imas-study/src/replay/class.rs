// SPDX-License-Identifier: Apache-2.0
//! Classes of programs that are judged by themselves.

use std::collections::BTreeMap;

use imas_replay::reliability::{PredictedFigure, ProgramClass};

use super::judged::JudgedProgram;

/// What programs are classed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassedBy {
    AllocatorShare,
    Memory,
    Threads,
    Category,
}

impl ClassedBy {
    pub(crate) const ALL: [Self; 4] = [Self::AllocatorShare, Self::Memory, Self::Threads, Self::Category];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllocatorShare => "allocator's part of the CPU time",
            Self::Memory => "peak memory",
            Self::Threads => "threads",
            Self::Category => "category",
        }
    }

    fn of(self, program: &JudgedProgram) -> String {
        match self {
            Self::AllocatorShare => PredictedFigure::Cpu.class(&program.facts).name().to_owned(),
            Self::Memory => PredictedFigure::Memory.class(&program.facts).name().to_owned(),
            Self::Threads if program.facts.threads > 1 => "several".to_owned(),
            Self::Threads => "one".to_owned(),
            Self::Category => program.category.clone(),
        }
    }

    /// Places of the programs of each class, in the order of the classes.
    pub(crate) fn classes(self, programs: &[JudgedProgram]) -> Vec<(String, Vec<usize>)> {
        let mut classes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, program) in programs.iter().enumerate() {
            classes.entry(self.of(program)).or_default().push(at);
        }
        let names = |figure: PredictedFigure| figure.classes().map(ProgramClass::name).to_vec();
        let order = match self {
            Self::AllocatorShare => names(PredictedFigure::Cpu),
            Self::Memory => names(PredictedFigure::Memory),
            Self::Threads => vec!["one", "several"],
            Self::Category => vec![],
        };
        let place = |name: &str| order.iter().position(|known| *known == name).unwrap_or(order.len());
        let mut classes: Vec<_> = classes.into_iter().collect();
        classes.sort_by_key(|(name, _)| place(name));
        classes
    }
}
