// SPDX-License-Identifier: Apache-2.0
//! Which running processes give free pages back by themselves, and when: the rule of imasd, of `imas run --trim` and of
//! a node of Kubernetes.
//!
//! A process is trimmed once in a while, and costs at most a hundredth of the CPU time that it used itself. One that
//! took its pages back needed them: it is left alone for a time that doubles. The clock is handed in, so a test can let
//! days pass.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Part of its own CPU time that a process is made to spend: a hundredth.
const SHARE: u32 = 100;
/// Expected CPU time of the first look at a process, and of a trim for each MiB.
const COST_OF_LOOK: Duration = Duration::from_millis(2);
const COST_OF_MIB: Duration = Duration::from_micros(150);
/// Time after a trim at which is looked at what came back.
const LOOK_BACK: Duration = Duration::from_secs(120);
/// Longest time for which a process is left alone.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// Most processes of one round.
const MOST_AT_ONCE: usize = 64;
/// Most processes that are known; those whose pause ends first are forgotten.
const MOST_KNOWN: usize = 8192;

/// Settings of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimRule {
    /// Shortest time between two trims of one process.
    pub every: Duration,
    /// Fewest free bytes for which a thread is disturbed.
    pub at_least: u64,
}

impl TrimRule {
    /// Whether that many free bytes are worth a trim that may cost `budget`.
    #[must_use]
    pub fn is_worth_it(&self, free: u64, budget: Duration) -> bool {
        free >= self.at_least && cost_of(free) <= budget
    }

    /// Time after a trim at which is looked at what came back.
    #[must_use]
    pub fn look_back(&self) -> Duration {
        self.every.min(LOOK_BACK)
    }
}

fn cost_of(bytes: u64) -> Duration {
    COST_OF_MIB.saturating_mul(u32::try_from(bytes >> 20).unwrap_or(u32::MAX))
}

/// Identity of a process: its id alone is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrimIdentity {
    /// Id of the process.
    pub pid: u32,
    /// Start of the process, clock ticks since boot.
    pub start_ticks: u64,
}

/// A process as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trimmable {
    /// Identity of the process.
    pub identity: TrimIdentity,
    /// Number of who answers for it.
    pub owner: u64,
    /// Resident bytes that are in no file.
    pub bytes: u64,
    /// CPU time that it has used.
    pub cpu: Duration,
}

/// A process whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimTurn {
    /// Identity of the process.
    pub identity: TrimIdentity,
    /// Number of who answers for it.
    pub owner: u64,
    /// CPU time that the look and the trim may cost together.
    pub budget: Duration,
}

/// End of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimEnd {
    /// Too little was free, or no thread could be interrupted just then.
    NotNow,
    /// The process cannot be trimmed at all.
    LeftAlone,
    /// Free pages were given back.
    Gave {
        /// Bytes that were given back.
        returned: u64,
        /// Resident bytes that stayed.
        left: u64,
    },
}

/// A process that took back what it had given, and is left alone for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimPause {
    /// Identity of the process.
    pub identity: TrimIdentity,
    /// Bytes that it had given back.
    pub returned: u64,
    /// Bytes of these that it took back within minutes.
    pub came_back: u64,
    /// Time for which it is left alone.
    pub pause: Duration,
}

/// Sums over all processes. They only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrimSums {
    /// Trims that were made.
    pub trims: u64,
    /// Bytes that were given back.
    pub returned: u64,
    /// Bytes of these that were taken back within minutes.
    pub came_back: u64,
    /// CPU time that looks and trims cost, at most.
    pub spent: Duration,
}

/// Memory of the rule: what came of each process so far.
#[derive(Debug, Clone, Default)]
pub struct TrimHistory {
    known: BTreeMap<TrimIdentity, Known>,
    sums: TrimSums,
}

/// Facts about one process.
#[derive(Debug, Clone, Copy)]
struct Known {
    pause: Duration,
    until: Duration,
    spent: Duration,
    look_cost: Duration,
    /// The last trim, until it was looked at what came back.
    gave: Option<Gave>,
    /// Bytes that it had given and taken back when that was looked at last, if it took most of them.
    took_back: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Gave {
    at: Duration,
    returned: u64,
    left: u64,
}

impl Known {
    fn new(rule: &TrimRule) -> Self {
        Self {
            pause: rule.every,
            until: Duration::ZERO,
            spent: Duration::ZERO,
            look_cost: COST_OF_LOOK,
            gave: None,
            took_back: None,
        }
    }

