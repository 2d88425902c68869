// SPDX-License-Identifier: Apache-2.0
//! Candidates that do not serve where a service was given one, or a process was started with one: lost at a reload, or
//! never there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use imas_linux::activity::age_s;
use imas_linux::index::{ServiceUnit, template_of_unit};
use imas_linux::ingest::read_page_file;
use imas_linux::serving::chooser::{WantedLibraries, YOUNG_S, asked_in_vain};
use imas_linux::{page, process, running};
use serde::Serialize;

use crate::{drop_in, pending};

const BETWEEN_LOOKS: Duration = Duration::from_secs(10);

/// A process without the candidate that it should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostCandidate {
    /// Name of the candidate; where the environment of the process asks for it, of its library.
    pub candidate: String,
    /// Service whose drop-in gives it; `None` where the environment of the process asks for it.
    pub unit: Option<String>,
    /// Id of the process; of a service, the process that holds the most memory.
    pub pid: u32,
    /// Program that the process runs.
    pub program: String,
}

/// Every process that this user may look into and that lacks its candidate.
#[must_use]
pub fn lost_candidates() -> Vec<LostCandidate> {
    let given = GivenService::all(Path::new("/"));
    let mut members = BTreeMap::<String, Vec<u32>>::new();
    let mut lost = vec![];
    for pid in process::pids().unwrap_or_default() {
        match service(pid) {
            Some(unit) if given.iter().any(|one| one.is_for(&unit)) => {
                members.entry(unit).or_default().push(pid);
            }
            _ => lost.extend(by_environment(pid)),
        }
    }
    lost.extend(members.iter().filter_map(|(unit, pids)| {
        let (candidate, pid) = lost_by_service(&given, unit, pids)?;
        let program = running::program_of(pid)?.to_string();
        Some(LostCandidate { candidate: candidate.to_owned(), unit: Some(unit.clone()), pid, program })
    }));
    let known: BTreeSet<u32> = lost.iter().map(|one| one.pid).collect();
    lost.extend(lost_by_pages().filter(|(pid, _)| !known.contains(pid)).filter_map(|(pid, candidate)| {
        Some(LostCandidate { candidate, unit: None, pid, program: running::program_of(pid)?.to_string() })
    }));
    lost
}

/// The processes of this user whose pages show that they lost their candidates, with these.
fn lost_by_pages() -> impl Iterator<Item = (u32, String)> {
    let expected = pending::expected();
    let folders = std::fs::read_dir(page::place()).into_iter().flatten().flatten().map(|entry| entry.path());
    let pages = folders
        .filter(|folder| page::check_private(folder).is_ok())
        .flat_map(|folder| page::list(&folder).unwrap_or_default());
    pages.filter_map(move |path| {
        let page = read_page_file(&path, &expected).ok()?;
        pending::has_lost_candidate(&path, &page).then_some((page.pid, page.candidate))
    })
}

/// The candidate that a service of these processes has lost, with the process that holds the most memory.
fn lost_by_service<'a>(given: &'a [GivenService], unit: &str, pids: &[u32]) -> Option<(&'a str, u32)> {
    let mut its_own = given.iter().filter(|one| one.is_for(unit));
    its_own.find_map(|one| Some((one.candidate.as_str(), one.lost_in(pids)?)))
}

/// Candidates that services and pages show as lost, by the process that lacks each. Looked at again every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct KnownLost {
    looked: Option<Instant>,
    lost: HashMap<u32, String>,
}

impl KnownLost {
    /// Looks again where it is time; `members` are processes with their services.
    pub(crate) fn refresh<'a>(&mut self, members: impl Iterator<Item = (&'a str, u32)>) {
        if self.looked.is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS) {
            return;
        }
        self.looked = Some(Instant::now());
        let given = GivenService::all(Path::new("/"));
        let mut pids = HashMap::<&str, Vec<u32>>::new();
        members.for_each(|(unit, pid)| pids.entry(unit).or_default().push(pid));
        let lost = pids.iter().filter_map(|(unit, pids)| lost_by_service(&given, unit, pids));
        self.lost = lost_by_pages().chain(lost.map(|(candidate, pid)| (pid, candidate.to_owned()))).collect();
    }

    /// The candidate that the process lacks.
    pub(crate) fn of(&self, pid: u32) -> Option<&str> {
        self.lost.get(&pid).map(String::as_str)
    }
}

/// The service of the system's manager to which a process belongs.
fn service(pid: u32) -> Option<String> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    Some(ServiceUnit::of_cgroup(&groups)?.system_name()?.to_owned())
}

