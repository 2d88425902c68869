// SPDX-License-Identifier: Apache-2.0
//! Identity of this host in its fleet, and its publications (docs/decisions/0032). [`crate::mailbox`] has the
//! files.
//!
//! The name of this host in a fleet: random, made once, kept beside the store.
//!
//! From what a host's trials show to the messages that it publishes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use imas_core::Candidate;
use imas_core::adaptive::{HostEvidence, Residue, Shown, TrialEvidence};
use imas_core::stats::Moments;
use imas_engine::fleet_turn::TURN_S;
use imas_exchange::aggregate::{MAX_BYTES, VERSION, is_name, is_version};
use imas_exchange::{Aggregate, CandidateAggregate, Environment, ProgramKey};
use imas_store::fleet::MarkKind;
use serde::{Deserialize, Serialize};

/// Name of the file, in the folder of the store.
const FILE: &str = "fleet-host";

/// A random name of 26 characters.
pub(super) fn random_name() -> String {
    ProgramKey::new("random", &[&format!("{:032x}", rand::random::<u128>())]).into()
}

/// The host's name, made now if there is none.
pub(super) fn host_name(store: &Path) -> anyhow::Result<String> {
    let file = store.with_file_name(FILE);
    match std::fs::read_to_string(&file) {
        Ok(text) => checked(&file, text.trim_end()),
        Err(error) if error.kind() == ErrorKind::NotFound => make(&file),
        Err(error) => Err(error).with_context(|| file.display().to_string()),
    }
}

fn checked(file: &Path, name: &str) -> anyhow::Result<String> {
    match ProgramKey::try_from(name.to_owned()) {
        Ok(name) => Ok(name.into()),
        Err(_) => bail!("{}: not the name of a host; remove the file and a new one is made", file.display()),
    }
}

/// Kept on disk before it is used: two names would be two hosts.
fn make(file: &Path) -> anyhow::Result<String> {
    let name = random_name();
    let unfinished = PathBuf::from(format!("{}.new", file.display()));
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        let mut new = options.write(true).create(true).truncate(true).mode(0o644).open(&unfinished)?;
        new.write_all(format!("{name}\n").as_bytes())?;
        new.sync_all()?;
        std::fs::rename(&unfinished, file)?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        std::fs::File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
    };
    write().with_context(|| file.display().to_string())?;
    Ok(name)
}

/// Candidates of one message. Eight figures each, it stays well below [`MAX_BYTES`].
const MOST_CANDIDATES: usize = 16;

/// Evidence that was published, or is to be published.
pub(super) type Mark = (String, MarkKind);

/// Residuals that were published, in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PublishedResidual {
    xx: f64,
    yy: f64,
    xy: f64,
    freedom: f64,
}

/// Subject of messages: the host that they are from, and the program and environment that they are of.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) host: &'a str,
    pub(super) program: &'a ProgramKey,
    pub(super) environment: &'a Environment,
}

/// Messages that are to be published of one program.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Unpublished {
    /// Marks of the trials that the messages contain.
    pub(super) marks: Vec<Mark>,
    /// Residuals that are published in all once the messages are.
    pub(super) residual: PublishedResidual,
    /// The messages, without boot and number.
    pub(super) messages: Vec<Aggregate>,
}

/// Evidence beyond what was published. `candidates` are those that the evidence numbers; only
/// those that other hosts know by `is_known` are published.
pub(super) fn unpublished(
    about: About<'_>,
    evidence: &HostEvidence,
    candidates: &[Candidate],
    is_known: impl Fn(&Candidate) -> bool,
    (published, published_residual): (&BTreeSet<Mark>, PublishedResidual),
) -> Unpublished {
    let can_be_published = |candidate: &Candidate| {
        is_known(candidate) && is_name(&candidate.name) && is_version(&candidate.version)
    };
    let is_new = |trial: &&TrialEvidence| {
        !published.contains(&mark(trial)) && candidates.get(trial.candidate).is_some_and(can_be_published)
    };
    let new: Vec<&TrialEvidence> = evidence.trials.iter().filter(is_new).collect();
    if new.is_empty() {
        return Unpublished { residual: published_residual, ..Unpublished::default() };
    }
    let mut sums: BTreeMap<String, CandidateAggregate> = BTreeMap::new();
    for trial in &new {
        let Candidate { name, version, .. } = &candidates[trial.candidate];
        add(sums.entry(name.clone()).or_insert_with(|| nothing(version)), trial.shows);
    }
    let residual = PublishedResidual::of(&evidence.residue);
    let mut messages = split(about, sums);
    if let Some(first) = messages.first_mut() {
        (first.residual, first.freedom) = residual.beyond(published_residual);
    }
    debug_assert!(messages.iter().all(|one| serde_json::to_vec(one).is_ok_and(|one| one.len() <= MAX_BYTES)));
    Unpublished { marks: new.into_iter().map(mark).collect(), residual, messages }
}

/// The first message of a program: this host runs it. Of how many hosts figures may be false follows from how
/// many there are, so each publishes that it is there before it has figures.
pub(super) fn announcement(about: About<'_>) -> Aggregate {
    message(about, BTreeMap::new())
}