    /// Judges what came back since the trim; returns these bytes.
    fn look_back(&mut self, gave: Gave, bytes: u64, rule: &TrimRule) -> u64 {
        let came_back = bytes.saturating_sub(gave.left).min(gave.returned);
        let is_most = came_back >= gave.returned.div_ceil(2);
        self.pause = if is_most { LONGEST.min(self.pause.max(rule.every) * 2) } else { rule.every };
        self.took_back = is_most.then_some((gave.returned, came_back));
        self.until = gave.at + self.pause;
        self.gave = None;
        came_back
    }
}

impl TrimHistory {
    /// Takes in how all processes are now: what of earlier trims came back. Those that have ended are forgotten.
    pub fn look(&mut self, rule: &TrimRule, all: &[Trimmable], now: Duration) {
        let living: BTreeSet<TrimIdentity> = all.iter().map(|one| one.identity).collect();
        self.known.retain(|identity, _| living.contains(identity));
        for one in all {
            let Some(known) = self.known.get_mut(&one.identity) else { continue };
            let ripe = known.gave.filter(|gave| now >= gave.at + rule.look_back());
            if let Some(gave) = ripe {
                self.sums.came_back += known.look_back(gave, one.bytes, rule);
            }
        }
    }

    /// Processes whose turn it is: of each owner the largest one first, then the second ones.
    #[must_use]
    pub fn due(&self, rule: &TrimRule, all: &[Trimmable], now: Duration) -> Vec<TrimTurn> {
        let mut due: Vec<&Trimmable> = all.iter().filter(|one| one.bytes >= rule.at_least).collect();
        due.sort_by_key(|one| Reverse(one.bytes));
        let turns = due.into_iter().filter_map(|one| self.turn(rule, one, now)).collect();
        let mut turns = in_turn(turns, |turn: &TrimTurn| turn.owner);
        turns.truncate(MOST_AT_ONCE);
        turns
    }

    fn turn(&self, rule: &TrimRule, one: &Trimmable, now: Duration) -> Option<TrimTurn> {
        let known = self.known.get(&one.identity).copied().unwrap_or_else(|| Known::new(rule));
        let budget = (one.cpu / SHARE).checked_sub(known.spent)?;
        let is_due = now >= known.until && known.gave.is_none() && budget >= known.look_cost;
        is_due.then_some(TrimTurn { identity: one.identity, owner: one.owner, budget })
    }

    /// Takes in how a turn ended, what the look cost, and what the trim.
    pub fn ended(
        &mut self,
        rule: &TrimRule,
        identity: TrimIdentity,
        end: TrimEnd,
        (look, trim): (Duration, Duration),
        now: Duration,
    ) {
        self.make_room(identity);
        let known = self.known.entry(identity).or_insert_with(|| Known::new(rule));
        known.spent += look + trim;
        known.look_cost = look;
        self.sums.spent += look + trim;
        match end {
            TrimEnd::NotNow => known.until = now + rule.every,
            TrimEnd::LeftAlone => known.until = now + LONGEST,
            TrimEnd::Gave { returned, left } => {
                known.until = now + rule.every;
                known.gave = Some(Gave { at: now, returned, left });
                self.sums.trims += 1;
                self.sums.returned += returned;
            }
        }
    }

    fn make_room(&mut self, identity: TrimIdentity) {
        if self.known.len() < MOST_KNOWN || self.known.contains_key(&identity) {
            return;
        }
        let first = self.known.iter().min_by_key(|(_, known)| known.until).map(|(identity, _)| *identity);
        first.map(|first| self.known.remove(&first));
    }

    /// Whether it is to be looked at what came back of an earlier trim.
    #[must_use]
    pub fn awaits_look(&self, rule: &TrimRule, now: Duration) -> bool {
        self.known.values().filter_map(|known| known.gave).any(|gave| now >= gave.at + rule.look_back())
    }

    /// Processes that took most of their pages back and are left alone, for the longest time first.
    #[must_use]
    pub fn pauses(&self, now: Duration) -> Vec<TrimPause> {
        let pausing = self.known.iter().filter(|(_, known)| now < known.until);
        let pauses = pausing.filter_map(|(identity, known)| {
            let (returned, came_back) = known.took_back?;
            Some(TrimPause { identity: *identity, returned, came_back, pause: known.pause })
        });
        let mut pauses: Vec<TrimPause> = pauses.collect();
        pauses.sort_by_key(|pause| Reverse(pause.pause));
        pauses
    }

