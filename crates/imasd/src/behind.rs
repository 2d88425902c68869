// SPDX-License-Identifier: Apache-2.0
//! Who is behind a page, by what the kernel says.

use std::time::Instant;

use imas_ingest::Page;
use imas_store::RowId;
use imas_store::domain::Domain;
use imas_store::samples::Program;

use crate::book::Known;
use crate::daemon::Daemon;
use crate::drop::Drop;
use crate::folders::PageName;
use crate::sight::{self, Identity, Sight};

impl Daemon {
    /// Whose pages are believed without a witness: root's, in a user's own tree that user's.
    pub(crate) fn own_uid(&self) -> u32 {
        if self.options.user { rustix::process::geteuid().as_raw() } else { 0 }
    }

    /// The program that the process behind the page really is, by what the kernel says.
    pub(crate) fn program_behind(
        &mut self,
        page: &PageName,
        content: &Page,
        token: Option<&str>,
    ) -> Result<RowId, Drop> {
        let identity = Identity { pid: content.pid, start_ticks: content.process_start_ticks };
        let domain = self.domain_of(page.uid);
        let serves_all = domain == Domain::Everybody;
        let seen = sight::look(identity).or_else(|| self.glimpses.remove(&identity));
        let Some(sight) = seen else {
            if sight::life(content.pid).is_some_and(|life| life.identity != identity) {
                return Err(Drop::Forged); // the id is another's
            }
            return self.of_the_dead(page, content, token, domain);
        };
        if sight.uid != page.uid || (serves_all && self.is_foreign(&sight)) {
            return Err(Drop::Forged);
        }
        let offered = token.and_then(|token| self.book.trial(token));
        let (program, candidate) = match offered {
            Some((known, offer)) => {
                let same = known.executable == Some(sight.executable) && sight.leads_to(&known.detail);
                if !same {
                    return Err(Drop::Forged);
                }
                (known.program.clone(), Some(offer.candidate.clone()))
            }
            None => {
                let known = self.book.placed(&sight, &content.trial_id, domain).ok_or(Drop::Forged)?;
                (known.program.clone(), None)
            }
        };
        if candidate.is_some_and(|candidate| candidate != content.candidate)
            || !self.offers(&content.candidate)
        {
            return Err(Drop::Forged);
        }
        self.in_domain(&program, domain)
    }

    /// A process that was gone before we could look. Only the owner of the store is believed then, root where we serve the machine, for
    /// it could write the store itself, and a service that dies at once must not be tried for ever; and only if the kernel told of the
    /// process's end. Where the kernel tells of none, a crash is believed all the same: it does no more than take a candidate away.
    fn of_the_dead(
        &self,
        page: &PageName,
        content: &Page,
        token: Option<&str>,
        domain: Domain,
    ) -> Result<RowId, Drop> {
        let told = self.departed.signals.of(content.pid, Instant::now()).is_some();
        let credible = told || (!self.hears_the_kernel() && content.to_sample().ended.is_crash());
        if page.uid != self.own_uid() || !credible || !self.offers(&content.candidate) {
            return Err(Drop::Unwitnessed);
        }
        let trial = token.and_then(|token| self.book.trial(token));
        if trial.is_some_and(|(_, offer)| offer.candidate != content.candidate) {
            return Err(Drop::Forged);
        }
        let known = match token {
            Some(_) => trial.map(|(known, _)| known),
            None => self.book.numbered(&content.trial_id, domain),
        };
        known.map(|known| known.program.id).ok_or(Drop::Unwitnessed)
    }

    /// Whether the process lives in a container: root there, and its system accounts, are not those of this machine.
    pub(crate) fn is_foreign(&self, sight: &Sight) -> bool {
        !self.options.user && sight.in_container
    }

    /// What a user's process shows of a program that is everybody's is the user's own sample.
    pub(crate) fn in_domain(&mut self, program: &Program, domain: Domain) -> Result<RowId, Drop> {
        if program.domain == domain {
            return Ok(program.id);
        }
        if let Some(known) = self.book.named(domain, &program.path, &program.detail) {
            return Ok(known.program.id);
        }
        if !self.make_room(domain) {
            return Err(Drop::TooMany);
        }
        let own = self.store.program_in(domain, &program.path, &program.detail);
        let own = own.map_err(|error| {
            self.store_refused(&error);
            Drop::TooMany
        })?;
        let id = own.id;
        if self.book.get(id).is_none() {
            self.book.put(Known::new(own));
            self.judge(id);
        }
        Ok(id)
    }

    fn offers(&self, candidate: &str) -> bool {
        self.installation.as_ref().is_some_and(|installation| installation.table.id_of(candidate).is_some())
    }
}
