// SPDX-License-Identifier: Apache-2.0
//! Fit of a process into the limit on the memory of its control group: whether it will be killed when its heap fills, and
//! whether the limit could fall. Each answer has its figures, and the time that they cover.

use imas_cli::format::{counted, span};
use imas_core::least_memory::{RESERVE, suggested_limit};
use imas_linux::control_group::GroupLimit;
use imas_linux::memory_parts::Owner;
use imas_linux::runtime::Runtime;
use serde::Serialize;

use super::ProcessLook;

/// Largest share of the present limit, in per cent, and least saving, in bytes, for which a lower limit is named.
const LOWER: (u64, u64) = (75, 16 << 20);
/// A highest use over a shorter time says little about the next hours, seconds.
const LEAST_AGE_S: f64 = 3600.0;
/// Share of the limit from which it is near.
const NEAR: f64 = 0.95;

/// Answer to whether a process fits its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FitKind {
    /// The heap may grow to more than is left beside the rest: it will be killed when the heap fills.
    TooLarge,
    /// Most of the limit is used.
    Near,
    /// It fits.
    Fits,
    /// The limit could be lower.
    CouldBeLess,
}

/// Fit of a process into a limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryFit {
    /// The limit, with what its group uses.
    #[serde(flatten)]
    pub group: GroupLimit,
    /// Answer.
    pub fit: FitKind,
    /// Most bytes that the heap of its runtime may take, where that is known.
    pub heap_limit: Option<u64>,
    /// Native memory beside that heap, as far as it is known to be none of it, bytes.
    pub native: u64,
    /// Stacks, bytes.
    pub stacks: u64,
    /// Bytes of the other processes of the group.
    pub others: u64,
    /// Bytes that live: after the last collection of the JVM, of other runtimes and of glibc's heaps now.
    pub live: Option<u64>,
    /// A lower limit that would do, bytes.
    pub could_be: Option<u64>,
    /// The warning where it does not fit.
    pub warning: Option<String>,
    /// Answer in words.
    pub sentence: String,
}

/// Memory beside the heap of the runtime.
struct Beside {
    native: u64,
    stacks: u64,
    others: u64,
}

impl Beside {
    fn of(look: &ProcessLook, group: &GroupLimit) -> Self {
        let resident = |owner| {
            look.memory
                .parts
                .get(&owner)
                .map_or(0, |part: &imas_linux::memory_parts::OwnedBytes| part.resident)
        };
        let stacks = resident(Owner::Stacks);
        let written = [Owner::Malloc, Owner::Variables, Owner::MadeCode].map(resident).iter().sum::<u64>();
        let others = [Owner::Anonymous, Owner::Named, Owner::Shared].map(resident).iter().sum::<u64>();
        // Large blocks of glibc's malloc are surely none of the heap.
        let mapped = look.heaps.as_ref().map_or(0, |heaps| heaps.mapped.min(others));
        let native = match (look.about.runtime(), &look.jvm) {
            (_, Some(jvm)) => written + others.saturating_sub(jvm.committed).max(mapped),
            // Of the rest it is not known what is the heap.
            (Some(Runtime::Node | Runtime::Dotnet), _) => written + mapped,
            // Its limit counts all that it has mapped itself.
            (Some(Runtime::Go), _) => resident(Owner::Malloc) + mapped,
            _ => written + others,
        };
        let own = written + others + stacks;
        // Page cache in use, files that are mapped and the kernel's own memory are no other processes.
        let of_group = group.written.unwrap_or(group.used);
        let others = if group.processes > 1 { of_group.saturating_sub(own) } else { 0 };
        Self { native, stacks, others }
    }

    fn sum(&self) -> u64 {
        self.native.saturating_add(self.stacks).saturating_add(self.others)
    }

    fn words(&self) -> String {
        let others = match self.others {
            0 => String::new(),
            bytes => format!(", and {} of other processes", mib(bytes)),
        };
        format!("{} of native memory and {} of stacks{others}", mib(self.native), mib(self.stacks))
    }
}

impl MemoryFit {
    /// Fit of a process; None without a limit.
    #[must_use]
    pub fn of(look: &ProcessLook) -> Option<Self> {
        let group = look.about.limit?;
        let beside = Beside::of(look, &group);
        let heap = heap_limit(look);
        let sum = heap.as_ref().map(|(most, _)| most.saturating_add(beside.sum()));
        let live = live(look);
        let warning = heap
            .as_ref()
            .filter(|_| sum.is_some_and(|sum| sum > group.limit))
            .map(|heap| warning(look, &group, heap, &beside));
        let could_be = lower(&group, sum).filter(|_| warning.is_none() && !follows_the_limit(look));
        let fit = match (&warning, could_be) {
            (Some(_), _) => FitKind::TooLarge,
            _ if group.used as f64 >= group.limit as f64 * NEAR => FitKind::Near,
            (None, Some(_)) => FitKind::CouldBeLess,
            (None, None) => FitKind::Fits,
        };
        let Beside { native, stacks, others } = beside;
        let heap_limit = heap.map(|(most, _)| most);
        let mut fit = Self {
            group,
            fit,
            heap_limit,
            native,
            stacks,
            others,
            live,
            could_be,
            warning,
            sentence: String::new(),
        };
        fit.sentence = fit.words(look.jvm.is_some());
        Some(fit)
    }