    /// Sums over all processes.
    #[must_use]
    pub fn sums(&self) -> TrimSums {
        self.sums
    }
}

/// All of them in another order: the first one of each owner, then the second ones. Of two with the same turn the one that
/// was before the other stays before it.
pub fn in_turn<T>(all: Vec<T>, owner_of: impl Fn(&T) -> u64) -> Vec<T> {
    let mut had: HashMap<u64, usize> = HashMap::new();
    let turn = |one: T| {
        let turn = had.entry(owner_of(&one)).and_modify(|turn| *turn += 1).or_default();
        (*turn, one)
    };
    let mut turns: Vec<(usize, T)> = all.into_iter().map(turn).collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const S: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);
    const RULE: TrimRule = TrimRule { every: Duration::from_secs(600), at_least: 32 * MIB };

    fn identity(pid: u32) -> TrimIdentity {
        TrimIdentity { pid, start_ticks: 1 }
    }

    fn process(pid: u32, mib: u64) -> Trimmable {
        Trimmable {
            identity: identity(pid),
            owner: u64::from(pid),
            bytes: mib * MIB,
            cpu: Duration::from_secs(1000),
        }
    }

    /// Days of one process with `held` MiB: a trim returns `free` of them, and which has `back` of these again two
    /// minutes later. Returns the times of its trims, looked for once a minute.
    fn trims(rule: TrimRule, (held, free, back): (u64, u64, u64), minutes: u32) -> Vec<Duration> {
        let (mut history, mut times, mut bytes) = (TrimHistory::default(), vec![], held);
        for minute in 0..minutes {
            let now = S * 60 * minute;
            if times.last().is_some_and(|last| now == *last + S * 120) {
                bytes = held - free + back;
            }
            let one = process(1, bytes);
            history.look(&rule, &[one], now);
            if history.due(&rule, &[one], now).is_empty() {
                continue;
            }
            bytes = held - free;
            let end = TrimEnd::Gave { returned: free * MIB, left: bytes * MIB };
            history.ended(&rule, one.identity, end, (MS, MS), now);
            times.push(now);
        }
        times
    }

    fn gaps(times: &[Duration]) -> Vec<u64> {
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect()
    }

    #[test]
    fn who_takes_its_pages_back_is_left_alone_for_a_growing_time() {
        let hungry = gaps(&trims(RULE, (200, 50, 50), 2000));
        assert_eq!(hungry[..7], [1200, 2400, 4800, 9600, 19200, 21600, 21600]);
        assert!(gaps(&trims(RULE, (200, 50, 5), 200)).iter().all(|gap| *gap == 600));
    }

    #[test]
    fn a_pause_is_named_and_ends_when_pages_stay_away() {
        let mut history = TrimHistory::default();
        let gave = TrimEnd::Gave { returned: 50 * MIB, left: 100 * MIB };
        history.ended(&RULE, identity(1), gave, (MS, MS), S);
        assert!(!history.awaits_look(&RULE, S * 120) && history.awaits_look(&RULE, S * 121));
        assert_eq!(history.pauses(S * 2), [], "nothing came back yet");
        history.look(&RULE, &[process(1, 140)], S * 121);
        let pause =
            TrimPause { identity: identity(1), returned: 50 * MIB, came_back: 40 * MIB, pause: S * 1200 };
        assert_eq!(history.pauses(S * 122), [pause]);
        assert_eq!(history.pauses(S * 1201), [], "it is over");
        history.ended(&RULE, identity(1), gave, (MS, MS), S * 1201);
        history.look(&RULE, &[process(1, 110)], S * 1400);
        assert_eq!(history.pauses(S * 1401), []);
        let sums = history.sums();
        assert_eq!((sums.trims, sums.returned, sums.came_back), (2, 100 * MIB, 50 * MIB));
        assert_eq!(sums.spent, MS * 4);
    }

