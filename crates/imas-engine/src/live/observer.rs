// SPDX-License-Identifier: Apache-2.0
//! Looks at the machine again and again, and reads anew only what may have changed, within a budget of time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_core::adaptive::{Objective, weight};
use imas_core::stats::Interval;
use imas_linux::host::now_unix_s;
use imas_linux::serving::{Injected, RealCandidates};
use imas_store::decisions::Decided;
use imas_store::samples::StoredProgram;
use procfs::{Current, IoPressure};

use crate::context::Context;
use crate::daemon_status::{DaemonStatus, IneligibleProgram};
use crate::decide::conditions;
use crate::flags::Places;
use crate::live::lost::KnownLost;
use crate::live::memory_point::MemoryPoint;
use crate::live::program_source::{ProgramFacts, ProgramSource, UnfitFiles};
use crate::live::snapshot::{
    Certainty, LiveGain, LiveProcess, LiveSnapshot, MachineState, Preference, PressureStalls, ProcessState,
    StoreKind,
};
use crate::live::tracked::{Identity, ProcessReader, Tracked};
use crate::memory_look::remedy::LEAST_BYTES;
use crate::prices;

/// How often the daemon's status and list of ineligible programs are read.
const DAEMON_LASTS: Duration = Duration::from_secs(10);
/// A memory curve's point may take this share of the time.
const POINT_SHARE: u32 = 400;

/// Looks at the machine. See the crate's description for what a look costs.
#[derive(Debug)]
pub struct ProcessObserver {
    run_dir: PathBuf,
    sources: Vec<ProgramSource>,
    candidates: RealCandidates,
    reader: ProcessReader,
    processes: HashMap<u32, Tracked>,
    unfit: UnfitFiles,
    daemon: Daemon,
    lost: KnownLost,
    first: Option<Instant>,
    last: Option<Instant>,
    point: Option<(u32, Instant, MemoryPoint)>,
    problems: Vec<String>,
}

/// State of imasd, by its own reports.
#[derive(Debug, Default)]
struct Daemon {
    read: Option<Instant>,
    runs: bool,
    /// Why imasd leaves a program alone, by the program's path. Root alone may read it.
    ineligible: HashMap<String, String>,
}

impl ProcessObserver {
    /// An observer of the installation that `places` name. It knows the user's own store and, where this user
    /// may read it, imasd's; with `places.system` only the latter.
    ///
    /// # Errors
    /// When the library folder or the configuration is not usable.
    pub fn new(places: &Places) -> Result<Self> {
        Self::beside(places, Path::new(imas_abi::RUN_FOLDER))
    }

    /// An observer as [`Self::new`] makes it, with the daemon of `run_dir`.
    ///
    /// # Errors
    /// When the library folder or the configuration is not usable.
    pub fn beside(places: &Places, run_dir: &Path) -> Result<Self> {
        let first = Context::beside(places, run_dir)?;
        let kind = if places.system { StoreKind::System } else { StoreKind::Own };
        let candidates = RealCandidates::of(first.catalogue.all());
        let mut sources = vec![ProgramSource::new(kind, first)];
        let mut problems = vec![];
        if kind == StoreKind::Own {
            let system = Places { system: true, store: None, ..places.clone() };
            match Context::beside(&system, run_dir) {
                Ok(context) if std::fs::File::open(&context.store_path).is_ok() => {
                    sources.push(ProgramSource::new(StoreKind::System, context));
                }
                Ok(_) => {}
                Err(error) => problems.push(format!("{error:#}")),
            }
        }
        Ok(Self {
            run_dir: run_dir.to_owned(),
            sources,
            candidates,
            reader: ProcessReader::default(),
            processes: HashMap::new(),
            unfit: UnfitFiles::default(),
            daemon: Daemon::default(),
            lost: KnownLost::default(),
            first: None,
            last: None,
            point: None,
            problems,
        })
    }

