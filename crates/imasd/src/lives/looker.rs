// SPDX-License-Identifier: Apache-2.0
//! Looks at processes in a thread of its own: a look takes six seconds for each terabyte that a process has mapped,
//! and the loop serves others meanwhile.

use std::collections::HashSet;
use std::io::Result;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use imas_linux::foreign_process::ForeignReader;

use super::look::{Look, PageCounts, Unseen, look};
use crate::process_info::Identity;

/// Time between two looks whether there are answers.
const BETWEEN: Duration = Duration::from_millis(50);

/// A process, who answers for it, and what its page has counted.
type Question = (Identity, u64, PageCounts);
type Answer = (Identity, std::result::Result<Look, Unseen>);

/// Looks at the processes that it is asked about, one after the other.
#[derive(Debug)]
pub(super) struct Looker {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    /// Processes that were asked about.
    asked: HashSet<Identity>,
}

impl Looker {
    /// Starts the thread. It ends with this value.
    pub(super) fn start() -> Result<Self> {
        let (questions, asked) = channel::<Question>();
        let (sender, answers) = channel();
        let work = move || {
            let mut reader = ForeignReader::default();
            for (identity, owner, counts) in asked {
                let looked = look(&mut reader, (identity, owner), counts);
                if sender.send((identity, looked)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("lives".to_owned()).spawn(work)?;
        Ok(Self { questions, answers, asked: HashSet::new() })
    }

    /// Whether the process is being looked at.
    pub(super) fn is_asked(&self, identity: Identity) -> bool {
        self.asked.contains(&identity)
    }

    pub(super) fn ask(&mut self, (identity, owner): (Identity, u64), counts: PageCounts) {
        if self.questions.send((identity, owner, counts)).is_ok() {
            self.asked.insert(identity);
        } else if let Ok(anew) = Self::start() {
            *self = anew; // the thread panicked; what it was asked is asked again
        }
    }

    /// Answers since the last call.
    pub(super) fn answers(&mut self) -> Vec<Answer> {
        let answers: Vec<_> = self.answers.try_iter().collect();
        for (identity, _) in &answers {
            self.asked.remove(identity);
        }
        answers
    }

    /// Time to ask for answers if nothing happens.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.asked.is_empty()).then(|| Instant::now() + BETWEEN)
    }
}
