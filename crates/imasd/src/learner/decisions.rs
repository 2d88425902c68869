// SPDX-License-Identifier: Apache-2.0
//! Judging programs, and offering their trials.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};
use imas_abi::MORE_TRIALS;
use imas_core::decision::{Conditions, Decision, trials_side_by_side};
use imas_core::profile::CandidateView;
use imas_core::{ProfileView, SYSTEM};
use imas_engine::candidates::version_for_policy;
use imas_engine::decide::{Giving, Starter, decide, decided, quarantines_since, valid_until_s};
use imas_engine::inspect;
use imas_linux::host::now_unix_s;
use imas_store::daemon::{Disabled, Offer};
use imas_store::{RowId, Store, StoreError};

use super::Learner;
use crate::config::Installation;
use crate::harm::{PERSONS, VICTIMS, VICTIMS_WITHIN_S, Victims};
use crate::program_table::{Moment, TrackedProgram};

impl Learner {
    /// Judges every program anew.
    pub(crate) fn judge_all(&mut self) {
        for id in self.programs.ids() {
            self.judge(id);
        }
        self.disable_culprits();
    }

    /// Works out from the store what the program's next starts are to be.
    pub(super) fn judge(&mut self, id: RowId) {
        if let Err(error) = self.try_judge(id) {
            self.failed(id, &error);
        }
    }

    /// An error that kept the program from being judged. Where the store was the cause, it is tried again.
    pub(super) fn failed(&mut self, id: RowId, error: &Error) {
        match error.downcast_ref::<StoreError>() {
            Some(store) => self.store_refused(store),
            None => tracing::warn!(PROGRAM_ID = id, "a program cannot be judged: {error:#}"),
        }
    }

    fn try_judge(&mut self, id: RowId) -> Result<()> {
        let Some(known) = self.programs.get(id).filter(|_| self.installation.is_some()) else {
            return Ok(());
        };
        let (build_id, giving) = self.facts_of(known);
        let in_fleet = self.fleet_program(known, &build_id)?;
        self.set_fleet_program(id, in_fleet)?;
        let (Some(known), Some(installation)) = (self.programs.get(id), &self.installation) else {
            return Ok(());
        };
        let (store, rules) = (self.parts.store.get(), &self.parts.config.rules);
        let program = (known.program.clone(), build_id.as_str());
        let disabled = self.disabled.list();
        let state = installation.state_of(store, program, rules.candidates.as_deref(), disabled)?;
        let now_s = now_unix_s();
        let profile = state.profile(&self.parts.config.policy(&known.program), self.limits(), now_s);
        log_quarantines(known, &profile);
        let Some(known) = self.programs.get_mut(id) else { return Ok(()) };
        known.look_again_s = Some(valid_until_s(&profile, now_s));
        (known.build_id, known.giving) = (build_id, giving);
        known.profile = Some(profile);
        self.decide(id)?;
        self.publish_evidence(id, &state)
    }

    /// Build-id of the program's file, and what that lets be given to it.
    fn facts_of(&self, known: &TrackedProgram) -> (String, Giving) {
        let store = self.parts.store.get();
        let inspected = match known.executable {
            Some(executable) => {
                let program = &known.program;
                inspect::running(store, program.domain, Path::new(&program.path), executable)
            }
            None => Err(anyhow!("its file is gone, or was not seen running since it changed")),
        };
        match inspected {
            Ok(found) => (found.build_id.clone(), Giving::of(&found, Starter::Stub)),
            Err(error) => (known.build_id.clone(), Giving::Nothing { why: error.to_string() }),
        }
    }

    /// The plan under the present conditions, from the profile as it was last worked out.
    pub(super) fn decide(&mut self, id: RowId) -> Result<()> {
        let Some(known) = self.programs.get_mut(id) else { return Ok(()) };
        let Some(profile) = &known.profile else { return Ok(()) };
        known.plan = decide(profile, &known.giving, &self.parts.conditions);
        if !known.plan.decision.trial {
            self.parts.store.get().record(id, &decided(&known.plan.decision, None))?;
        }
        self.events.changed = true;
        self.offer(id)
    }

    /// A trial was taken, or time has passed: another instance may have another candidate at the same time.
    pub(super) fn offer_beside(&mut self, id: RowId) {
        if let Err(error) = self.offer(id) {
            self.failed(id, &error);
        }
    }

    /// Brings the offers of programs with replicas into line: these have grown old enough by now, or were
    /// offered trials together that not all expected starts have taken in time.
    pub(super) fn renew_offers(&mut self) {
        let is_one = |known: &&TrackedProgram| {
            known.trial.untaken().len() > 1 || known.trial.is_begun() || known.replicas.are_possible()
        };
        let several: Vec<_> = self.programs.all().filter(is_one).map(|known| known.program.id).collect();
        several.into_iter().for_each(|id| self.offer_beside(id));
    }

