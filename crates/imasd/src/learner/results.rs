// SPDX-License-Identifier: Apache-2.0
//! Results of pages: processes that were seen, samples, crashes, trials that come to nothing.

use imas_core::TrialRecord;
use imas_core::hang::may_have_hung;
use imas_core::sample::{Ended, PageKind};
use imas_linux::host::{machine_state, now_unix_s};
use imas_linux::standstill::age_s;
use imas_store::RowId;
use imas_store::daemon::Witness;
use imas_store::lives::LivingProcess;
use imas_store::samples::{Domain, StoredProgram};

use super::Learner;
use crate::folders::PageName;
use crate::harm::START_S;
use crate::learner::admission::InUse;
use crate::lives::{ClosedWindow, LivingTrial, ObservedProcess, WorkSetting};
use crate::process_info::{Identity, executable};
use crate::program_table::{Moment, TrackedProgram};
use crate::trial_offer::RejectReason;
use crate::watched::Watch;

impl Learner {
    /// A process was seen, with its page, as one of `program`: it is remembered as one of its own domain, and
    /// takes the trial that it runs. Number of the program in that domain.
    pub(crate) fn add_witness(
        &mut self,
        program: &StoredProgram,
        mut witness: Witness,
        token: Option<&str>,
        in_use: InUse<'_>,
    ) -> Result<Witness, RejectReason> {
        let domain = self.parts.users.domain_of(witness.uid);
        witness.program = self.in_domain(program, domain, in_use)?;
        let stored = self.parts.store.get().add_witness(&witness);
        // If storing fails, imasd still has the witness in memory until it ends.
        self.stored(stored);
        if self.programs.get(witness.program).is_none() {
            return Err(RejectReason::Unknown); // a new store has been begun
        }
        self.take_offer(token, &witness);
        Ok(witness)
    }

    /// The process runs the trial that its program is offered: no other process of its domain makes it too. A
    /// user's process that runs everybody's trial does not take the offer from others: if it were stopped,
    /// everybody's decision would wait for it.
    pub(crate) fn take_offer(&mut self, token: Option<&str>, witness: &Witness) {
        let Some(known) = self.programs.get_mut(witness.program) else { return };
        let now = Moment::now();
        known.replicas.note(Identity { pid: witness.pid, start_ticks: witness.start_ticks }, &now);
        let page = PageName { uid: witness.uid, name: witness.page.clone().into() };
        if token.is_some_and(|token| known.trial.take(token, &page, now.at)) {
            self.events.changed = true;
            self.offer_beside(witness.program);
        }
    }

    /// Forgets the witness of a processed page.
    pub(crate) fn forget_witness(&self, page: &PageName) {
        let store = self.parts.store.get();
        let _ = store.forget_witness(page.uid, &page.name.to_string_lossy()); // found again at the next start
    }

    /// Stores the record of an ended process and ends its trial. Returns whether it was new; `None` if the
    /// store failed, and then the page must be kept.
    pub(crate) fn settle(&mut self, watch: &Watch, record: &TrialRecord) -> Option<bool> {
        let ends = self.offered_token(watch);
        let settled = self.parts.store.get().settle(&watch.witness, record, ends, true);
        self.stored(settled)
    }

    /// Learns from an ended process, once its page is stored: for its program, and for others.
    pub(crate) fn learn(&mut self, watch: &Watch, record: &TrialRecord, is_new: bool) {
        if is_new {
            match record.sample.kind {
                PageKind::Trial => self.counts.trials_stored += 1,
                PageKind::Flight => self.counts.flights_stored += 1,
            }
        }
        self.complete_trial(watch);
        if is_new && record.sample.ended.is_crash() && record.sample.pass_reason.is_none() {
            self.note_crash(record, watch);
        }
        if is_new && may_have_hung(&record.sample) {
            self.disable_culprits();
            self.events.urgent = true;
        }
    }

    /// Stores the sample of a trial whose process keeps running, and ends the trial; whether the store took
    /// it.
    pub(crate) fn settle_span(&mut self, watch: &Watch, record: &TrialRecord) -> bool {
        let ends = self.offered_token(watch);
        let settled = self.parts.store.get().settle(&watch.witness, record, ends, false);
        match self.stored(settled) {
            Some(true) => self.counts.trials_stored += 1,
            Some(false) => {} // stored before our last start
            None => return false,
        }
        self.complete_trial(watch);
        true
    }

