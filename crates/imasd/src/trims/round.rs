// SPDX-License-Identifier: Apache-2.0
//! One round: how all processes are, and the turns of those that the rule has chosen. Each is done in a thread.

use std::path::Path;
use std::time::{Duration, Instant};

use imas_core::printable;
use imas_core::trimming::{TrimEnd, TrimRule, TrimTurn, Trimmable};
use imas_linux::foreign_process::{self, ForeignReader};
use imas_linux::process;
use imas_linux::trim_turns::{self, TurnTaken};

use super::settings::TrimSettings;
use crate::shortage::is_of_tree;

/// The turns of one round take so long at most. Who was not reached has the first turns of the next one.
const LONGEST: Duration = Duration::from_secs(60);

/// A process, before it is known who answers for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed {
    process: Trimmable,
    pub(super) uid: u32,
}

impl Listed {
    pub(super) fn trimmable(&self, owner: u64) -> Trimmable {
        Trimmable { owner, ..self.process }
    }
}

/// All processes that the settings mean, but this one.
pub(super) fn list(settings: &TrimSettings) -> Vec<Listed> {
    let others = process::pids().unwrap_or_default().into_iter().filter(|pid| *pid != std::process::id());
    let meant = others.filter(|pid| {
        settings.means(|| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default())
    });
    meant.filter_map(one).collect()
}

fn one(pid: u32) -> Option<Listed> {
    let process = trim_turns::trimmable(pid, 0)?;
    Some(Listed { process, uid: foreign_process::real_uid(pid)? })
}

/// Takes the turns in this order. `tree`: only processes that read the index below this folder.
pub(super) fn take(rule: &TrimRule, turns: &[TrimTurn], tree: Option<&Path>) -> Vec<TurnTaken> {
    let (mut reader, until) = (ForeignReader::default(), Instant::now() + LONGEST);
    let in_time = turns.iter().take_while(|_| Instant::now() < until);
    in_time.map(|turn| taken(&mut reader, rule, turn, tree)).collect()
}

fn taken(reader: &mut ForeignReader, rule: &TrimRule, turn: &TrimTurn, tree: Option<&Path>) -> TurnTaken {
    let TrimTurn { identity, owner, .. } = *turn;
    match tree.is_none_or(|tree| is_of_tree(reader, (identity.pid, owner), tree)) {
        true => trim_turns::take(reader, rule, turn),
        false => TurnTaken {
            identity,
            end: TrimEnd::LeftAlone,
            took: (Duration::ZERO, Duration::ZERO),
            words: None,
        },
    }
}

/// Name of a process for the log.
pub(super) fn name(pid: u32) -> String {
    let comm = process::stat(pid).map_or_else(String::new, |stat| stat.comm);
    format!("process {pid} ({})", printable::name(&comm))
}
