// SPDX-License-Identifier: Apache-2.0
//! The replays of a process under every candidate, and what they predict.

use std::ffi::OsString;
use std::io::{BufWriter, Read, Seek};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use imas_engine::compared::ComparedCandidate;
use imas_engine::context::Context;
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};
use imas_linux::environment::{Injection, Mode, Reach, Variables};
use imas_linux::measure::RunRequest;
use imas_linux::sampler::Resident;
use imas_runs::interruption::{InterruptedBy, Interruption};

use crate::reliability::{Prediction, RecordedRunFacts, ReliabilityTable, with_ranges};
use crate::trace::file::{Trace, TraceProcess};
use crate::trace::prediction::{self, Figures, Replay, least_cpu, middle, predict, recorded};
use crate::trace::program::{self, Look, ReplayProgram, TouchingLook, TouchingShares, WHOLE};

/// The replays of one candidate.
#[derive(Debug)]
pub struct ReplayedCandidate<'a> {
    /// The candidate.
    pub candidate: &'a ComparedCandidate<'a>,
    /// Replays that succeeded.
    pub replays: Vec<Replay>,
    /// The reason why there are none.
    pub failure: Option<String>,
}

/// The replays of all candidates.
#[derive(Debug)]
pub struct ReplayedCandidates<'a> {
    /// The process that was replayed.
    pub process: TraceProcess,
    /// Recorded looks, which each replay repeats.
    pub looks: Vec<Look>,
    /// The candidates in the order given.
    pub candidates: Vec<ReplayedCandidate<'a>>,
    /// Memory of the recorded run as it was measured from outside; zero where it was not.
    pub outside: Resident,
}

/// Replays the process under each candidate in turn, `runs` times.
///
/// # Errors
/// When the trace is damaged, or no replay can be made. A signal is the error [`InterruptedBy`].
pub fn replay<'a>(
    trace: &mut Trace<impl Read + Seek>,
    process: TraceProcess,
    compared: &'a [ComparedCandidate<'a>],
    runs: u32,
    context: &Context,
    interruption: &Interruption,
) -> Result<ReplayedCandidates<'a>> {
    let check = || interruption.signal().map_or(Ok(()), |signal| Err(InterruptedBy(signal)));
    let mut candidates: Vec<ReplayedCandidate<'_>> = compared.iter().map(ReplayedCandidate::of).collect();
    let replayer = Replayer::prepare(trace, process.number, context)?;
    check()?;
    let replayer = replayer.calibrated();
    check()?;
    let replayer = replayer?;
    for _ in 0..runs {
        for candidate in candidates.iter_mut().filter(|candidate| candidate.failure.is_none()) {
            candidate.add(&replayer)?;
            check()?;
        }
    }
    let outside = Resident::default();
    Ok(ReplayedCandidates { process, looks: replayer.program.looks, candidates, outside })
}