fn by_environment(pid: u32) -> Option<LostCandidate> {
    let candidate = asked_in_vain(pid)?;
    Some(LostCandidate { candidate, unit: None, pid, program: running::program_of(pid)?.to_string() })
}

/// A service with a drop-in of `imas apply`.
#[derive(Debug)]
struct GivenService {
    /// Name of the unit, or of the template.
    unit: String,
    candidate: String,
    wanted: WantedLibraries,
    /// Age of the drop-in, seconds.
    age_s: f64,
}

impl GivenService {
    /// All of them below that root. What is in effect counts, also where somebody edited it.
    fn all(root: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(root.join("etc/systemd/system")).into_iter().flatten().flatten();
        let units =
            entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".d")?.to_owned()));
        units.filter_map(|unit| Self::of(root, unit)).collect()
    }

    fn of(root: &Path, unit: String) -> Option<Self> {
        let file = drop_in::path(root, &unit);
        let text = std::fs::read_to_string(&file).ok()?;
        Some(Self {
            candidate: drop_in::candidate(&text)?.to_owned(),
            wanted: WantedLibraries::of_preload(drop_in::preload(&text)?)?,
            age_s: file.metadata().ok()?.modified().ok()?.elapsed().ok()?.as_secs_f64(),
            unit,
        })
    }

    /// Whether its drop-in is for that service: its own, or its template's.
    fn is_for(&self, unit: &str) -> bool {
        self.unit == unit || self.unit == template_of_unit(unit)
    }

    /// The process of the service that holds the most memory, where it lacks the candidate. A service that was not
    /// restarted since it was given one has not lost it.
    fn lost_in(&self, pids: &[u32]) -> Option<u32> {
        let ages = pids.iter().filter_map(|pid| age_s(process::start_ticks(*pid).ok()?));
        let is_restarted =
            ages.reduce(f64::max).is_some_and(|oldest_s| oldest_s > YOUNG_S && oldest_s < self.age_s);
        if is_restarted { self.wanted.missed_by(pids.iter().copied()) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    struct Started(Child);

    impl Started {
        /// A process that preloads that list, and is old enough to be judged.
        fn with(preload: &str) -> Self {
            let mut command = Command::new("sleep");
            let child =
                command.arg("600").env("LD_PRELOAD", preload).stderr(std::process::Stdio::null()).spawn();
            let started = Self(child.unwrap());
            let is_old = || age_s(process::start_ticks(started.0.id()).unwrap()).unwrap() > YOUNG_S;
            let until = Instant::now() + Duration::from_secs(60);
            while !is_old() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
            started
        }
    }

    impl Drop for Started {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_asked_in_vain_has_lost_it_and_who_has_it_has_not() {
        let folder = tempfile::tempdir().unwrap();
        imas_testing::compiled(folder.path(), "libimas-guard.so", "int of_guard;", &["-shared", "-fPIC"]);
        let guard = folder.path().join("libimas-guard.so");
        let guard = guard.to_str().unwrap();
        let (has, lacks) = (Started::with(guard), Started::with(&format!("{guard}:/gone/libjemalloc.so")));
        let lost = lost_candidates();
        let of = |started: &Started| lost.iter().find(|one| one.pid == started.0.id());
        assert_eq!(of(&has), None);
        let found = of(&lacks).unwrap();
        assert_eq!((found.candidate.as_str(), &found.unit), ("libjemalloc.so", &None));
        assert!(found.program.ends_with("/sleep"), "{found:?}");
    }

    #[test]
    fn a_service_that_was_restarted_since_and_lacks_it_has_lost_it() {
        let root = tempfile::tempdir().unwrap();
        let variables = [("LD_PRELOAD".to_owned(), "/i/libimas-guard.so:/i/libjemalloc.so".to_owned())];
        let text = drop_in::text("web@.service", "jemalloc", &variables, &[], None);
        let file = drop_in::path(root.path(), "web@.service");
        drop_in::write(&file, &text).unwrap();
        let process = Started::with("");
        let pids = [process.0.id()];
        let lost = |unit| {
            let all = GivenService::all(root.path());
            lost_by_service(&all, unit, &pids).map(|(candidate, pid)| (candidate.to_owned(), pid))
        };
        let age = |s| {
            let time = std::time::SystemTime::now() - Duration::from_secs(s);
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
        };
        age(0);
        assert_eq!(lost("web@1.service"), None, "it was not restarted");
        age(3600);
        assert_eq!(lost("web@1.service"), Some(("jemalloc".to_owned(), pids[0])));
        assert_eq!(lost("other.service"), None);
    }
}
