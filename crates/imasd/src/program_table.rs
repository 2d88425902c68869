// SPDX-License-Identifier: Apache-2.0
//! The programs that are known: what each is on disk, what was decided, which trial is on offer.
//!
//! Programs that are ineligible, and why: kept, so that each is looked at once.
//!
//! How many instances of a program live side by side: workers of a service that are started one by one, instances of a
//! template unit.
//!
//! Such a program may have several trials at the same time, each under another candidate. They are then compared under
//! the same load, and one restart of all instances gives an answer. Programs that end soon have one trial at a time:
//! their next start is soon.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use imas_core::{ProfileView, Reason};
use imas_engine::daemon_status::IneligibleProgram;
use imas_engine::decide::{Giving, NextStart};
use imas_engine::inspect::on_file;
use imas_linux::host::now_unix_s;
use imas_linux::index::{Detail, Executable};
use imas_linux::program_file::executable_at;
use imas_linux::running::is_copy_of_its_parent;
use imas_linux::standstill::age_s;
use imas_store::RowId;
use imas_store::daemon::Offer;
use imas_store::samples::{Domain, StoredProgram};

use crate::fleet::FleetProgram;
use crate::process_info::{Identity, ProcessInfo, detail_of_text, is_running};
use crate::trial_offer::TrialOffer;

/// One program that is tracked.
#[derive(Debug)]
pub(crate) struct TrackedProgram {
    pub(crate) program: StoredProgram,
    /// The file as it was last seen; `None` when it is gone.
    pub(crate) executable: Option<Executable>,
    pub(crate) detail: Detail,
    /// Build-id, hexadecimal; empty if the program has none.
    pub(crate) build_id: String,
    /// Way in which its executable lets something be given to it.
    pub(crate) giving: Giving,
    /// Greatest number of threads of its processes when they were noticed, in this process of the daemon.
    pub(crate) threads: Option<u32>,
    /// The program as the fleet names it, where it takes part.
    pub(crate) fleet: Option<FleetProgram>,
    /// Everything measured, made ready; `None` before it is looked at.
    pub(crate) profile: Option<ProfileView>,
    pub(crate) plan: NextStart,
    /// The trials that the program is offered.
    pub(crate) trial: TrialOffer,
    /// Processes of the program that live side by side.
    pub(crate) replicas: Replicas,
    /// User whose process of the program was noticed last, in this process of the daemon.
    pub(crate) noticed_uid: Option<u32>,
    /// Time when a process of the program was noticed last, in this process of the daemon.
    pub(crate) seen: Option<Instant>,
    /// Time when time alone may change the plan, Unix time.
    pub(crate) look_again_s: Option<f64>,
}

impl TrackedProgram {
    /// A program as the store names it, its file as it is on disk now.
    pub(crate) fn new(program: StoredProgram) -> Self {
        let executable = on_file(program.domain, Path::new(&program.path), executable_at).ok().flatten();
        Self {
            detail: detail_of_text(&program.detail),
            executable,
            build_id: String::new(),
            giving: Giving::Loaded,
            threads: None,
            fleet: None,
            profile: None,
            plan: NextStart::untouched(Reason::NoData, ""),
            trial: TrialOffer::default(),
            replicas: Replicas::default(),
            noticed_uid: None,
            seen: None,
            look_again_s: None,
            program,
        }
    }

    /// Whether nothing more is to be tried: the picks are final.
    pub(crate) fn is_settled(&self) -> bool {
        self.plan.is_settled
    }
}

/// All programs that are known.
#[derive(Debug, Default)]
pub(crate) struct ProgramTable {
    known: BTreeMap<RowId, TrackedProgram>,
    by_file: HashMap<(u64, u64), Vec<RowId>>,
    by_name: HashMap<(Domain, String, String), RowId>,
    /// Number of programs of each domain.
    counts: BTreeMap<Domain, usize>,
}

fn name_of(program: &StoredProgram) -> (Domain, String, String) {
    (program.domain, program.path.clone(), program.detail.clone())
}

impl ProgramTable {
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Number of programs of each domain.
    pub(crate) fn counts(&self) -> &BTreeMap<Domain, usize> {
        &self.counts
    }

