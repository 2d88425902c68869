// SPDX-License-Identifier: Apache-2.0
//! The sample of a trial whose process goes on living: a service that is restarted once a month must not be learned about once a month.
//!
//! After a span of its life, or after so many malloc calls, page and /proc say what it has cost until then; that is the trial's one sample. Its end adds nothing but a
//! crash, if it is one. More spans of the same process would be no more trials: the allocator cannot change while it lives.

use std::time::{Duration, Instant};

use imas_core::{Sample, TrialRecord};

use crate::daemon::Daemon;
use crate::folders::PageName;
use crate::pages::is_same;
use crate::sight::{self, Identity};
use crate::watched::Watch;

impl Daemon {
    /// Takes the samples that are due.
    pub(crate) fn close_spans(&mut self, now: Instant) {
        let span = Duration::from_secs_f64(self.config.sample_after_s);
        let watches = self.watched.watches.iter();
        let open = watches.filter(|(_, watch)| watch.token.is_some() && !watch.sampled && !watch.ended);
        let due = open.filter(|(page, watch)| {
            now.duration_since(watch.since) >= span || self.has_made_enough_calls(page)
        });
        let due: Vec<_> = due.map(|(page, _)| page.clone()).collect();
        due.iter().for_each(|page| self.close_span(page));
    }

    fn has_made_enough_calls(&self, page: &PageName) -> bool {
        let Some(enough) = self.config.sample_after_operations else { return false };
        self.read(page).is_ok_and(|content| calls(&content.to_sample()) >= enough)
    }

    fn close_span(&mut self, page: &PageName) {
        let Some(watch) = self.watched.watches.get(page) else { return };
        let (witness, Some(token)) = (watch.witness.clone(), watch.token.clone()) else { return };
        let Some(record) = self.of_the_living(page, watch) else { return };
        let ends = self.book.get(witness.program).is_some_and(|known| known.is_offering(&token));
        match self.store.settle_span(&witness, &record, ends.then_some(&token)) {
            Ok(true) => self.counters.trials_stored += 1,
            Ok(false) => {} // stored before our last start
            Err(error) => return self.store_refused(&error),
        }
        if let Some(watch) = self.watched.watches.get_mut(page) {
            watch.sampled = true;
        }
        self.end_offer(&token, witness.program);
    }

    /// `None` when there is nothing to be said yet: it comes again.
    fn of_the_living(&self, page: &PageName, watch: &Watch) -> Option<TrialRecord> {
        let witness = &watch.witness;
        let content = self.read(page).ok().filter(|content| is_same(content, witness))?;
        let identity = Identity { pid: witness.pid, start_ticks: witness.start_ticks };
        self.book.get(witness.program)?;
        let now = sight::executable(identity)?;
        if watch.image.executable.is_some_and(|executable| executable != now)
            || watch.has_exec_after(&content)
        {
            return None; // it runs another image by now
        }
        let mut record = self.record(&content, watch, None);
        let sample = &mut record.sample;
        if sample.ended.is_crash() || calls(sample) == 0 || sample.memory.snapshots == 0 {
            return None;
        }
        sample.usage = Some(sight::usage(identity)?);
        Some(record)
    }
}

/// malloc calls of all classes.
fn calls(sample: &Sample) -> u64 {
    sample.classes().iter().fold(0, |sum, class| sum.saturating_add(class.calls))
}
