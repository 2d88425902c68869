// SPDX-License-Identifier: Apache-2.0
//! Taking programs in.

use std::io;
use std::path::Path;
use std::time::Instant;

use anyhow::{Error, Result};
use imas_engine::inspect;
use imas_engine::runtime_command::unfit_reason;
use imas_linux::elf;
use imas_linux::index::Executable;
use imas_linux::program::is_privileged;
use imas_linux::program_file::executable_at;
use imas_store::domain::Domain;
use imas_store::samples::StoredProgram;
use imas_store::{RowId, StoreError};

use super::Learner;
use crate::process_info::ProcessInfo;
use crate::program_table::TrackedProgram;
use crate::reject_reason::RejectReason;
use crate::trial_offer::TrialOffer;

/// Whether a process of the program has a page: such a program is not forgotten.
pub(crate) type InUse<'a> = &'a dyn Fn(RowId) -> bool;

impl Learner {
    /// A process that has lived or worked long enough: its program is taken in, unless it is ineligible.
    pub(crate) fn take_in(&mut self, process: &ProcessInfo, in_use: InUse<'_>) {
        let domain = self.parts.users.domain_of(process.uid);
        if let Some(id) = self.programs.find(process, domain).map(|known| known.program.id) {
            return self.note_process(id, process);
        }
        if self.ineligible.contains(process, domain) {
            return;
        }
        match self.reason_against(process, domain) {
            Ok(None) => {}
            Ok(Some(reason)) => {
                self.ineligible.add(process, domain, reason);
                self.counts.programs_left_alone += 1;
                return;
            }
            Err(error) => match error.downcast::<StoreError>() {
                Ok(error) => return self.store_refused(&error),
                Err(_) => return, // its file does not answer now: the next process of the program is looked at
            },
        }
        let path = process.path.to_string_lossy();
        let is_new = self.programs.named(domain, &path, &process.detail_text).is_none();
        if is_new && !self.make_room(domain, in_use) {
            return;
        }
        let store = self.parts.store.get();
        let program = store.program_in(domain, &path, &process.detail_text);
        if let Some(program) = self.stored(program) {
            self.know(program, process);
        }
    }

    fn know(&mut self, program: StoredProgram, process: &ProcessInfo) {
        let id = program.id;
        let before = self.programs.forget(id);
        let mut known = TrackedProgram::new(program);
        // What runs now, should the path already lead to a newer file.
        known.executable = Some(process.executable);
        known.detail = process.detail.clone();
        known.seen = Some(Instant::now());
        known.threads = Some(process.threads);
        known.noticed_uid = Some(process.uid);
        match before {
            Some(before) => {
                known.trial = TrialOffer::of_another_file(before.trial);
                known.replicas = before.replicas;
            }
            None => {
                let domain = known.program.domain.word();
                tracing::info!(PROGRAM = %known.program, DOMAIN = domain, "a program worth a trial");
            }
        }
        known.replicas.note(process.identity);
        self.programs.put(known);
        self.judge(id);
    }

    /// Why the program of this process is ineligible; an error when the store does not say what is known of
    /// its file, or the file does not answer.
    fn reason_against(&self, process: &ProcessInfo, domain: Domain) -> Result<Option<String>> {
        if let Some(reason) = self.parts.exclusions.reason(&process.path) {
            return Ok(Some(reason.to_owned()));
        }
        let executable = process.executable;
        let reason =
            inspect::on_file(domain, &process.path, move |path| reason_against_file(path, executable))?;
        if reason.is_some() {
            return Ok(reason.map(str::to_owned));
        }
        match inspect::running(self.parts.store.get(), domain, &process.path, executable) {
            Ok(found) => Ok(unfit_reason(&found)),
            // Where the store fails, nothing is known of the program.
            Err(error) if error.is::<StoreError>() || is_late(&error) => Err(error),
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    /// The program as one of the domain: what a user's process shows of a program that is everybody's is the
    /// user's own sample.
    pub(super) fn in_domain(
        &mut self,
        program: &StoredProgram,
        domain: Domain,
        in_use: InUse<'_>,
    ) -> Result<RowId, RejectReason> {
        if program.domain == domain {
            return Ok(program.id);
        }
        if let Some(known) = self.programs.named(domain, &program.path, &program.detail) {
            return Ok(known.program.id);
        }
        if !self.make_room(domain, in_use) {
            return Err(RejectReason::TooMany);
        }
        let own = self.parts.store.get().program_in(domain, &program.path, &program.detail);
        let own = self.stored(own).ok_or(RejectReason::TooMany)?;
        let id = own.id;
        if self.programs.get(id).is_none() {
            self.programs.put(TrackedProgram::new(own));
            self.judge(id);
        }
        Ok(id)
    }
}

/// Why the file at the path is no program for a trial, before it is opened.
fn reason_against_file(path: &Path, executable: Executable) -> Option<&'static str> {
    if executable_at(path) != Some(executable) {
        return Some("its file is not the one that stands at its path");
    }
    is_privileged(path).then(|| elf::Unfit::Privileged.why())
}

/// Whether a file did not answer in time.
fn is_late(error: &Error) -> bool {
    let kinds = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
    error.downcast_ref::<io::Error>().is_some_and(|error| kinds.contains(&error.kind()))
}
