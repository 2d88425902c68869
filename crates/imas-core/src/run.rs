// SPDX-License-Identifier: Apache-2.0
//! The record of one run of a program under a candidate, its whole process tree summed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::Sample;
use crate::pace::Pace;
use crate::server_run::work::{day_figures, memory_by_work};
use crate::server_run::{Figure, ServerRun};
use crate::split::Split;
use crate::stats::significant;

/// Kind of a run: how it was made.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    /// A run as in production: nothing counted inside the program.
    #[default]
    Measured,
    /// A run under the hook, which gives the paper's figures.
    Counted,
}

/// Key of a run in a file: program, candidate, kind and round.
pub type RunKey = (String, String, RunKind, u32);

/// One run of any verb: the only format of raw runs. Units: seconds, bytes, ns.
///
/// Values that every run has are fields; values that only some executors measure are in [`RawRun::figures`]
/// by name.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct RawRun {
    /// Name of the program, or of its task in a suite.
    pub program: String,
    /// Name in the catalogue.
    pub candidate: String,
    /// Runs of one round and kind were made next to each other.
    pub round: u32,
    /// Kind of the run.
    pub kind: RunKind,
    /// Time when the run was made, seconds since the epoch.
    pub at_s: f64,
    /// Exit status, or 128 + signal.
    pub exit: i32,
    /// False when the run does not count.
    pub ok: bool,
    /// Reason why the run does not count, in a word: timeout, hang, excess, crash, exit, output, check, ready
    /// or load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The last message of the program or of its load, when the run does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Digest of what it wrote; None where it was not recorded, or it was not written down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// User CPU time of the tree.
    pub user_s: f64,
    /// System CPU time of the tree.
    pub system_s: f64,
    /// Elapsed time.
    pub wall_s: f64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Time-weighted mean of resident anonymous memory of the tree.
    pub mean_bytes: u64,
    /// Peak of resident anonymous memory of the tree.
    pub peak_bytes: u64,
    /// Context switches by waiting.
    pub voluntary_switches: u64,
    /// Context switches by preemption.
    pub involuntary_switches: u64,
    /// User-mode instructions, where counted.
    pub instructions: Option<u64>,
    /// Cycles, where counted.
    pub cycles: Option<u64>,
    /// Misses of the data TLB, where counted.
    pub dtlb_misses: Option<u64>,
    /// Last-level cache misses, where counted.
    pub cache_misses: Option<u64>,
    /// Pace of the CPU meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Normalised CPU time ([`crate::pace`]), where runs were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub even_cpu_s: Option<f64>,
    /// Whether the run's time is far from the times of the candidate's other runs; None where they were not
    /// compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlier: Option<bool>,
    /// Counted runs: mean of the four class means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_op: Option<f64>,
    /// Counted runs: fragmentation over virtual sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frag: Option<f64>,
    /// Counted runs: mean heap, virtual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_bytes: Option<u64>,
    /// Counted runs: mean of live bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_bytes: Option<u64>,
    /// Counted runs: mean of resident anonymous memory as the hook's snapshots saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Counted runs: calls of all classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops: Option<u64>,
    /// Counted runs: how long the calls took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Counted runs: where the resident memory was, as far as the hook and the allocator report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// Counted runs: memory through the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// Load of the machine before the run, one-minute average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// The CPU that it was kept on; None when it could use all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<usize>,
    /// The part of a study that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Further figures by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// Allocator that served the malloc calls of each of several programs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub served: BTreeMap<String, String>,
    /// The part of a server under load. With it `user_s` and `system_s` are of its cycles of load, and `wall_s`
    /// is of the whole run with its helpers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Box<ServerRun>>,
}

/// The part of a server in the run of a command: empty.
static NO_SERVER: LazyLock<ServerRun> = LazyLock::new(ServerRun::default);

impl RawRun {
    /// Key of this run.
    #[must_use]
    pub fn key(&self) -> RunKey {
        (self.program.clone(), self.candidate.clone(), self.kind, self.round)
    }

    /// The part of a server; empty for a command.
    #[must_use]
    pub fn of_server(&self) -> &ServerRun {
        self.server.as_deref().unwrap_or(&NO_SERVER)
    }

    /// Whether it failed by nobody's fault, before its server was started: a port was in use, say.
    #[must_use]
    pub fn is_nobodys_failure(&self) -> bool {
        self.of_server().failure.as_ref().is_some_and(|failure| !failure.stage.is_of_the_server())
    }

    /// Value of a server's figure.
    #[must_use]
    pub fn value(&self, figure: &str) -> Option<f64> {
        self.of_server().value(figure)
    }

    /// This run, of a server ([`Self::set_server`]).
    #[must_use]
    pub fn with_server(mut self, server: ServerRun) -> Self {
        self.set_server(server);
        self
    }