    /// The name of the watched trial, if it is on offer.
    fn offered_token<'a>(&self, watch: &'a Watch) -> Option<&'a str> {
        let known = self.programs.get(watch.witness.program)?;
        watch.token.as_deref().filter(|token| known.trial.is_offering(token))
    }

    /// The watched trial is stored; its program is judged anew. A user's trial of a program that is
    /// everybody's leaves everybody's trial on offer.
    fn complete_trial(&mut self, watch: &Watch) {
        let program = watch.witness.program;
        let token = watch.token.as_deref();
        if let Some(known) = self.programs.get_mut(program)
            && let Some(token) = token.filter(|token| known.trial.is_offering(token))
        {
            known.trial.complete(token);
        }
        self.judge(program);
    }

    /// A page of the trial of that name came to nothing. The offer is withdrawn if this page's process had
    /// taken it. Where none had, only pages of the program's own domain count: what a user leaves in a folder
    /// does not end the offers of others.
    pub(crate) fn fail_trial(&mut self, token: Option<&str>, page: &PageName) {
        let domain = self.parts.users.domain_of(page.uid);
        let Some(known) = token.and_then(|token| self.programs.offering(token)) else { return };
        let is_theirs = match token.and_then(|token| known.trial.taker(token)) {
            Some(taker) => taker == page,
            None => known.program.domain == domain,
        };
        if is_theirs {
            self.fail_offer(known.program.id, token);
        }
    }

    /// A user's process took everybody's trial and ended before it was seen, crashed perhaps. The user gets
    /// an entry of its own, untouched for a while, so that the next start does not end in the same way;
    /// others are still offered the trial.
    pub(crate) fn shield(&mut self, token: Option<&str>, uid: u32, in_use: InUse<'_>) {
        let domain = self.parts.users.domain_of(uid);
        let Some(known) = token.and_then(|token| self.programs.offering(token)) else { return };
        let program = known.program.clone();
        if program.domain != domain
            && let Ok(own) = self.in_domain(&program, domain, in_use)
        {
            self.fail_offer(own, None);
        }
    }

    /// The trial of that name had no result. Without a name: the trial on offer, which no process has taken
    /// yet.
    fn fail_offer(&mut self, id: RowId, token: Option<&str>) {
        let Some(known) = self.programs.get_mut(id) else { return };
        let mut offered = known.trial.untaken().iter().map(|offer| offer.token.clone());
        let token = token.map(str::to_owned).or_else(|| offered.next()).unwrap_or_default();
        known.look_again_s = Some(known.trial.fail(&token, now_unix_s()));
        // The others of a deployment must not all end in the same way.
        let offered: Vec<_> = known.trial.untaken().iter().map(|offer| offer.token.clone()).collect();
        self.events.changed = true;
        let withdrawn = self.parts.store.get().withdraw(&token).map(drop);
        let withdrawn = withdrawn.and_then(|()| self.withdraw(id, &offered));
        self.stored(withdrawn);
    }

    fn note_crash(&mut self, record: &TrialRecord, watch: &Watch) {
        self.counts.crashes += 1;
        let (sample, witness) = (&record.sample, &watch.witness);
        let Some(known) = self.programs.get(witness.program) else { return };
        tracing::warn!(
            PROGRAM = %known.program,
            CANDIDATE = sample.candidate,
            UID = witness.uid,
            "the program crashed under it: {:?}",
            sample.ended
        );
        let domain = known.program.domain;
        // A program that crashes as often untouched fails by itself.
        let view = known.profile.as_ref().and_then(|profile| profile.candidate(&sample.candidate));
        let never_entered = sample.ended == Ended::NeverEntered;
        let at_fault = never_entered || view.is_none_or(|view| view.quarantine.is_some());
        self.disable_culprits();
        self.events.urgent |= matches!(domain, Domain::Everybody);
        let placed = sample.candidate != imas_core::SYSTEM;
        // The clock may have been set since.
        let is_young =
            now_unix_s() - sample.made_unix_s < START_S && watch.since.elapsed().as_secs_f64() < START_S;
        if placed && at_fault && (never_entered || is_young) {
            self.events.failed_starts.push(self.parts.users.owner_of_domain(domain));
        }
    }
}