    /// Looks now. The first look takes as long as it needs; a later one leaves to the next what would take
    /// more than its share of time.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn look(&mut self) -> Result<LiveSnapshot> {
        let at = Instant::now();
        let since_last = self.last.map(|last| at.duration_since(last));
        self.read_processes(at);
        self.identify(&mut Budget::after(since_last));
        self.daemon.refresh(&self.run_dir);
        self.lost.refresh(self.processes.values().filter_map(member));
        self.sources.iter_mut().for_each(ProgramSource::refresh);
        let mut problems = self.work_out(&mut Budget::after(since_last));
        self.read_pages(&mut Budget::after(since_last));
        self.look_at_memory(&mut Budget::for_heaps(since_last));
        self.last = Some(at);
        let first = *self.first.get_or_insert(at);
        let mut processes: Vec<LiveProcess> =
            self.processes.values().filter_map(|tracked| self.process(tracked)).collect();
        processes.sort_by_key(|process| process.pid);
        problems.extend(self.sources.iter().flat_map(|source| source.problems.clone()));
        problems.extend(self.problems.clone());
        Ok(LiveSnapshot {
            schema: 1,
            at_unix_s: now_unix_s(),
            observed_s: at.duration_since(first).as_secs_f64(),
            hidden: self.processes.values().filter(|tracked| tracked.is_hidden).count(),
            unseen: self.processes.values().filter(|tracked| tracked.is_unseen).count(),
            machine: machine_now(self.sources.iter().all(|source| source.kind == StoreKind::System))?,
            daemon: self.daemon.runs,
            processes,
            problems,
        })
    }

    /// Where the memory of a process is now. To ask takes the kernel a while for a large process; the last
    /// answer is given again until that is a small share of the time.
    pub fn memory(&mut self, pid: u32) -> Option<MemoryPoint> {
        if let Some((known, due, point)) = &self.point
            && *known == pid
            && Instant::now() < *due
        {
            return Some(*point);
        }
        let tracked = self.processes.get_mut(&pid)?;
        if tracked.needs_memory() {
            tracked.look_at_memory(&self.candidates); // somebody has selected it
        }
        let begun = Instant::now();
        let page = tracked.identity.as_ref().and_then(|identity| identity.page.as_deref());
        let point = MemoryPoint::read(pid, tracked.now.start_ticks, page)?;
        self.point = Some((pid, begun + begun.elapsed() * POINT_SHARE, point));
        Some(point)
    }

    /// The newest decisions about a program, newest first; none where they cannot be read.
    #[must_use]
    pub fn decisions(&self, store: StoreKind, number: i64, most: u32) -> Vec<Decided> {
        let source = self.sources.iter().find(|source| source.kind == store);
        source.map(|source| source.decisions(number, most)).unwrap_or_default()
    }

    /// Reads every process. Processes that have ended are dropped.
    fn read_processes(&mut self, at: Instant) {
        let mut before = std::mem::take(&mut self.processes);
        for reading in self.reader.all() {
            let pid = reading.pid;
            let known = before.remove(&pid).filter(|known| known.now.start_ticks == reading.start_ticks);
            let tracked = match known {
                Some(mut known) => {
                    known.update(reading, at);
                    known
                }
                None => Tracked::new(reading, at),
            };
            self.processes.insert(pid, tracked);
        }
    }

    fn identify(&mut self, budget: &mut Budget) {
        for tracked in self.processes.values_mut().filter(|tracked| tracked.needs_identity()) {
            if !budget.allows_more() {
                break;
            }
            tracked.identify(&self.candidates);
        }
    }

    /// Programs with something stored since, and files that were not read yet.
    fn work_out(&mut self, budget: &mut Budget) -> Vec<String> {
        let mut problems = vec![];
        for identity in self.processes.values().filter_map(|tracked| tracked.identity.as_ref()) {
            let on = identity.candidate.as_deref();
            match found(&self.sources, identity) {
                Some((at, program)) if self.sources[at].is_stale(program.id, on) && budget.allows_more() => {
                    let done = self.sources[at].work_out(&program, on);
                    problems.extend(done.err().map(|error| format!("{program}: {error:#}")));
                }
                Some(_) => {}
                None if self.unfit.lacks(&identity.program.path) && budget.allows_more() => {
                    self.unfit.read(&identity.program.path, identity.uid);
                }
                None => {}
            }
        }
        problems
    }

    fn read_pages(&mut self, budget: &mut Budget) {
        for tracked in self.processes.values_mut() {
            if tracked.is_trial() && budget.allows_more() {
                tracked.read_page();
            }
        }
    }

    fn look_at_memory(&mut self, budget: &mut Budget) {
        for tracked in self.processes.values_mut().filter(|tracked| tracked.needs_memory()) {
            if !budget.allows_more() {
                break;
            }
            tracked.look_at_memory(&self.candidates);
        }
    }

    fn process(&self, tracked: &Tracked) -> Option<LiveProcess> {
        let identity = tracked.identity.as_ref()?;
        let found = found(&self.sources, identity);
        let facts = found.as_ref().and_then(|(at, program)| self.sources[*at].facts(program.id));
        let stored = found.as_ref().map(|(at, program)| (self.sources[*at].kind, program));
        let now = &tracked.now;
        Some(LiveProcess {
            pid: now.pid,
            parent: now.parent,
            start_ticks: now.start_ticks,
            uid: identity.uid,
            program: named(identity, stored.map(|(_, program)| program)),
            path: identity.program.path.to_string_lossy().into_owned(),
            detail: stored
                .map_or_else(|| identity.program.detail.clone(), |(_, program)| program.detail.clone()),
            number: stored.map(|(_, program)| program.id),
            store: stored.map(|(kind, _)| kind),
            unit: identity.unit.clone(),
            allocator: identity.allocator.clone(),
            candidate: identity.candidate.clone(),
            settings: identity.settings.clone(),
            injected: identity.injected,
            threads: now.threads,
            resident_bytes: now.resident_bytes,
            live_bytes: tracked.live_bytes,
            returnable_bytes: tracked.returnable_bytes,
            memory: tracked.memory.clone(),
            growth_bytes_per_hour: tracked.growth_per_hour(),
            cpu_share: tracked.cpu_share,
            state: self.state(tracked, identity, facts),
            quarantined: facts.map(|facts| facts.quarantined.clone()).unwrap_or_default(),
            gain: self.gain(tracked, identity, facts),
        })
    }

    /// Gain of a restart of the process, by the program's trials. Without these it is what its heaps
    /// would return now.
    fn gain(&self, tracked: &Tracked, identity: &Identity, facts: Option<&ProgramFacts>) -> Option<LiveGain> {
        let on = identity.candidate.as_deref();
        if let Some((gain, pick)) = facts.zip(on).and_then(|(facts, on)| facts.gain(on)) {
            let saved = |ratio: Interval, of: f64| Interval {
                lo: (1.0 - ratio.hi) * of,
                mid: (1.0 - ratio.mid) * of,
                hi: (1.0 - ratio.lo) * of,
            };
            return Some(LiveGain {
                candidate: pick.to_owned(),
                memory_bytes: gain.memory.map(|ratio| saved(ratio, tracked.now.resident_bytes as f64)),
                cpu_percent: gain.cpu.map(|ratio| saved(ratio, 100.0)),
                certainty: if gain.is_proven { Certainty::Proven } else { Certainty::NotProven },
                trials: gain.trials,
            });
        }
        let bytes = tracked.returnable_bytes.filter(|bytes| *bytes >= LEAST_BYTES)?;
        let bytes = bytes as f64;
        if facts.is_some_and(|facts| facts.pick.is_some()) {
            return None;
        }
        Some(LiveGain {
            candidate: prices::best_expected(None, &self.candidates)?.to_owned(),
            memory_bytes: Some(Interval { lo: 0.0, mid: bytes, hi: bytes }),
            cpu_percent: None,
            certainty: Certainty::Estimate,
            trials: [0, 0],
        })
    }

    fn state(&self, tracked: &Tracked, identity: &Identity, facts: Option<&ProgramFacts>) -> ProcessState {
        if let Some(candidate) = self.lost.of(tracked.now.pid).or_else(|| tracked.lost()) {
            return ProcessState::Lost { candidate: candidate.to_owned() };
        }
        let path = identity.program.path.to_string_lossy();
        match (facts, identity.candidate.as_deref()) {
            (Some(facts), on) if identity.injected == Injected::Hook => {
                facts.trial(on.unwrap_or(imas_core::SYSTEM))
            }
            (Some(facts), _) => facts.state.clone(),
            (None, _) => match self.daemon.ineligible.get(path.as_ref()) {
                Some(why) => ProcessState::LeftAlone { why: why.clone() },
                None => self.unfit.state(&identity.program.path),
            },
        }
    }
}

