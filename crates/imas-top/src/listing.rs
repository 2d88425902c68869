// SPDX-License-Identifier: Apache-2.0
//! Which processes are shown, and in which order.

use std::collections::{HashMap, HashSet};

use imas_engine::live::snapshot::LiveProcess;

use crate::column::Column;

/// How the table is made from the processes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Listing {
    pub(crate) sort: Column,
    /// Whether the order is reversed.
    pub(crate) is_reversed: bool,
    /// Text that a process has to contain; upper and lower case are the same.
    pub(crate) filter: String,
    /// Children below their parents.
    pub(crate) is_tree: bool,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    /// Index of the process.
    pub(crate) process: usize,
    /// Generations below the first shown one.
    pub(crate) depth: usize,
}

impl Listing {
    /// The lines, from the top.
    pub(crate) fn lines(&self, processes: &[LiveProcess]) -> Vec<Line> {
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
pub(crate) fn contains(process: &LiveProcess, text: &str) -> bool {
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