fn mark(trial: &TrialEvidence) -> Mark {
    let kind = match trial.shows {
        Shown::Pair(_) => MarkKind::Pair,
        Shown::Void => MarkKind::Void,
        Shown::Crash => MarkKind::Crash,
    };
    (trial.trial_id.clone(), kind)
}

fn nothing(version: &str) -> CandidateAggregate {
    CandidateAggregate { version: version.to_owned(), pairs: Moments::default(), void: 0, crashes: 0 }
}

fn add(sum: &mut CandidateAggregate, shows: Shown) {
    match shows {
        Shown::Pair(over) => sum.pairs = sum.pairs.merge(Moments::of(over.cpu, over.memory)),
        Shown::Void => sum.void += 1,
        Shown::Crash => sum.crashes += 1,
    }
}

fn split(about: About<'_>, sums: BTreeMap<String, CandidateAggregate>) -> Vec<Aggregate> {
    let mut messages: Vec<Aggregate> = vec![];
    for (name, sum) in sums {
        match messages.last_mut().filter(|last| last.candidates.len() < MOST_CANDIDATES) {
            Some(last) => drop(last.candidates.insert(name, sum)),
            None => messages.push(message(about, BTreeMap::from([(name, sum)]))),
        }
    }
    messages
}

fn message(about: About<'_>, candidates: BTreeMap<String, CandidateAggregate>) -> Aggregate {
    Aggregate {
        v: VERSION,
        host: about.host.to_owned(),
        boot: String::new(),
        batch: 0,
        program: about.program.clone(),
        environment: about.environment.clone(),
        candidates,
        residual: Moments::default(),
        freedom: 0.0,
    }
}

impl PublishedResidual {
    fn of(residue: &Residue) -> Self {
        let Residue { sums, freedom } = *residue;
        Self { xx: sums.xx, yy: sums.yy, xy: sums.xy, freedom }
    }

    /// Residuals that have been added since. Outliers are limited anew each time, so a sum may also become
    /// smaller; and after trials have expired all of it does.
    fn beyond(self, published: Self) -> (Moments, f64) {
        let freedom = self.freedom - published.freedom;
        if freedom <= 0.0 {
            return (Moments::default(), 0.0);
        }
        let (xx, yy) = ((self.xx - published.xx).max(0.0), (self.yy - published.yy).max(0.0));
        let most = (xx * yy).sqrt();
        let xy = (self.xy - published.xy).clamp(-most, most);
        (Moments { xx, yy, xy, ..Moments::default() }, freedom)
    }
}

/// A program as the fleet names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FleetProgram {
    /// The program alone.
    pub(super) key: ProgramKey,
    /// Environment of the program: this machine, and how many threads of the program allocate.
    pub(super) environment: Environment,
    /// Subject of messages: the program in that environment.
    pub(super) subject: String,
}

/// Keys of the agent's settings, which people look for here.
const KEYS_OF_AGENT: [&str; 11] = [
    "servers",
    "tenant",
    "host",
    "ca",
    "certificate",
    "key",
    "credentials",
    "domain",
    "merge",
    "replicas",
    "refresh_minutes",
];

/// How imasd takes part in a fleet.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct FleetSettings {
    /// Whether the host takes part in a fleet.
    pub(super) enabled: bool,
    /// The folder through which it exchanges files with the agent.
    pub(super) exchange: PathBuf,
    /// Greatest share of the hosts that may be in a trial of one program at a time.
    pub(super) share: f64,
    /// Length of a turn in seconds: in each, a host tries at most one candidate of a program.
    pub(super) turn_s: f64,
    /// Keys that the section does not have.
    #[serde(flatten)]
    pub(super) unknown: toml::Table,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            exchange: PathBuf::from("/var/lib/imas/fleet"),
            share: 0.05,
            turn_s: TURN_S,
            unknown: toml::Table::new(),
        }
    }
}

