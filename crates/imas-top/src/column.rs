// SPDX-License-Identifier: Apache-2.0
//! The columns of the table: on a terminal, in the plain table, and to sort by.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use clap::ValueEnum;
use imas_core::printable;
use imas_engine::live::snapshot::LiveProcess;

use crate::words;

/// A column; they are declared in the order on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// Number of the process
    Pid,
    /// Uid of the owner
    Uid,
    /// The program
    Program,
    /// Its systemd service
    Unit,
    /// The allocator that is mapped
    Allocator,
    /// Threads
    Threads,
    /// Resident memory
    Resident,
    /// Free pages in glibc's heaps that a trim would return
    Free,
    /// Verdict on its memory, as 'imas explain PID' has it in words
    Verdict,
    /// Bytes in live blocks, of a trial
    Live,
    /// Change of the resident memory per hour
    Growth,
    /// CPU time since the last look, per cent of one CPU
    Cpu,
    /// What IMAS does with the program
    State,
    /// What a restart would gain: memory, then CPU
    Gain,
}

impl Column {
    /// Columns in the order in which they are left out where the terminal is narrow. The others always stay.
    const LESS: [Self; 7] =
        [Self::Uid, Self::Unit, Self::Live, Self::Verdict, Self::Free, Self::Threads, Self::Growth];

    /// Columns that fit into `width` characters.
    pub(crate) fn that_fit(width: u16) -> Vec<Self> {
        let mut columns = Self::value_variants().to_vec();
        for less in Self::LESS {
            let needed: u16 = columns.iter().map(|column| column.width() + 1).sum();
            if needed <= width.saturating_add(1) {
                break;
            }
            columns.retain(|column| *column != less);
        }
        columns
    }

    /// The word above the column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::Uid => "UID",
            Self::Program => "PROGRAM",
            Self::Unit => "SERVICE",
            Self::Allocator => "ALLOCATOR",
            Self::Threads => "THR",
            Self::Resident => "RES",
            Self::Free => "FREE",
            Self::Verdict => "VERDICT",
            Self::Live => "LIVE",
            Self::Growth => "GROWTH/h",
            Self::Cpu => "CPU%",
            Self::State => "STATE",
            Self::Gain => "GAIN",
        }
    }

    /// Characters that the column needs at least.
    pub(crate) fn width(self) -> u16 {
        match self {
            Self::Pid => 7,
            Self::Uid | Self::Free | Self::Live | Self::Resident | Self::Cpu => 5,
            Self::Program => 17,
            Self::Unit => 16,
            Self::Verdict => 13,
            Self::Allocator => 10,
            Self::Threads => 4,
            Self::Growth => 8,
            Self::State => 18,
            Self::Gain => 11,
        }
    }

    /// Share with which the column grows with the terminal; 0: the column keeps its width.
    pub(crate) fn share(self) -> u16 {
        match self {
            Self::Program | Self::State => 2,
            Self::Unit => 1,
            _ => 0,
        }
    }

    /// Whether the column is aligned to the right.
    pub(crate) fn is_number(self) -> bool {
        use Column::{Cpu, Free, Growth, Live, Pid, Resident, Threads, Uid};
        matches!(self, Pid | Uid | Threads | Resident | Free | Live | Growth | Cpu)
    }

    /// Text of a process in the column, safe for a terminal.
    pub(crate) fn cell(self, process: &LiveProcess) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        match self {
            Self::Pid => process.pid.to_string(),
            Self::Uid => process.uid.to_string(),
            Self::Program => words::program(process),
            Self::Unit => {
                or_dash(process.unit.as_ref().map(|unit| printable::name(&unit.to_string()).into_owned()))
            }
            Self::Allocator => printable::name(&process.allocator).into_owned(),
            Self::Threads => process.threads.to_string(),
            Self::Resident => words::size(process.resident_bytes as f64),
            Self::Free => or_dash(process.returnable_bytes.map(|bytes| words::size(bytes as f64))),
            Self::Verdict => or_dash(process.memory.as_ref().map(|memory| memory.verdict.id().to_owned())),
            Self::Live => or_dash(process.live_bytes.map(|bytes| words::size(bytes as f64))),
            Self::Growth => or_dash(process.growth_bytes_per_hour.map(words::signed_size)),
            Self::Cpu => or_dash(process.cpu_share.map(|share| format!("{:.1}", share * 100.0))),
            Self::State => words::state(process),
            Self::Gain => words::gain(process.gain.as_ref()),
        }
    }

    /// The order of two processes: figures the largest first, names from A on.
    fn compare(self, a: &LiveProcess, b: &LiveProcess) -> Ordering {
        let figure = |process: &LiveProcess| match self {
            Self::Threads => Some(process.threads as f64),
            Self::Resident => Some(process.resident_bytes as f64),
            Self::Free => process.returnable_bytes.map(|bytes| bytes as f64),
            Self::Live => process.live_bytes.map(|bytes| bytes as f64),
            Self::Growth => process.growth_bytes_per_hour,
            Self::Cpu => process.cpu_share,
            Self::Gain => process.gain.as_ref().map(|gain| gain.memory_bytes.map_or(0.0, |bytes| bytes.mid)),
            _ => None,
        };
        let by_cpu_gain = |process: &LiveProcess| {
            process.gain.as_ref().and_then(|gain| gain.cpu_percent).map(|percent| percent.mid)
        };
        let order = match self {
            Self::Pid => a.pid.cmp(&b.pid),
            Self::Uid => a.uid.cmp(&b.uid),
            Self::Program | Self::Unit | Self::Allocator | Self::Verdict | Self::State => {
                // A missing value comes last.
                let (a, b) = (self.cell(a), self.cell(b));
                (a == "-").cmp(&(b == "-")).then_with(|| a.cmp(&b))
            }
            Self::Gain => descending(figure(a), figure(b)).then(descending(by_cpu_gain(a), by_cpu_gain(b))),
            _ => descending(figure(a), figure(b)),
        };
        order.then(a.pid.cmp(&b.pid))
    }
}