// How processes live on: which ones are looked at beside those on trial, and what is stored of them.

impl Learner {
    /// The processes to look at: those on trial, and untouched replicas. `has_page` says which processes of
    /// this boot were placed, or are on trial.
    pub(crate) fn observed(
        &mut self,
        trials: Vec<LivingTrial>,
        boot_id: &str,
        has_page: &dyn Fn(Identity) -> bool,
    ) -> Vec<ObservedProcess> {
        let machine = machine_state();
        let mut observed: Vec<_> =
            trials.into_iter().filter_map(|one| self.of_trial(one, &machine)).collect();
        for id in self.programs.ids() {
            for identity in self.untouched(id, has_page) {
                observed.extend(self.of_untouched(id, identity, (boot_id, &machine)));
            }
        }
        observed
    }

    fn of_trial(&self, trial: LivingTrial, machine: &str) -> Option<ObservedProcess> {
        let process = LivingProcess {
            program: trial.program,
            name: trial.trial_id,
            is_trial: true,
            build_id: trial.build_id,
            machine: machine.to_owned(),
            begun_s: begun_s(trial.identity)?,
        };
        let work = self.work(self.programs.get(trial.program)?);
        let owner = self.parts.users.number_of(trial.page.uid);
        Some(ObservedProcess { identity: trial.identity, owner, process, page: Some(trial.page), work })
    }

    /// Replicas of the program that run without an allocator of ours, where they run its present file.
    fn untouched(&mut self, id: RowId, has_page: &dyn Fn(Identity) -> bool) -> Vec<Identity> {
        let least_s = self.parts.config.own.worth_life_s;
        let Some(known) = self.programs.get_mut(id) else { return vec![] };
        if known.giving.nothing().is_some()
            || !known.replicas.are_possible()
            || known.replicas.count(least_s, &Moment::now()) < 2
        {
            return vec![];
        }
        let is_one = |identity: &Identity| {
            !has_page(*identity) && known.executable.is_some() && executable(*identity) == known.executable
        };
        known.replicas.living().filter(is_one).collect()
    }

    fn of_untouched(
        &self,
        id: RowId,
        identity: Identity,
        (boot_id, machine): (&str, &str),
    ) -> Option<ObservedProcess> {
        let known = self.programs.get(id)?;
        let boot = boot_id.get(..8).unwrap_or_default();
        let process = LivingProcess {
            program: id,
            name: format!("untouched-{boot}-{}-{}", identity.pid, identity.start_ticks),
            is_trial: false,
            build_id: known.build_id.clone(),
            machine: machine.to_owned(),
            begun_s: begun_s(identity)?,
        };
        let owner = imas_linux::foreign_process::owner_of(identity.pid)?;
        Some(ObservedProcess { identity, owner, process, page: None, work: self.work(known) })
    }

    /// How the work of the program is counted, if the settings say so.
    fn work(&self, known: &TrackedProgram) -> Option<WorkSetting> {
        let (path, detail) = (&known.program.path, &known.program.detail);
        let rules = &self.parts.config.rules;
        let name = [detail, path].into_iter().find(|name| rules.work.contains_key(*name))?;
        Some(WorkSetting { name: name.clone(), command: rules.work(path, detail)? })
    }

    /// Stores a window that is over, and judges its program by it.
    pub(crate) fn store_window(&mut self, closed: &ClosedWindow) {
        let program = closed.process.program;
        if self.programs.get(program).is_none() {
            return; // it was forgotten
        }
        let added = self.parts.store.get().add_life_window(&closed.process, &closed.window);
        if self.stored(added) == Some(true) {
            self.counts.windows_stored += 1;
            self.judge(program);
        }
    }
}

fn begun_s(identity: Identity) -> Option<f64> {
    Some(now_unix_s() - age_s(identity.start_ticks)?)
}
