// SPDX-License-Identifier: Apache-2.0
//! Resident memory of a process tree over time, read from outside.
//!
//! The figure is what the tree really pays for: `Pss_Anon - LazyFree + SwapPss` of each process, summed over
//! the tree (pages shared by fork count once; pages given back lazily do not count; address space never
//! does).
//!
//! Hardware counters of a process tree, where the kernel gives them.
//!
//! The counters are opened on the calling thread, inherited by what it spawns and switched on by exec, so that the
//! launcher's own work is never in them. A kernel or machine that refuses simply yields `None`.
//!
//! A thread that looks at something again and again until it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Event, Hardware};
use perf_event::{Builder, Counter};
use procfs::process::{MemoryMaps, Process, Task};

use crate::mapping_text;

/// Peak and time-weighted mean of a tree's resident anonymous memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resident {
    /// Largest sum seen at one instant.
    pub peak_bytes: u64,
    /// Mean over the time from the first look to the last.
    pub mean_bytes: u64,
    /// Number of looks at the tree.
    pub looks: u32,
}

/// A thread that looks at all descendants of this process until it is stopped, or dropped.
#[derive(Debug)]
pub struct Sampler(Watcher<Resident>);

/// Looks are this far apart at first, then further as the run grows longer: about 2 % of the time so far.
const SHORTEST_GAP: Duration = Duration::from_micros(500);
const LONGEST_GAP: Duration = Duration::from_millis(50);

impl Sampler {
    /// Starts looking at all descendants of this process at once.
    #[must_use]
    pub fn start() -> Self {
        Self::watching(|| children(std::process::id()))
    }

    /// Starts looking at one process and its descendants at once.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self::watching(move || vec![pid])
    }

    fn watching(roots: impl Fn() -> Vec<u32> + Send + 'static) -> Self {
        Self(Watcher::start(move |stop| watch(stop, &roots)))
    }

    /// Ends the looking; what was seen.
    #[must_use]
    pub fn stop(self) -> Resident {
        self.0.stop().unwrap_or_default()
    }
}

fn watch(stop: &AtomicBool, roots: &dyn Fn() -> Vec<u32>) -> Resident {
    let start = Instant::now();
    let mut integral = Integral::default();
    while !stop.load(Ordering::Relaxed) {
        let bytes = tree_bytes(roots());
        if bytes > 0 {
            integral.add(start.elapsed(), bytes);
        }
        std::thread::park_timeout((start.elapsed() / 50).clamp(SHORTEST_GAP, LONGEST_GAP));
    }
    integral.resident()
}

/// Trapezoids under the curve of memory over time.
#[derive(Debug, Default)]
struct Integral {
    first: Option<(Duration, u64)>,
    last: Option<(Duration, u64)>,
    byte_seconds: f64,
    peak: u64,
    looks: u32,
}

impl Integral {
    fn add(&mut self, at: Duration, bytes: u64) {
        if let Some((before, was)) = self.last {
            self.byte_seconds += (at - before).as_secs_f64() * (was as f64 + bytes as f64) / 2.0;
        }
        self.first.get_or_insert((at, bytes));
        self.last = Some((at, bytes));
        self.peak = self.peak.max(bytes);
        self.looks += 1;
    }

    fn resident(&self) -> Resident {
        let span = match (self.first, self.last) {
            (Some((first, _)), Some((last, _))) => (last - first).as_secs_f64(),
            _ => 0.0,
        };
        // A single look has no span: its value is the mean.
        let mean = if span > 0.0 { self.byte_seconds / span } else { self.peak as f64 };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of u64 is in range"
        )]
        Resident { peak_bytes: self.peak, mean_bytes: mean as u64, looks: self.looks }
    }
}

/// A process and all its descendants that are there now, the process first.
#[must_use]
pub fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut seen = 0;
    while let Some(&pid) = found.get(seen) {
        found.extend(children(pid));
        seen += 1;
    }
    found
}