    /// Advice where the limit should change, with its evidence.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let less = |less: u64| {
            let highest = highest_words(&self.group).trim_start_matches("; ").to_owned();
            let heap = self
                .heap_limit
                .map_or_else(String::new, |most| format!(", {} with a full heap", mib(self.with_heap(most))));
            format!("{highest}{heap}: the limit could fall to {} ({RESERVE} % reserve)", mib(less))
        };
        self.warning.clone().or_else(|| self.could_be.map(less))
    }

    /// Bytes with a heap of that size.
    fn with_heap(&self, heap: u64) -> u64 {
        [self.native, self.stacks, self.others].into_iter().fold(heap, u64::saturating_add)
    }

    fn words(&self, has_jvm: bool) -> String {
        let group = &self.group;
        let share = group.used as f64 / group.limit as f64 * 100.0;
        let mut words = format!("limit of its control group: {}, {share:.0} % used", mib(group.limit));
        if group.cache >= 1 << 20 {
            words += &format!(" (and {} of page cache that could go)", mib(group.cache));
        }
        words += &highest_words(group);
        if let Some(live) = self.live {
            let when = if has_jvm { " after the last collection" } else { "" };
            words += &format!("; {} live{when}", mib(live));
        }
        if let (Some(heap), None) = (self.heap_limit, &self.warning) {
            words += &format!("; with a full heap ({}) it takes {}", mib(heap), mib(self.with_heap(heap)));
        }
        if group.oom_kills > 0 {
            words += &format!("; the kernel has killed {} of it", counted(group.oom_kills, "process"));
        }
        if let Some(less) = self.could_be {
            words += &format!("; the limit could fall to {} ({RESERVE} % reserve)", mib(less));
        }
        words
    }
}

fn highest_words(group: &GroupLimit) -> String {
    match (group.highest, group.age_s) {
        (Some(highest), Some(age)) => {
            format!("; never above {} of {} in {}", mib(highest), mib(group.limit), span(age))
        }
        (Some(highest), None) => format!("; never above {} of {}", mib(highest), mib(group.limit)),
        (None, _) => String::new(),
    }
}

/// Most bytes of the runtime's heap, and what says so: the JVM's own counters, else command line and environment.
fn heap_limit(look: &ProcessLook) -> Option<(u64, String)> {
    let by_words = look.about.runtime.as_ref().and_then(|(_, limit)| limit.clone());
    let by_counters = look.jvm.as_ref().and_then(|jvm| jvm.limit);
    match (by_counters, by_words) {
        (Some(bytes), words) => {
            let by = words.filter(|words| words.bytes > 0).map(|words| words.by);
            Some((bytes, by.unwrap_or_else(|| "-Xmx".to_owned())))
        }
        (None, Some(words)) if words.bytes > 0 => Some((words.bytes, words.by)),
        (None, _) => None,
    }
}

/// Whether the heap follows the limit: its runtime takes a share, and nobody has set bytes.
fn follows_the_limit(look: &ProcessLook) -> bool {
    let set = look.about.runtime.as_ref().and_then(|(_, limit)| limit.as_ref());
    let takes_a_share = matches!(look.about.runtime(), Some(Runtime::Jvm | Runtime::Dotnet | Runtime::Node))
        || look.jvm.is_some();
    takes_a_share && set.is_none_or(|limit| limit.bytes == 0)
}

/// Bytes that live, where that is known.
fn live(look: &ProcessLook) -> Option<u64> {
    let of_jvm = look.jvm.as_ref().filter(|jvm| jvm.collections > 0).map(|jvm| jvm.after_collection);
    let of_objects = || look.objects.iter().map(|heap| heap.live).reduce(u64::saturating_add);
    let of_heaps = || look.heaps.as_ref().ok().map(|heaps| heaps.bytes.live.saturating_add(heaps.mapped));
    of_jvm.or_else(|| match (look.about.runtime(), of_objects()) {
        (_, Some(objects)) => Some(objects.saturating_add(of_heaps().unwrap_or(0))),
        (Some(Runtime::Jvm | Runtime::Node | Runtime::Go | Runtime::Dotnet), None) => None,
        (_, None) => of_heaps(),
    })
}

