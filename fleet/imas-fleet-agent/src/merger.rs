// SPDX-License-Identifier: Apache-2.0
//! Folds aggregates into statistics: any number of mergers, and none leads. They publish that they
//! live, and each takes the programs that fall to it by rendezvous hashing. That only saves work: the fold is
//! right by whichever merger does it, and a sweep over all programs finds what was missed. Hosts take turns. Of a
//! host that reports more programs than [`imas_fleet::merge::ProgramQuota`] allows, no further ones are folded, and what it sends is
//! removed from the stream.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use async_nats::{Client, Message};
use futures_util::StreamExt as _;
use imas_fleet::merge::{MOST_PROGRAMS, ProgramQuota};
use imas_fleet::{BusError, FleetMergeError, MergeCounts, merge_counting};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};

use crate::floods::Floods;
use crate::inbox::between;
use crate::jetstream::JetStreamBus;
use crate::journal::{AgentJournal, now_unix_s};
use crate::listing::Listing;
use crate::names;
use crate::waiting::{WaitingProgram, WaitingPrograms};

/// How often a merger publishes that it lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// Silence of a merger after which its programs fall to the others.
const SILENCE: Duration = Duration::from_secs(16);
/// An aggregate is announced before the stream has it. So a program is looked at after the first time, when
/// more aggregates of it may have come, and again after the others. While the stream elects a leader, or a
/// server that lags behind is asked, the last one is needed.
const LOOKS: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(3), Duration::from_secs(20)];
/// Announcements are lost while the connection is. All mergers of a server that is lost come back at once:
/// each sweeps within this time, seconds.
const AFTER_RECONNECT_S: [f64; 2] = [1.0, 5.0];
/// A listing of everything costs the server time: there are no two within this time.
const BETWEEN_LISTINGS: Duration = Duration::from_secs(15);
/// Programs that are folded at the same time.
const AT_ONCE: usize = 16;
/// Folding places that only programs found by a sweep take: announcements never stop a sweep.
const OF_SWEEP: usize = 4;

/// One merger. Its loop only takes messages: folds and listings run beside it.
#[derive(Debug)]
pub struct Merger {
    bus: JetStreamBus,
    host: String,
    journal: AgentJournal,
    /// Time at which each merger was last seen alive, by its host.
    seen: BTreeMap<String, Instant>,
    quota: ProgramQuota,
    floods: Floods,
    removing: JoinSet<(String, Result<u64, BusError>)>,
    /// Programs that were announced.
    waiting: WaitingPrograms,
    /// Programs that the last sweep found, with the number of their aggregates.
    found: VecDeque<(String, usize)>,
    /// Results of the last sweep, by program.
    swept: SweptPrograms,
    folding: JoinSet<Folded>,
    /// Programs in `folding` that were announced.
    announced_folding: usize,
    /// Announcements may have been lost.
    reconnected: Arc<Notify>,
}

/// Why a program is folded.
#[derive(Debug)]
enum FoldCause {
    Announced(WaitingProgram),
    /// A sweep found this number of aggregates.
    Swept(String, usize),
}

/// A fold that has ended.
type Folded = (FoldCause, Result<(), FleetMergeError>);

/// The state of each program after sweeps, by a hash that no host can foresee.
#[derive(Default, Debug)]
struct SweptPrograms(HashMap<u64, Swept>, RandomState);

/// Findings of a sweep about a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Swept {
    /// Aggregates in the stream.
    count: usize,
    /// The aggregates were folded after two sweeps that counted the same number. Once is not enough: the
    /// server that was asked for them may have lagged behind the one that counted them.
    is_settled: bool,
}

impl Swept {
    /// Result after a fold of `count` aggregates, where the sweep before left `before`.
    fn after(before: Option<Self>, count: usize) -> Self {
        Self { count, is_settled: before.is_some_and(|before| before.count == count) }
    }

    /// Whether `count` aggregates need no further fold.
    fn is_done(self, count: usize) -> bool {
        self.is_settled && self.count == count
    }
}

impl SweptPrograms {
    fn get(&self, subject: &str) -> Option<Swept> {
        self.0.get(&self.1.hash_one(subject)).copied()
    }

    /// Notes that a fold of `count` aggregates has ended.
    fn fold(&mut self, subject: &str, count: usize) {
        let after = Swept::after(self.get(subject), count);
        self.0.insert(self.1.hash_one(subject), after);
    }

    fn forget(&mut self, subject: &str) {
        self.0.remove(&self.1.hash_one(subject));
    }

    /// Forgets all programs but these.
    fn keep(&mut self, programs: &[(&str, usize)]) {
        let before = std::mem::take(&mut self.0);
        let hashes = programs.iter().map(|(subject, _)| self.1.hash_one(subject));
        self.0 = hashes.filter_map(|hash| Some((hash, *before.get(&hash)?))).collect();
    }
}

