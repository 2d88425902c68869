// SPDX-License-Identifier: Apache-2.0
//! The trials of a program. One is offered at a time: one process takes it, all others start as if none were
//! due. Where several instances of the program live side by side, as many are offered as there are instances:
//! each start takes another one, and they are compared with each other (docs/decisions/0030).

use std::time::{Duration, Instant};

use imas_engine::daemon_status::DaemonCounters;
use imas_store::daemon::Offer;

use crate::folders::PageName;

/// First pause after a trial that came to nothing, seconds; doubled each time.
const PAUSE_S: f64 = 2.0;
/// Longest pause after trials that came to nothing, seconds.
pub(crate) const LONGEST_PAUSE_S: f64 = 3600.0;
/// A process may take a trial up to this time after its offer was withdrawn: it read the index before, and
/// its page is on its way.
const STILL_VALID: Duration = Duration::from_secs(60);

/// The trials of one program.
#[derive(Debug, Default)]
pub(crate) struct TrialOffer {
    /// Trials that no process has taken yet, in the order in which starts take them.
    untaken: Vec<Offer>,
    /// Trials that run, each with the page of the process that has taken it. A user's process takes no trial
    /// of everybody's from others.
    running: Vec<(Offer, PageName)>,
    /// Earlier offers, and when each was withdrawn.
    withdrawn: Vec<(Offer, Instant)>,
    /// Time when the first of the trials was taken that are offered together.
    begun: Option<Instant>,
    /// The newest token: tokens follow each other, so that one entry of the index has room for several.
    newest: Option<u64>,
    /// Trials that came to nothing, one after the other.
    failures: u32,
    /// Time before which nothing new is offered, Unix time.
    not_before_s: f64,
}

impl TrialOffer {
    /// The offers in the store. `before` has what this process already keeps for the program; without it,
    /// processes that have taken some of them are found later.
    pub(crate) fn restored(mut offers: Vec<Offer>, before: Option<&Self>) -> Self {
        // The order is not by time: the clock may have been set back between two, and no token may come
        // again.
        offers.sort_by_key(|offer| number(&offer.token));
        let newest = offers.last().and_then(|offer| number(&offer.token));
        let taker = |offer: &Offer| before.and_then(|before| before.taker(&offer.token)).cloned();
        let (taken, others): (Vec<_>, Vec<_>) =
            offers.into_iter().map(|offer| (taker(&offer), offer)).partition(|(taker, _)| taker.is_some());
        let running = taken.into_iter().filter_map(|(taker, offer)| Some((offer, taker?))).collect();
        let untaken = others.into_iter().map(|(_, offer)| offer).collect();
        let Some(before) = before else { return Self { untaken, running, newest, ..Self::default() } };
        Self {
            withdrawn: before.withdrawn.clone(),
            begun: before.begun,
            newest: before.newest.or(newest),
            failures: before.failures,
            not_before_s: before.not_before_s,
            untaken,
            running,
        }
    }

    /// The trials for another file of the program. Earlier failures do not count: they were failures of the
    /// file before.
    pub(crate) fn of_another_file(self) -> Self {
        Self { failures: 0, not_before_s: 0.0, ..self }
    }

    /// The offers that no process has taken yet, in the order in which starts take them.
    pub(crate) fn untaken(&self) -> &[Offer] {
        &self.untaken
    }

    /// The candidates of the trials that run.
    pub(crate) fn running(&self) -> Vec<&str> {
        self.running.iter().map(|(offer, _)| offer.candidate.as_str()).collect()
    }

    /// The page of the process that has taken the trial of that name.
    pub(crate) fn taker(&self, token: &str) -> Option<&PageName> {
        self.running.iter().find(|(offer, _)| offer.token == token).map(|(_, page)| page)
    }

    /// The offer of that name, whether it was taken or not. Offers that were withdrawn within the last minute are
    /// found too: what their trials measure is true, whatever was decided meanwhile.
    pub(crate) fn named(&self, token: &str, now: Instant) -> Option<&Offer> {
        let withdrawn = self.withdrawn.iter().filter(|(_, at)| now.duration_since(*at) < STILL_VALID);
        let taken = self.running.iter().map(|(offer, _)| offer);
        let mut offers = self.untaken.iter().chain(taken).chain(withdrawn.map(|(offer, _)| offer));
        offers.find(|offer| offer.token == token)
    }

    /// Whether the trial of that name is on offer, or runs.
    pub(crate) fn is_offering(&self, token: &str) -> bool {
        self.untaken.iter().any(|offer| offer.token == token) || self.taker(token).is_some()
    }