/// The warning that the heap does not fit, and what would.
fn warning(look: &ProcessLook, group: &GroupLimit, (most, by): &(u64, String), beside: &Beside) -> String {
    let share = *most as f64 / group.limit as f64 * 100.0;
    let sum = most.saturating_add(beside.sum());
    let room = group.limit.saturating_sub(beside.sum()) / 100 * 95;
    // With the limit a heap would grow that is a share of it.
    let enough = (!follows_the_limit(look)).then(|| mib(suggested_limit(sum)));
    let left = look.jvm.as_ref().filter(|jvm| jvm.collections > 0).map(|jvm| jvm.after_collection);
    let larger =
        enough.as_ref().map_or_else(|| "a larger limit".to_owned(), |enough| format!("a limit of {enough}"));
    let fits = match left {
        Some(left) if left >= room => format!(
            "the last collection left {}, and only {} are free for a heap: it needs {larger}",
            mib(left),
            mib(room)
        ),
        _ if room < 16 << 20 => format!("it needs {larger}"),
        _ => {
            let or = enough.map_or_else(String::new, |enough| format!(", or a limit of {enough}"));
            format!("{by} with {} fits{or}", mib(room))
        }
    };
    let harm = if group.can_swap { "will swap, and may be killed," } else { "will be killed" };
    format!(
        "{harm} when its heap fills: heap {} ({share:.0} % of the limit), {}: {} of {}; {fits}",
        mib(*most),
        beside.words(),
        mib(sum),
        mib(group.limit)
    )
}