impl ReplayedCandidates<'_> {
    /// The figures of the recorded run.
    #[must_use]
    pub fn recorded(&self) -> Figures {
        self.with_unseen(recorded(&self.looks))
    }

    /// With the memory that the looks did not see: of other processes, and of a process that seldom makes a
    /// call. It is taken to be the same under every candidate. Where it may be in large blocks that only the
    /// replay under the candidate has written, it counts once.
    fn with_unseen(&self, figures: Figures) -> Figures {
        let seen = recorded(&self.looks);
        let large = self.large_bytes();
        let added = |outside: u64, seen: f64, figure: f64| {
            let unseen = (outside as f64 - seen).max(0.0);
            unseen - unseen.min(figure - seen).min(large).max(0.0)
        };
        let Resident { peak_bytes, mean_bytes, .. } = self.outside;
        Figures {
            peak_bytes: figures.peak_bytes + added(peak_bytes, seen.peak_bytes, figures.peak_bytes),
            mean_bytes: figures.mean_bytes + added(mean_bytes, seen.mean_bytes, figures.mean_bytes),
            ..figures
        }
    }

    /// The most bytes in live large blocks at a look.
    fn large_bytes(&self) -> f64 {
        let looks = middle(self.replays_of(SYSTEM)).map_or(&[][..], |replay| &replay.looks);
        looks.iter().map(|look| look.untouched.iter().sum::<u64>()).max().unwrap_or(0) as f64
    }

    /// The replays of the candidate of that name.
    #[must_use]
    pub fn replays_of(&self, name: &str) -> &[Replay] {
        let found = self.candidates.iter().find(|one| one.candidate.candidate.name == name);
        found.map_or(&[], |one| &one.replays)
    }

    /// Predicted figures of the program under a candidate; None without replays of it and of `system`.
    #[must_use]
    pub fn predicted(&self, one: &ReplayedCandidate<'_>) -> Option<Figures> {
        Some(self.with_unseen(predict(&self.looks, self.replays_of(SYSTEM), &one.replays)?))
    }

    /// Facts that show how far the predictions may be off. The allocator's part of the CPU time is 0 without
    /// a replay under `system`.
    #[must_use]
    pub fn facts(&self) -> RecordedRunFacts {
        let recorded = self.recorded();
        let own_cpu_s = Some(least_cpu(self.replays_of(SYSTEM))).filter(|cpu_s| cpu_s.is_finite());
        RecordedRunFacts {
            allocator_share: own_cpu_s.unwrap_or(0.0) / recorded.cpu_s.max(f64::MIN_POSITIVE),
            peak_bytes: recorded.peak_bytes,
            threads: u64::from(self.process.counts.threads),
        }
    }

    /// Each candidate with its prediction, where there is one.
    #[must_use]
    pub fn predictions(&self, table: &ReliabilityTable) -> Vec<(&ReplayedCandidate<'_>, Option<Prediction>)> {
        let facts = self.facts();
        let known = ReliabilityTable::default(); // what was recorded is no prediction
        let predicted = |one: &ReplayedCandidate<'_>| {
            let table = if one.candidate.candidate.is_system() { &known } else { table };
            Some(with_ranges(&self.predicted(one)?, one.name(), &facts, table))
        };
        self.candidates.iter().map(|one| (one, predicted(one))).collect()
    }
}

impl<'a> ReplayedCandidate<'a> {
    fn of(candidate: &'a ComparedCandidate<'a>) -> Self {
        Self { candidate, replays: vec![], failure: candidate.obstacle.clone() }
    }

    /// Name of the candidate in the catalogue.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.candidate.candidate.name
    }

    fn add(&mut self, replayer: &Replayer<'_>) -> Result<()> {
        match replayer.replay(self.candidate.candidate)? {
            Ok(replay) => self.replays.push(replay),
            Err(failure) => self.failure = Some(failure),
        }
        Ok(())
    }
}

const FILE: &str = "imas-replayer";
/// Time limit. A replay takes about as long as the program's calls did.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// A program that is ready for replays.
#[derive(Debug)]
pub struct Replayer<'a> {
    /// The installation.
    pub context: &'a Context,
    folder: tempfile::TempDir,
    /// Program that was written.
    pub program: ReplayProgram,
    shares: TouchingShares,
}

impl<'a> Replayer<'a> {
    /// Writes the program of one process of the trace.
    ///
    /// # Errors
    /// When the trace is damaged, or the program cannot be written.
    pub fn prepare(trace: &mut Trace<impl Read + Seek>, number: u32, context: &'a Context) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("imas-replay-").tempdir()?;
        let process = trace.header.processes.iter().find(|process| process.number == number);
        let wall_ns = process.map_or(0, |process| process.counts.wall_ns);
        let ends = program::last_events(trace.events(number)?)?;
        let out = BufWriter::new(std::fs::File::create(folder.path().join("program"))?);
        let program = program::write(trace.events(number)?, &ends, wall_ns, out)?;
        Ok(Self { context, folder, program, shares: TouchingShares([WHOLE, WHOLE, WHOLE, WHOLE]) })
    }

    /// Replays under `system` to find how much of its large blocks the program wrote.
    ///
    /// # Errors
    /// When that replay fails.
    pub fn calibrated(mut self) -> Result<Self> {
        let system = self.context.candidate(SYSTEM)?;
        let whole = self.replay(system)?.map_err(|why| anyhow!("the replay under system failed: {why}"))?;
        let looks = self.program.looks.iter().zip(&whole.looks);
        let looks: Vec<TouchingLook> = looks
            .map(|(recorded, replayed)| TouchingLook {
                recorded: recorded.bytes as f64,
                replayed: replayed.bytes as f64,
                live: replayed.untouched.map(|bytes| bytes as f64),
            })
            .collect();
        self.shares = program::fit(&looks);
        Ok(self)
    }