/// A process and its descendants that `belongs` says yes to, the process first; None where they have more
/// than `most` threads together.
pub(crate) fn family(pid: u32, belongs: impl Fn(u32) -> bool, most: usize) -> Option<Vec<u32>> {
    let (mut found, mut seen, mut threads) = (vec![pid], 0, 0);
    while let Some(&pid) = found.get(seen) {
        for task in tasks(pid) {
            threads += 1;
            if threads > most {
                return None;
            }
            found.extend(task.children().into_iter().flatten().filter(|child| belongs(*child)));
        }
        seen += 1;
    }
    Some(found)
}

/// Sum over these processes and all their descendants; 0 when there are none.
fn tree_bytes(mut pids: Vec<u32>) -> u64 {
    let mut total = 0;
    while let Some(pid) = pids.pop() {
        total += resident_bytes(pid).unwrap_or(0);
        pids.extend(children(pid));
    }
    total
}

/// Children of every thread of a process; the kernel lists them by the thread that made them.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    tasks(pid).filter_map(|task| task.children().ok()).flatten().collect()
}

/// Children of a process by what each process says of its parent, for a kernel that lists none.
pub(crate) fn children_by_parent(pid: u32) -> Vec<u32> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let is_child = |process: &Process| process.stat().is_ok_and(|stat| u32::try_from(stat.ppid) == Ok(pid));
    processes.filter(is_child).filter_map(|process| u32::try_from(process.pid).ok()).collect()
}

fn tasks(pid: u32) -> impl Iterator<Item = Task> {
    let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
    process.and_then(|process| process.tasks().ok()).into_iter().flatten().flatten()
}

/// Resident anonymous memory of one process, as in [`Resident`]; None when it is gone or not ours to look at.
#[must_use]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    mapping_text::ask_living(pid, |task| {
        let process = Process::new(i32::try_from(task).ok()?).ok()?;
        anonymous_bytes(&process.smaps_rollup().ok()?.memory_map_rollup)
    })
}

/// Resident anonymous bytes, from the text of smaps_rollup.
pub(crate) fn anonymous_bytes(rollup: &MemoryMaps) -> Option<u64> {
    let map = &rollup.0.first()?.extension.map;
    let field = |name: &str| map.get(name).copied().unwrap_or(0);
    Some((field("Pss_Anon") + field("SwapPss")).saturating_sub(field("LazyFree")))
}

/// A thread that looks until it is stopped, or dropped.
#[derive(Debug)]
pub struct Watcher<T> {
    stop: Arc<AtomicBool>,
    /// None once it was stopped.
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Watcher<T> {
    /// Starts the thread. `watch` returns soon after the flag is set; between two looks it parks.
    #[must_use]
    pub fn start(watch: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        Self { stop, thread: Some(std::thread::spawn(move || watch(&seen))) }
    }
}

impl<T> Watcher<T> {
    /// Ends the looking; what was seen. None where the thread panicked.
    #[must_use]
    pub fn stop(mut self) -> Option<T> {
        self.end()
    }

    fn end(&mut self) -> Option<T> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Relaxed);
        thread.thread().unpark();
        thread.join().ok()
    }
}

/// A run that could not be measured to its end must not leave threads that disturb the next.
impl<T> Drop for Watcher<T> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Counts over the life of a process tree; `None` where the machine does not count it or had to share the
/// counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HardwareCounts {
    /// Instructions retired.
    pub instructions: Option<u64>,
    /// CPU cycles.
    pub cycles: Option<u64>,
    /// Misses of the data TLB on loads.
    pub dtlb_misses: Option<u64>,
    /// Misses of the last-level cache.
    pub cache_misses: Option<u64>,
}

/// Open counters, to be read once the tree has ended.
#[derive(Debug)]
pub struct Counters {
    instructions: Option<Counter>,
    cycles: Option<Counter>,
    dtlb_misses: Option<Counter>,
    cache_misses: Option<Counter>,
}