impl Merger {
    /// A merger, as the host with this token.
    #[must_use]
    pub fn new(bus: JetStreamBus, host: &str, journal: AgentJournal) -> Self {
        Self {
            bus,
            host: host.to_owned(),
            journal,
            seen: BTreeMap::new(),
            quota: ProgramQuota::default(),
            floods: Floods::default(),
            removing: JoinSet::new(),
            waiting: WaitingPrograms::default(),
            found: VecDeque::new(),
            swept: SweptPrograms::default(),
            folding: JoinSet::new(),
            announced_folding: 0,
            reconnected: Arc::default(),
        }
    }

    /// Notification of each further connection, for the caller to trigger.
    #[must_use]
    pub fn reconnected(&self) -> Arc<Notify> {
        Arc::clone(&self.reconnected)
    }

    /// Folds, for ever. `sweep_s`: least and most seconds between two sweeps.
    ///
    /// # Errors
    /// When it cannot subscribe.
    pub async fn work(mut self, client: &Client, sweep_s: [f64; 2]) -> Result<()> {
        let mut announced = client.subscribe(format!("{}.*.*.*", names::AGGREGATES)).await?;
        let mut mergers = client.subscribe(format!("{}.*", names::MERGERS)).await?;
        let mut sign = tokio::time::interval(SIGN_OF_LIFE);
        let mut turn = tokio::time::interval(LOOKS[0] / 2);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut listing = JoinSet::new();
        let [mut sweep, mut least] = [Instant::now(); 2];
        loop {
            tokio::select! {
                Some(message) = mergers.next() => self.note_live(&message),
                Some(message) = announced.next() => self.announce(&message),
                _ = sign.tick() => self.give_sign(client).await,
                _ = turn.tick(), if self.has_work() => {
                    self.start_folds();
                    self.start_removals();
                }
                Some(Ok((host, removed))) = self.removing.join_next() => self.end_removal(&host, removed),
                Some(folded) = self.folding.join_next() => {
                    self.end_fold(folded);
                    self.start_folds();
                }
                Some(listed) = listing.join_next() => {
                    self.take_listing(listed.map_err(|error| anyhow!(error)).flatten());
                    sweep = Instant::now() + Duration::from_secs_f64(between(sweep_s)).max(BETWEEN_LISTINGS);
                    least = Instant::now() + BETWEEN_LISTINGS;
                }
                () = self.reconnected.notified() => {
                    let soon = Instant::now() + Duration::from_secs_f64(between(AFTER_RECONNECT_S));
                    sweep = sweep.min(soon.max(least));
                }
                () = tokio::time::sleep_until(sweep), if listing.is_empty() => {
                    let bus = self.bus.clone();
                    listing.spawn(async move { Listing::read(&bus).await });
                }
            }
        }
    }

    /// Folds every program that may have aggregates which no sweep found twice, once.
    pub async fn sweep(&mut self) {
        let listed = Listing::read(&self.bus).await;
        self.take_listing(listed);
        self.start_folds();
        while let Some(folded) = self.folding.join_next().await {
            self.end_fold(folded);
            self.start_folds();
        }
    }

