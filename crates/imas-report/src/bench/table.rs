// SPDX-License-Identifier: Apache-2.0
//! The table of `imas bench`: its columns, which of them have room, and its colours.

use std::str::FromStr;

use anstyle::{AnsiColor, Style};
use imas_cli::format;
use imas_core::bench::{Floor, MedianRun};
use imas_core::candidate::SYSTEM;
use imas_core::stats::Interval;

use super::CandidateReport;

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
    /// Verdict on the figures.
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

    /// The cell of a figure.
    pub(super) fn cell(self, candidate: &CandidateReport, form: ChangeForm) -> String {
        let Some(figure) = self.figure(candidate) else { return "-".to_owned() };
        match self {
            C::Wall | C::Cpu | C::User | C::System => format::seconds(figure),
            C::Peak | C::Mean => format::mib(figure),
            C::NsPerOp | C::Faults => format!("{figure:.0}"),
            C::Fragmentation => format!("{:.0}", figure * 100.0),
            _ => self.change(candidate, form),
        }
    }

    fn change(self, candidate: &CandidateReport, form: ChangeForm) -> String {
        let Some(ratio) = self.ratio(candidate).filter(|_| candidate.name != SYSTEM) else {
            return "-".to_owned();
        };
        match form {
            // One run has no spread.
            _ if ratio.lo == ratio.hi => format!("{:+.1} %", (ratio.mid - 1.0) * 100.0),
            ChangeForm::Exact => format::change(&ratio),
            ChangeForm::Short => format::short_change(&ratio),
            ChangeForm::Bare => format!("{:+.1} %", (ratio.mid - 1.0) * 100.0),
        }
    }
}

/// A mean below the floor was not measured: the run ended before anybody looked.
fn seen_memory(median: &MedianRun) -> Option<f64> {
    (median.mean_bytes >= Floor::BENCH.memory_bytes).then_some(median.mean_bytes as f64)
}

/// How a change is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeForm {
    /// With its interval.
    Exact,
    /// With its interval in whole per cent.
    Short,
    /// Without its interval.
    Bare,
}

/// Layout that the reader asked for and has room for.
#[derive(Debug, Clone, Default)]
pub struct BenchLayout {
    /// The columns in this order. Without a selection: the default columns that fit.
    pub columns: Vec<BenchColumn>,
    /// The rows are sorted by this one; None: as the catalogue has them.
    pub sort: Option<BenchColumn>,
    /// Width of the terminal in characters; None: no terminal.
    pub width: Option<usize>,
}

/// One way to lay the table out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) columns: Vec<BenchColumn>,
    pub(super) changes: ChangeForm,
    /// The verdict is wrapped to this number of characters.
    pub(super) verdict: Option<u16>,
}

impl Attempt {
    pub(super) fn heads(&self) -> Vec<&'static str> {
        std::iter::once("candidate").chain(self.columns.iter().map(|column| column.head())).collect()
    }
}

/// Columns of a terminal from which on all default columns are shown.
const WIDE: usize = 140;
/// Columns where there is no terminal.
const PIPE: usize = 100;
/// Every word of a verdict fits.
const NARROW_VERDICT: u16 = 14;
const WRAPPED_VERDICT: u16 = 26;
/// The answer with the figures it is about.
const WITH_FIGURES: [C; 5] = [C::Cpu, C::CpuChange, C::Mean, C::MeanChange, C::Verdict];
/// The answer alone.
const ANSWER: [C; 3] = [C::CpuChange, C::MeanChange, C::Verdict];

impl BenchLayout {
    pub(super) fn width(&self) -> usize {
        self.width.unwrap_or(PIPE)
    }

    /// Where there is room for everything, as in a file.
    pub(super) fn widest(&self) -> Attempt {
        let columns = if self.columns.is_empty() { USUAL.to_vec() } else { self.columns.clone() };
        Attempt { columns, changes: ChangeForm::Exact, verdict: None }
    }