    /// One replay. The inner error is the reason why the candidate failed.
    ///
    /// # Errors
    /// When no replay can be made.
    pub fn replay(&self, candidate: &CatalogueCandidate) -> Result<Result<Replay, String>> {
        let file = self.context.lib_dir.join(FILE);
        let result = self.folder.path().join("result");
        let inherited = Variables::inherited();
        let injection = Injection { candidate, mode: Mode::Production, reach: Reach::Program, page: None };
        let variables = injection.variables(&inherited, &self.context.libraries)?;
        let run = RunRequest {
            file: &file,
            argv: &self.words(&result),
            variables: &variables,
            input: None,
            folder: None,
            show_output: false,
            timeout: TIMEOUT,
            still: None,
            most: None,
            cpu: None,
            prefault_bytes: 0,
        };
        let outcome = run.run().with_context(|| file.display().to_string())?;
        if outcome.timed_out || outcome.exit != 0 {
            let how = if outcome.timed_out { "took too long".to_owned() } else { ended(&outcome) };
            return Ok(Err(how));
        }
        let bytes = std::fs::read(&result).context("the replay's result")?;
        Ok(prediction::parse_result(&bytes).ok_or_else(|| "left no result".to_owned()))
    }

    fn words(&self, result: &std::path::Path) -> Vec<OsString> {
        let program: PathBuf = self.folder.path().join("program");
        let shares = self.shares.0.iter().map(|share| OsString::from(share.to_string()));
        [FILE.into(), program.into(), result.into()].into_iter().chain(shares).collect()
    }
}

fn ended(outcome: &imas_linux::measure::RunOutcome) -> String {
    let how =
        outcome.signal.map_or_else(|| format!("exit {}", outcome.exit), |signal| format!("signal {signal}"));
    match outcome.stderr_tail.trim() {
        "" => how,
        text => format!("{how}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use imas_linux::catalogue::CatalogueCandidate;

    use super::*;
    use crate::trace::prediction::ReplayLook;

    const MIB: u64 = 1 << 20;

    /// MiB as recorded and as predicted: one look at 4 MiB of the program; the replays had 4 MiB under `system` and
    /// 104 under the candidate.
    fn mib(large_mib: u64, outside_mib: u64) -> (f64, f64) {
        let named =
            |name: &str| CatalogueCandidate { name: name.to_owned(), ..CatalogueCandidate::default() };
        let both = [named(SYSTEM), named("a")];
        let compared = both.each_ref().map(|candidate| ComparedCandidate { candidate, obstacle: None });
        let untouched = [0, 0, large_mib * MIB, 0];
        let replay = |mib| {
            let look = ReplayLook { bytes: mib * MIB, untouched, ..ReplayLook::default() };
            Replay { looks: vec![look], ..Replay::default() }
        };
        let replayed =
            |(candidate, mib)| ReplayedCandidate { candidate, replays: vec![replay(mib)], failure: None };
        let candidates = compared.iter().zip([4, 104]).map(replayed).collect();
        let outside_bytes = outside_mib * MIB;
        let all = ReplayedCandidates {
            process: TraceProcess::default(),
            looks: vec![Look { ns: 1, bytes: 4 * MIB, cpu_ns: 1 }],
            candidates,
            outside: Resident { peak_bytes: outside_bytes, mean_bytes: outside_bytes, looks: 9 },
        };
        let mib = |figures: Figures| figures.peak_bytes / MIB as f64;
        (mib(all.recorded()), mib(all.predicted(&all.candidates[1]).unwrap()))
    }

    #[test]
    fn memory_that_no_look_saw_is_added_once() {
        assert_eq!(mib(0, 0), (4.0, 104.0));
        assert_eq!(mib(0, 54), (54.0, 154.0));
        // The program wrote its large blocks after the last look; the candidate has written them already.
        assert_eq!(mib(128, 114), (114.0, 114.0));
        assert_eq!(mib(30, 114), (114.0, 184.0));
    }
}