    /// Whether something is to be started, now or later.
    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.found.is_empty() || self.floods.go_on()
    }

    async fn give_sign(&self, client: &Client) {
        let subject = format!("{}.{}", names::MERGERS, self.host);
        if let Err(error) = client.publish(subject, "".into()).await {
            self.journal.error(&format!("no sign of life could be given: {error}"));
        }
    }

    /// Programs that the listing shows to be open are folded next.
    fn take_listing(&mut self, listed: Result<Listing>) {
        let listing = match listed {
            Ok(listing) => listing,
            Err(error) => return self.journal.error(&format!("programs cannot be listed: {error:#}")),
        };
        if let Some((host, programs)) = listing.beyond_quota().max_by_key(|(_, programs)| *programs) {
            self.journal.error(&format!(
                "host {host} reported {programs} programs, more than {MOST_PROGRAMS}: those that no other host reports \
                 are not folded"
            ));
        }
        let programs = listing.programs();
        self.swept.keep(&programs);
        let is_open = |(subject, count): &(&str, usize)| {
            !self.swept.get(subject).is_some_and(|one| one.is_done(*count))
        };
        self.found = programs
            .into_iter()
            .filter(is_open)
            .map(|(subject, count)| (subject.to_owned(), count))
            .collect();
    }

    /// Starts folds in all places that are free.
    fn start_folds(&mut self) {
        let now = Instant::now();
        while self.announced_folding < AT_ONCE - OF_SWEEP
            && self.folding.len() < AT_ONCE
            && let Some(program) = self.waiting.next(now)
        {
            self.announced_folding += 1;
            self.fold(FoldCause::Announced(program));
        }
        while self.folding.len() < AT_ONCE
            && let Some((subject, count)) = self.found.pop_front()
        {
            self.fold(FoldCause::Swept(subject, count));
        }
    }

    fn fold(&mut self, cause: FoldCause) {
        let (bus, journal) = (self.bus.clone(), self.journal.clone());
        self.folding.spawn(async move {
            let result = merge_counting(&bus, cause.subject(), |new| count(&journal, new)).await;
            (cause, result)
        });
    }

    fn end_fold(&mut self, folded: Result<Folded, JoinError>) {
        let (cause, result) = match folded {
            Ok(folded) => folded,
            // A fold does not panic and is not aborted; its program is found by the next sweep.
            Err(error) => return self.journal.error(&format!("a fold ended early: {error}")),
        };
        let is_done = result.is_ok();
        if let Err(error) = result {
            self.journal.error(&format!("{} cannot be folded: {error}", cause.subject()));
        }
        match cause {
            FoldCause::Announced(program) => self.look_again(program, is_done),
            FoldCause::Swept(subject, count) if is_done => self.swept.fold(&subject, count),
            FoldCause::Swept(subject, _) => self.swept.forget(&subject),
        }
    }

    /// Plans the next look at a program. After the last look the sweep is left.
    fn look_again(&mut self, program: WaitingProgram, is_done: bool) {
        self.announced_folding -= 1;
        let looks = if is_done { program.looks + 1 } else { 0 };
        if let Some(pause) = LOOKS.get(looks.max(1)) {
            let again = WaitingProgram { looks, ..program };
            self.waiting.add(again, Instant::now() + *pause, MOST_PROGRAMS);
        }
    }

    fn note_live(&mut self, message: &Message) {
        let Some((_, host)) = message.subject.rsplit_once('.') else { return };
        if names::is_host_token(host) {
            self.seen.insert(host.to_owned(), Instant::now());
        }
        self.seen.retain(|_, seen| seen.elapsed() < SILENCE);
    }

    fn announce(&mut self, message: &Message) {
        let Some((subject, host)) = names::program_and_host(&message.subject) else { return };
        if !self.quota.allows(&host, &subject, now_unix_s()) {
            self.note_flood(&host);
        } else if self.is_mine(&subject) {
            let new = WaitingProgram { subject, host, looks: 0 };
            self.waiting.add(new, Instant::now() + LOOKS[0], MOST_PROGRAMS);
        }
    }

    /// Notes that a host reports too many programs. One merger removes what the host sends.
    fn note_flood(&mut self, host: &str) {
        if self.is_mine(host) && self.floods.note(host, Instant::now()) {
            self.journal.error(&format!(
                "host {host} reports more than {MOST_PROGRAMS} programs a day: its aggregates are removed from the stream; \
                 take its rights away"
            ));
        }
    }

    fn start_removals(&mut self) {
        for host in self.floods.due(Instant::now()) {
            let bus = self.bus.clone();
            self.removing.spawn(async move {
                let removed = bus.remove_aggregates_of(&host).await;
                (host, removed)
            });
        }
    }

    fn end_removal(&mut self, host: &str, removed: Result<u64, BusError>) {
        if let Err(error) = removed {
            self.journal.error(&format!("aggregates of host {host} cannot be removed: {error}"));
            self.floods.failed(host, Instant::now());
        }
    }

    fn is_mine(&self, subject: &str) -> bool {
        let live = self.seen.iter().filter(|(_, seen)| seen.elapsed() < SILENCE).map(|(host, _)| host);
        let own = weight(&self.host, subject);
        live.filter(|host| **host != self.host).all(|host| weight(host, subject) < own)
    }
}

impl FoldCause {
    fn subject(&self) -> &str {
        match self {
            Self::Announced(program) => &program.subject,
            Self::Swept(subject, _) => subject,
        }
    }
}

/// Weight of a merger for a program. The merger with the greatest weight takes the program.
fn weight(host: &str, subject: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    (host, subject).hash(&mut hash);
    hash.finish()
}

/// Counts a merge at once: what it wrote before the connection ended must not be lost.
fn count(journal: &AgentJournal, counts: MergeCounts) {
    journal.note(|record| {
        record.folded += counts.folds.folded;
        record.conflicts += counts.conflicts;
        record.rejected += counts.folds.rejected;
        record.excessive += counts.folds.excessive;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_done_when_two_sweeps_counted_the_same() {
        let once = Swept::after(None, 5);
        let twice = Swept::after(Some(once), 5);
        assert_eq!([once.is_done(5), twice.is_done(5), twice.is_done(6)], [false, true, false]);
        let more = Swept::after(Some(twice), 6);
        assert_eq!([more.is_done(6), Swept::after(Some(more), 6).is_done(6)], [false, true]);
    }

    #[test]
    fn programs_are_shared_out_evenly() {
        let hosts: Vec<String> = (0..6).map(|at| names::host_token(&format!("h{at}"))).collect();
        let mut taken = [0; 6];
        for program in 0..6000 {
            let weights = hosts.iter().map(|host| weight(host, &format!("p{program}")));
            let (most, _) = weights.enumerate().max_by_key(|(_, weight)| *weight).unwrap();
            taken[most] += 1;
        }
        assert!(taken.iter().all(|count| (800..1200).contains(count)), "{taken:?}");
    }
}
