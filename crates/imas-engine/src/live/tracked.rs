// SPDX-License-Identifier: Apache-2.0
//! One process over several looks: what every look reads of it, what does not change between two execs, and its heaps.

use std::collections::{BTreeMap, HashSet};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use imas_linux::index::ServiceUnit;
use imas_linux::program::Program;
use imas_linux::running::{self, Running};
use imas_linux::running_runtime::{HeapLimit, RunningRuntime};
use imas_linux::runtime::Runtime;
use imas_linux::serving::chooser::asked_in_vain;
use imas_linux::serving::{Injected, RealCandidates};
use imas_linux::standstill::age_s;
use imas_linux::{control_group, foreign_process, mapping_text, process};
use procfs::FromRead;
use procfs::process::Stat;

use crate::live::memory_point;
use crate::memory_look::{AboutProcess, MemoryAnswer, ProcessLook};

/// A process younger than this may not have loaded its libraries yet: it is looked at once more.
const YOUNG_S: f64 = 3.0;
/// An allocator that was loaded later is found after this time.
const IDENTITY_LASTS: Duration = Duration::from_secs(600);
/// Growth over a shorter time is noise.
const LEAST_GROWTH_S: f64 = 10.0;
/// Shortest time between two looks at the memory of a process. A look that took long is made again later still, so that
/// 300 processes take less than a hundredth of a CPU together.
const MEMORY_LASTS: Duration = Duration::from_secs(60);
const MEMORY_SHARE: u32 = 50_000;
/// A process with less memory holds none that matters.
pub const MEMORY_FROM: u64 = 16 << 20;

/// One process.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) now: Reading,
    pub(crate) identity: Option<Identity>,
    pub(crate) is_hidden: bool,
    /// The last closer look at it was not made, or not to its end.
    pub(crate) is_unseen: bool,
    pub(crate) cpu_share: Option<f64>,
    pub(crate) live_bytes: Option<u64>,
    /// Free pages in its heaps that a trim would return, bytes.
    pub(crate) returnable_bytes: Option<u64>,
    /// Verdict on its memory.
    pub(crate) memory: Option<Arc<MemoryAnswer>>,
    /// Its runtime, once that was looked for.
    runtime: Option<Option<(Runtime, Option<HeapLimit>)>>,
    first: (Instant, u64),
    seen: Instant,
    /// When the identity was read, and whether it is final by the age of the process.
    identified: Option<(Instant, bool)>,
    /// When its memory is looked at next.
    memory_due: Option<Instant>,
}

impl Tracked {
    /// A process that is seen for the first time.
    pub(crate) fn new(now: Reading, at: Instant) -> Self {
        Self {
            first: (at, now.resident_bytes),
            seen: at,
            now,
            identity: None,
            is_hidden: false,
            is_unseen: false,
            cpu_share: None,
            live_bytes: None,
            returnable_bytes: None,
            memory: None,
            runtime: None,
            identified: None,
            memory_due: None,
        }
    }

    /// Takes the next reading of the same process.
    pub(crate) fn update(&mut self, now: Reading, at: Instant) {
        let since_s = at.duration_since(self.seen).as_secs_f64();
        if since_s > 0.0 {
            self.cpu_share = Some(((now.cpu_s - self.now.cpu_s) / since_s).max(0.0));
        }
        if now.image != self.now.image {
            // It has executed another program.
            self.identified = None;
            self.first = (at, now.resident_bytes);
        }
        if now.resident_bytes < MEMORY_FROM {
            self.forget_memory(); // it is looked at no more
        }
        (self.now, self.seen) = (now, at);
    }

    /// Whether the process has to be looked at more closely now.
    pub(crate) fn needs_identity(&self) -> bool {
        self.identified.is_none_or(|(at, is_final)| {
            let lasts = if is_final { IDENTITY_LASTS } else { Duration::ZERO };
            at.elapsed() > lasts
        })
    }

