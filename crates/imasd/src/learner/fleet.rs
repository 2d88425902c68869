// SPDX-License-Identifier: Apache-2.0
//! Publications of the learner to a fleet, and the statistics that it receives. It reads and writes the store
//! alone; [`crate::fleet`] has the files.

use std::collections::BTreeSet;
use std::time::SystemTime;

use anyhow::Result;
use imas_core::adaptive::AdaptiveState;
use imas_core::profile::Policy;
use imas_engine::fleet_key::{environment, program_key, threads_class};
use imas_engine::state::ProgramState;
use imas_exchange::{Aggregate, Environment, FleetStatistics, ThreadsClass, key};
use imas_linux::host::now_unix_s;
use imas_store::fleet::{FleetMember, Publication, StoredMessage, StoredStatistics};
use imas_store::{RowId, StoreError};

use super::Learner;
use crate::fleet::{
    About, FleetProgram, FleetSettings, PublishedResidual, Unpublished, announcement, unpublished,
};
use crate::program_table::TrackedProgram;

/// A round to which nothing is added any more is published after this time, seconds, though it is not
/// complete.
const WAIT_S: f64 = 300.0;
/// Least time between two notes in the store that the fleet was reached, seconds.
const NOTE_S: f64 = 3600.0;

/// This host in its fleet.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) member: FleetMember,
    /// The kernel's boot id.
    pub(crate) boot_id: String,
    environment: Environment,
    /// Subjects whose first message was published by this process.
    announced: BTreeSet<String>,
    /// Time when it was stored that the fleet was reached, Unix time.
    noted_s: f64,
}

/// Events that the mailbox must know of.
#[derive(Debug, Default)]
pub(crate) struct FleetEvents {
    /// Messages wait to be written.
    pub(crate) has_messages: bool,
    /// The fleet is to be asked of other programs than before.
    pub(crate) changed_subjects: bool,
}

impl Membership {
    pub(crate) fn new(member: FleetMember, boot_id: String, cpus: u32) -> Self {
        Self { member, boot_id, environment: environment(cpus), announced: BTreeSet::new(), noted_s: 0.0 }
    }
}

impl Learner {
    /// Takes part in a fleet from now on, or no longer.
    pub(crate) fn join_fleet(&mut self, membership: Option<Membership>) -> Result<()> {
        let store = self.parts.store.get();
        store.set_fleet_member(membership.as_ref().map(|fleet| &fleet.member))?;
        if let Some(fleet) = &membership {
            store.begin_fleet_boot(&fleet.boot_id, &crate::fleet::random_name())?;
        }
        let anew = |fleet: Membership| Membership { announced: BTreeSet::new(), noted_s: 0.0, ..fleet };
        self.fleet = membership.map(anew);
        self.fleet_events.changed_subjects = true;
        Ok(())
    }

    /// Settings of the fleet in the configuration.
    pub(crate) fn fleet_settings(&self) -> &FleetSettings {
        &self.parts.config.own.fleet
    }

    /// Events since the last call.
    pub(crate) fn take_fleet_events(&mut self) -> FleetEvents {
        std::mem::take(&mut self.fleet_events)
    }

    /// The machine's CPUs or page settings may be others by now: whether they are. Its programs are others to
    /// the fleet then.
    pub(crate) fn renew_environment(&mut self) -> bool {
        let now = environment(self.parts.conditions.cpus);
        let Some(fleet) = self.fleet.as_mut().filter(|fleet| fleet.environment != now) else { return false };
        fleet.environment = now;
        true
    }

    /// Subjects that the fleet is asked about.
    pub(crate) fn subjects(&self) -> BTreeSet<String> {
        let subject = |known: &TrackedProgram| Some(known.fleet.as_ref()?.subject.clone());
        self.programs.all().filter_map(subject).collect()
    }