    #[test]
    fn another_process_with_the_same_id_is_another_process() {
        let mut history = TrimHistory::default();
        history.ended(&RULE, identity(1), TrimEnd::LeftAlone, (MS, MS), S);
        let one = process(1, 100);
        let other = Trimmable { identity: TrimIdentity { pid: 1, start_ticks: 2 }, ..one };
        assert_eq!(history.due(&RULE, &[one], S * 3600).len(), 0);
        assert_eq!(history.due(&RULE, &[other], S * 2).len(), 1);
        history.look(&RULE, &[other], S * 2);
        assert!(history.known.is_empty(), "the first one has ended");
    }

    #[test]
    fn a_look_that_was_in_vain_is_made_again_as_often_as_a_trim() {
        let mut history = TrimHistory::default();
        history.ended(&RULE, identity(1), TrimEnd::NotNow, (MS, Duration::ZERO), S);
        let is_due = |history: &TrimHistory, now| history.due(&RULE, &[process(1, 100)], now).len() == 1;
        assert!(!is_due(&history, S * 600) && is_due(&history, S * 601));
    }

    #[test]
    fn what_is_small_or_idle_or_dear_is_not_touched() {
        let history = TrimHistory::default();
        let idle = Trimmable { cpu: S / 10, ..process(1, 900) };
        assert_eq!(history.due(&RULE, &[process(1, 31), idle], S), []);
        assert!(RULE.is_worth_it(100 * MIB, MS * 20) && !RULE.is_worth_it(100 * MIB, MS * 10));
        assert!(!RULE.is_worth_it(31 * MIB, S) && !RULE.is_worth_it(u64::MAX, S));
    }

    #[test]
    fn nobody_takes_the_turns_of_others() {
        let many = (10..200).map(|pid| Trimmable { owner: 7, ..process(pid, 1000) });
        let all: Vec<Trimmable> = many.chain([process(1, 40), process(2, 50)]).collect();
        let due = TrimHistory::default().due(&RULE, &all, S);
        assert_eq!(due.len(), MOST_AT_ONCE);
        assert_eq!(due[..3].iter().map(|turn| turn.identity.pid).collect::<Vec<_>>(), [10, 2, 1]);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut history = TrimHistory::default();
        for pid in 0..9000 {
            history.ended(&RULE, identity(pid), TrimEnd::NotNow, (MS, MS), S);
        }
        assert_eq!(history.known.len(), MOST_KNOWN);
    }

    proptest! {
        /// However CPU time, costs and what comes back go: no process spends more than a hundredth, none is trimmed again
        /// before its time, and nobody returns more than was counted.
        #[test]
        fn bounds_hold_whatever_processes_do(
            every in 1u64..2000,
            steps in prop::collection::vec((1u64..500, 0u64..60_000, 1u32..=100, 0u64..400, 0u64..400), 1..200),
        ) {
            let rule = TrimRule { every: S * u32::try_from(every).unwrap(), at_least: 32 * MIB };
            let mut history = TrimHistory::default();
            let (mut now, mut cpu, mut spent) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
            let mut last: Option<Duration> = None;
            for (wait_s, more_cpu_ms, cost, held, returned) in steps {
                now += Duration::from_secs(wait_s);
                cpu += Duration::from_millis(more_cpu_ms);
                let one = Trimmable { cpu, ..process(1, held) };
                history.look(&rule, &[one], now);
                let Some(turn) = history.due(&rule, &[one], now).first().copied() else { continue };
                prop_assert!(held >= 32);
                prop_assert!(last.is_none_or(|last| now >= last + rule.every));
                let costs = (turn.budget * cost / 200, turn.budget * cost / 200);
                spent += costs.0 + costs.1;
                prop_assert!(spent <= cpu / SHARE, "{spent:?} of {cpu:?}");
                let end = TrimEnd::Gave { returned: returned * MIB, left: held.saturating_sub(returned) * MIB };
                history.ended(&rule, one.identity, end, costs, now);
                last = Some(now);
                let sums = history.sums();
                prop_assert!(sums.came_back <= sums.returned && sums.spent == spent);
            }
        }

        /// A pause never shrinks while everything comes back, and never exceeds the longest one.
        #[test]
        fn pauses_grow(every_min in 1u32..120, free in 32u64..150) {
            let rule = TrimRule { every: S * 60 * every_min, at_least: 32 * MIB };
            let gaps = gaps(&trims(rule, (200, free, free), 4000));
            prop_assert!(gaps.is_sorted());
            prop_assert!(gaps.iter().all(|gap| *gap <= LONGEST.as_secs() + 60));
        }
    }
}
