// SPDX-License-Identifier: Apache-2.0
//! Replays of several processes of one recorded program, such as the workers of a service, and what they predict
//! for all of them together.

use std::io::{Read, Seek};
use std::time::Duration;

use anyhow::Result;
use imas_engine::compared::ComparedCandidate;
use imas_engine::context::Context;
use imas_linux::catalogue::SYSTEM;
use imas_replay::trace::file::{Trace, TraceHeader, TraceProcess};
use imas_replay::trace::prediction::{curve, least_cpu, mean_change};
use imas_replay::trace::raw::Stop;
use imas_runs::interruption::Interruption;

use imas_replay::recording::NoProcess;
use imas_replay::replayed::{ReplayedCandidates, replay};

/// Most processes that are replayed. Each takes one more replay of every candidate.
const MOST: usize = 16;
/// Processes with fewer calls than this part of all are not replayed: they change little.
const LEAST_SHARE: f64 = 0.005;
/// Processes with fewer calls than this part of all, together, do not stand for the program.
const LEAST_OF_ALL: f64 = 0.5;

/// The processes of a trace whose replays stand for the program.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChosenProcesses {
    /// Processes with the most calls, the busiest first.
    pub(super) processes: Vec<TraceProcess>,
    /// Part of all recorded calls that these processes made, from 0 to 1.
    pub(super) share: f64,
}

/// Prediction of the replays for all processes together, as differences to the recorded run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PredictedChange {
    /// CPU seconds.
    pub(super) cpu_s: f64,
    /// Resident bytes, mean of the spans that were asked for.
    pub(super) mean_bytes: f64,
}

/// The replays of several processes under every candidate.
#[derive(Debug)]
pub(super) struct ReplayedProcesses<'a>(Vec<ReplayedCandidates<'a>>);

/// Chooses the processes that are replayed.
///
/// # Errors
/// When no process made a call that was recorded, the recording of the busiest one ended early, or the work is in
/// many more processes than are replayed.
pub(super) fn chosen(header: &TraceHeader) -> Result<ChosenProcesses, NoProcess> {
    let all: u64 = header.processes.iter().map(|process| process.counts.calls).sum();
    let counts = |process: &&TraceProcess| process.counts.calls as f64 >= LEAST_SHARE * all as f64;
    let mut processes: Vec<TraceProcess> = header.processes.iter().filter(counts).cloned().collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.counts.calls));
    processes.truncate(MOST);
    match processes.first() {
        Some(busiest) if all > 0 && busiest.stop == Stop::None => {}
        Some(busiest) if all > 0 => return Err(NoProcess::of(busiest.stop).unwrap_or(NoProcess::Nothing)),
        _ => return Err(NoProcess::nothing_recorded(header)),
    }
    let calls: u64 = processes.iter().map(|process| process.counts.calls).sum();
    let share = calls as f64 / all as f64;
    if share < LEAST_OF_ALL {
        return Err(NoProcess::Spread { processes: header.processes.len(), share });
    }
    Ok(ChosenProcesses { share, processes })
}

/// Replays each of the processes under each candidate, `runs` times.
///
/// # Errors
/// When the trace is damaged, or no replay can be made. A signal is the error
/// [`imas_runs::interruption::InterruptedBy`].
pub(super) fn replay_all<'a>(
    trace: &mut Trace<impl Read + Seek>,
    chosen: &ChosenProcesses,
    compared: &'a [ComparedCandidate<'a>],
    runs: u32,
    context: &Context,
    interruption: &Interruption,
) -> Result<ReplayedProcesses<'a>> {
    let one = |process: &TraceProcess| replay(trace, process.clone(), compared, runs, context, interruption);
    Ok(ReplayedProcesses(chosen.processes.iter().map(one).collect::<Result<_>>()?))
}

impl ReplayedProcesses<'_> {
    /// Change under a candidate. Memory is the mean of these spans, each with the same weight, in seconds
    /// since the first recorded process began.
    ///
    /// # Errors
    /// The reason why there is no prediction.
    pub(super) fn change(&self, candidate: &str, spans: &[(f64, f64)]) -> Result<PredictedChange, String> {
        let mut sum = PredictedChange { cpu_s: 0.0, mean_bytes: 0.0 };
        for process in &self.0 {
            let one = change_of(process, candidate, spans)?;
            sum.cpu_s += one.cpu_s;
            sum.mean_bytes += one.mean_bytes;
        }
        Ok(sum)
    }
}

