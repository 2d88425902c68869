// SPDX-License-Identifier: Apache-2.0
//! Where memory is short, on the machine or in the control group of a service, running processes are asked to give
//! their free pages back. Nothing is done as long as it is not.

mod round;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use imas_core::Conditions;
use imas_core::adaptive::{Objective, weight};
use imas_engine::daemon_status::DaemonCounters;
use imas_linux::control_group::{self, NearLimit};
use imas_linux::foreign_process::owner_of_uid;

use crate::process_info::Identity;
pub(crate) use round::is_of_tree;
use round::{Large, Outcome, Place};

/// Time between two looks at control groups, and between two rounds in one place.
const BETWEEN_GROUPS: Duration = Duration::from_secs(30);
const BETWEEN_ROUNDS: Duration = Duration::from_secs(60);
/// Pause of one process: every second round is for others. Where it returned little its pause doubles; what one process
/// does prolongs no other's.
const SHORTEST: Duration = Duration::from_secs(120);
const LONGEST: Duration = Duration::from_secs(3600);
/// Processes whose pauses are known; those that end first are forgotten.
const MOST_PAUSES: usize = 4096;
/// Fewer bytes are little.
const LITTLE: u64 = 8 << 20;
/// Time between two looks whether a round has ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// When memory is short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ShortageSettings {
    /// Whether processes are asked at all.
    pub(crate) asks: bool,
    /// Pressure on memory from which it is short, as the policy weighs it: from 0 to 1.
    pub(crate) at: f64,
}

/// Rounds of questions to running processes.
#[derive(Debug)]
pub(crate) struct Shortage {
    settings: ShortageSettings,
    /// Run folder of a user's own tree of processes; None where everybody is served.
    tree: Option<PathBuf>,
    /// The round that is under way, and its place.
    running: Option<(Place, Step)>,
    groups_at: Instant,
    /// When the next round in a place may begin: one in which nobody can answer delays no other.
    places: HashMap<Place, Instant>,
    /// Processes that were asked, or looked at in vain.
    pauses: HashMap<Identity, Pause>,
    counts: DaemonCounters,
}

/// Events that a round waits for.
#[derive(Debug)]
enum Step {
    /// The processes that are large enough. This thread knows who answers for them.
    List(Receiver<Vec<Large>>),
    Answers(Receiver<Outcome>),
}

/// Pause of one process after a round.
#[derive(Debug, Clone, Copy)]
struct Pause {
    length: Duration,
    until: Instant,
}

impl Shortage {
    pub(crate) fn new(settings: ShortageSettings, tree: Option<PathBuf>) -> Self {
        let now = Instant::now();
        Self {
            settings,
            tree,
            running: None,
            groups_at: now,
            places: HashMap::new(),
            pauses: HashMap::new(),
            counts: DaemonCounters::default(),
        }
    }

    pub(crate) fn set(&mut self, settings: ShortageSettings) {
        self.settings = settings;
    }

    pub(crate) fn counts(&self) -> DaemonCounters {
        self.counts
    }

    /// Begins a round where memory is short.
    pub(crate) fn look(&mut self, conditions: &Conditions, now: Instant) {
        if !self.settings.asks || self.running.is_some() {
            return;
        }
        if self.is_short(conditions) && self.is_due(&Place::Machine, now) {
            self.begin(Place::Machine);
        } else if now >= self.groups_at {
            self.groups_at = now + BETWEEN_GROUPS;
            if let Some(place) = self.group_of(control_group::services_near_limits(), now) {
                self.begin(place);
            }
        }
    }

    /// The fullest group that is short of memory and whose pause is over.
    fn group_of(&self, mut groups: Vec<NearLimit>, now: Instant) -> Option<Place> {
        groups.sort_by(|a, b| b.used.total_cmp(&a.used));
        let short = groups.into_iter().filter(|group| self.is_group_short(group));
        short.map(|group| Place::Group(group.folder)).find(|place| self.is_due(place, now))
    }

    fn is_due(&self, place: &Place, now: Instant) -> bool {
        self.places.get(place).is_none_or(|from| now >= *from)
    }

