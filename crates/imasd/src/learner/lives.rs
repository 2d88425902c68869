// SPDX-License-Identifier: Apache-2.0
//! How processes live on: which ones are looked at beside those on trial, and what is stored of them.

use imas_linux::clock::now_unix_s;
use imas_linux::host::machine_state;
use imas_linux::standstill::age_s;
use imas_store::RowId;
use imas_store::lives::LivingProcess;

use super::Learner;
use crate::lives::{ClosedWindow, ObservedProcess, WorkSetting};
use crate::living_trial::LivingTrial;
use crate::process_info::{Identity, executable};
use crate::program_table::TrackedProgram;

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
            || known.replicas.count(least_s) < 2
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
