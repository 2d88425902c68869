// SPDX-License-Identifier: Apache-2.0
//! The columns of the table of `imas bench`.

use std::str::FromStr;

use imas_core::bench::{Floor, MedianRun};
use imas_core::candidate::SYSTEM;
use imas_core::stats::Interval;

use super::CandidateReport;
use imas_cli::format;

/// A column besides the candidate's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BenchColumn {
    /// Elapsed time.
    Wall,
    /// Elapsed time against `system`.
    WallChange,
    /// User and system CPU time.
    Cpu,
    /// User and system CPU time against `system`.
    CpuChange,
    /// CPU time of the program's own code.
    User,
    /// CPU time that the kernel spent for the program.
    System,
    /// Peak of resident anonymous memory.
    Peak,
    /// Peak of resident anonymous memory against `system`.
    PeakChange,
    /// Mean of resident anonymous memory over the time of the run.
    Mean,
    /// Mean of resident anonymous memory against `system`.
    MeanChange,
    /// Nanoseconds of a malloc operation, from counted runs.
    NsPerOp,
    /// Fragmentation over mapped bytes, from counted runs.
    Fragmentation,
    /// Page faults.
    Faults,
    /// What the figures amount to.
    Verdict,
}

use BenchColumn as C;

/// Name on the command line, head, and column.
const COLUMNS: [(&str, &str, C); 14] = [
    ("wall", "wall", C::Wall),
    ("wall-change", "wall change", C::WallChange),
    ("cpu", "CPU", C::Cpu),
    ("cpu-change", "CPU change", C::CpuChange),
    ("user", "CPU user", C::User),
    ("system", "CPU system", C::System),
    ("peak", "peak MiB", C::Peak),
    ("peak-change", "peak change", C::PeakChange),
    ("mean", "mean MiB", C::Mean),
    ("mean-change", "mean change", C::MeanChange),
    ("ns-per-op", "ns/op", C::NsPerOp),
    ("fragmentation", "fragm. %", C::Fragmentation),
    ("faults", "page faults", C::Faults),
    ("verdict", "verdict", C::Verdict),
];

/// The default columns.
pub const USUAL: [C; 11] = [
    C::Wall,
    C::Cpu,
    C::CpuChange,
    C::User,
    C::System,
    C::Peak,
    C::Mean,
    C::MeanChange,
    C::NsPerOp,
    C::Fragmentation,
    C::Verdict,
];

impl FromStr for BenchColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = COLUMNS.iter().find(|(name, _, _)| *name == text).map(|(_, _, column)| *column);
        found.ok_or_else(|| format!("no such column; there are {}", Self::names().join(", ")))
    }
}

impl BenchColumn {
    /// The names on the command line.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        COLUMNS.iter().map(|(name, _, _)| *name).collect()
    }

    pub(super) fn head(self) -> &'static str {
        COLUMNS.iter().find(|(_, _, column)| *column == self).map_or("", |(_, head, _)| head)
    }

    /// The figure that rows are sorted by, least first; the verdict sorts by picks.
    pub(super) fn figure(self, candidate: &CandidateReport) -> Option<f64> {
        let median = candidate.median.as_ref();
        let of = |get: fn(&MedianRun) -> f64| median.map(get);
        let paper = candidate.paper.as_ref();
        match self {
            C::Wall => of(|run| run.wall_s),
            C::Cpu => of(|run| run.cpu_s),
            C::User => of(|run| run.user_s),
            C::System => of(|run| run.system_s),
            C::Peak => of(|run| run.peak_bytes as f64),
            C::Mean => median.and_then(seen_memory),
            C::Faults => of(|run| run.minor_faults as f64 + run.major_faults as f64),
            C::NsPerOp => paper.and_then(|paper| paper.ns_per_op),
            C::Fragmentation => paper.and_then(|paper| paper.frag_virtual),
            C::WallChange | C::CpuChange | C::PeakChange | C::MeanChange => {
                self.ratio(candidate).map(|ratio| ratio.mid)
            }
            C::Verdict => None,
        }
    }

    /// The ratio to `system` that a column of changes shows.
    fn ratio(self, candidate: &CandidateReport) -> Option<Interval> {
        match self {
            C::WallChange => candidate.ratio.wall,
            C::CpuChange => candidate.ratio.cpu,
            C::PeakChange => candidate.ratio.peak,
            C::MeanChange => candidate.ratio.memory,
            _ => None,
        }
    }

    /// The cell of a figure; of a change with its interval or without.
    pub(super) fn cell(self, candidate: &CandidateReport, with_interval: bool) -> String {
        let Some(figure) = self.figure(candidate) else { return "-".to_owned() };
        match self {
            C::Wall | C::Cpu | C::User | C::System => format::seconds(figure),
            C::Peak | C::Mean => format::mib(figure),
            C::NsPerOp | C::Faults => format!("{figure:.0}"),
            C::Fragmentation => format!("{:.0}", figure * 100.0),
            _ => self.change(candidate, with_interval),
        }
    }

    fn change(self, candidate: &CandidateReport, with_interval: bool) -> String {
        match self.ratio(candidate).filter(|_| candidate.name != SYSTEM) {
            Some(ratio) if with_interval => format::change(&ratio),
            Some(ratio) => format!("{:+.1} %", (ratio.mid - 1.0) * 100.0),
            None => "-".to_owned(),
        }
    }
}

/// A mean below the floor was not measured: the run ended before anybody looked.
fn seen_memory(median: &MedianRun) -> Option<f64> {
    (median.mean_bytes >= Floor::BENCH.memory_bytes).then_some(median.mean_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_name_and_a_head() {
        for name in BenchColumn::names() {
            assert!(!name.parse::<BenchColumn>().unwrap().head().is_empty());
        }
        assert!("what".parse::<BenchColumn>().unwrap_err().contains("wall, "));
    }
}