    /// Takes in what a round has found, and goes on with it.
    pub(crate) fn turn(&mut self, now: Instant) {
        let Some((place, step)) = self.running.take() else { return };
        match step {
            Step::List(list) => match list.try_recv() {
                Ok(large) => self.go_on(place, large, now),
                Err(TryRecvError::Empty) => self.running = Some((place, Step::List(list))),
                Err(TryRecvError::Disconnected) => self.ended(&Outcome { place, ..Outcome::default() }, now),
            },
            Step::Answers(answers) => match answers.try_recv() {
                Ok(outcome) => self.ended(&outcome, now),
                Err(TryRecvError::Empty) => self.running = Some((place, Step::Answers(answers))),
                Err(TryRecvError::Disconnected) => self.ended(&Outcome { place, ..Outcome::default() }, now),
            },
        }
    }

    /// Time to take a turn if nothing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.running.as_ref().map(|_| Instant::now() + BETWEEN_LOOKS)
    }

    fn is_short(&self, conditions: &Conditions) -> bool {
        is_short(&self.settings, conditions)
    }

    fn is_group_short(&self, group: &NearLimit) -> bool {
        self.is_short(&Conditions { group_memory_used: Some(group.used), ..Conditions::default() })
    }

    fn begin(&mut self, place: Place) {
        let of_round = place.clone();
        let list = in_a_thread(move || round::large(&of_round));
        self.running = list.map(|list| (place, Step::List(list)));
    }

    fn go_on(&mut self, place: Place, large: Vec<Large>, now: Instant) {
        let pausing =
            self.pauses.iter().filter(|(_, pause)| now < pause.until).map(|(identity, _)| *identity);
        let chosen = round::chosen(large, &pausing.collect::<HashSet<_>>(), owner_of_uid);
        let (of_round, tree) = (place.clone(), self.tree.clone());
        let answers = in_a_thread(move || round::ask(&of_round, &chosen, tree.as_deref()));
        self.running = answers.map(|answers| (place, Step::Answers(answers)));
    }

    fn ended(&mut self, outcome: &Outcome, now: Instant) {
        self.running = None;
        self.counts.trims_asked += outcome.asked;
        self.counts.trims_answered += outcome.answers.len() as u64;
        self.counts.trimmed_mib += outcome.bytes() >> 20;
        for answer in &outcome.answers {
            tracing::info!("{}: {}", outcome.place, answer.words());
        }
        self.places.retain(|_, from| now < *from);
        self.places.insert(outcome.place.clone(), now + BETWEEN_ROUNDS);
        self.pauses.retain(|_, pause| now < pause.until + LONGEST);
        for (identity, bytes) in &outcome.gave {
            self.pause(*identity, *bytes, now);
        }
    }

    fn pause(&mut self, identity: Identity, bytes: u64, now: Instant) {
        if self.pauses.len() >= MOST_PAUSES {
            let first =
                self.pauses.iter().min_by_key(|(_, pause)| pause.until).map(|(identity, _)| *identity);
            first.map(|first| self.pauses.remove(&first));
        }
        let before = self.pauses.get(&identity).map_or(SHORTEST / 2, |pause| pause.length);
        let length = if bytes >= LITTLE { SHORTEST } else { LONGEST.min(before * 2) };
        self.pauses.insert(identity, Pause { length, until: now + length });
    }
}

/// Whether memory is short under these conditions.
pub(crate) fn is_short(settings: &ShortageSettings, conditions: &Conditions) -> bool {
    weight(conditions, Objective::Auto).memory >= settings.at
}