    /// Brings the offered trials into line with the plan.
    fn offer(&mut self, id: RowId) -> Result<()> {
        let own = &self.parts.config.own;
        let expected = Expected { least_s: own.worth_life_s, window: window(own.sample_after_s) };
        let Some(known) = self.programs.get_mut(id).filter(|known| known.profile.is_some()) else {
            return Ok(()); // programs are being read: processes that have taken trials are not found yet
        };
        let wanted = wanted(known, &self.parts.conditions, &expected, &Moment::now());
        let (over, missing) = differences(known, wanted);
        self.withdraw(id, &over)?;
        missing.into_iter().try_for_each(|candidate| self.make_offer(id, candidate))
    }

    /// Withdraws these trials: they are no longer to be offered.
    pub(super) fn withdraw(&mut self, id: RowId, tokens: &[String]) -> Result<(), StoreError> {
        for token in tokens {
            self.parts.store.get().withdraw(token)?;
            if let Some(known) = self.programs.get_mut(id) {
                known.trial.withdraw(token, Instant::now());
            }
            self.events.changed = true;
        }
        Ok(())
    }

    fn make_offer(&mut self, id: RowId, candidate: String) -> Result<()> {
        let retest_s = self.limits().retest_s;
        let Some(known) = self.programs.get_mut(id) else { return Ok(()) };
        let token = format!("{:016x}", known.trial.next_token());
        let offer = Offer { token, program: id, candidate, retest_s, at_s: now_unix_s() };
        let begun = Some((offer.token.clone(), retest_s));
        let decision = Decision { candidate: offer.candidate.clone(), ..known.plan.decision.clone() };
        self.parts.store.get().offer_trial(&offer, &decided(&decision, begun))?;
        known.trial.begin(offer);
        self.events.changed = true;
        Ok(())
    }
}

/// The longest time between the first and the last start of one deployment.
const LONGEST_DEPLOYMENT: Duration = Duration::from_secs(300);

/// Time within which the trials of one deployment start: each has half of its sample beside the first.
fn window(sample_after_s: f64) -> Duration {
    Duration::try_from_secs_f64(sample_after_s / 2.0)
        .map_or(LONGEST_DEPLOYMENT, |half| half.min(LONGEST_DEPLOYMENT))
}

/// Expectations of a program's replicas.
struct Expected {
    /// Age from which a process counts as a replica, seconds.
    least_s: f64,
    /// Time within which the replicas start.
    window: Duration,
}

/// The candidates that are to be on offer. While a trial runs, its result is waited for, unless several
/// instances of the program live side by side.
fn wanted(
    known: &mut TrackedProgram,
    conditions: &Conditions,
    expected: &Expected,
    moment: &Moment<'_>,
) -> Vec<String> {
    let Some(planned) = known.plan.trial().filter(|_| !known.trial.pauses(moment.unix_s)) else {
        return vec![];
    };
    let replicas = known.replicas.count(expected.least_s, moment).min(1 + MORE_TRIALS);
    if replicas >= 2 && known.trial.is_being_taken(expected.window, moment.at) {
        return still_usable(known);
    }
    known.trial.close();
    let running = known.trial.running();
    let room = replicas.saturating_sub(running.len());
    let profile = known.profile.as_ref().filter(|_| replicas >= 2);
    let together = profile.map(|profile| trials_side_by_side(profile, conditions, &running, room));
    match together.filter(|together| !together.is_empty()) {
        Some(together) => together.into_iter().map(str::to_owned).collect(),
        None if running.is_empty() => vec![planned.to_owned()],
        None => vec![],
    }
}

/// The trials of a deployment that starts are taking, less the trials of candidates that harmed one of them.
fn still_usable(known: &TrackedProgram) -> Vec<String> {
    let is_usable = |name: &&str| {
        let view = known.profile.as_ref().and_then(|profile| profile.candidate(name));
        *name == SYSTEM || view.is_some_and(CandidateView::is_usable)
    };
    let untaken = known.trial.untaken().iter().map(|offer| offer.candidate.as_str());
    untaken.filter(is_usable).map(str::to_owned).collect()
}

/// Tokens of the offers that are not wanted, and the candidates of those that are missing.
fn differences(known: &TrackedProgram, wanted: Vec<String>) -> (Vec<String>, Vec<String>) {
    let mut missing = wanted;
    let mut over = vec![];
    for offer in known.trial.untaken() {
        match missing.iter().position(|candidate| *candidate == offer.candidate) {
            Some(at) => drop(missing.remove(at)),
            None => over.push(offer.token.clone()),
        }
    }
    (over, missing)
}

