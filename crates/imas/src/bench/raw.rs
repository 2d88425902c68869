// SPDX-License-Identifier: Apache-2.0
//! Every run as a line of JSON, written as soon as it is made: the food of `imas simulate`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use imas_core::Sample;
use imas_core::latency::Latency;
use imas_core::simulate::data::{Header, RawRun, RunKind};
use imas_linux::clock::now_unix_s;
use imas_linux::host::Host;
use imas_linux::measure::Outcome;

use super::counted::Counted;

/// The open file.
pub(super) struct RawFile {
    file: File,
    program: String,
}

impl RawFile {
    /// Opens it for appending and writes a header.
    pub(super) fn append(path: &Path, program: &str, seed: u64) -> Result<Self> {
        let file = File::options().append(true).create(true).open(path);
        let mut raw =
            Self { file: file.with_context(|| path.display().to_string())?, program: program.to_owned() };
        raw.line(&Header {
            imas: "runs".to_owned(),
            schema: 1,
            began_unix_s: now_unix_s(),
            seed,
            host: serde_json::to_value(Host::now())?,
            ..Header::default()
        })?;
        Ok(raw)
    }

    /// One run; `counted` is what a counted one brought.
    pub(super) fn add(
        &mut self,
        candidate: &str,
        round: u32,
        outcome: &Outcome,
        counted: Option<&Counted>,
    ) -> Result<()> {
        let sample = counted.map(|counted| &counted.sample);
        let figure = |get: fn(&Sample) -> u64| sample.map(get);
        self.line(&RawRun {
            program: self.program.clone(),
            candidate: candidate.to_owned(),
            round,
            kind: if sample.is_some() { RunKind::Counted } else { RunKind::Measured },
            at_s: now_unix_s(),
            exit: outcome.exit,
            ok: outcome.exit == 0 && !outcome.timed_out,
            why: why(outcome),
            user_s: outcome.user_s,
            system_s: outcome.system_s,
            wall_s: outcome.wall_s,
            minor_faults: outcome.minor_faults,
            major_faults: outcome.major_faults,
            mean_bytes: outcome.resident.mean_bytes,
            peak_bytes: outcome.resident.peak_bytes,
            instructions: outcome.counts.instructions,
            cycles: outcome.counts.cycles,
            dtlb_misses: outcome.counts.dtlb_misses,
            cache_misses: outcome.counts.cache_misses,
            pace: outcome.pace,
            ns_per_op: sample.and_then(Sample::ns_per_op),
            frag: sample.and_then(Sample::frag_virtual),
            heap_bytes: figure(|s| s.memory.heap_mean),
            live_bytes: figure(|s| s.memory.live_mean),
            resident_bytes: figure(|s| s.memory.resident_mean),
            ops: figure(|s| s.classes().iter().map(|class| class.calls).sum()),
            latency: sample.and_then(Latency::of),
            split: sample.and_then(|sample| sample.memory.split),
            curve: counted.and_then(|counted| counted.curve.clone()),
        })
    }

    fn line(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let line = serde_json::to_string(value)? + "\n";
        self.file.write_all(line.as_bytes()).context("the file of runs")
    }
}

fn why(outcome: &Outcome) -> Option<String> {
    let why = match (outcome.timed_out, outcome.signal, outcome.exit) {
        (true, _, _) => "timeout",
        (false, Some(_), _) => "crash",
        (false, None, 0) => return None,
        (false, None, _) => "exit",
    };
    Some(why.to_owned())
}