/// Does the work in a thread; None where none can be had.
pub(crate) fn in_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<Receiver<T>> {
    let (sender, receiver) = channel();
    let work = move || {
        let _ = sender.send(work()); // unless imasd is ending
    };
    match std::thread::Builder::new().name("shortage".to_owned()).spawn(work) {
        Ok(_) => Some(receiver),
        Err(error) => {
            tracing::debug!("running processes cannot be asked: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::round::Answer;
    use super::*;

    const SETTINGS: ShortageSettings = ShortageSettings { asks: true, at: 1.0 };

    fn enough() -> Conditions {
        Conditions { mem_available_bytes: 8 << 30, mem_total_bytes: Some(16 << 30), ..Conditions::default() }
    }

    #[test]
    fn memory_is_short_where_the_policy_says_so() {
        let shortage = Shortage::new(SETTINGS, None);
        assert!(!shortage.is_short(&enough()));
        assert!(shortage.is_short(&Conditions { memory_some_pct: Some(10.0), ..enough() }));
        assert!(shortage.is_short(&Conditions { memory_full_pct: Some(5.0), ..enough() }));
        assert!(shortage.is_short(&Conditions { mem_available_bytes: 1 << 28, ..enough() }));
        let group = |used| NearLimit { folder: "/x".into(), used };
        assert_eq!(
            (shortage.is_group_short(&group(0.96)), shortage.is_group_short(&group(0.9))),
            (true, false)
        );
    }

    #[test]
    fn nothing_begins_unless_memory_is_short_and_the_pause_is_over() {
        let now = Instant::now();
        let short = Conditions { memory_some_pct: Some(50.0), ..enough() };
        let mut off = Shortage::new(ShortageSettings { asks: false, ..SETTINGS }, None);
        off.look(&short, now);
        let mut enough_left = Shortage::new(SETTINGS, None);
        enough_left.groups_at = now + BETWEEN_ROUNDS;
        enough_left.look(&enough(), now);
        let mut waits = Shortage::new(SETTINGS, None);
        waits.places.insert(Place::Machine, now + BETWEEN_ROUNDS);
        waits.groups_at = now + BETWEEN_ROUNDS;
        waits.look(&short, now);
        assert!(off.running.is_none() && enough_left.running.is_none() && waits.running.is_none());
    }

    #[test]
    fn a_service_that_cannot_answer_delays_no_other() {
        let now = Instant::now();
        let mut shortage = Shortage::new(SETTINGS, None);
        let groups = || {
            let group = |folder: &str, used| NearLimit { folder: folder.into(), used };
            vec![group("/b", 0.96), group("/a", 0.99), group("/c", 0.5)]
        };
        let place = |folder: &str| Some(Place::Group(folder.into()));
        assert_eq!(shortage.group_of(groups(), now), place("/a"));
        shortage.ended(&Outcome { place: Place::Group("/a".into()), ..Outcome::default() }, now);
        assert_eq!(shortage.group_of(groups(), now), place("/b"));
        assert!(shortage.is_due(&Place::Machine, now));
        shortage.ended(&Outcome { place: Place::Group("/b".into()), ..Outcome::default() }, now);
        assert_eq!(shortage.group_of(groups(), now), None, "the third is not short");
        assert_eq!(shortage.group_of(groups(), now + BETWEEN_ROUNDS), place("/a"));
    }

    #[test]
    fn a_process_that_returns_little_has_a_longer_pause_and_no_other_has() {
        let now = Instant::now();
        let mut shortage = Shortage::new(SETTINGS, None);
        let of = |pid| Identity { pid, start_ticks: 1 };
        let answer = |pid, bytes| Answer { pid, name: "x".into(), bytes: Some(bytes), took_ns: 1 };
        let outcome = |answers: &[(u32, u64)]| Outcome {
            asked: 2,
            gave: answers.iter().map(|(pid, bytes)| (of(*pid), *bytes)).collect(),
            answers: answers.iter().map(|(pid, bytes)| answer(*pid, *bytes)).collect(),
            ..Outcome::default()
        };
        let length = |shortage: &Shortage, pid| shortage.pauses[&of(pid)].length;
        shortage.ended(&outcome(&[(1, 1), (2, LITTLE)]), now);
        assert_eq!((length(&shortage, 1), length(&shortage, 2)), (SHORTEST, SHORTEST));
        for _ in 0..9 {
            shortage.ended(&outcome(&[(1, 1), (2, LITTLE)]), now);
        }
        assert_eq!((length(&shortage, 1), length(&shortage, 2)), (LONGEST, SHORTEST));
        assert!(shortage.is_due(&Place::Machine, now + BETWEEN_ROUNDS), "others are asked in the next round");
        shortage.ended(&outcome(&[(1, LITTLE)]), now);
        assert_eq!(length(&shortage, 1), SHORTEST);
        let counts = shortage.counts();
        assert_eq!((counts.trims_asked, counts.trims_answered, counts.trimmed_mib), (22, 21, 88));
    }

    #[test]
    fn what_is_known_of_processes_is_bounded_and_forgotten() {
        let now = Instant::now();
        let mut shortage = Shortage::new(SETTINGS, None);
        for pid in 0..5000 {
            shortage.pause(Identity { pid, start_ticks: 1 }, 0, now);
        }
        assert_eq!(shortage.pauses.len(), MOST_PAUSES);
        shortage.ended(&Outcome::default(), now + 2 * LONGEST);
        assert!(shortage.pauses.is_empty());
    }
}