    pub(crate) fn ids(&self) -> Vec<RowId> {
        self.known.keys().copied().collect()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &TrackedProgram> {
        self.known.values()
    }

    pub(crate) fn get(&self, id: RowId) -> Option<&TrackedProgram> {
        self.known.get(&id)
    }

    /// The file that it runs must not be changed through this: see [`ProgramTable::put`].
    pub(crate) fn get_mut(&mut self, id: RowId) -> Option<&mut TrackedProgram> {
        self.known.get_mut(&id)
    }

    /// Takes a program in, in place of what was known of it.
    pub(crate) fn put(&mut self, known: TrackedProgram) {
        self.forget(known.program.id);
        if let Some(executable) = known.executable {
            self.unseat(executable);
            self.by_file.entry((executable.dev, executable.ino)).or_default().push(known.program.id);
        }
        self.by_name.insert(name_of(&known.program), known.program.id);
        *self.counts.entry(known.program.domain).or_default() += 1;
        self.known.insert(known.program.id, known);
    }

    /// Numbers of files are used again: what was known by another file of this number has lost its own, until
    /// it is seen anew. Two entries of one key would keep the whole index from being published.
    fn unseat(&mut self, executable: Executable) {
        let Some(ids) = self.by_file.get_mut(&(executable.dev, executable.ino)) else { return };
        ids.retain(|id| match self.known.get_mut(id) {
            Some(known) if known.executable == Some(executable) => true,
            Some(known) => {
                known.executable = None;
                false
            }
            None => false,
        });
    }

    pub(crate) fn forget(&mut self, id: RowId) -> Option<TrackedProgram> {
        let known = self.known.remove(&id)?;
        self.by_name.remove(&name_of(&known.program));
        if let Some(count) = self.counts.get_mut(&known.program.domain) {
            *count -= 1;
        }
        if let Some(executable) = known.executable {
            let file = (executable.dev, executable.ino);
            if let Some(ids) = self.by_file.get_mut(&file) {
                ids.retain(|theirs| *theirs != id);
                if ids.is_empty() {
                    self.by_file.remove(&file);
                }
            }
        }
        Some(known)
    }

    /// The program of the domain that a process is.
    pub(crate) fn find(&self, process: &ProcessInfo, domain: Domain) -> Option<&TrackedProgram> {
        let file = (process.executable.dev, process.executable.ino);
        let ids = self.by_file.get(&file)?;
        let of_domain = |known: &&TrackedProgram| {
            known.program.domain == domain
                && known.executable == Some(process.executable)
                && known.detail == process.detail
        };
        ids.iter().filter_map(|id| self.known.get(id)).find(of_domain)
    }

    /// The program as which a process was placed: the one whose number its flight page names, if it may be
    /// that, else what it is.
    pub(crate) fn placed(
        &self,
        process: &ProcessInfo,
        trial_id: &str,
        domain: Domain,
    ) -> Option<&TrackedProgram> {
        let is_it = |known: &&TrackedProgram| {
            known.executable == Some(process.executable) && process.leads_to(&known.detail)
        };
        let domains = [domain, Domain::Everybody];
        let numbered = domains.iter().find_map(|domain| self.numbered(trial_id, *domain).filter(is_it));
        numbered.or_else(|| domains.iter().find_map(|domain| self.find(process, *domain)))
    }

    /// The program of a path and a detail, whatever file is there now.
    pub(crate) fn named(&self, domain: Domain, path: &str, detail: &str) -> Option<&TrackedProgram> {
        let id = self.by_name.get(&(domain, path.to_owned(), detail.to_owned()))?;
        self.known.get(id)
    }

    /// The program of the domain whose number a flight page names: `<anything>-<its number in hexadecimal>`.
    pub(crate) fn numbered(&self, trial_id: &str, domain: Domain) -> Option<&TrackedProgram> {
        let id = RowId::from_str_radix(trial_id.rsplit('-').next()?, 16).ok()?;
        self.known.get(&id).filter(|known| known.program.domain == domain)
    }

    /// The program that a trial of that name is or was offered to, and the offer.
    pub(crate) fn trial(&self, token: &str, now: Instant) -> Option<(&TrackedProgram, &Offer)> {
        self.known.values().find_map(|known| Some((known, known.trial.named(token, now)?)))
    }

    /// The program that a trial of that name is offered to now.
    pub(crate) fn offering(&self, token: &str) -> Option<&TrackedProgram> {
        self.known.values().find(|known| known.trial.is_offering(token))
    }
}

/// Number of programs that are remembered.
const MOST_INELIGIBLE: usize = 4096;
/// A longer path is looked at each time instead.
const LONGEST_PATH: usize = 512;
/// Number of programs that are written down for root.
const MOST_SHOWN: usize = 100;

/// A program as its user sees it. Reasons depend on the path (a bind mount in a user's own namespace shows
/// any file anywhere), so what one user's paths are worth must not decide about the same file at another's.
type Key = (Executable, String, Domain);

/// All ineligible programs.
#[derive(Debug, Default)]
pub(super) struct Ineligible {
    reasons: HashMap<Key, String>,
}

impl Ineligible {
    pub(super) fn contains(&self, process: &ProcessInfo, domain: Domain) -> bool {
        self.reasons.contains_key(&key(process, domain))
    }