    /// Looks at the process more closely.
    pub(crate) fn identify(&mut self, candidates: &RealCandidates) {
        let is_old = age_s(self.now.start_ticks).is_none_or(|age_s| age_s > YOUNG_S);
        match identify(self.now.pid, candidates) {
            Identified::Known(identity) => {
                let is_same = self.identity.as_ref().is_some_and(|known| *known == *identity);
                // Right after an exec its libraries are not loaded yet.
                let is_settled = is_old && identity.lost.is_none();
                if !is_same {
                    // They were of what it executed before.
                    (self.live_bytes, self.runtime) = (None, None);
                    self.forget_memory();
                }
                (self.identity, self.is_hidden) = (Some(*identity), false);
                self.identified = Some((Instant::now(), is_settled || is_same));
            }
            Identified::Hidden => {
                (self.identity, self.is_hidden) = (None, true);
                self.identified = Some((Instant::now(), true));
            }
            Identified::NotNow => {}
        }
        self.is_unseen = self.is_among_unseen();
    }

    /// The library that it asked for and lacks, at two looks.
    pub(crate) fn lost(&self) -> Option<&str> {
        let is_final = self.identified.is_some_and(|(_, is_final)| is_final);
        self.identity.as_ref()?.lost.as_deref().filter(|_| is_final)
    }

    fn is_among_unseen(&self) -> bool {
        foreign_process::take_unseen().contains(&self.now.pid)
    }

    /// Whether the page of its trial is to be read.
    pub(crate) fn is_trial(&self) -> bool {
        self.identity.as_ref().is_some_and(|one| one.injected == Injected::Hook && one.page.is_some())
    }

    /// Reads the page of its trial.
    pub(crate) fn read_page(&mut self) {
        let Some(page) = self.identity.as_ref().and_then(|identity| identity.page.as_ref()) else { return };
        let page = memory_point::read_page(page, self.now.pid, self.now.start_ticks);
        self.live_bytes = page.map(|page| page.live_bytes_now()).filter(|bytes| *bytes > 0);
    }

    /// Whether its memory is to be looked at: it has enough.
    pub(crate) fn needs_memory(&self) -> bool {
        self.identity.is_some()
            && self.now.resident_bytes >= MEMORY_FROM
            && self.memory_due.is_none_or(|due| Instant::now() >= due)
    }

    /// Looks at its memory.
    pub(crate) fn look_at_memory(&mut self, candidates: &RealCandidates) {
        let begun = Instant::now();
        self.forget_memory();
        if let Some(look) = self.about().and_then(|about| ProcessLook::at(about).ok()) {
            // For a process on a candidate that somebody has chosen nothing is estimated.
            let is_plain = look.about.candidate.as_deref() == Some(imas_core::SYSTEM);
            let returnable = look.heaps.as_ref().ok().map(|heaps| heaps.bytes.returnable);
            self.returnable_bytes = returnable.filter(|_| is_plain);
            self.memory = Some(Arc::new(look.answer(candidates)));
        }
        self.is_unseen = self.is_among_unseen();
        self.memory_due = Some(begun + MEMORY_LASTS.max(begun.elapsed() * MEMORY_SHARE));
    }

    /// Facts for a look at its memory.
    fn about(&mut self) -> Option<AboutProcess> {
        let (pid, identity) = (self.now.pid, self.identity.as_ref()?);
        let read = || {
            let found = RunningRuntime::of(&running::one(pid)?)?;
            Some((found.found.runtime, found.heap_limit()))
        };
        let runtime = self.runtime.get_or_insert_with(read).clone();
        Some(AboutProcess {
            pid,
            unit: identity.unit.as_ref().and_then(|unit| unit.system_name()).map(str::to_owned),
            candidate: identity.candidate.clone(),
            runtime,
            threads: self.now.threads,
            live_bytes: self.live_bytes,
            limit: control_group::limit_of(pid),
            is_searched: false,
        })
    }

    fn forget_memory(&mut self) {
        (self.returnable_bytes, self.memory) = (None, None);
    }