/// Logs a line for each quarantine that is new, and for each that is over.
fn log_quarantines(known: &TrackedProgram, profile: &ProfileView) {
    let Some(before) = &known.profile else { return };
    for view in &profile.candidates {
        let was_quarantined = before.candidate(&view.name).is_some_and(|view| view.quarantine.is_some());
        match &view.quarantine {
            Some(quarantine) if !was_quarantined => tracing::warn!(
                PROGRAM = %known.program,
                CANDIDATE = view.name,
                "quarantined: the program {} under it ({:?}, {} of {} starts); it is tried again when one of the \
                 two changes, or after: imas pin --system --unblock {} {}",
                quarantine.verb(),
                quarantine.ended,
                quarantine.under_candidate.crashed,
                quarantine.under_candidate.starts,
                known.program.id,
                view.name,
            ),
            None if was_quarantined => {
                tracing::info!(PROGRAM = %known.program, CANDIDATE = view.name, "no longer quarantined");
            }
            _ => {}
        }
    }
}

// Allocators that no program is offered: those that harmed several programs within a day ([`crate::harm`]).

/// Disabled allocators as the store has them.
#[derive(Debug, Default)]
pub(super) struct DisabledAllocators {
    list: Vec<Disabled>,
    /// Time up to which what an allocator did is cleared, Unix time.
    cleared: BTreeMap<String, f64>,
}

impl DisabledAllocators {
    pub(super) fn read(store: &Store) -> Result<Self, StoreError> {
        Ok(Self { list: store.disabled()?, cleared: store.cleared()? })
    }

    pub(super) fn list(&self) -> &[Disabled] {
        &self.list
    }

    fn contains(&self, allocator: &str, version: &str) -> bool {
        let is_it = |one: &&Disabled| one.version == version || one.version.is_empty();
        self.list.iter().any(|one| one.allocator == allocator && is_it(&one))
    }

    fn cleared_s(&self, allocator: &str) -> f64 {
        self.cleared.get(allocator).copied().unwrap_or(0.0)
    }
}

impl Learner {
    /// Disables allocators that harmed several programs within a day.
    pub(super) fn disable_culprits(&mut self) {
        let Some(installation) = &self.installation else { return };
        let found = self.culprits(installation);
        if found.is_empty() {
            return;
        }
        for disabled in found {
            tracing::error!(
                ALLOCATOR = disabled.allocator,
                "disabled everywhere: {}; undo: sudo imas unblock {}",
                disabled.why,
                disabled.allocator
            );
            let stored = self.parts.store.get().disable(&disabled);
            self.stored(stored);
            self.disabled.list.push(disabled);
        }
        for id in self.programs.ids() {
            self.judge(id);
        }
    }

    fn culprits(&self, installation: &Installation) -> Vec<Disabled> {
        let mut found = vec![];
        for (version, victims) in self.victims(installation) {
            let of = |(allocator, programs): (&str, Vec<&str>)| {
                let why = format!(
                    "within a day it harmed {VICTIMS} programs of the system or those of {PERSONS} users, or more: {}",
                    programs.join(", ")
                );
                let (allocator, version) = (allocator.to_owned(), version.clone());
                Disabled { allocator, version, at_s: now_unix_s(), why }
            };
            found.extend(victims.culprits().map(of));
        }
        found.retain(|one| !self.disabled.contains(&one.allocator, &one.version));
        found
    }