    pub(super) fn add(&mut self, process: &ProcessInfo, domain: Domain, reason: String) {
        if self.reasons.len() >= MOST_INELIGIBLE {
            self.reasons.clear(); // they are found again as they come
        }
        let key = key(process, domain);
        tracing::debug!(PROGRAM = %imas_core::printable::name(&key.1), "ineligible: {reason}");
        if key.1.len() <= LONGEST_PATH {
            self.reasons.insert(key, reason);
        }
    }

    pub(super) fn clear(&mut self) {
        self.reasons.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.reasons.len()
    }

    /// Writes some of them down, for root alone.
    pub(super) fn write(&self, state: &Path) -> std::io::Result<()> {
        let shown = self.reasons.iter().take(MOST_SHOWN).map(|((_, path, domain), reason)| {
            IneligibleProgram { path: path.clone(), domain: domain.word(), reason: reason.clone() }
        });
        IneligibleProgram::write_all(&shown.collect::<Vec<_>>(), state)
    }
}

fn key(process: &ProcessInfo, domain: Domain) -> Key {
    (process.executable, process.path.to_string_lossy().into_owned(), domain)
}

/// Instances that were started within this time are replicas of each other.
const TOGETHER: Duration = Duration::from_secs(3600);
/// Number of processes that are remembered.
const MOST_STARTS: usize = 16;

/// Processes as decisions see them; tests have some of their own.
pub(super) trait Processes {
    /// Age of a process, seconds; `None` once it has ended.
    fn age_s(&self, identity: Identity) -> Option<f64>;
    /// Whether a process was forked without exec: it has its parent's allocator.
    fn is_copy(&self, identity: Identity) -> bool;
}

/// The processes of this machine.
pub(super) struct RealProcesses;

impl Processes for RealProcesses {
    fn age_s(&self, identity: Identity) -> Option<f64> {
        is_running(identity).then(|| age_s(identity.start_ticks))?
    }

    fn is_copy(&self, identity: Identity) -> bool {
        is_copy_of_its_parent(identity.pid)
    }
}

/// The moment of a decision: both clocks, and the processes.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) at: Instant,
    /// Seconds since the epoch.
    pub(super) unix_s: f64,
    pub(super) processes: &'a dyn Processes,
}

impl Moment<'static> {
    /// This moment on this machine.
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), unix_s: now_unix_s(), processes: &RealProcesses }
    }
}

/// Processes of one program.
#[derive(Debug, Default, Clone)]
pub(super) struct Replicas {
    seen: Vec<(Identity, Instant)>,
    /// The most that were seen side by side and had lived long enough, and when.
    side_by_side: Option<(usize, Instant)>,
}

impl Replicas {
    /// A process of the program was seen. A copy of its parent does not count.
    pub(super) fn note(&mut self, identity: Identity, moment: &Moment<'_>) {
        let processes = moment.processes;
        if self.seen.iter().any(|(known, _)| *known == identity) || processes.is_copy(identity) {
            return;
        }
        self.seen.retain(|(known, _)| processes.age_s(*known).is_some());
        if self.seen.len() == MOST_STARTS {
            self.seen.remove(0);
        }
        self.seen.push((identity, moment.at));
    }

    /// Replicas that live.
    pub(super) fn living(&self) -> impl Iterator<Item = Identity> {
        self.seen.iter().map(|(identity, _)| *identity).filter(|identity| is_running(*identity))
    }

    /// Whether several processes of the program were seen, however young.
    pub(super) fn are_possible(&self) -> bool {
        self.seen.len() >= 2
    }

