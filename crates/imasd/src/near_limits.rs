// SPDX-License-Identifier: Apache-2.0
//! What a service holds is written down when its memory comes near the limit of its control group, before the kernel may
//! kill it, where root has turned it on (`note_near_limits`). The looks are made in a thread.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use imas_engine::limit_note::{LimitNote, NEAR};
use imas_linux::control_group::{self, NearLimit};
use imas_linux::serving::RealCandidates;

/// Time between two looks at the limits: no more than a file for each service with one.
const BETWEEN: Duration = Duration::from_secs(5);
/// Time after which a service that is still near its limit is looked at again.
const AGAIN: Duration = Duration::from_secs(600);
/// Most services that are looked at in one thread, those nearest to their limits first.
const MOST: usize = 4;

/// Services near their limits of memory.
#[derive(Debug)]
pub(crate) struct NearLimits {
    /// Folder of imasd's state; None where notes are not wanted.
    state: Option<PathBuf>,
    /// Folders of the groups that have notes, with the time of each.
    noted: BTreeMap<PathBuf, Instant>,
    next: Instant,
    looking: Option<JoinHandle<()>>,
}

impl NearLimits {
    pub(crate) fn new(is_wanted: bool, state: &Path) -> Self {
        let state = is_wanted.then(|| state.to_owned());
        Self { state, noted: BTreeMap::new(), next: Instant::now(), looking: None }
    }

    /// Takes a new setting. The notes stay.
    pub(crate) fn set(&mut self, is_wanted: bool, state: &Path) {
        self.state = is_wanted.then(|| state.to_owned());
    }

    /// Looks at the limits where that is due, and has a thread write what the services hold that are near.
    pub(crate) fn look(&mut self, now: Instant) {
        let Some(state) = self.state.clone() else { return };
        if now < self.next || self.looking.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        self.next = now + BETWEEN;
        let due = self.due(control_group::services_near_limits(), now);
        if due.is_empty() {
            return;
        }
        let look = move || due.iter().for_each(|group| note(group, &state));
        self.looking = std::thread::Builder::new().name("limits".to_owned()).spawn(look).ok();
    }

    /// The services that are to be looked at now.
    fn due(&mut self, mut groups: Vec<NearLimit>, now: Instant) -> Vec<NearLimit> {
        self.noted.retain(|_, at| now < *at + AGAIN);
        groups.retain(|group| group.used >= NEAR && !self.noted.contains_key(&group.folder));
        groups.sort_by(|a, b| b.used.total_cmp(&a.used));
        groups.truncate(MOST);
        self.noted.extend(groups.iter().map(|group| (group.folder.clone(), now)));
        groups
    }
}

/// Looks at the service and writes the note. Where it cannot be looked at, the former note stays.
fn note(group: &NearLimit, state: &Path) {
    let Some(note) = LimitNote::of(group, &RealCandidates::default()) else { return };
    let LimitNote { unit, sentence, .. } = &note;
    tracing::warn!("{unit} uses {:.0} % of its limit of memory: {sentence}", note.used * 100.0);
    if let Err(error) = note.write(state) {
        tracing::debug!("the note on {unit} cannot be written: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_near_its_limit_is_noted_once_in_a_while() {
        let start = Instant::now();
        let group = |name: &str, used| NearLimit { folder: format!("/{name}.service").into(), used };
        let all = || vec![group("a", 0.96), group("b", 0.5), group("c", 0.99)];
        let mut limits = NearLimits::new(true, Path::new("/nowhere"));
        let names = |due: Vec<NearLimit>| {
            due.iter().map(|one| one.folder.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(limits.due(all(), start)), "/c.service /a.service");
        assert_eq!(names(limits.due(all(), start + BETWEEN)), "");
        assert_eq!(names(limits.due(vec![group("b", 0.95)], start + BETWEEN)), "/b.service");
        assert_eq!(names(limits.due(all(), start + AGAIN)), "/c.service /a.service");
        let many = (0..9).map(|at| group(&at.to_string(), 1.0)).collect();
        assert_eq!(limits.due(many, start).len(), MOST);
    }
}