/// A lower limit that would do, where the group was looked after long enough.
fn lower(group: &GroupLimit, with_full_heap: Option<u64>) -> Option<u64> {
    let highest = group.highest.filter(|_| group.age_s.is_some_and(|age| age >= LEAST_AGE_S))?;
    let needed = highest.max(with_full_heap.unwrap_or(0));
    let less = suggested_limit(needed);
    let is_worth_it = less <= group.limit / 100 * LOWER.0 && group.limit - less >= LOWER.1;
    (is_worth_it && group.oom_kills == 0).then_some(less)
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use imas_linux::heap::figures::HeapFigures;
    use imas_linux::jvm_heap::JvmHeap;
    use imas_linux::running_runtime::HeapLimit;

    use super::super::parts::tests::look;
    use super::*;

    const MIB: u64 = 1 << 20;
    const DAY: f64 = 86_400.0;

    fn group(limit: u64, used: u64, highest: u64) -> GroupLimit {
        GroupLimit {
            limit: limit * MIB,
            used: used * MIB,
            highest: Some(highest * MIB),
            processes: 1,
            age_s: Some(6.0 * DAY),
            ..GroupLimit::default()
        }
    }

    /// The service of the issue: a heap of 80 % of the limit, and 700 MiB of native memory.
    fn java(limit: u64) -> ProcessLook {
        let mut look = look(&[(Owner::Anonymous, 900), (Owner::Malloc, 250), (Owner::Stacks, 50)]);
        look.about.runtime = Some((Runtime::Jvm, Some(HeapLimit { bytes: 819 * MIB, by: "-Xmx".into() })));
        look.about.limit = Some(group(limit, 950, 1000));
        look.jvm = Some(JvmHeap {
            collector: "G1".into(),
            collections: 3,
            committed: 500 * MIB,
            after_collection: 120 * MIB,
            limit: Some(819 * MIB),
            ..JvmHeap::default()
        });
        look
    }

    #[test]
    fn a_heap_that_fills_its_container_is_warned_about() {
        let fit = MemoryFit::of(&java(1024)).unwrap();
        assert_eq!((fit.fit, fit.native, fit.stacks), (FitKind::TooLarge, 650 * MIB, 50 * MIB));
        assert_eq!(
            fit.warning.as_deref(),
            Some(
                "will be killed when its heap fills: heap 819 MiB (80 % of the limit), 650 MiB of native memory and 50 MiB \
                 of stacks: 1519 MiB of 1024 MiB; -Xmx with 308 MiB fits, or a limit of 1823 MiB"
            )
        );
        assert!(fit.sentence.contains("; 120 MiB live after the last collection"), "{}", fit.sentence);
        let mut direct = java(1024);
        direct.heaps = Ok(HeapFigures { mapped: 600 * MIB, ..HeapFigures::default() });
        assert_eq!(
            MemoryFit::of(&direct).unwrap().native,
            850 * MIB,
            "direct buffers beside a heap of little"
        );
        let wide = MemoryFit::of(&java(2048)).unwrap();
        assert_eq!((wide.fit, wide.warning), (FitKind::Fits, None));
        assert!(wide.sentence.contains("with a full heap (819 MiB) it takes 1519 MiB"), "{}", wide.sentence);
        let mut full = java(1024);
        if let Some(jvm) = full.jvm.as_mut() {
            jvm.after_collection = 400 * MIB;
        }
        let warning = MemoryFit::of(&full).unwrap().warning.unwrap();
        let expected = "the last collection left 400 MiB, and only 308 MiB are free for a heap: it needs a limit of 1823 MiB";
        assert!(warning.ends_with(expected), "{warning}");
    }

    #[test]
    fn a_heap_that_follows_the_limit_needs_no_other_limit() {
        let mut share = java(1024);
        let by = HeapLimit { bytes: 0, by: "-XX:MaxRAMPercentage".into() };
        share.about.runtime = Some((Runtime::Jvm, Some(by)));
        let warning = MemoryFit::of(&share).unwrap().warning.unwrap();
        assert!(warning.ends_with("1519 MiB of 1024 MiB; -Xmx with 308 MiB fits"), "{warning}");
        let idle = group(4096, 950, 1000);
        share.about.limit = Some(idle);
        assert_eq!(MemoryFit::of(&share).unwrap().could_be, None, "its heap would shrink with the limit");
        share.about.runtime = java(1024).about.runtime;
        let fit = MemoryFit::of(&share).unwrap();
        assert_eq!(fit.could_be, Some(1823 * MIB));
        assert!(
            fit.advice().unwrap().contains(", 1519 MiB with a full heap: the limit could fall to 1823 MiB")
        );
        let mut swapping = java(1024);
        swapping.about.limit = Some(GroupLimit { can_swap: true, ..group(1024, 950, 1000) });
        let warning = MemoryFit::of(&swapping).unwrap().warning.unwrap();
        assert!(warning.starts_with("will swap, and may be killed, when its heap fills: "), "{warning}");
    }

    #[test]
    fn other_processes_of_the_group_count_too() {
        let mut look = java(2048);
        look.about.limit = Some(GroupLimit { processes: 3, ..group(2048, 1900, 2000) });
        let fit = MemoryFit::of(&look).unwrap();
        assert_eq!(fit.others, 700 * MIB);
        assert!(fit.warning.unwrap().contains("and 700 MiB of other processes"));
        let written = Some(1250 * MIB);
        look.about.limit = Some(GroupLimit { processes: 3, written, ..group(2048, 1900, 2000) });
        assert_eq!(MemoryFit::of(&look).unwrap().others, 50 * MIB, "page cache is no process");
    }

    #[test]
    fn a_limit_far_above_the_highest_use_could_fall_after_an_hour() {
        let mut look = look(&[(Owner::Malloc, 200)]);
        look.about.limit = Some(group(1024, 200, 310));
        let fit = MemoryFit::of(&look).unwrap();
        assert_eq!((fit.fit, fit.could_be), (FitKind::CouldBeLess, Some(372 * MIB)));
        assert!(fit.sentence.contains("never above 310 MiB of 1024 MiB in 6 d"), "{}", fit.sentence);
        let advice = "never above 310 MiB of 1024 MiB in 6 d: the limit could fall to 372 MiB (20 % reserve)";
        assert_eq!(fit.advice().as_deref(), Some(advice));
        let young = GroupLimit { age_s: Some(600.0), ..group(1024, 200, 310) };
        let killed = GroupLimit { oom_kills: 1, ..group(1024, 200, 310) };
        for other in [young, killed, group(1024, 200, 700), group(1024, 1000, 1020)] {
            look.about.limit = Some(other);
            assert_eq!(MemoryFit::of(&look).unwrap().could_be, None, "{other:?}");
        }
        assert_eq!(MemoryFit::of(&look).unwrap().fit, FitKind::Near);
        look.about.limit = None;
        assert_eq!(MemoryFit::of(&look), None);
    }

    #[test]
    fn what_is_the_heap_of_node_is_not_counted_twice() {
        let mut node = look(&[(Owner::Anonymous, 300), (Owner::Malloc, 60), (Owner::Stacks, 4)]);
        let by = HeapLimit { bytes: 480 * MIB, by: "--max-old-space-size".into() };
        node.about.runtime = Some((Runtime::Node, Some(by)));
        node.about.limit = Some(group(512, 380, 400));
        let fit = MemoryFit::of(&node).unwrap();
        assert_eq!((fit.native, fit.heap_limit), (60 * MIB, Some(480 * MIB)));
        assert!(fit.warning.unwrap().contains("--max-old-space-size with 426 MiB fits"), "{}", fit.sentence);
        node.heaps = Ok(HeapFigures { mapped: 40 * MIB, ..HeapFigures::default() });
        assert_eq!(MemoryFit::of(&node).unwrap().native, 100 * MIB, "large blocks are malloc's");
        node.about.limit = Some(group(640, 380, 400));
        assert_eq!(MemoryFit::of(&node).unwrap().fit, FitKind::Fits);
    }
}
