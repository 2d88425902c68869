// SPDX-License-Identifier: Apache-2.0
//! The record of one run of a program under a candidate, its whole process tree summed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::curve::Curve;
use crate::latency::Latency;
use crate::pace::Pace;
use crate::server_run::day::day_figures;
use crate::server_run::work::memory_by_work;
use crate::server_run::{Figure, ServerRun};
use crate::split::Split;

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
/// What every run has is a field; what only some executors measure is in [`RawRun::figures`] by name.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct RawRun {
    /// Name of the program, that of its task in a suite.
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
    /// Whether the run's time is far from that of the candidate's other runs; None where they were not
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
    /// The part of a server under load. With it `user_s` and `system_s` are those of its cycles of load, and `wall_s`
    /// is that of the whole run with its helpers.
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
