// SPDX-License-Identifier: Apache-2.0
//! Every run as a line of JSON, written as soon as it is made: the food of `imas-lab simulate`.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context as _, Result};
use imas_core::Sample;
use imas_core::candidate::SYSTEM;
use imas_core::latency::Latency;
use imas_core::simulate::data::{Header, RawRun, RunKind};
use imas_core::simulate::outputs::{OTHER_OUTPUT, OutputVaries};
use imas_linux::clock::now_unix_s;
use imas_linux::host::Host;
use imas_linux::measure::Outcome;
use imas_report::output;

use crate::counted::Counted;
use crate::plan::Kind;

/// The open file, or standard output.
pub struct RawFile {
    out: Box<dyn Write>,
    program: String,
    outputs: Outputs,
    /// Measured runs from before the first under `system`, each with the hash of what it wrote.
    waiting: Vec<(u64, RawRun)>,
}

impl std::fmt::Debug for RawFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawFile").field("program", &self.program).finish_non_exhaustive()
    }
}

/// What the program wrote under `system`, by which the others are judged as [`imas_core::bench::compare`] does.
#[derive(Default)]
struct Outputs {
    first: Option<u64>,
    varies: bool,
}

impl Outputs {
    /// True when this is the first to show that it varies.
    fn see(&mut self, output: u64) -> bool {
        let before = self.varies;
        self.varies |= *self.first.get_or_insert(output) != output;
        self.varies && !before
    }

    /// Whether a run that wrote this counts; None while nobody can tell.
    fn allow(&self, output: u64) -> Option<bool> {
        Some(self.varies || output == self.first?)
    }
}

impl RawFile {
    /// Opens it for appending and writes a header.
    ///
    /// # Errors
    /// When it cannot be opened or written.
    pub fn append(path: &Path, program: &str, seed: u64) -> Result<Self> {
        if output::is_stdout(path) {
            return Self::begin(Box::new(std::io::stdout()), program, seed);
        }
        let named = || path.display().to_string();
        let mut file = File::options().read(true).append(true).create(true).open(path).with_context(named)?;
        if is_torn(&file).with_context(named)? {
            file.write_all(b"\n").with_context(named)?;
        }
        Self::begin(Box::new(file), program, seed)
    }

    fn begin(out: Box<dyn Write>, program: &str, seed: u64) -> Result<Self> {
        let mut raw = Self { out, program: program.to_owned(), outputs: Outputs::default(), waiting: vec![] };
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

    /// One run; `counted` is what a counted one brought. Who writes something else than `system` is blamed at once, and for
    /// nothing when `system` turns out to vary, which a line of its own says ([`OutputVaries`]).
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(
        &mut self,
        candidate: &str,
        kind: Kind,
        outcome: &Outcome,
        counted: Option<&Counted>,
    ) -> Result<()> {
        let (kind, round) = match kind {
            Kind::Warmup => return Ok(()),
            Kind::Counted { round } => (RunKind::Counted, round),
            Kind::Measured { round } => (RunKind::Measured, round),
        };
        let run = RawRun { kind, round, ..self.run(candidate, outcome, counted) };
        // What failed is out for that, whatever it wrote.
        if kind == RunKind::Counted || !run.ok {
            return self.line(&run);
        }
        if candidate == SYSTEM {
            self.line(&run)?;
            if self.outputs.see(outcome.output_hash) {
                self.line(&OutputVaries { output_varies: self.program.clone(), at_s: now_unix_s() })?;
            }
        } else {
            self.waiting.push((outcome.output_hash, run));
        }
        self.judge(None)
    }

    /// Writes the rest: without a run under `system` nobody is to blame.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.judge(Some(true))
    }

    /// Writes the runs that can be judged; `otherwise` is the word on those that cannot.
    fn judge(&mut self, otherwise: Option<bool>) -> Result<()> {
        for (output, run) in std::mem::take(&mut self.waiting) {
            match self.outputs.allow(output).or(otherwise) {
                Some(true) => self.line(&run)?,
                Some(false) => self.line(&RawRun { ok: false, why: Some(OTHER_OUTPUT.to_owned()), ..run })?,
                None => self.waiting.push((output, run)),
            }
        }
        Ok(())
    }

