// SPDX-License-Identifier: Apache-2.0
//! Trims from outside while a server runs, by the rules of `imas trim`: the look first, then the call.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use imas_linux::process_trim::{self, FromOutside};
use imas_linux::sampler::Watcher;

use crate::service::recorder::SharedTree;
use crate::service::server::locked;

/// Time between two rounds of trims. A run lasts a minute or less.
const EVERY: Duration = Duration::from_secs(2);
/// Bytes that a look must promise before a process is trimmed. The services of the laboratory are small.
const AT_LEAST: u64 = 1 << 20;

/// Trims of the processes of one server.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TrimsMade {
    /// Looks that promised too little.
    too_little: u32,
    /// Longest time that a thread stood still, ms, of each trim.
    stood_ms: Vec<f64>,
    /// Resident bytes that went.
    returned: u64,
    /// Reasons why a process was left alone, with their numbers.
    left_alone: BTreeMap<String, u32>,
}

/// A thread that trims at intervals until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Trimmer(Watcher<TrimsMade>);

impl Trimmer {
    pub(crate) fn start(tree: &SharedTree) -> Self {
        let tree = SharedTree::clone(tree);
        Self(Watcher::start(move |stop| {
            let mut made = TrimsMade::default();
            while !stop.load(Ordering::Relaxed) {
                std::thread::park_timeout(EVERY);
                let pids = locked(&tree).pids();
                pids.into_iter().take_while(|_| !stop.load(Ordering::Relaxed)).for_each(|pid| made.trim(pid));
            }
            made
        }))
    }

    /// Ends the trims. Returns them in words, as a note of the run.
    pub(crate) fn stop(self) -> Option<String> {
        self.0.stop().map(|made| made.in_words())
    }
}

impl TrimsMade {
    fn trim(&mut self, pid: u32) {
        match process_trim::heaps_of(pid) {
            Ok(figures) if figures.bytes.returnable < AT_LEAST => self.too_little += 1,
            Ok(_) => match process_trim::from_outside(pid) {
                Ok(FromOutside::Done(done)) => {
                    let (before, after) = done.resident.unwrap_or_default();
                    self.returned += before.saturating_sub(after);
                    self.stood_ms.push(done.stood_ms);
                }
                Ok(FromOutside::LeftAlone(reason)) => self.leave(reason.to_string()),
                Ok(FromOutside::NotReadable(reason)) => self.leave(reason.to_string()),
                Err(error) => self.leave(error.to_string()),
            },
            Err(reason) => self.leave(reason.to_string()),
        }
    }

    fn leave(&mut self, reason: String) {
        *self.left_alone.entry(reason).or_default() += 1;
    }

    fn in_words(&self) -> String {
        let longest = self.stood_ms.iter().copied().fold(0.0, f64::max);
        let mut words = format!(
            "{} trims from outside: {} MiB back, a thread stood {longest:.1} ms at most; {} looks promised less than 1 MiB",
            self.stood_ms.len(),
            self.returned >> 20,
            self.too_little
        );
        for (reason, count) in &self.left_alone {
            words += &format!("; left alone {count} times: {reason}");
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_are_told_in_words() {
        let mut made = TrimsMade { stood_ms: vec![0.2, 1.25], returned: 5 << 20, ..TrimsMade::default() };
        made.too_little = 3;
        made.leave("it has ended".to_owned());
        let words = "2 trims from outside: 5 MiB back, a thread stood 1.2 ms at most; 3 looks promised less than 1 \
                     MiB; left alone 1 times: it has ended";
        assert_eq!(made.in_words(), words);
    }
}