impl FleetSettings {
    /// Checks the section. The error is what is wrong with it, with the name of the key.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(key) = self.unknown.keys().find(|key| KEYS_OF_AGENT.contains(&key.as_str())) {
            return Err(format!(
                "[fleet] {key}: this belongs into /etc/imas/fleet.toml, without a section: imas-fleet reads it there, \
                 imasd itself has no network"
            ));
        }
        if let Some(key) = self.unknown.keys().next() {
            return Err(format!("[fleet] unknown key `{key}`"));
        }
        if !self.exchange.is_absolute() {
            let exchange = self.exchange.display();
            return Err(format!("[fleet] exchange = \"{exchange}\": a whole path, beginning with /"));
        }
        if !(0.0..=1.0).contains(&self.share) {
            return Err(format!("[fleet] share = {}: not a number from 0 to 1", self.share));
        }
        if !(1.0..=86_400.0).contains(&self.turn_s) {
            return Err(format!("[fleet] turn_s = {}: not a number from 1 to 86400", self.turn_s));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use imas_core::adaptive::Point;

    use super::*;

    #[test]
    fn a_host_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("imas.db");
        let first = host_name(&store).unwrap();
        assert_eq!((first.len(), host_name(&store).unwrap()), (26, first.clone()));
        std::fs::write(folder.path().join(FILE), "../x").unwrap();
        assert!(host_name(&store).unwrap_err().to_string().contains("fleet-host: not the name"));
        std::fs::remove_file(folder.path().join(FILE)).unwrap();
        assert_ne!(host_name(&store).unwrap(), first);
    }

    fn environment() -> Environment {
        Environment {
            architecture: "x86_64".into(),
            page_bytes: 4096,
            huge_pages: "madvise".into(),
            cpus: 2,
            threads: None,
        }
    }

    fn trial(name: &str, candidate: usize, shows: Shown) -> TrialEvidence {
        TrialEvidence { trial_id: name.into(), candidate, shows }
    }

    fn unpublished_of(trials: Vec<TrialEvidence>, xx: f64, published: &Unpublished) -> Unpublished {
        let sums = Moments { xx, yy: xx, xy: -xx, ..Moments::default() };
        let evidence = HostEvidence { trials, residue: Residue { sums, freedom: 4.0 * xx } };
        let host = ProgramKey::new("host", &[]);
        let about = About { host: host.as_str(), program: &host, environment: &environment() };
        let mut candidates = vec![Candidate::system("")];
        candidates.extend((1..50).map(|n| Candidate::new(&format!("{}-{n}", "c".repeat(60)), "1", &[])));
        let marks = published.marks.iter().cloned().collect();
        unpublished(
            about,
            &evidence,
            &candidates,
            |one| !one.name.ends_with("-7"),
            (&marks, published.residual),
        )
    }

    #[test]
    fn only_what_was_not_published_is_published() {
        let pair = |cpu| Shown::Pair(Point { cpu, memory: -cpu });
        let first = vec![trial("a", 1, pair(0.5)), trial("a", 2, Shown::Void), trial("b", 2, Shown::Crash)];
        let one = unpublished_of(first.clone(), 1.0, &Unpublished::default());
        let [message] = one.messages.as_slice() else { panic!("{one:?}") };
        let sums: Vec<_> = message.candidates.values().map(|c| (c.pairs.count, c.void, c.crashes)).collect();
        assert_eq!((sums, message.freedom, message.residual.xx), (vec![(1, 0, 0), (0, 1, 1)], 4.0, 1.0));
        assert_eq!(unpublished_of(first.clone(), 1.0, &one).messages, []);
        let more = [first, vec![trial("b", 1, pair(0.7)), trial("c", 1, pair(0.9))]].concat();
        let two = unpublished_of(more, 1.5, &one);
        let pairs = two.messages[0].candidates.values().next().unwrap().pairs;
        assert_eq!((two.messages[0].candidates.len(), pairs.count, two.messages[0].freedom), (1, 2, 2.0));
        assert!((pairs.mean_x - 0.8).abs() < 1e-12);
    }

    #[test]
    fn an_announcement_has_no_figures() {
        let host = ProgramKey::new("host", &[]);
        let one = announcement(About { host: host.as_str(), program: &host, environment: &environment() });
        let read = Aggregate { boot: "b".into(), ..one };
        assert_eq!(Aggregate::read(&serde_json::to_vec(&read).unwrap()).unwrap(), read);
        assert!(read.candidates.is_empty());
    }

    #[test]
    fn sums_that_became_smaller_are_published_as_none() {
        let published = Unpublished {
            residual: PublishedResidual { xx: 3.0, yy: 0.5, xy: 0.5, freedom: 3.0 },
            ..Unpublished::default()
        };
        let one = &unpublished_of(vec![trial("a", 1, Shown::Void)], 1.0, &published).messages[0];
        assert_eq!((one.residual.xx, one.residual.yy, one.residual.xy, one.freedom), (0.0, 0.5, 0.0, 1.0));
        let read = Aggregate { boot: "b".into(), ..one.clone() };
        assert_eq!(Aggregate::read(&serde_json::to_vec(&read).unwrap()).unwrap(), read);
        let expired = Unpublished {
            residual: PublishedResidual { freedom: 9.0, ..published.residual },
            ..Unpublished::default()
        };
        assert_eq!(unpublished_of(vec![trial("a", 1, Shown::Void)], 1.0, &expired).messages[0].freedom, 0.0);
    }

    #[test]
    fn many_candidates_are_published_in_several_messages_and_unknown_ones_are_not() {
        let trials: Vec<_> = (1..50)
            .map(|n| trial(&n.to_string(), n, Shown::Pair(Point { cpu: -1.0 / 3.0, memory: 1e-17 })))
            .collect();
        let all = unpublished_of(trials, 1.0 / 3.0, &Unpublished::default());
        assert_eq!(all.marks.len(), 48);
        assert_eq!(all.messages.iter().map(|one| one.candidates.len()).sum::<usize>(), 48);
        assert!(all.messages.iter().all(|one| serde_json::to_vec(one).unwrap().len() <= MAX_BYTES));
        assert_eq!(all.messages.iter().filter(|one| one.freedom > 0.0).count(), 1);
    }
}