/// The first store that knows the program, by its place, with the program.
fn found(sources: &[ProgramSource], identity: &Identity) -> Option<(usize, StoredProgram)> {
    let mut known = sources.iter().enumerate();
    known.find_map(|(at, source)| Some((at, source.program_of(identity)?.clone())))
}

/// The service of the system's manager that a process is of.
fn member(tracked: &Tracked) -> Option<(&str, u32)> {
    Some((tracked.identity.as_ref()?.unit.as_ref()?.system_name()?, tracked.now.pid))
}

fn named(identity: &Identity, stored: Option<&StoredProgram>) -> String {
    stored.map_or_else(|| identity.program.to_string(), StoredProgram::to_string)
}

impl Daemon {
    fn refresh(&mut self, run_dir: &Path) {
        if self.read.is_some_and(|read| read.elapsed() < DAEMON_LASTS) {
            return;
        }
        self.read = Some(Instant::now());
        self.runs = DaemonStatus::read(run_dir).is_some();
        let ineligible = IneligibleProgram::read_all(run_dir).into_iter();
        self.ineligible = ineligible.map(|program| (program.path, program.reason)).collect();
    }
}

// How long one look may take for what can wait until the next one.

/// Share of the time since the last look that may be spent.
const BUDGET_SHARE: f64 = 0.001;

