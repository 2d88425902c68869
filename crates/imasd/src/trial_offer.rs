// SPDX-License-Identifier: Apache-2.0
//! The trials of a program. One is offered at a time: one process takes it, all others start as if none were
//! due. Where several instances of the program live side by side, the next one is offered while it runs.

use std::time::{Duration, Instant};

use imas_store::daemon::Offer;

use crate::folders::PageName;

/// The first pause after a trial that came to nothing, seconds; doubled each time.
const PAUSE_S: f64 = 2.0;
/// The longest.
const LONGEST_PAUSE_S: f64 = 3600.0;
/// A process may take a trial up to this time after its offer was withdrawn: it read the index before, and its page
/// is on its way.
const STILL_VALID: Duration = Duration::from_secs(60);

/// The trials of one program.
#[derive(Debug, Default)]
pub(crate) struct TrialOffer {
    /// That no process has taken yet.
    offer: Option<Offer>,
    /// Those that run, each with the page of the process that has taken it. A user's process takes no trial
    /// of everybody's from others.
    running: Vec<(Offer, PageName)>,
    /// The offer before, and when it was withdrawn.
    withdrawn: Option<(Offer, Instant)>,
    /// Trials that came to nothing, one after the other.
    failures: u32,
    /// No new offer before then, Unix time.
    not_before_s: f64,
}

impl TrialOffer {
    /// The offers in the store. `before` has what this process already keeps for the program.
    pub(crate) fn restored(offers: Vec<Offer>, before: Option<&Self>) -> Self {
        let taker = |offer: &Offer| before.and_then(|before| before.taker(&offer.token)).cloned();
        let (taken, others): (Vec<_>, Vec<_>) =
            offers.into_iter().map(|offer| (taker(&offer), offer)).partition(|(taker, _)| taker.is_some());
        let running = taken.into_iter().filter_map(|(taker, offer)| Some((offer, taker?))).collect();
        // Of an earlier life of this daemon there may be several; all but the newest were taken.
        let offer = others.into_iter().map(|(_, offer)| offer).max_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let Some(before) = before else { return Self { offer, running, ..Self::default() } };
        Self {
            withdrawn: before.withdrawn.clone(),
            failures: before.failures,
            not_before_s: before.not_before_s,
            offer,
            running,
        }
    }

    /// The same for another file of the program: earlier failures were those of the file before.
    pub(crate) fn of_another_file(self) -> Self {
        Self { failures: 0, not_before_s: 0.0, ..self }
    }

    /// The offer that no process has taken yet.
    pub(crate) fn untaken(&self) -> Option<&Offer> {
        self.offer.as_ref()
    }

    /// The candidates of the trials that run.
    pub(crate) fn running(&self) -> Vec<&str> {
        self.running.iter().map(|(offer, _)| offer.candidate.as_str()).collect()
    }

    /// The page of the process that has taken the trial of that name.
    pub(crate) fn taker(&self, token: &str) -> Option<&PageName> {
        self.running.iter().find(|(offer, _)| offer.token == token).map(|(_, page)| page)
    }

    /// The offer of that name, taken or not, one that was withdrawn within the last minute too: what a trial
    /// measures holds whatever was decided meanwhile.
    pub(crate) fn named(&self, token: &str) -> Option<&Offer> {
        let withdrawn = self.withdrawn.as_ref().filter(|(_, at)| at.elapsed() < STILL_VALID);
        let running = self.running.iter().map(|(offer, _)| offer);
        let mut offers = self.offer.iter().chain(running).chain(withdrawn.map(|(offer, _)| offer));
        offers.find(|offer| offer.token == token)
    }

    /// Whether the trial of that name is on offer, or runs.
    pub(crate) fn is_offering(&self, token: &str) -> bool {
        self.offer.as_ref().is_some_and(|offer| offer.token == token) || self.taker(token).is_some()
    }

    /// Whether trials came to nothing, and none has been stored since.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Whether nothing may be offered at that time.
    pub(crate) fn pauses(&self, now_unix_s: f64) -> bool {
        self.not_before_s > now_unix_s
    }

    /// Offers a trial.
    pub(crate) fn begin(&mut self, offer: Offer) {
        self.offer = Some(offer);
    }

    /// The process of the page takes the trial of that name; whether it was still on offer.
    pub(crate) fn take(&mut self, token: &str, page: &PageName) -> bool {
        let taken = self.offer.take_if(|offer| offer.token == token);
        let is_taken = taken.is_some();
        self.running.extend(taken.map(|offer| (offer, page.clone())));
        is_taken
    }

    /// Another trial, or none, is to be offered. Those that run go on.
    pub(crate) fn withdraw(&mut self) {
        if let Some(offer) = self.offer.take() {
            self.withdrawn = Some((offer, Instant::now()));
        }
    }

    fn remove(&mut self, token: &str) {
        self.offer.take_if(|offer| offer.token == token);
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
        let mut trial = TrialOffer::default();
        trial.begin(offer("a"));
        assert!(!trial.take("b", &page("b")) && trial.untaken().is_some());
        assert!(trial.take("a", &page("a")) && !trial.take("a", &page("c")));
        assert_eq!((trial.taker("a"), trial.untaken()), (Some(&page("a")), None));
        let again = TrialOffer::restored(vec![offer("a")], Some(&trial));
        assert_eq!(again.taker("a"), Some(&page("a")), "the store was read again");
        assert_eq!(TrialOffer::restored(vec![offer("b")], Some(&trial)).taker("b"), None);
    }

    #[test]
    fn several_trials_run_at_the_same_time_each_of_its_own_process() {
        let mut trial = TrialOffer::default();
        for token in ["a", "b"] {
            trial.begin(offer(token));
            assert!(trial.take(token, &page(token)));
        }
        trial.begin(offer("c"));
        assert_eq!(trial.running().len(), 2);
        let again = TrialOffer::restored(vec![offer("a"), offer("b"), offer("c")], Some(&trial));
        assert_eq!((again.running().len(), again.untaken()), (2, Some(&offer("c"))));
        trial.complete("a");
        assert!(!trial.is_offering("a") && trial.is_offering("b") && trial.is_offering("c"));
        trial.fail("b", 0.0);
        assert!(trial.running().is_empty() && trial.untaken().is_some() && trial.has_failed());
    }

    #[test]
    fn a_withdrawn_trial_may_still_be_on_its_way() {
        let mut trial = TrialOffer::default();
        trial.begin(offer("a"));
        trial.withdraw();
        assert!(trial.named("a").is_some() && !trial.is_offering("a") && trial.untaken().is_none());
    }

    #[test]
    fn pauses_grow_until_a_trial_is_stored() {
        let mut trial = TrialOffer::default();
        assert_eq!([0, 1, 2].map(|_| trial.fail("a", 0.0)), [2.0, 4.0, 8.0]);
        assert!(trial.pauses(7.9) && !trial.pauses(8.0) && trial.has_failed());
        (0..100).for_each(|_| assert!(trial.fail("a", 0.0) <= LONGEST_PAUSE_S));
        trial.complete("a");
        assert!(!trial.has_failed());
    }
}