fn ns(seconds: f64) -> u64 {
    let length = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

fn change_of(
    process: &ReplayedCandidates<'_>,
    candidate: &str,
    spans: &[(f64, f64)],
) -> Result<PredictedChange, String> {
    let found = process.candidates.iter().find(|one| one.name() == candidate);
    let found = found.ok_or_else(|| "it was not replayed".to_owned())?;
    if let Some(failure) = &found.failure {
        return Err(failure.clone());
    }
    let system = process.replays_of(SYSTEM);
    let bytes = curve(&process.looks, system, &found.replays).ok_or_else(|| "no replay".to_owned())?;
    let more: Vec<f64> =
        bytes.iter().zip(&process.looks).map(|(bytes, look)| bytes - look.bytes as f64).collect();
    let since_its_begin = |s: f64| ns(s).saturating_sub(process.process.began_ns);
    let mean = |&(from_s, to_s): &(f64, f64)| {
        let span = (since_its_begin(from_s), since_its_begin(to_s));
        let part = (span.1 - span.0) as f64 / ((to_s - from_s) * 1e9).max(1.0);
        mean_change(&process.looks, &more, span) * part // less than whole if it began within the span
    };
    Ok(PredictedChange {
        cpu_s: least_cpu(&found.replays) - least_cpu(system),
        mean_bytes: spans.iter().map(mean).sum::<f64>() / spans.len().max(1) as f64,
    })
}

#[cfg(test)]
mod tests {
    use imas_linux::catalogue::CatalogueCandidate;
    use imas_linux::sampler::Resident;
    use imas_replay::trace::prediction::{Replay, ReplayLook};
    use imas_replay::trace::program::Look;

    use super::*;
    use imas_replay::replayed::ReplayedCandidate;

    fn process(calls: u64, stop: Stop) -> TraceProcess {
        let mut process = TraceProcess { stop, ..TraceProcess::default() };
        process.counts.calls = calls;
        process
    }

    fn header(processes: Vec<TraceProcess>) -> TraceHeader {
        TraceHeader { processes, ..TraceHeader::default() }
    }

    #[test]
    fn the_workers_are_chosen_and_small_helpers_are_not() {
        let all = [3, 900, 1, 996, 100].map(|calls| process(calls, Stop::None));
        let found = chosen(&header(all.to_vec())).unwrap();
        let calls: Vec<u64> = found.processes.iter().map(|process| process.counts.calls).collect();
        assert_eq!(calls, [996, 900, 100]);
        assert!((found.share - 0.998).abs() < 1e-9, "{}", found.share);
        let many = |count| (0..count).map(|_| process(100, Stop::None)).collect();
        let found = chosen(&header(many(20))).unwrap();
        assert_eq!((found.processes.len(), found.share), (16, 0.8));
        let spread = NoProcess::Spread { processes: 40, share: 0.4 };
        assert_eq!(chosen(&header(many(40))), Err(spread));
    }

    #[test]
    fn without_calls_or_with_a_full_file_there_is_a_reason() {
        assert_eq!(chosen(&header(vec![])), Err(NoProcess::Nothing));
        assert_eq!(chosen(&header(vec![process(0, Stop::None)])), Err(NoProcess::Nothing));
        assert_eq!(chosen(&header(vec![process(9, Stop::Limit)])), Err(NoProcess::Limit));
    }

    /// A process with looks at 0 and 10 s; the replays have 100 bytes under `system` and 400 under `a`.
    fn replayed<'a>(both: &'a [ComparedCandidate<'a>], began_s: u64) -> ReplayedCandidates<'a> {
        let look = |s: u64| Look { ns: s * 1_000_000_000, bytes: 1000, cpu_ns: 0 };
        let replay = |bytes: u64, cpu_s: f64| Replay {
            cpu_s,
            looks: vec![ReplayLook { bytes, ..ReplayLook::default() }; 2],
            ..Replay::default()
        };
        let one = |candidate, replay| ReplayedCandidate { candidate, replays: vec![replay], failure: None };
        let process = TraceProcess { began_ns: began_s * 1_000_000_000, ..TraceProcess::default() };
        let candidates = vec![one(&both[0], replay(100, 1.0)), one(&both[1], replay(400, 0.5))];
        ReplayedCandidates {
            process,
            looks: vec![look(0), look(10)],
            candidates,
            outside: Resident::default(),
        }
    }

    #[test]
    fn the_changes_of_all_processes_are_added() {
        let named =
            |name: &str| CatalogueCandidate { name: name.to_owned(), ..CatalogueCandidate::default() };
        let both = [named(SYSTEM), named("a")];
        let compared = both.each_ref().map(|candidate| ComparedCandidate { candidate, obstacle: None });
        // The second process lives from the fifth second on.
        let all = ReplayedProcesses(vec![replayed(&compared, 0), replayed(&compared, 5)]);
        let change = all.change("a", &[(0.0, 10.0)]).unwrap();
        assert_eq!(change.cpu_s, -1.0);
        assert!((change.mean_bytes - 450.0).abs() < 1e-6, "{change:?}");
        // A line of 5 s and one of 1 s have the same weight: only the second has both processes.
        let by_work = all.change("a", &[(0.0, 5.0), (9.0, 10.0)]).unwrap();
        assert!((by_work.mean_bytes - 450.0).abs() < 1e-6, "and not 350 by time: {by_work:?}");
        let nothing = PredictedChange { cpu_s: 0.0, mean_bytes: 0.0 };
        assert_eq!(all.change(SYSTEM, &[(0.0, 10.0)]).unwrap(), nothing);
        assert!(all.change("b", &[(0.0, 10.0)]).is_err());
    }
}