    /// Whether trials came to nothing, and none has been stored since.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Whether nothing may be offered at that time. A pause that would be longer than any is one from before the
    /// clock was set back.
    pub(crate) fn pauses(&self, now_unix_s: f64) -> bool {
        let left_s = self.not_before_s - now_unix_s;
        left_s > 0.0 && left_s <= LONGEST_PAUSE_S
    }

    /// Whether starts are taking the trials that are offered together: some have taken theirs less than
    /// `window` ago and still run them. What starts later has too little time beside them to be compared.
    pub(crate) fn is_being_taken(&self, window: Duration, now: Instant) -> bool {
        let is_open = self.begun.is_some_and(|begun| now.duration_since(begun) < window);
        is_open && !self.untaken.is_empty() && !self.running.is_empty()
    }

    /// Ends the deployment: offers from now on are for the next one.
    pub(crate) fn close(&mut self) {
        self.begun = None;
    }

    /// Whether some of the trials that are offered together are taken.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// A token for the next offer: the one after the newest, else a random one.
    pub(crate) fn next_token(&self) -> u64 {
        self.newest.map_or_else(rand::random::<u64>, |newest| newest.wrapping_add(1)).max(1)
    }

    /// Offers a trial, after those that are on offer.
    pub(crate) fn begin(&mut self, offer: Offer) {
        self.newest = number(&offer.token).or(self.newest);
        self.untaken.push(offer);
    }

    /// The process of the page takes the trial of that name; whether it was still on offer.
    pub(crate) fn take(&mut self, token: &str, page: &PageName, now: Instant) -> bool {
        let Some(at) = self.untaken.iter().position(|offer| offer.token == token) else { return false };
        self.running.push((self.untaken.remove(at), page.clone()));
        self.begun = Some(self.begun.unwrap_or(now)).filter(|_| !self.untaken.is_empty());
        true
    }

    /// The trial of that name is no longer to be offered. Those that run go on.
    pub(crate) fn withdraw(&mut self, token: &str, now: Instant) {
        self.withdrawn.retain(|(_, at)| now.duration_since(*at) < STILL_VALID);
        let is_it = |offer: &mut Offer| offer.token == token;
        self.withdrawn.extend(self.untaken.extract_if(.., is_it).map(|offer| (offer, now)));
        self.begun = self.begun.filter(|_| !self.untaken.is_empty());
    }

    fn remove(&mut self, token: &str) {
        self.untaken.retain(|offer| offer.token != token);
        self.running.retain(|(offer, _)| offer.token != token);
    }

    /// The trial of that name is stored.
    pub(crate) fn complete(&mut self, token: &str) {
        self.remove(token);
        self.failures = 0;
    }

    /// The trial of that name came to nothing: the next one is offered after a pause, longer each time. When
    /// the pause ends, Unix time.
    pub(crate) fn fail(&mut self, token: &str, now_unix_s: f64) -> f64 {
        self.remove(token);
        self.failures += 1;
        let pause_s = PAUSE_S * f64::from(2_u32.saturating_pow(self.failures.min(16) - 1));
        self.not_before_s = now_unix_s + pause_s.min(LONGEST_PAUSE_S);
        self.not_before_s
    }
}

/// The number that a token is.
pub(crate) fn number(token: &str) -> Option<u64> {
    u64::from_str_radix(token, 16).ok()
}

/// Why a page is dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum RejectReason {
    Unwitnessed,
    Damaged,
    Forged,
    Unknown,
    Stale,
    TooMany,
}