    fn run(&self, candidate: &str, outcome: &Outcome, counted: Option<&Counted>) -> RawRun {
        let sample = counted.map(|counted| &counted.sample);
        let figure = |get: fn(&Sample) -> u64| sample.map(get);
        RawRun {
            program: self.program.clone(),
            candidate: candidate.to_owned(),
            at_s: now_unix_s(),
            exit: outcome.exit,
            ok: outcome.exit == 0 && !outcome.timed_out && !outcome.hung,
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
            ..RawRun::default()
        }
    }

    fn line(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let line = serde_json::to_string(value)? + "\n";
        self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush()).context("the lines of runs")
    }
}

fn why(outcome: &Outcome) -> Option<String> {
    let why = match (outcome.timed_out, outcome.signal, outcome.exit) {
        _ if outcome.hung => "hang",
        (true, _, _) => "timeout",
        (false, Some(_), _) => "crash",
        (false, None, 0) => return None,
        (false, None, _) => "exit",
    };
    Some(why.to_owned())
}

/// Its last line was cut short, as by a full disk: what follows must not become part of it.
fn is_torn(file: &File) -> std::io::Result<bool> {
    let metadata = file.metadata()?;
    let Some(last) = metadata.len().checked_sub(1).filter(|_| metadata.is_file()) else {
        return Ok(false);
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

#[cfg(test)]
mod tests {
    use imas_core::simulate::data::read;

    use super::*;

    /// A file that held `before`, after these measured runs: candidate, round, and the hash of what it wrote.
    fn written(before: &str, runs: &[(&str, u32, u64)]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), before).unwrap();
        let mut raw = RawFile::append(file.path(), "p", 0).unwrap();
        for &(candidate, round, output_hash) in runs {
            let outcome = Outcome { output_hash, ..Outcome::default() };
            raw.add(candidate, Kind::Measured { round }, &outcome, None).unwrap();
        }
        raw.finish().unwrap();
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn a_torn_line_swallows_nothing() {
        let whole = "{\"imas\":\"runs\",\"schema\":1}\n";
        let torn = format!("{whole}{{\"program\":\"p\",\"cand");
        for (before, headers, unreadable) in [("", 1, 0), (whole, 2, 0), (torn.as_str(), 2, 1)] {
            let text = written(before, &[("system", 0, 1)]);
            let data = read(&text);
            assert!(text.starts_with(before));
            assert_eq!((data.headers.len(), data.runs.len()), (headers, 1), "{before:?}");
            assert_eq!(data.unreadable.len(), unreadable, "{before:?}");
        }
    }

    /// Candidates and rounds of the runs that do not count, after a look at whether all are there.
    fn blamed(runs: &[(&str, u32, u64)]) -> Vec<(String, u32)> {
        let text = written("", runs);
        let data = read(&text);
        assert_eq!((data.runs.len(), data.unreadable.len()), (runs.len(), 0), "{text}");
        let out = data.runs.into_iter().filter(|run| !run.ok);
        out.inspect(|run| assert_eq!(run.why.as_deref(), Some("output")))
            .map(|run| (run.candidate, run.round))
            .collect()
    }

    #[test]
    fn who_writes_something_else_does_not_count() {
        let a = |round| [("a".to_owned(), round)];
        let runs = [("a", 0, 2), ("b", 0, 1), ("system", 0, 1), ("system", 1, 1), ("b", 1, 1), ("a", 1, 1)];
        assert_eq!(blamed(&runs), a(0));
        assert_eq!(blamed(&[("a", 0, 2), ("system", 0, 1)]), a(0), "one round");
        assert_eq!(blamed(&[("system", 0, 1), ("system", 1, 1), ("a", 1, 2)]), a(1));
    }

    #[test]
    fn where_system_varies_nobody_is_blamed() {
        let varying = [("system", 0, 1), ("a", 0, 2), ("b", 0, 3), ("system", 1, 4), ("a", 1, 5)];
        assert!(blamed(&varying).is_empty());
        assert!(blamed(&[("a", 0, 2), ("b", 0, 3)]).is_empty(), "without a run of system");
    }
}
