// SPDX-License-Identifier: Apache-2.0
//! Where memory is short, on the machine or in the control group of a service, running processes are asked to give
//! their free pages back. Nothing is done as long as it is not.

mod round;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use imas_core::Conditions;
use imas_core::adaptive::{Objective, weight};
use imas_engine::daemon_status::DaemonCounters;
use imas_linux::control_group::{self, NearLimit};

use round::{Outcome, Place};

/// Time between two looks at control groups, and between two rounds in one place. A round that returned little doubles the
/// pause of its place.
const BETWEEN_GROUPS: Duration = Duration::from_secs(30);
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);
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
    running: Option<(Place, Receiver<Outcome>)>,
    groups_at: Instant,
    /// Places where processes were asked: one that cannot answer delays no other.
    pauses: HashMap<Place, Pause>,
    counts: DaemonCounters,
}

/// Pause of one place after a round.
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
        self.pauses.get(place).is_none_or(|pause| now >= pause.until)
    }

    /// Takes the outcome of a round in.
    pub(crate) fn turn(&mut self, now: Instant) {
        let Some((place, receiver)) = &self.running else { return };
        let outcome = match receiver.try_recv() {
            Ok(outcome) => outcome,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => Outcome { place: place.clone(), ..Outcome::default() },
        };
        self.ended(&outcome, now);
    }

    /// Time to take a turn if nothing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.running.as_ref().map(|_| Instant::now() + BETWEEN_LOOKS)
    }

    fn is_short(&self, conditions: &Conditions) -> bool {
        weight(conditions, Objective::Auto).memory >= self.settings.at
    }

    fn is_group_short(&self, group: &NearLimit) -> bool {
        self.is_short(&Conditions { group_memory_used: Some(group.used), ..Conditions::default() })
    }

    fn begin(&mut self, place: Place) {
        let (sender, receiver) = channel();
        let tree = self.tree.clone();
        let of_round = place.clone();
        let work = move || {
            let _ = sender.send(round::ask(&of_round, tree.as_deref())); // unless imasd is ending
        };
        match std::thread::Builder::new().name("shortage".to_owned()).spawn(work) {
            Ok(_) => self.running = Some((place, receiver)),
            Err(error) => tracing::debug!("memory is short, and nobody can be asked: {error}"),
        }
    }

    fn ended(&mut self, outcome: &Outcome, now: Instant) {
        self.running = None;
        self.counts.trims_asked += outcome.asked;
        self.counts.trims_answered += outcome.answers.len() as u64;
        let bytes = outcome.bytes();
        self.counts.trimmed_mib += bytes >> 20;
        for answer in &outcome.answers {
            tracing::info!("{}: {}", outcome.place, answer.words());
        }
        let before = self.pauses.get(&outcome.place).map_or(SHORTEST, |pause| pause.length);
        let length = if bytes >= LITTLE { SHORTEST } else { LONGEST.min(before * 2) };
        self.pauses.retain(|_, pause| now < pause.until + LONGEST);
        self.pauses.insert(outcome.place.clone(), Pause { length, until: now + length });
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
        enough_left.groups_at = now + SHORTEST;
        enough_left.look(&enough(), now);
        let mut waits = Shortage::new(SETTINGS, None);
        waits.pauses.insert(Place::Machine, Pause { length: SHORTEST, until: now + SHORTEST });
        waits.groups_at = now + SHORTEST;
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
        assert_eq!(shortage.group_of(groups(), now + 2 * SHORTEST), place("/a"));
    }

    #[test]
    fn a_round_that_returns_little_is_followed_by_a_longer_pause() {
        let now = Instant::now();
        let mut shortage = Shortage::new(SETTINGS, None);
        let answer = |bytes| Answer { pid: 1, name: "x".into(), bytes: Some(bytes), took_ns: 1 };
        let outcome = |bytes| Outcome { asked: 2, answers: vec![answer(bytes)], ..Outcome::default() };
        shortage.ended(&outcome(1), now);
        let until = |shortage: &Shortage| shortage.pauses[&Place::Machine].until;
        assert_eq!(until(&shortage), now + 2 * SHORTEST);
        for _ in 0..9 {
            shortage.ended(&Outcome::default(), now);
        }
        assert_eq!(until(&shortage), now + LONGEST);
        shortage.ended(&outcome(LITTLE), now);
        assert_eq!(until(&shortage), now + SHORTEST);
        let counts = shortage.counts();
        assert_eq!((counts.trims_asked, counts.trims_answered, counts.trimmed_mib), (4, 2, 8));
    }
}