impl RejectReason {
    pub(super) fn count(self, counters: &mut DaemonCounters) {
        let counter = match self {
            Self::Unwitnessed => &mut counters.dropped_unwitnessed,
            Self::Damaged => &mut counters.dropped_damaged,
            Self::Forged => &mut counters.dropped_forged,
            Self::Unknown => &mut counters.dropped_unknown,
            Self::Stale => &mut counters.dropped_stale,
            Self::TooMany => &mut counters.dropped_too_many,
        };
        *counter += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(token: &str) -> Offer {
        Offer { token: token.into(), program: 1, candidate: "jemalloc".into(), retest_s: 0.0, at_s: 1.0 }
    }

    fn page(name: &str) -> PageName {
        PageName { uid: 0, name: name.into() }
    }

    #[test]
    fn one_process_takes_a_trial() {
        let (mut trial, now) = (TrialOffer::default(), Instant::now());
        trial.begin(offer("a"));
        assert!(!trial.take("b", &page("b"), now) && trial.untaken().len() == 1);
        assert!(trial.take("a", &page("a"), now) && !trial.take("a", &page("c"), now));
        assert_eq!((trial.taker("a"), trial.untaken()), (Some(&page("a")), [].as_slice()));
        let again = TrialOffer::restored(vec![offer("a")], Some(&trial));
        assert_eq!(again.taker("a"), Some(&page("a")), "the store was read again");
        assert_eq!(TrialOffer::restored(vec![offer("b")], Some(&trial)).taker("b"), None);
    }

    #[test]
    fn several_trials_run_at_the_same_time_each_of_its_own_process() {
        let mut trial = TrialOffer::default();
        for token in ["a", "b"] {
            trial.begin(offer(token));
            assert!(trial.take(token, &page(token), Instant::now()));
        }
        trial.begin(offer("c"));
        assert_eq!(trial.running().len(), 2);
        let again = TrialOffer::restored(vec![offer("a"), offer("b"), offer("c")], Some(&trial));
        assert_eq!((again.running().len(), again.untaken()), (2, [offer("c")].as_slice()));
        trial.complete("a");
        assert!(!trial.is_offering("a") && trial.is_offering("b") && trial.is_offering("c"));
        trial.fail("b", 0.0);
        assert!(trial.running().is_empty() && trial.untaken().len() == 1 && trial.has_failed());
    }

    #[test]
    fn a_withdrawn_trial_may_still_be_on_its_way() {
        let (mut trial, now) = (TrialOffer::default(), Instant::now());
        trial.begin(offer("a"));
        trial.begin(offer("b"));
        trial.withdraw("a", now);
        assert!(trial.named("a", now).is_some() && !trial.is_offering("a"));
        let later = now + STILL_VALID / 2;
        trial.withdraw("b", later);
        assert!(trial.named("a", later).is_some() && trial.named("b", later).is_some());
        assert!(
            trial.named("a", now + STILL_VALID).is_none() && trial.named("b", now + STILL_VALID).is_some()
        );
        assert!(trial.untaken().is_empty());
    }

    #[test]
    fn trials_offered_together_are_taken_together_or_expire() {
        const LONG: Duration = Duration::from_secs(1000);
        let (mut trial, now) = (TrialOffer::default(), Instant::now());
        ["a", "b", "c"].into_iter().for_each(|token| trial.begin(offer(token)));
        assert!(!trial.is_being_taken(LONG, now), "no start has come");
        assert!(trial.take("b", &page("b"), now) && trial.is_being_taken(LONG, now));
        assert!(!trial.is_being_taken(LONG, now + LONG), "too late to be compared");
        trial.complete("b");
        assert!(!trial.is_being_taken(LONG, now), "nothing runs any more beside which another could");
        assert!(trial.take("a", &page("a"), now) && trial.take("c", &page("c"), now));
        assert!(!trial.is_being_taken(LONG, now), "all are taken");
        trial.begin(offer("d"));
        assert!(!trial.is_being_taken(LONG, now), "of the next deployment");
        trial.begin(offer("e"));
        assert!(trial.take("d", &page("d"), now) && trial.is_being_taken(LONG, now));
        trial.close();
        assert!(!trial.is_begun() && !trial.is_being_taken(LONG, now));
    }

    #[test]
    fn tokens_follow_each_other() {
        let mut trial = TrialOffer::default();
        let first = trial.next_token();
        trial.begin(offer(&format!("{first:016x}")));
        assert_eq!(trial.next_token(), first.wrapping_add(1));
        trial.complete(&format!("{first:016x}"));
        assert_eq!(trial.next_token(), first.wrapping_add(1), "no token comes again");
        let stored = vec![offer("0000000000000007"), offer("0000000000000006")];
        assert_eq!(TrialOffer::restored(stored, None).next_token(), 8);
    }

    #[test]
    fn pauses_grow_until_a_trial_is_stored() {
        let mut trial = TrialOffer::default();
        assert_eq!([0, 1, 2].map(|_| trial.fail("a", 0.0)), [2.0, 4.0, 8.0]);
        assert!(trial.pauses(7.9) && !trial.pauses(8.0) && trial.has_failed());
        (0..100).for_each(|_| assert!(trial.fail("a", 0.0) <= LONGEST_PAUSE_S));
        assert!(trial.pauses(0.0) && !trial.pauses(-7200.0), "the clock was set back by two hours");
        trial.complete("a");
        assert!(!trial.has_failed());
    }
}