    /// The program as the fleet names it, if it takes part. What people run by themselves decides for them
    /// alone on this host, so it decides nothing on others.
    pub(super) fn fleet_program(
        &self,
        known: &TrackedProgram,
        build_id: &str,
    ) -> Result<Option<FleetProgram>, StoreError> {
        let is_everybodys = known.program.domain.is_everybodys();
        let (Some(fleet), Some(executable)) =
            (self.fleet.as_ref().filter(|_| is_everybodys), known.executable)
        else {
            return Ok(None);
        };
        let store = self.parts.store.get();
        let Some(key) = program_key(store, &known.program, executable, build_id) else { return Ok(None) };
        let before = known.fleet.as_ref().filter(|before| before.key == key);
        let before = before.and_then(|before| before.environment.threads);
        let noticed = before.max(known.threads.map(ThreadsClass::of));
        let threads = threads_class(store, (known.program.id, build_id), &key, noticed)?;
        let environment = Environment { threads, ..fleet.environment.clone() };
        let subject = key::subject(&key, &environment);
        Ok(threads.map(|_| FleetProgram { key, environment, subject }))
    }

    /// The program is that to the fleet from now on.
    pub(super) fn set_fleet_program(
        &mut self,
        id: RowId,
        program: Option<FleetProgram>,
    ) -> Result<(), StoreError> {
        let Some(known) = self.programs.get_mut(id).filter(|known| known.fleet != program) else {
            return Ok(());
        };
        self.fleet_events.changed_subjects = true;
        // Statistics of an earlier build, or under other page settings, are about another program.
        let subject = program.as_ref().map_or("", |program| program.subject.as_str());
        self.parts.store.get().keep_statistics_of(id, subject)?;
        known.fleet = program;
        Ok(())
    }

    /// Stores what is to be published of the program: what its trials show beyond what was published, and at
    /// first that this host runs it.
    pub(super) fn publish_evidence(&mut self, id: RowId, state: &ProgramState) -> Result<()> {
        let (Some(fleet), Some(known)) = (&mut self.fleet, self.programs.get(id)) else { return Ok(()) };
        let Some(program) = known.fleet.as_ref().filter(|_| known.giving.nothing().is_none()) else {
            return Ok(());
        };
        let Policy::Adaptive(settings) = self.parts.config.policy(&known.program) else { return Ok(()) };
        let now_s = now_unix_s();
        let newest_s = state.records.last().map_or(0.0, |last| last.sample.made_unix_s + last.sample.wall_s);
        let is_complete = known.plan.trial().is_none() || has_its_pair(known) || now_s - newest_s > WAIT_S;
        let limits = self.parts.config.rules.limits(self.parts.retest_s);
        let evidence = state.evidence(&settings, limits, now_s, is_complete);
        let store = self.parts.store.get();
        let before = store.published_residual(id, &program.subject)?;
        let residual: PublishedResidual =
            before.as_ref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let about =
            About { host: &fleet.member.host, program: &program.key, environment: &program.environment };
        let is_known = |candidate: &imas_core::Candidate| {
            let of_catalogue = self.installation.as_ref().and_then(|it| it.find(&candidate.name));
            of_catalogue.is_some_and(|candidate| !candidate.added)
        };
        let marks = store.published_marks(id)?;
        let mut new = unpublished(about, &evidence, state.candidates(), is_known, (&marks, residual));
        if new.messages.is_empty() && before.is_none() && !fleet.announced.contains(&program.subject) {
            new.messages.push(announcement(about));
        }
        if !new.messages.is_empty() {
            publish(store, id, &program.subject, &new, &fleet.boot_id)?;
            fleet.announced.insert(program.subject.clone());
            self.fleet_events.has_messages = true;
        }
        Ok(())
    }

    /// Messages that are not written yet, oldest first.
    pub(crate) fn messages(&mut self, most: u32) -> Vec<(StoredMessage, Aggregate)> {
        let read = self.parts.store.get().fleet_messages(most);
        let whole = |stored: StoredMessage| {
            let read = serde_json::from_str::<Aggregate>(&stored.message).ok()?;
            let aggregate = Aggregate { boot: stored.boot.clone(), batch: stored.batch, ..read };
            Some((stored, aggregate))
        };
        self.stored(read).unwrap_or_default().into_iter().filter_map(whole).collect()
    }