    /// Change of the resident memory per hour, bytes.
    pub(crate) fn growth_per_hour(&self) -> Option<f64> {
        let (at, bytes) = self.first;
        let s = self.seen.duration_since(at).as_secs_f64();
        let grown = self.now.resident_bytes as f64 - bytes as f64;
        (s >= LEAST_GROWTH_S).then(|| grown * 3600.0 / s)
    }
}

// Facts that do not change between two execs of a process: program, service and allocator. They are read
// once, because it takes some five files of `/proc`.

/// Beginnings of the names of variables that set an allocator.
const SETTINGS: [&str; 9] = [
    "GLIBC_TUNABLES",
    "HOARD_",
    "JE_MALLOC_CONF",
    "MALLOC_",
    "MIMALLOC_",
    "SCUDO_OPTIONS",
    "SNMALLOC_",
    "TCMALLOC_",
    "_RJEM_MALLOC_CONF",
];

/// Identity of one process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) program: Program,
    pub(crate) unit: Option<ServiceUnit>,
    pub(crate) allocator: String,
    pub(crate) candidate: Option<String>,
    pub(crate) settings: Option<BTreeMap<String, String>>,
    pub(crate) injected: Injected,
    /// The library that its environment asks for and that it lacks.
    pub(crate) lost: Option<String>,
    /// The page of the process's trial.
    pub(crate) page: Option<PathBuf>,
}

/// Result of looking at a process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Identified {
    Known(Box<Identity>),
    /// The process belongs to another user.
    Hidden,
    /// The process has ended, or executes another program at this moment.
    NotNow,
}

/// Looks at the process.
pub(crate) fn identify(pid: u32, candidates: &RealCandidates) -> Identified {
    match std::fs::read_link(format!("/proc/{}/exe", mapping_text::living_thread(pid))) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Identified::Hidden,
        Err(_) => return Identified::NotNow,
        Ok(_) => {}
    }
    let running = running::one(pid);
    running
        .and_then(|running| identity_of(&running, candidates))
        .map_or(Identified::NotNow, |identity| Identified::Known(Box::new(identity)))
}

fn identity_of(running: &Running, candidates: &RealCandidates) -> Option<Identity> {
    Some(Identity {
        uid: std::fs::metadata(format!("/proc/{}", running.pid)).ok()?.uid(),
        program: running.program.clone(),
        unit: running.unit.clone(),
        allocator: running.allocator(candidates),
        candidate: running.name_of_candidate(candidates).map(str::to_owned),
        settings: settings(running),
        injected: running.injected(),
        lost: asked_in_vain(running.pid),
        page: memory_point::mapped_page(running),
    })
}

/// None where the environment may not be read: a process always has some variable.
fn settings(running: &Running) -> Option<BTreeMap<String, String>> {
    let is_readable = process::environment(running.pid).is_ok();
    let is_setting = |name: &str| SETTINGS.iter().any(|setting| name.starts_with(setting));
    is_readable.then(|| running.variables(is_setting))
}

// One file is read of every process at every look: `/proc/PID/stat`.

/// `PF_KTHREAD` of linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// Longer than any `stat`: 52 numbers and a name.
const BUFFER: usize = 2048;

/// One process at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) start_ticks: u64,
    pub(crate) threads: u64,
    /// User and system time, seconds.
    pub(crate) cpu_s: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) image: Image,
}

/// Marks that change when a process executes another program: the kernel puts code and stack of each exec
/// somewhere else, and names the process anew. Addresses of other users' processes are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    name: String,
    code: u64,
    stack: u64,
}

/// Reads every process. Kernel threads, which are many, are read at some looks only.
#[derive(Debug, Default)]
pub(crate) struct ProcessReader {
    buffer: Vec<u8>,
    kernel_threads: HashSet<u32>,
    looks: u32,
}

/// After this number of looks a pid that was a kernel thread's is read again: it may be a process's by now.
const KERNEL_LOOKS: u32 = 15;