/// Order with the greatest first; a value that is not known comes last.
fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// How the table is made from the processes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Listing {
    pub(super) sort: Column,
    /// Whether the order is reversed.
    pub(super) is_reversed: bool,
    /// Text that a process has to contain; upper and lower case are the same.
    pub(super) filter: String,
    /// Children below their parents.
    pub(super) is_tree: bool,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Index of the process.
    pub(super) process: usize,
    /// Generations below the first shown one.
    pub(super) depth: usize,
}

impl Listing {
    /// The lines, from the top.
    pub(super) fn lines(&self, processes: &[LiveProcess]) -> Vec<Line> {
        let mut shown: Vec<usize> =
            (0..processes.len()).filter(|&at| contains(&processes[at], &self.filter)).collect();
        shown.sort_by(|&a, &b| {
            let order = self.sort.compare(&processes[a], &processes[b]);
            if self.is_reversed { order.reverse() } else { order }
        });
        match self.is_tree {
            true => tree(processes, &shown),
            false => shown.into_iter().map(|process| Line { process, depth: 0 }).collect(),
        }
    }
}

/// Whether one of the columns with names contains the text.
pub(super) fn contains(process: &LiveProcess, text: &str) -> bool {
    let wanted = text.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let columns = [Column::Unit, Column::Allocator, Column::State, Column::Pid];
    wanted.is_empty() || has(&process.program) || columns.iter().any(|column| has(&column.cell(process)))
}

/// The processes in their order, each followed by its children. One whose parent is not shown is a root.
fn tree(processes: &[LiveProcess], shown: &[usize]) -> Vec<Line> {
    let pids: HashSet<u32> = shown.iter().map(|&at| processes[at].pid).collect();
    let mut children: HashMap<u32, Vec<usize>> = HashMap::new();
    let mut open: Vec<Line> = vec![];
    for &at in shown {
        let LiveProcess { parent, pid, .. } = processes[at];
        match parent != pid && pids.contains(&parent) {
            true => children.entry(parent).or_default().push(at),
            false => open.push(Line { process: at, depth: 0 }),
        }
    }
    open.reverse();
    let mut lines = vec![];
    while let Some(line) = open.pop() {
        lines.push(line);
        let below = children.remove(&processes[line.process].pid).unwrap_or_default();
        open.extend(below.into_iter().rev().map(|process| Line { process, depth: line.depth + 1 }));
    }
    // A pid that was used again between two readings may make a circle.
    let rest = children.into_values().flatten().map(|process| Line { process, depth: 0 });
    lines.extend(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_characters_are_enough_and_a_wide_terminal_shows_all() {
        let narrow = Column::that_fit(80);
        let needed: u16 = narrow.iter().map(|column| column.width() + 1).sum::<u16>() - 1;
        assert!(needed <= 80, "{needed}");
        assert!(narrow.contains(&Column::Gain) && narrow.contains(&Column::State));
        assert_eq!(Column::that_fit(200), Column::value_variants());
        assert_eq!(Column::that_fit(u16::MAX), Column::value_variants());
    }

    #[test]
    fn what_is_not_known_comes_last() {
        assert_eq!(descending(Some(1.0), None), Ordering::Less);
        assert_eq!(descending(Some(1.0), Some(2.0)), Ordering::Greater);
        assert_eq!(descending(None, None), Ordering::Equal);
    }
}