impl Counters {
    /// Opens what the kernel allows for children of the calling thread.
    #[must_use]
    pub fn open() -> Self {
        let dtlb = Cache { which: CacheId::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };
        Self {
            instructions: open(Hardware::INSTRUCTIONS),
            cycles: open(Hardware::CPU_CYCLES),
            dtlb_misses: open(dtlb),
            cache_misses: open(Hardware::CACHE_MISSES),
        }
    }

    /// Reads and closes them.
    #[must_use]
    pub fn read(self) -> HardwareCounts {
        HardwareCounts {
            instructions: read(self.instructions),
            cycles: read(self.cycles),
            dtlb_misses: read(self.dtlb_misses),
            cache_misses: read(self.cache_misses),
        }
    }
}

/// With the kernel's share where permitted, else the program's own alone.
fn open(event: impl Event + Clone) -> Option<Counter> {
    let build = |with_kernel: bool| {
        let mut builder = Builder::new(event.clone());
        builder.observe_self().any_cpu().inherit(true).enable_on_exec(true).enabled(false);
        if with_kernel {
            builder.exclude_kernel(false)
        } else {
            builder.exclude_kernel(true)
        };
        builder.exclude_hv(true).build()
    };
    build(true).or_else(|_| build(false)).ok()
}

/// A counter that had to share the hardware ran for a part of the time only: what it counted is no figure of
/// the whole.
fn read(counter: Option<Counter>) -> Option<u64> {
    let read = counter?.read_count_and_time().ok()?;
    (read.count > 0 && read.time_running == read.time_enabled).then_some(read.count)
}

#[cfg(test)]
mod tests {
    use imas_testing::skipped;

    use super::*;

    #[test]
    fn the_mean_is_weighted_by_time() {
        let mut integral = Integral::default();
        integral.add(Duration::from_secs(0), 100);
        integral.add(Duration::from_secs(3), 100);
        integral.add(Duration::from_secs(4), 300);
        let resident = integral.resident();
        assert_eq!((resident.peak_bytes, resident.mean_bytes, resident.looks), (300, 125, 3));
    }

    #[test]
    fn one_look_is_its_own_mean_and_none_is_nothing() {
        let mut integral = Integral::default();
        assert_eq!(integral.resident(), Resident::default());
        integral.add(Duration::from_millis(1), 7);
        assert_eq!(integral.resident().mean_bytes, 7);
    }

    #[test]
    fn a_child_is_known_by_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let found = children_by_parent(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?}");
    }

    #[test]
    fn the_memory_of_a_child_is_counted() {
        // On a busy machine a short life may pass between two looks.
        let lives_s = [0.3, 1.0, 3.0, 9.0];
        let mut seen = lives_s.into_iter().map(|life_s| {
            let sampler = Sampler::start();
            let code = format!("x = bytearray(b'x') * (64 << 20)\nimport time; time.sleep({life_s})");
            std::process::Command::new("python3").args(["-c", &code]).status().unwrap();
            sampler.stop()
        });
        let holds_it = |seen: &Resident| seen.peak_bytes > 64 << 20 && seen.mean_bytes < seen.peak_bytes;
        assert!(seen.any(|seen| holds_it(&seen)));
    }

    fn watch(stop: &AtomicBool) -> u32 {
        while !stop.load(Ordering::Relaxed) {
            std::thread::park();
        }
        7
    }

    #[test]
    fn a_stopped_watcher_has_an_answer_and_a_dropped_one_leaves_no_thread() {
        assert_eq!(Watcher::start(watch).stop(), Some(7));
        assert_eq!(Watcher::start(|_| -> u32 { panic!("a thread that fails") }).stop(), None);
        let watcher = Watcher::start(watch);
        let seen = Arc::clone(&watcher.stop);
        drop(watcher);
        assert_eq!(Arc::strong_count(&seen), 1, "the thread has ended");
    }

    #[test]
    fn a_child_is_counted_and_the_launcher_is_not() {
        let counters = Counters::open();
        std::process::Command::new("true").status().unwrap();
        let Some(instructions) = counters.read().instructions else {
            return skipped("this machine counts no instructions");
        };
        assert!((10_000..100_000_000).contains(&instructions), "{instructions}");
    }
}