    /// Number of messages that are not written yet.
    pub(crate) fn unwritten(&self) -> usize {
        let counted = self.parts.store.get().count_messages();
        counted.map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// The message is written. Whether the store has removed it: else it is written again, as it was.
    pub(crate) fn forget_message(&mut self, message: &StoredMessage) -> bool {
        let forgotten = self.parts.store.get().forget_message(message.place);
        self.stored(forgotten).is_some()
    }

    /// Drops the oldest messages beyond that number. How many were dropped.
    pub(crate) fn drop_messages(&mut self, most: u32) -> u64 {
        let dropped = self.parts.store.get().drop_messages(most);
        self.stored(dropped).unwrap_or(0)
    }

    /// Statistics of the fleet: the programs of their subject are judged by them from now on. Whether they
    /// are new.
    pub(crate) fn receive_statistics(&mut self, statistics: &FleetStatistics) -> bool {
        let subject = statistics.subject();
        let is_it = |known: &&TrackedProgram| known.fleet.as_ref().is_some_and(|it| it.subject == subject);
        let ids: Vec<RowId> = self.programs.all().filter(is_it).map(|known| known.program.id).collect();
        let text = String::from_utf8_lossy(&statistics.to_bytes()).into_owned();
        let received = StoredStatistics { subject, statistics: text, known_s: now_unix_s() };
        let stored = |id: &RowId| self.parts.store.get().statistics(*id).ok().flatten();
        let is_same = |stored: &StoredStatistics| {
            stored.subject == received.subject && stored.statistics == received.statistics
        };
        let is_new = |id: &RowId| !stored(id).as_ref().is_some_and(is_same);
        let ids: Vec<RowId> = ids.into_iter().filter(is_new).collect();
        if !ids.is_empty() {
            self.note_fleet_reached(); // a file that is still there shows nothing
        }
        for id in &ids {
            let stored = self.parts.store.get().set_statistics(*id, &received);
            if self.stored(stored).is_some() {
                self.judge(*id);
            }
        }
        self.events.urgent |= !ids.is_empty();
        !ids.is_empty()
    }

    /// The fleet has no statistics of a subject any more: its programs are judged without, and announced
    /// again. How many they are.
    pub(crate) fn forget_statistics(&mut self, subject: &str) -> u64 {
        let forgotten = self.parts.store.get().forget_statistics(subject);
        let ids = self.stored(forgotten).unwrap_or_default();
        if let Some(fleet) = self.fleet.as_mut().filter(|_| !ids.is_empty()) {
            fleet.announced.remove(subject);
        }
        ids.iter().for_each(|id| self.judge(*id));
        self.events.urgent |= !ids.is_empty();
        ids.len() as u64
    }

    /// The fleet can be reached: trials go on being shared out.
    pub(crate) fn note_fleet_reached(&mut self) {
        let now_s = now_unix_s();
        let Some(fleet) = self.fleet.as_mut() else { return };
        if (0.0..NOTE_S).contains(&(now_s - fleet.noted_s)) {
            return;
        }
        fleet.noted_s = now_s;
        let noted = self.parts.store.get().note_fleet_reached(now_s);
        self.stored(noted);
    }
}

/// Whether the candidate of this host's turn had its `system`: another turn adds nothing to that.
fn has_its_pair(known: &TrackedProgram) -> bool {
    let adaptive = known.profile.as_ref().and_then(|profile| profile.adaptive());
    let is_made = |state: &AdaptiveState| state.board.in_round.contains(&state.board.system);
    adaptive.is_some_and(|state| state.turn.is_some() && is_made(state))
}

fn publish(
    store: &imas_store::Store,
    program: RowId,
    subject: &str,
    new: &Unpublished,
    boot_id: &str,
) -> Result<(), StoreError> {
    let messages: Vec<String> = new.messages.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    store.publish(&Publication {
        program,
        subject,
        marks: &new.marks,
        residual: &serde_json::to_string(&new.residual)?,
        messages: &messages,
        boot_id,
        now_us: u64::try_from(now.as_micros()).unwrap_or(0),
    })
}