impl ProcessReader {
    /// Every process but kernel threads and zombies.
    pub(crate) fn all(&mut self) -> Vec<Reading> {
        self.looks += 1;
        if self.looks.is_multiple_of(KERNEL_LOOKS) {
            self.kernel_threads.clear();
        }
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid| self.read(pid)).collect()
    }

    /// Reads one process by three system calls. None for kernel threads and processes that have ended.
    fn read(&mut self, pid: u32) -> Option<Reading> {
        if self.kernel_threads.contains(&pid) {
            return None;
        }
        self.buffer.resize(BUFFER, 0);
        let mut file = std::fs::File::open(format!("/proc/{pid}/stat")).ok()?;
        let len = file.read(&mut self.buffer).ok()?;
        let stat = Stat::from_read(&self.buffer[..len]).ok()?;
        if stat.flags & KERNEL_THREAD != 0 {
            self.kernel_threads.insert(pid);
            return None;
        }
        match (stat.state, stat.num_threads) {
            ('Z' | 'X', ..=1) => None,
            ('Z' | 'X', _) => in_other_thread(stat),
            _ => Some(reading(stat)),
        }
    }
}

/// A process that goes on without its first thread: what it has is shown by another one.
fn in_other_thread(stat: Stat) -> Option<Reading> {
    let own = reading(stat);
    let other = reading(imas_linux::process::stat(imas_linux::mapping_text::living_thread(own.pid))?);
    Some(Reading { resident_bytes: other.resident_bytes, image: other.image, ..own })
}

fn reading(stat: Stat) -> Reading {
    Reading {
        pid: u32::try_from(stat.pid).unwrap_or(0),
        parent: u32::try_from(stat.ppid).unwrap_or(0),
        start_ticks: stat.starttime,
        threads: u64::try_from(stat.num_threads).unwrap_or(0),
        cpu_s: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
        resident_bytes: stat.rss * procfs::page_size(),
        image: Image { name: stat.comm, code: stat.startcode, stack: stat.startstack },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_more_is_not_shown() {
        let all = ProcessReader::default().all();
        let now = all.into_iter().find(|reading| reading.pid == std::process::id()).unwrap();
        let (at, candidates) = (Instant::now(), RealCandidates::default());
        let with = |resident_bytes| Reading { resident_bytes, ..now.clone() };
        let mut own = Tracked::new(with(MEMORY_FROM), at);
        own.is_hidden = true;
        own.identify(&candidates);
        assert!(own.identity.is_some() && !own.is_hidden);
        assert!(own.needs_memory());
        own.look_at_memory(&candidates);
        assert!(!own.needs_memory() && own.memory.as_ref().is_some_and(|memory| memory.parts.len() > 1));
        own.returnable_bytes = Some(8 << 20);
        own.update(with(MEMORY_FROM), at);
        own.identify(&candidates);
        assert_eq!(own.returnable_bytes, Some(8 << 20));
        own.update(with(MEMORY_FROM - 1), at);
        assert_eq!((own.returnable_bytes, &own.memory), (None, &None), "more than it holds at all");
        own.live_bytes = Some(1);
        own.identity.as_mut().unwrap().allocator = "of another program".to_owned();
        own.identify(&candidates);
        assert_eq!(own.live_bytes, None);
    }

    #[test]
    fn this_process_is_on_glibc_and_the_first_one_may_be_hidden() {
        let candidates = RealCandidates::default();
        let Identified::Known(own) = identify(std::process::id(), &candidates) else { panic!("not known") };
        assert_eq!((own.allocator.as_str(), own.injected, own.page), ("glibc", Injected::Nothing, None));
        assert_eq!(own.program.path, std::fs::canonicalize(std::env::current_exe().unwrap()).unwrap());
        assert!(own.settings.is_some());
        assert_eq!(identify(u32::MAX, &candidates), Identified::NotNow);
    }

    #[test]
    fn this_process_is_read_and_kernel_threads_are_not() {
        let mut reader = ProcessReader::default();
        for _ in 0..2 {
            let all = reader.all();
            let own = all.iter().find(|reading| reading.pid == std::process::id()).unwrap();
            assert!(own.resident_bytes > 100_000 && own.threads >= 1 && own.start_ticks > 0, "{own:?}");
            assert!(all.iter().all(|reading| !reader.kernel_threads.contains(&reading.pid)));
        }
    }
}
