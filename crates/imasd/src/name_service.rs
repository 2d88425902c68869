// SPDX-License-Identifier: Apache-2.0
//! Accounts that are in no file, but in the machine's name service (LDAP, SSSD, systemd). It may take minutes
//! to answer, or never answer. So a thread asks, and imasd continues without an answer until it comes.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

use crate::accounts::FIRST_USER;

/// Question to the name service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    Uid(u32),
    Name(String),
}

/// The uid of an account of the system or of a person; `None` where there is no such account.
type Answer = Option<u32>;

/// Limit for the number of questions remembered. Further ones are not asked.
const MOST: usize = 4096;
/// An answer is asked for again after this time.
const GOOD_FOR: Duration = Duration::from_secs(3600);

/// The two ends of the thread that asks.
type Asking = (Sender<Question>, Receiver<(Question, Answer)>);

/// Questions and answers of the machine's name service.
#[derive(Debug)]
pub(crate) struct NameService {
    lookup: fn(&Question) -> Answer,
    asking: Option<Asking>,
    open: HashSet<Question>,
    answers: HashMap<Question, (Answer, Instant)>,
}

impl NameService {
    /// The name service of the machine.
    pub(crate) fn new() -> Self {
        Self::with(ask_machine)
    }

    fn with(lookup: fn(&Question) -> Answer) -> Self {
        Self { lookup, asking: None, open: HashSet::new(), answers: HashMap::new() }
    }

    /// The last answer. If there is none, or if it is old, the question is asked in the background.
    pub(crate) fn answer(&mut self, question: &Question) -> Answer {
        let last = self.answers.get(question).copied();
        if last.is_none_or(|(_, at)| at.elapsed() >= GOOD_FOR) {
            self.ask(question);
        }
        last.and_then(|(answer, _)| answer)
    }

    /// Takes up what has been answered; whether that changes anything.
    pub(crate) fn take_answers(&mut self) -> bool {
        let Some((_, answered)) = &self.asking else { return false };
        let mut changed = false;
        while let Ok((question, answer)) = answered.try_recv() {
            self.open.remove(&question);
            let before = self.answers.insert(question, (answer, Instant::now()));
            changed |= before.is_none_or(|(before, _)| before != answer);
        }
        changed
    }

    fn ask(&mut self, question: &Question) {
        if self.answers.len() + self.open.len() >= MOST {
            self.answers.retain(|_, (_, at)| at.elapsed() < GOOD_FOR);
        }
        let has_room = self.answers.contains_key(question) || self.answers.len() + self.open.len() < MOST;
        if !has_room || self.open.contains(question) {
            return;
        }
        if self.asking.is_none() {
            self.asking = start(self.lookup);
        }
        let Some((questions, _)) = &self.asking else { return };
        if questions.send(question.clone()).is_ok() {
            self.open.insert(question.clone());
        }
    }
}

/// The thread ends with its questions, or with imasd.
fn start(lookup: fn(&Question) -> Answer) -> Option<Asking> {
    let (questions, asked) = channel::<Question>();
    let (answers, answered) = channel();
    let work = move || {
        for question in asked {
            let answer = lookup(&question);
            if answers.send((question, answer)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("names".to_owned()).spawn(work).ok()?;
    Some((questions, answered))
}

/// Beyond the system's own, an account that cannot log in is no person: systemd names the uids of services
/// and of containers, which one person may have many of.
fn ask_machine(question: &Question) -> Answer {
    let found = match question {
        Question::Uid(uid) => User::from_uid(Uid::from_raw(*uid)),
        Question::Name(name) => User::from_name(name),
    };
    let account = found.ok().flatten()?;
    let shell = account.shell.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let uid = account.uid.as_raw();
    (uid < FIRST_USER || !matches!(shell, "" | "nologin" | "false")).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(mut holds: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(60), "in vain");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_name_service_that_never_answers_delays_nothing() {
        let mut silent = NameService::with(|_| {
            loop {
                std::thread::park();
            }
        });
        let begin = Instant::now();
        for uid in 0..100_000 {
            assert_eq!(silent.answer(&Question::Uid(uid)), None);
            assert!(!silent.take_answers());
        }
        assert!(silent.open.len() <= MOST);
        assert!(begin.elapsed() < Duration::from_secs(60), "no more than a hang is meant");
    }

    #[test]
    fn an_answer_is_taken_up_when_it_comes() {
        let mut names = NameService::with(|question| match question {
            Question::Uid(uid) => Some(*uid),
            Question::Name(_) => None,
        });
        assert_eq!(names.answer(&Question::Uid(7)), None);
        until(|| names.take_answers());
        assert_eq!(names.answer(&Question::Uid(7)), Some(7));
        assert_eq!(names.answer(&Question::Name("x".to_owned())), None);
        until(|| names.take_answers());
        assert!(!names.take_answers() && names.open.is_empty());
        assert_eq!(names.answers.len(), 2, "that there is none is an answer too");
    }

    #[test]
    fn the_name_service_of_the_machine_is_asked() {
        assert_eq!(ask_machine(&Question::Uid(0)), Some(0), "root can log in");
        assert_eq!(ask_machine(&Question::Name("no-such-account".to_owned())), None);
    }
}