    /// Programs that were harmed lately, by the version of the allocator: one may be there in several.
    fn victims(&self, installation: &Installation) -> BTreeMap<String, Victims> {
        let mut victims: BTreeMap<String, Victims> = BTreeMap::new();
        let day_ago_s = now_unix_s() - VICTIMS_WITHIN_S;
        for known in self.programs.all() {
            let Some(profile) = &known.profile else { continue };
            for quarantine in quarantines_since(profile, day_ago_s) {
                let Some(candidate) = installation.find(&quarantine.candidate) else { continue };
                if quarantine.since_unix_s > self.disabled.cleared_s(&candidate.allocator) {
                    let program = &known.program;
                    let owner = self.parts.users.owner_of_domain(program.domain);
                    let version = version_for_policy(candidate);
                    let of_version = victims.entry(version).or_default();
                    of_version.add(&candidate.allocator, program.id, owner, &program.to_string());
                }
            }
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use imas_core::profile::Policy;
    use imas_core::{Candidate, History};
    use imas_store::samples::{Domain, StoredProgram};

    use super::*;
    use crate::folders::PageName;
    use crate::program_table::tests::{MadeUpProcesses, of_pid};

    const EXPECTED: Expected = Expected { least_s: 10.0, window: Duration::from_secs(300) };

    /// A program and its processes, by a clock that the test sets.
    struct Deployment {
        known: TrackedProgram,
        processes: MadeUpProcesses,
        begin: Instant,
        seconds: f64,
    }

    impl Deployment {
        fn of(replicas: u32) -> Self {
            let candidate = |name: &str| Candidate::new(name, "1", &[name]);
            let candidates = [Candidate::system("2.36"), candidate("jemalloc"), candidate("mimalloc")];
            let path = "/no/such/program".to_owned();
            let program = StoredProgram { id: 1, domain: Domain::Everybody, path, detail: String::new() };
            let profile = ProfileView::under(&History::of(&[], &candidates), &Policy::default());
            let mut known = TrackedProgram::new(program);
            known.plan = decide(&profile, &known.giving, &Conditions::default());
            known.profile = Some(profile);
            let processes = MadeUpProcesses((1..=replicas).map(|pid| (pid, 60.0)).collect());
            let begin = Instant::now();
            let moment = Moment { at: begin, unix_s: 0.0, processes: &processes };
            (1..=replicas).for_each(|pid| known.replicas.note(of_pid(pid), &moment));
            Self { known, processes, begin, seconds: 0.0 }
        }

        fn at(&self) -> Instant {
            self.begin + Duration::from_secs_f64(self.seconds)
        }

        /// Offers after this time.
        fn offers_after(&mut self, seconds: f64) -> Vec<Offer> {
            self.seconds += seconds;
            let at = self.at();
            let moment = Moment { at, unix_s: self.seconds, processes: &self.processes };
            let wanted = wanted(&mut self.known, &Conditions::default(), &EXPECTED, &moment);
            let (over, missing) = differences(&self.known, wanted);
            over.iter().for_each(|token| self.known.trial.withdraw(token, at));
            for candidate in missing {
                let token = format!("{:016x}", self.known.trial.next_token());
                let offer = Offer { token, program: 1, candidate, retest_s: 0.0, at_s: self.seconds };
                self.known.trial.begin(offer);
            }
            self.known.trial.untaken().to_vec()
        }

        /// A start takes this trial.
        fn take(&mut self, offer: &Offer) {
            let page = PageName { uid: 0, name: offer.token.clone().into() };
            assert!(self.known.trial.take(&offer.token, &page, self.at()));
        }
    }

    fn candidates(offers: &[Offer]) -> Vec<&str> {
        let mut names: Vec<_> = offers.iter().map(|offer| offer.candidate.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn replicas_are_offered_each_another_candidate() {
        let mut three = Deployment::of(3);
        let offers = three.offers_after(0.0);
        assert_eq!(candidates(&offers), ["jemalloc", "mimalloc", "system"]);
        three.take(&offers[1]);
        let left = three.offers_after(299.0);
        assert_eq!(left, [offers[0].clone(), offers[2].clone()], "the others may still come");
        left.iter().for_each(|offer| three.take(offer));
        assert_eq!(three.offers_after(1.0), [], "each has its trial");
    }

    /// An offer that no start has taken in time would be compared with a `system` of another load.
    #[test]
    fn what_is_not_taken_in_time_is_offered_with_a_system_of_its_own() {
        let mut three = Deployment::of(3);
        let first = three.offers_after(0.0);
        let system = first.iter().find(|offer| offer.candidate == SYSTEM).unwrap();
        three.take(system);
        assert_eq!(three.offers_after(299.0).len(), 2);
        let anew = three.offers_after(1.0);
        let again = anew.iter().find(|offer| offer.candidate == SYSTEM).unwrap();
        assert!(anew.len() == 2 && again.token != system.token, "{anew:?}");
    }

    /// The others of a deployment may end in the same way.
    #[test]
    fn a_failed_trial_withdraws_the_others_until_a_pause_is_over() {
        let mut three = Deployment::of(3);
        let before = three.offers_after(0.0);
        three.take(&before[0]);
        let until_s = three.known.trial.fail(&before[0].token, three.seconds);
        assert_eq!(three.offers_after(until_s - 0.1), []);
        let anew = three.offers_after(0.1);
        assert_eq!(candidates(&anew), candidates(&before));
        assert!(anew.iter().all(|offer| before.iter().all(|old| old.token != offer.token)), "{anew:?}");
    }

    #[test]
    fn a_program_that_lives_alone_has_one_trial_at_a_time() {
        let mut alone = Deployment::of(1);
        let offers = alone.offers_after(0.0);
        assert_eq!(offers.len(), 1);
        alone.take(&offers[0]);
        assert_eq!(alone.offers_after(7200.0), []);
        alone.known.trial.complete(&offers[0].token);
        assert_eq!(alone.offers_after(1.0).len(), 1);
    }

    #[test]
    fn replicas_that_ended_are_expected_again_for_an_hour() {
        let mut three = Deployment::of(3);
        assert_eq!(three.offers_after(0.0).len(), 3);
        three.processes.0.clear();
        assert_eq!(three.offers_after(3599.0).len(), 3);
        assert_eq!(three.offers_after(1.0).len(), 1, "it lives alone from now on");
    }
}