    /// Makes this the run of a server: its memory by work, and the fields that follow from the server's.
    pub fn set_server(&mut self, mut server: ServerRun) {
        if let Some(mean) = memory_by_work(&server) {
            server.record(Figure::lower("memory", mean, "B"));
        }
        day_figures(&server).into_iter().for_each(|figure| server.record(figure));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
        let bytes = |name| server.value(name).map_or(0, |bytes| bytes as u64);
        (self.mean_bytes, self.peak_bytes) = (bytes("memory"), bytes("memory_peak"));
        let failure = server.failure.as_ref();
        self.ok = failure.is_none();
        (self.why, self.message) =
            failure.map(|failure| (failure.why().to_owned(), failure.what.clone())).unzip();
        self.server = Some(Box::new(server));
    }

    /// User and system CPU time, seconds.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// CPU time by which runs are compared, seconds: normalised where it is known, else as it was.
    pub fn compared_cpu_s(&self) -> f64 {
        self.even_cpu_s.unwrap_or_else(|| self.cpu_s())
    }
}

// Memory of a process tree through one counted run.

/// Memory of the tree at each look: one entry a look in every list, in order of time. KiB, milliseconds.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Curve {
    /// Time of the look since the tree's first process was seen, milliseconds.
    pub ms: Vec<u64>,
    /// `Pss_Anon - LazyFree + SwapPss` of its processes, the hook's tables left out.
    pub resident_kib: Vec<u64>,
    /// rw-p anonymous and `[heap]` mappings, thread stacks and the hook's tables left out: the paper's heap,
    /// virtual.
    pub heap_kib: Vec<u64>,
    /// Usable bytes in live blocks, as the hook estimates them; zeros where forked children went on with
    /// their parent's.
    pub live_kib: Vec<u64>,
}

/// One look at a process's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemorySnapshot {
    /// Time of the look, as [`Curve::ms`].
    pub ms: u64,
    /// Resident memory, as [`Curve::resident_kib`].
    pub resident_kib: u64,
    /// Heap, as [`Curve::heap_kib`].
    pub heap_kib: u64,
    /// Live bytes, as [`Curve::live_kib`].
    pub live_kib: u64,
}

impl Curve {
    /// Looks that are kept of a run.
    pub const MOST: usize = 64;

    /// A curve through these looks.
    #[must_use]
    pub fn through(looks: &[MemorySnapshot]) -> Self {
        let list = |of: fn(&MemorySnapshot) -> u64| looks.iter().map(of).collect();
        Self {
            ms: list(|look| look.ms),
            resident_kib: list(|look| look.resident_kib),
            heap_kib: list(|look| look.heap_kib),
            live_kib: list(|look| look.live_kib),
        }
    }

    /// Looks of the curve. Where its lists differ in length, as many as the shortest has.
    #[must_use]
    pub fn looks(&self) -> Vec<MemorySnapshot> {
        let lists = self.ms.iter().zip(&self.resident_kib).zip(&self.heap_kib).zip(&self.live_kib);
        lists
            .map(|(((&ms, &resident_kib), &heap_kib), &live_kib)| MemorySnapshot {
                ms,
                resident_kib,
                heap_kib,
                live_kib,
            })
            .collect()
    }

    /// Curve of at most `most` looks of this one, evenly chosen, the first and the last among them, rounded
    /// to three digits.
    #[must_use]
    pub fn thinned(&self, most: usize) -> Self {
        const DIGITS: u32 = 3;
        let rounded = |look: MemorySnapshot| MemorySnapshot {
            ms: significant(look.ms, DIGITS),
            resident_kib: significant(look.resident_kib, DIGITS),
            heap_kib: significant(look.heap_kib, DIGITS),
            live_kib: significant(look.live_kib, DIGITS),
        };
        let looks: Vec<MemorySnapshot> = evenly(&self.looks(), most).into_iter().map(rounded).collect();
        Self::through(&looks)
    }
}

/// At most `most` of the items, evenly chosen, the first and the last among them.
pub fn evenly<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    if all.len() <= most {
        return all.to_vec();
    }
    let last = most.saturating_sub(1).max(1);
    (0..most).map(|i| all[i * (all.len() - 1) / last]).collect()
}

// How long the calls of each class took, short enough to be kept with every counted run.

/// The latency histograms of a sample. A class that was never timed has none.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Latency {
    /// Nanoseconds of one clock tick; 0 when it is not known.
    pub ns_per_tick: f64,
    /// malloc and calloc.
    #[serde(skip_serializing_if = "Buckets::is_empty")]
    pub malloc: Buckets,
    /// realloc.
    #[serde(skip_serializing_if = "Buckets::is_empty")]
    pub realloc: Buckets,
    /// Every aligned form.
    #[serde(skip_serializing_if = "Buckets::is_empty")]
    pub memalign: Buckets,
    /// free.
    #[serde(skip_serializing_if = "Buckets::is_empty")]
    pub free: Buckets,
}

/// Estimated calls by log2 of clock ticks, without the empty buckets at both ends.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Buckets {
    /// The bucket of the first entry (bucket b: 2^b <= ticks < 2^(b+1); bucket 0 holds 0 too).
    pub from: u8,
    /// Calls in it and in those that follow.
    pub calls: Vec<u64>,
}