    /// Number of replicas that are side by side, or were within the last hour, and had lived for `least_s` or
    /// longer; 0 for a program that lives alone.
    pub(super) fn count(&mut self, least_s: f64, moment: &Moment<'_>) -> usize {
        let is_old = |identity| moment.processes.age_s(identity).is_some_and(|age_s| age_s >= least_s);
        let now = self.seen.iter().filter(|(identity, _)| is_old(*identity)).count();
        let is_late = |at: Instant| moment.at.duration_since(at) >= TOGETHER;
        self.side_by_side = self.side_by_side.filter(|(most, at)| *most > now && !is_late(*at));
        if self.side_by_side.is_none() && now >= 2 {
            self.side_by_side = Some((now, moment.at));
        }
        self.side_by_side.map_or(0, |(most, _)| most)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::process_info::life;

    /// Processes that are data: those that run, by their ids, with their ages in seconds.
    #[derive(Default)]
    pub(crate) struct MadeUpProcesses(pub(crate) BTreeMap<u32, f64>);

    impl Processes for MadeUpProcesses {
        fn age_s(&self, identity: Identity) -> Option<f64> {
            self.0.get(&identity.pid).copied()
        }

        fn is_copy(&self, _: Identity) -> bool {
            false
        }
    }

    pub(crate) fn of_pid(pid: u32) -> Identity {
        Identity { pid, start_ticks: 1 }
    }

    #[test]
    fn a_reused_inode_belongs_to_the_latest_file() {
        let file = |mtime_ns| Executable { dev: 1, ino: 7, mtime_ns, bytes: 10 };
        let program = |id, path: &str| {
            let program =
                StoredProgram { id, domain: Domain::Everybody, path: path.to_owned(), detail: String::new() };
            TrackedProgram { executable: Some(file(id)), ..TrackedProgram::new(program) }
        };
        let mut table = ProgramTable::default();
        table.put(program(1, "/no/such/replaced-by-an-upgrade"));
        table.put(program(2, "/no/such/with-its-inode"));
        let files: Vec<_> = table.all().map(|known| known.executable).collect();
        assert_eq!(files, [None, Some(file(2))]);
        table.put(program(1, "/no/such/replaced-by-an-upgrade"));
        assert_eq!(table.all().filter(|known| known.executable.is_some()).count(), 1);
    }

    #[test]
    fn two_that_live_side_by_side_are_replicas_and_are_remembered() {
        let at = Instant::now();
        let running = MadeUpProcesses([(7, 60.0), (8, 50.0)].into());
        let moment = |at, processes| Moment { at, unix_s: 0.0, processes };
        let mut replicas = Replicas::default();
        replicas.note(of_pid(7), &moment(at, &running));
        replicas.note(of_pid(7), &moment(at, &running));
        assert_eq!(replicas.count(0.0, &moment(at, &running)), 0, "one");
        replicas.note(of_pid(8), &moment(at, &running));
        assert_eq!(replicas.count(55.0, &moment(at, &running)), 0, "one of both is too young");
        assert_eq!(replicas.count(50.0, &moment(at, &running)), 2);
        let ended = MadeUpProcesses::default();
        let remembered = at + TOGETHER - Duration::from_secs(1);
        assert_eq!(replicas.count(50.0, &moment(remembered, &ended)), 2, "their restart is the occasion");
        assert_eq!(replicas.count(50.0, &moment(at + TOGETHER, &ended)), 0);
    }

    const FORKS: &str = "
import os, sys
r, w = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.close(w)
        os.read(r, 1)
        os._exit(0)
print('x', flush=True)
sys.stdin.read()
os.close(w)
os.wait()
os.wait()
";

    #[test]
    fn what_was_forked_without_exec_is_no_replica() {
        let piped = std::process::Stdio::piped;
        let mut command = std::process::Command::new("python3");
        let mut server = command.args(["-c", FORKS]).stdin(piped()).stdout(piped()).spawn().unwrap();
        std::io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let (mut replicas, now) = (Replicas::default(), Moment::now());
        replicas.note(life(server.id()).unwrap().identity, &now);
        let is_child = |pid: &u32| parent(*pid) == Some(server.id());
        let all = procfs::process::all_processes().unwrap().flatten();
        let children: Vec<u32> = all.filter_map(|one| u32::try_from(one.pid).ok()).filter(is_child).collect();
        assert_eq!(children.len(), 2);
        children.iter().for_each(|pid| replicas.note(life(*pid).unwrap().identity, &now));
        assert_eq!(replicas.count(0.0, &now), 0);
        drop(server.stdin.take());
        server.wait().unwrap();
    }

    fn parent(pid: u32) -> Option<u32> {
        let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
        u32::try_from(process.stat().ok()?.ppid).ok()
    }
}
