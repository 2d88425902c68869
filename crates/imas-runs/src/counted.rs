// SPDX-License-Identifier: Apache-2.0
//! Counted runs: the pages of one, in a private folder on tmpfs, one page for each process of the tree; and the memory of
//! these processes while they run.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_abi::page_kind;
use imas_core::Sample;
use imas_core::run::{Curve, MemorySnapshot, evenly};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::host::now_unix_s;
use imas_linux::ingest::{ExpectedPage, ParsedPage};
use imas_linux::page::{self, Ticket};
use imas_linux::process;
use imas_linux::program::Command;
use imas_linux::resident::Footprint;
use imas_linux::sampler::Watcher;
use nix::time::{ClockId, clock_gettime};

/// A private folder for the pages of one counted run.
#[derive(Debug)]
pub struct Folder {
    folder: tempfile::TempDir,
    watch: Watcher<Curve>,
}

/// Results of a counted run.
#[derive(Debug)]
pub struct CountedRun {
    /// The figures of the whole tree.
    pub sample: Sample,
    /// Memory of the program through the run; None when the run was over before anybody looked.
    pub curve: Option<Curve>,
}

impl Folder {
    /// Makes the folder, and begins to watch the memory of the processes that have a page in it.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new() -> Result<Self> {
        let parent = page::folder()?;
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(parent);
        let folder = folder.context("a folder for trial pages")?;
        Ok(Self { watch: start(folder.path()), folder })
    }

    /// The page from which the processes of the tree copy user, program and candidate. Its pid is ours, which
    /// none of them has: each makes its own page.
    ///
    /// # Errors
    /// When the page cannot be made.
    pub fn first_page(
        &self,
        command: &Command,
        candidate: &CatalogueCandidate,
        build_id: &str,
    ) -> Result<PathBuf> {
        let ticket = Ticket {
            kind: page_kind::TRIAL,
            trial_id: &page::new_trial_id()?,
            candidate: &candidate.name,
            served: "",
            program: &command.program,
            build_id,
            pid: std::process::id(),
        };
        Ok(page::create(self.folder.path(), &ticket)?)
    }

    /// Results of the run, once all of its processes have ended.
    ///
    /// # Errors
    /// When a page cannot be read, or no process left one.
    pub fn counted(self) -> Result<CountedRun> {
        let curve = self.watch.stop().filter(|curve| !curve.ms.is_empty());
        Ok(CountedRun { sample: sample(self.folder.path())?, curve })
    }
}

fn sample(folder: &Path) -> Result<Sample> {
    let expected = ExpectedPage { uid: nix::unistd::getuid().as_raw(), now_unix_s: now_unix_s() };
    let me = std::process::id();
    let mut pages = Vec::new();
    for path in page::list(folder)? {
        let page = imas_linux::ingest::read_page_file(&path, &expected)
            .with_context(|| path.display().to_string())?;
        if page.pid != me {
            pages.push(page.of_ended(None));
        }
    }
    // The first process is the root of the tree; the others follow in the order they began.
    // Within a clock tick the time of its page says so, and not its number: those begin anew at 32768.
    pages.sort_by(|a: &ParsedPage, b: &ParsedPage| {
        let by_page = a.made_unix_s.total_cmp(&b.made_unix_s);
        a.process_start_ticks.cmp(&b.process_start_ticks).then(by_page).then(a.pid.cmp(&b.pid))
    });
    imas_linux::ingest::merge(&pages).context("no process of the tree was counted")
}

/// Time between the first looks.
const FIRST_GAP: Duration = Duration::from_millis(2);
/// The gap is at least this multiple of the CPU time that a look took, so the looks use at most a fiftieth of
/// one CPU. A look that takes CPU time from the program makes a timed call appear long. The first looks come
/// sooner, so that a short run has some.
const MOST_LOOK_GAP_FACTOR: u32 = 49;
/// How much the factor grows with each look.
const STEP: u32 = 2;

/// Looks at every process that has a page in the folder, from its first page on; pages of this process do
/// not count.
pub(crate) fn start(folder: &Path) -> Watcher<Curve> {
    let folder = folder.to_owned();
    Watcher::start(move |stop| watch(stop, &folder))
}

fn watch(stop: &AtomicBool, folder: &Path) -> Curve {
    let mut tree = Tree { folder: folder.to_owned(), ended: HashSet::new(), forked: HashSet::new() };
    let mut looks: Vec<MemorySnapshot> = vec![];
    let mut first = None;
    let mut gap = FIRST_GAP;
    while !stop.load(Ordering::Relaxed) {
        let (now, cpu) = (Instant::now(), cpu_time());
        if let Some(look) = tree.look() {
            let since = now - *first.get_or_insert(now);
            looks.push(MemorySnapshot { ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX), ..look });
        }
        if looks.len() >= 2 * Curve::MOST {
            looks = looks.into_iter().step_by(2).collect();
            gap *= 2;
        }
        let factor = u32::try_from(looks.len())
            .map_or(MOST_LOOK_GAP_FACTOR, |looks| (looks * STEP + STEP).min(MOST_LOOK_GAP_FACTOR));
        std::thread::park_timeout(gap.max(cpu_time().saturating_sub(cpu) * factor));
    }
    if !tree.forked.is_empty() {
        looks.iter_mut().for_each(|look| look.live_kib = 0);
    }
    Curve::through(&evenly(&looks, Curve::MOST))
}

/// CPU time of this thread. Time in which it waited for a CPU costs the program nothing.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

pub(crate) struct Tree {
    folder: PathBuf,
    /// Pages of processes that are gone: a tree may have thousands, and none comes back.
    ended: HashSet<PathBuf>,
    /// Pid and start of processes seen to run on after a fork, without exec: they count their parent's live
    /// blocks again, so that live bytes of the tree are not known.
    forked: HashSet<(u32, u64)>,
}

impl Tree {
    /// The sum over the processes that run now; None when there is none.
    fn look(&mut self) -> Option<MemorySnapshot> {
        let expected = ExpectedPage { uid: nix::unistd::getuid().as_raw(), now_unix_s: now_unix_s() };
        let mut running: BTreeMap<u32, ParsedPage> = BTreeMap::new();
        for path in page::list(&self.folder).ok()? {
            if self.ended.contains(&path) {
                continue;
            }
            // One that is just being made is looked at next time.
            let Ok(page) = imas_linux::ingest::read_page_file(&path, &expected) else { continue };
            if !page.is_forked {
                self.forked.remove(&(page.pid, page.process_start_ticks));
            }
            if page.pid == std::process::id() || !process::is_running(page.pid, page.process_start_ticks) {
                self.ended.insert(path);
                continue;
            }
            // After an exec a process has two: the later one is what it is now.
            if running.get(&page.pid).is_none_or(|other| other.made_unix_s <= page.made_unix_s) {
                running.insert(page.pid, page);
            }
        }
        let several = running.len() > 1;
        let (mut resident, mut heap, mut live) = (0, 0, 0u64);
        for (pid, page) in running {
            if several && page.is_forked {
                self.forked.insert((pid, page.process_start_ticks));
            }
            let Some(found) = Footprint::of(pid) else { continue };
            resident += found.resident;
            heap += found.heap;
            live = live.saturating_add(page.live_bytes_now());
        }
        (resident > 0).then_some(MemorySnapshot {
            ms: 0,
            resident_kib: resident >> 10,
            heap_kib: heap >> 10,
            live_kib: live >> 10,
        })
    }
}