    /// The ways to lay the table out, widest first. Columns that were named all stay.
    pub(super) fn attempts(&self) -> Vec<Attempt> {
        let wide = (self.width() >= WIDE).then(|| USUAL.to_vec());
        let sets: Vec<Vec<BenchColumn>> = match self.columns.is_empty() {
            true => wide.into_iter().chain([WITH_FIGURES.to_vec(), ANSWER.to_vec()]).collect(),
            false => vec![self.columns.clone()],
        };
        let last = sets.last().cloned().unwrap_or_default();
        let of = |columns: &Vec<BenchColumn>, changes, verdict| Attempt {
            columns: columns.clone(),
            changes,
            verdict,
        };
        let whole = sets.iter().flat_map(|columns| {
            [ChangeForm::Exact, ChangeForm::Short].map(|changes| of(columns, changes, None))
        });
        let wrapped = [
            of(&last, ChangeForm::Short, Some(WRAPPED_VERDICT)),
            of(&last, ChangeForm::Short, Some(NARROW_VERDICT)),
            of(&last, ChangeForm::Bare, Some(WRAPPED_VERDICT)),
            of(&last, ChangeForm::Bare, Some(NARROW_VERDICT)),
        ];
        whole.chain(wrapped).collect()
    }
}

/// Words that are coloured, each with its style.
fn words() -> [(&'static str, Style); 10] {
    let (good, bad) = (AnsiColor::Green.on_default(), AnsiColor::Red.on_default());
    [
        ("faster", good),
        ("less memory", good),
        ("slower", bad),
        ("more memory", bad),
        ("*fastest*", good.bold()),
        ("*leanest*", good.bold()),
        ("*balanced*", good.bold()),
        ("*fastest (tied)*", good.bold()),
        ("*leanest (tied)*", good.bold()),
        ("*balanced (tied)*", good.bold()),
    ]
}

/// The table with its head in bold and its verdicts in colour. The text has no escape sequences of its own.
#[must_use]
pub fn coloured(table: &str) -> String {
    let bold = Style::new().bold();
    let line = |(at, line): (usize, &str)| match at {
        0 => format!("{bold}{line}{bold:#}\n"),
        _ => verdict(line) + "\n",
    };
    table.lines().enumerate().map(line).collect()
}

/// Names stand first in a line and are left alone.
fn verdict(line: &str) -> String {
    let name =
        line.trim_start().find(' ').map_or(line.len(), |end| end + line.len() - line.trim_start().len());
    let (name, rest) = line.split_at(name);
    let coloured = words()
        .into_iter()
        .fold(rest.to_owned(), |rest, (word, style)| rest.replace(word, &format!("{style}{word}{style:#}")));
    format!("{name}{coloured}")
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

    #[test]
    fn the_columns_of_the_answer_are_left_out_last() {
        let wide = BenchLayout { width: Some(WIDE), ..BenchLayout::default() };
        assert_eq!(wide.attempts()[0].columns, USUAL);
        assert_eq!(BenchLayout::default().attempts()[0].columns, WITH_FIGURES);
        assert_eq!(wide.attempts().last().unwrap().columns, ANSWER);
        let named = BenchLayout { columns: vec![BenchColumn::Wall], ..BenchLayout::default() };
        assert!(named.attempts().iter().all(|attempt| attempt.columns == [BenchColumn::Wall]));
    }

    #[test]
    fn words_are_coloured_and_names_are_not() {
        let text = coloured(" candidate  verdict\n---\n faster     1.4 x faster, *fastest*\n");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains('\u{1b}') && !lines[1].contains('\u{1b}'));
        assert!(lines[2].starts_with(" faster     1.4 x \u{1b}"), "{:?}", lines[2]);
        assert_eq!(
            anstream::adapter::strip_str(&text).to_string().lines().next(),
            Some(" candidate  verdict")
        );
    }
}