impl Latency {
    /// Names of the classes, in the order of [`Latency::classes`] and [`Sample::classes`].
    pub const CLASSES: [&'static str; 4] = ["malloc", "realloc", "memalign", "free"];

    /// Latency histograms of a sample. None when no call was timed.
    #[must_use]
    pub fn of(sample: &Sample) -> Option<Self> {
        let [malloc, realloc, memalign, free] =
            sample.classes().map(|class| Buckets::of(&class.histogram_ticks));
        let latency = Self {
            ns_per_tick: sample.classes().into_iter().map(|class| class.ns_per_tick).fold(0.0, f64::max),
            malloc,
            realloc,
            memalign,
            free,
        };
        latency.classes().iter().any(|class| !class.is_empty()).then_some(latency)
    }

    /// The four classes: malloc, realloc, memalign, free.
    #[must_use]
    pub fn classes(&self) -> [&Buckets; 4] {
        [&self.malloc, &self.realloc, &self.memalign, &self.free]
    }

    /// These histograms with calls rounded to two digits, which is closer than samples know them, and the
    /// clock's rate to four.
    #[must_use]
    pub fn rounded(&self) -> Self {
        let [malloc, realloc, memalign, free] = self.classes().map(Buckets::rounded);
        let ns_per_tick = (self.ns_per_tick * 1e4).round() / 1e4;
        Self { ns_per_tick, malloc, realloc, memalign, free }
    }
}

impl Buckets {
    /// Buckets of a histogram that begins with bucket 0.
    #[must_use]
    pub fn of(histogram: &[u64]) -> Self {
        let first = histogram.iter().position(|&n| n > 0);
        let last = histogram.iter().rposition(|&n| n > 0);
        match (first, last) {
            (Some(first), Some(last)) if u8::try_from(first).is_ok() => {
                Self { from: u8::try_from(first).unwrap_or(0), calls: histogram[first..=last].to_vec() }
            }
            _ => Self::default(),
        }
    }

    /// Whether no call is in the buckets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Number of calls in each bucket, from bucket 0 on.
    #[must_use]
    pub fn histogram(&self) -> Vec<u64> {
        let empty = std::iter::repeat_n(0, usize::from(self.from));
        empty.chain(self.calls.iter().copied()).collect()
    }

    fn rounded(&self) -> Self {
        Self { from: self.from, calls: self.calls.iter().map(|&calls| significant(calls, 2)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::OpFigures;

    fn curve(len: u64) -> Curve {
        let look = |i| MemorySnapshot { ms: i, resident_kib: 123_456 + i, heap_kib: 2 * i, live_kib: i };
        Curve::through(&(0..len).map(look).collect::<Vec<_>>())
    }

    #[test]
    fn a_thin_curve_keeps_its_ends() {
        let thin = curve(100).thinned(8);
        assert_eq!((thin.ms.len(), thin.ms.first(), thin.ms.last()), (8, Some(&0), Some(&99)));
        assert!(thin.ms.windows(2).all(|pair| pair[0] < pair[1]), "{thin:?}");
        assert_eq!(thin.resident_kib[0], 123_000);
        assert_eq!(curve(8).thinned(8).ms, curve(8).ms);
        assert_eq!(curve(0).thinned(8), Curve::default());
        assert_eq!(curve(9).thinned(1).ms, [0]);
        assert_eq!(curve(9).thinned(0).ms, [0u64; 0]);
    }

    #[test]
    fn lists_of_different_lengths_do_no_harm() {
        let torn = Curve { live_kib: vec![7], ..curve(5) };
        assert_eq!(torn.looks().len(), 1);
        assert_eq!(Curve { ms: vec![], ..curve(5) }.thinned(3), Curve::default());
    }

    fn op(histogram_ticks: Vec<u64>) -> OpFigures {
        OpFigures { histogram_ticks, ns_per_tick: 0.5, ..OpFigures::default() }
    }

    #[test]
    fn empty_ends_are_left_out_and_come_back() {
        let sample = Sample { malloc: op(vec![0, 0, 3, 0, 123_456, 0]), ..Sample::default() };
        let latency = Latency::of(&sample).unwrap();
        assert_eq!(latency.malloc, Buckets { from: 2, calls: vec![3, 0, 123_456] });
        assert_eq!(latency.malloc.histogram(), [0, 0, 3, 0, 123_456]);
        assert_eq!(latency.rounded().malloc.calls, [3, 0, 120_000]);
        let text = serde_json::to_string(&latency).unwrap();
        assert_eq!(text, "{\"ns_per_tick\":0.5,\"malloc\":{\"from\":2,\"calls\":[3,0,123456]}}");
        assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), latency);
    }

    #[test]
    fn without_a_timed_call_there_is_nothing_to_keep() {
        assert_eq!(Latency::of(&Sample { malloc: op(vec![0; 48]), ..Sample::default() }), None);
    }
}