/// Share for looks at heaps, and what stands for the time before the first look.
const HEAPS_SHARE: f64 = 0.003;
const BEFORE_FIRST: Duration = Duration::from_secs(60);

/// Time for one kind of work in one look.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Moment at which the time is over; None: there is no limit.
    end: Option<Instant>,
    begun: bool,
}

impl Budget {
    /// For a look that comes this long after the last one; without a limit for the first look.
    pub(crate) fn after(since_last: Option<Duration>) -> Self {
        let end = since_last.map(|since| Instant::now() + since.mul_f64(BUDGET_SHARE));
        Self { end, begun: false }
    }

    /// For looks at heaps, which take longer: the first look has a limit too.
    pub(crate) fn for_heaps(since_last: Option<Duration>) -> Self {
        let time = since_last.unwrap_or(BEFORE_FIRST).mul_f64(HEAPS_SHARE);
        Self { end: Some(Instant::now() + time), begun: false }
    }

    /// Whether there is time for one more piece of work. There always is for the first one, so that all work
    /// gets done in the end.
    pub(crate) fn allows_more(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.begun, true);
        is_first || self.end.is_none_or(|end| Instant::now() < end)
    }
}

// Reads the machine's state.

/// The machine as who decides sees it: imasd (`of_the_system`), which minds no control group, or `imas run`.
///
/// # Errors
/// When /proc cannot be read.
pub fn machine_now(of_the_system: bool) -> Result<MachineState> {
    let now = if of_the_system { imas_linux::host::conditions()? } else { conditions()? };
    let io = IoPressure::current().ok();
    let weight = weight(&now, Objective::Auto);
    Ok(MachineState {
        cpus: now.cpus,
        load5: now.load5,
        memory_bytes: now.mem_total_bytes.unwrap_or(0),
        available_bytes: now.mem_available_bytes,
        pressure: PressureStalls {
            cpu_some: now.cpu_some_pct,
            memory_some: now.memory_some_pct,
            memory_full: now.memory_full_pct,
            io_some: io.as_ref().map(|io| f64::from(io.some.avg60)),
            io_full: io.as_ref().map(|io| f64::from(io.full.avg60)),
        },
        preference: Preference::of_weight(weight.w),
        weight,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_piece_of_work_is_always_allowed() {
        let mut spent = Budget::after(Some(Duration::ZERO));
        assert_eq!([spent.allows_more(), spent.allows_more()], [true, false]);
        let mut first = Budget::after(None);
        assert!((0..1000).all(|_| first.allows_more()));
    }
}
