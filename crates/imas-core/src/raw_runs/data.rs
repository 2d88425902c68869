// SPDX-License-Identifier: Apache-2.0
//! Raw runs as lines of JSON: what `imas bench --export-runs` and `imas-lab suite run` write and `imas-lab
//! simulate` reads.
//!
//! A header line names the machine; each further line is one run. Files may be joined end to end. The reader
//! is tolerant: unknown keys are ignored, missing ones take their default, and lines that are no JSON (a torn
//! last one) are counted.
//!
//! Rounds are numbered from 0 by each start. Where another start has used the numbers for the same program
//! and candidate, the rounds of the later start are moved after them, so that no run is lost and no run is
//! compared with one of another hour. A run that is there twice, in the same instant, counts once.
//!
//! Programs that were left out as a whole, in lines of raw runs.
//!
//! Runs of servers as an older IMAS wrote them: one flat object, with `service` in place of `program`.

use std::collections::{BTreeMap, HashSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{OutputVaries, Varying};
use crate::pace::Pace;
use crate::run::{RawRun, RunKind};
use crate::server_run::ServerRun;

/// First line of what one session wrote; it holds for the lines after it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct DataHeader {
    /// `runs`; `mobile` for samples of the mobile study.
    pub imas: String,
    /// Version of this format.
    pub schema: u32,
    /// Seconds since the epoch.
    pub began_unix_s: f64,
    /// Seed of the order of the runs.
    pub seed: u64,
    /// The machine, as the runner describes it.
    pub host: serde_json::Value,
    /// Version by candidate.
    pub versions: BTreeMap<String, String>,
    /// Load of the machine before the first run, one-minute average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
}

/// The [`DataHeader::imas`] of runs of commands.
const RUNS: &str = "runs";
const NAMELESS: &str = "it names no program or no candidate";

/// A line of a file of raw runs.
#[derive(Clone, PartialEq, Debug)]
pub enum Line {
    /// Header: the lines of one session begin.
    Header(DataHeader),
    /// A run.
    Run(Box<RawRun>),
    /// A program was left out.
    NotRun(NotRun),
    /// The output of a program varies.
    OutputVaries(OutputVaries),
}

impl Line {
    /// The line of that text.
    ///
    /// # Errors
    /// Why it is none of them, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        fn read<T: DeserializeOwned>(text: &str, is_one: impl FnOnce(&T) -> bool) -> Option<T> {
            serde_json::from_str(text).ok().filter(is_one)
        }
        let header = || read(text, |line: &DataHeader| !line.imas.is_empty()).map(Self::Header);
        let not_run = || read(text, |line: &NotRun| !line.left_out.is_empty()).map(Self::NotRun);
        let varies = || read(text, |_| true).map(Self::OutputVaries);
        let old_server = || {
            let line = serde_json::from_str::<ServerLine>(text).ok()?;
            line.run().map(|run| Self::Run(Box::new(run)))
        };
        match serde_json::from_str::<RawRun>(text) {
            Ok(run) if !run.program.is_empty() && !run.candidate.is_empty() => Ok(Self::Run(Box::new(run))),
            run => old_server()
                .or_else(header)
                .or_else(not_run)
                .or_else(varies)
                .ok_or_else(|| run.map_or_else(|error| error.to_string(), |_| NAMELESS.to_owned())),
        }
    }
}

/// Everything that was read from files of raw runs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Data {
    /// Headers in the order of the lines.
    pub headers: Vec<DataHeader>,
    /// Runs in the order of the lines.
    pub runs: Vec<RawRun>,
    /// Programs that were left out as a whole.
    pub dropped: Dropped,
    /// Programs whose output varies; their runs count, whatever they wrote.
    pub varying: Varying,
    /// Lines that are neither header, run nor a line about a program.
    pub unreadable: Vec<Unreadable>,
}

/// A line that is neither header nor run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// Number of the text, from 0.
    pub text: usize,
    /// Number of the line in the text, from 1.
    pub line: usize,
    /// Reason, in words.
    pub why: String,
}

impl Data {
    /// [`Dropped::reasons`].
    #[must_use]
    pub fn dropped(&self) -> BTreeMap<&str, &str> {
        self.dropped.reasons()
    }

    /// Accepts runs that failed by their output before it was known that the output varies.
    fn accept_varying_outputs(&mut self) {
        for run in &mut self.runs {
            self.varying.accept(&run.program, &mut run.ok, &mut run.why);
        }
    }
}

impl Data {
    /// How many CPUs the starts could use, as text: "2", or "1 to 2" where they differ; "unknown" without
    /// any figure.
    #[must_use]
    pub fn cpus(&self) -> String {
        let cpus = || self.headers.iter().filter_map(|header| header.host["cpus"].as_u64());
        match (cpus().min(), cpus().max()) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
            (_, Some(most)) => most.to_string(),
            _ => "unknown".to_owned(),
        }
    }
}

/// Reads the text of a file.
pub fn read(text: &str) -> Data {
    read_all([text])
}

/// Reads the texts of several files as one.
pub fn read_all<'a>(texts: impl IntoIterator<Item = &'a str>) -> Data {
    let mut data = Data::default();
    let mut rounds = Rounds::default();
    for (number, text) in texts.into_iter().enumerate() {
        let mut start = vec![];
        data.varying.begin_file();
        for (at, line) in text.lines().enumerate() {
            let mut unreadable = |why| data.unreadable.push(Unreadable { text: number, line: at + 1, why });
            if line.trim().is_empty() {
                continue;
            }
            match Line::parse(line) {
                Ok(Line::Header(header)) if header.imas == RUNS => {
                    data.headers.push(header);
                    data.runs.extend(rounds.join(std::mem::take(&mut start)));
                }
                Ok(Line::Run(run)) => {
                    data.dropped.ran(&run.program, run.at_s);
                    if run.ok {
                        data.varying.saw(&run.program, &run.candidate, run.output.as_deref());
                    }
                    start.push(*run);
                }
                Ok(Line::NotRun(line)) => data.dropped.left_out(line),
                Ok(Line::OutputVaries(line)) => data.varying.record(line),
                Ok(Line::Header(_)) => unreadable(NAMELESS.to_owned()),
                Err(why) => unreadable(why),
            }
        }
        data.runs.extend(rounds.join(start));
    }
    data.accept_varying_outputs();
    data
}

/// The numbers of rounds that earlier starts took.
#[derive(Default)]
struct Rounds {
    taken: HashSet<(String, String, RunKind, u32)>,
    /// Runs that were read, by their instant.
    seen: HashSet<(String, String, RunKind, u64)>,
    /// Number by which the rounds of the start before were moved. A start that goes on with it is moved as
    /// far.
    moved_by: u32,
    /// Number of the next free round: above every round that is taken.
    next: u32,
}

impl Rounds {
    /// The runs of one start, moved where they must be.
    fn join(&mut self, mut runs: Vec<RawRun>) -> Vec<RawRun> {
        runs.retain(|run| {
            let instant = (run.program.clone(), run.candidate.clone(), run.kind, run.at_s.to_bits());
            // Without a time two runs cannot be distinguished.
            run.at_s == 0.0 || self.seen.insert(instant)
        });
        let key = |run: &RawRun, by: u32| {
            (run.program.clone(), run.candidate.clone(), run.kind, run.round.saturating_add(by))
        };
        let is_free = |by: &u32| !runs.iter().any(|run| self.taken.contains(&key(run, *by)));
        let by = [self.moved_by, 0].into_iter().find(is_free).unwrap_or(self.next);
        self.moved_by = by;
        for run in &mut runs {
            self.taken.insert(key(run, by));
            run.round = run.round.saturating_add(by);
            self.next = self.next.max(run.round.saturating_add(1));
        }
        runs
    }
}

/// A program that a start wanted to measure and could not: it is missing, or fails by itself.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct NotRun {
    /// Name of the program.
    pub left_out: String,
    /// Reason, in words.
    pub why: String,
    /// Time when it was left out, seconds since the epoch.
    #[serde(default)]
    pub at_s: f64,
}

/// Reads lines of runs and of excluded programs one by one, and then says which programs are excluded.
///
/// The latest line about a program decides, by its time: files are given and joined in any order, so the
/// order of lines is the order of time only within one start. Lines of the same time go by their order. A line
/// without a time, as in a file made by hand, goes with the line before it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Dropped {
    /// Latest line about each program: its time, and why the program was excluded then; None for a run.
    last: BTreeMap<String, (f64, Option<String>)>,
    /// Time of the last line that has one, seconds since the epoch.
    now_s: f64,
}

impl Dropped {
    /// The program has a run from that time, seconds since the epoch; 0 where none is known.
    pub fn ran(&mut self, program: &str, at_s: f64) {
        self.record(program, at_s, None);
    }

    /// The program was left out.
    pub fn left_out(&mut self, line: NotRun) {
        self.record(&line.left_out, line.at_s, Some(line.why));
    }

    fn record(&mut self, program: &str, at_s: f64, why: Option<String>) {
        if at_s > 0.0 {
            self.now_s = at_s;
        }
        match self.last.get_mut(program) {
            Some((last_s, _)) if *last_s > self.now_s => {}
            Some(last) => *last = (self.now_s, why),
            None => {
                self.last.insert(program.to_owned(), (self.now_s, why));
            }
        }
    }

    /// Programs that were excluded and not run since, by name, each with its latest reason. Their earlier
    /// runs still count.
    #[must_use]
    pub fn reasons(&self) -> BTreeMap<&str, &str> {
        self.last.iter().filter_map(|(name, (_, why))| Some((name.as_str(), why.as_deref()?))).collect()
    }
}

/// A line of that form.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(super) struct ServerLine {
    service: String,
    candidate: String,
    round: u32,
    at_s: f64,
    took_s: f64,
    cpu_s: (f64, f64),
    pace: Option<Pace>,
    load1: Option<f64>,
    #[serde(flatten)]
    server: ServerRun,
}

impl ServerLine {
    /// The run; None if the line names no service or no candidate.
    pub(super) fn run(self) -> Option<RawRun> {
        let is_one = !self.service.is_empty() && !self.candidate.is_empty();
        let run = RawRun {
            program: self.service,
            candidate: self.candidate,
            round: self.round,
            at_s: self.at_s,
            wall_s: self.took_s,
            user_s: self.cpu_s.0,
            system_s: self.cpu_s.1,
            pace: self.pace,
            load1: self.load1,
            ..RawRun::default()
        };
        is_one.then(|| run.with_server(self.server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Pace;

    /// Lines without a time go with those before.
    #[test]
    fn a_left_out_program_is_listed_unless_it_ran_later() {
        let text = concat!(
            "{\"program\":\"c\",\"candidate\":\"system\",\"ok\":true,\"at_s\":1.0}\n",
            "{\"left_out\":\"a\",\"why\":\"not installed\",\"at_s\":2.0}\n",
            "{\"left_out\":\"b\",\"why\":\"not installed\",\"at_s\":2.0}\n",
            "{\"left_out\":\"c\",\"why\":\"no input\"}\n",
            "{\"left_out\":\"a\",\"why\":\"fails\"}\n",
            "{\"program\":\"b\",\"candidate\":\"system\",\"ok\":true}\n",
        );
        let data = read(text);
        assert!(data.unreadable.is_empty(), "{:?}", data.unreadable);
        assert_eq!(data.dropped(), BTreeMap::from([("a", "fails"), ("c", "no input")]));
    }

    #[test]
    fn no_candidate_is_rejected_when_the_output_varies() {
        let run = |program: &str, why: &str| {
            format!("{{\"program\":\"{program}\",\"candidate\":\"a\",\"ok\":false,\"why\":\"{why}\"}}\n")
        };
        let varies = "{\"output_varies\":\"p\",\"at_s\":1.0}\n".to_owned();
        let data = read(&(run("p", "output") + &run("p", "crash") + &run("q", "output") + &varies));
        assert!(data.unreadable.is_empty(), "{:?}", data.unreadable);
        let whys: Vec<_> = data.runs.iter().map(|run| (run.ok, run.why.as_deref())).collect();
        assert_eq!(whys, [(true, None), (false, Some("crash")), (false, Some("output"))]);
    }

    /// A file from before such lines: the output of `system` decides. In files of two machines it may differ
    /// without varying.
    #[test]
    fn no_candidate_is_rejected_when_outputs_of_system_differ() {
        let run = |candidate: &str, round: u32, output: &str| {
            let ok = candidate == "system" || output == "1";
            let why = if ok { "" } else { ",\"why\":\"output\"" };
            format!(
                "{{\"program\":\"p\",\"candidate\":\"{candidate}\",\"round\":{round},\"ok\":{ok},\"output\":\"{output}\"{why}}}\n"
            )
        };
        let one = run("system", 0, "1") + &run("a", 0, "2");
        let rejected = |texts: &[&str]| {
            let data = read_all(texts.iter().copied());
            assert!(data.unreadable.is_empty(), "{:?}", data.unreadable);
            data.runs.iter().filter(|run| !run.ok).count()
        };
        assert_eq!(rejected(&[&one]), 1);
        assert_eq!(rejected(&[&(one.clone() + &run("system", 1, "3"))]), 0);
        assert_eq!(rejected(&[&one, &run("system", 1, "3")]), 1, "of another machine");
        let failed = run("system", 1, "3").replace("true", "false");
        assert_eq!(rejected(&[&(one.clone() + &failed)]), 2, "the output of a failed run is no evidence");
    }

    #[test]
    fn starts_on_fewer_cpus_are_reported() {
        let header = |cpus: u32| format!("{{\"imas\":\"runs\",\"schema\":1,\"host\":{{\"cpus\":{cpus}}}}}\n");
        assert_eq!(read(&header(2)).cpus(), "2");
        assert_eq!(read(&(header(2) + &header(1))).cpus(), "1 to 2");
        assert_eq!(read("").cpus(), "unknown");
    }

    #[test]
    fn tolerates_what_it_does_not_know() {
        let text = concat!(
            "{\"imas\":\"runs\",\"schema\":1,\"new\":true}\n\n",
            "{\"program\":\"p\",\"candidate\":\"system\",\"ok\":true,\"user_s\":0.5,\"later\":[1]}\n",
            "{\"program\":\"p\",\"candidate\":\"system\",\"kind\":\"counted\",\"ops\":7}\n",
            "{\"program\":\"p\",\"candi"
        );
        let data = read(text);
        assert_eq!((data.headers.len(), data.runs.len()), (1, 2));
        let unreadable: Vec<_> = data.unreadable.iter().map(|one| (one.text, one.line)).collect();
        assert_eq!(unreadable, [(0, 5)]);
        assert_eq!((data.runs[0].kind, data.runs[0].user_s), (RunKind::Measured, 0.5));
        assert_eq!((data.runs[1].kind, data.runs[1].ops), (RunKind::Counted, Some(7)));
    }

    fn start(at_s: f64, rounds: std::ops::Range<u32>) -> String {
        let runs = rounds.map(|round| {
            let at_s = at_s + f64::from(round);
            format!("{{\"program\":\"p\",\"candidate\":\"system\",\"ok\":true,\"round\":{round},\"at_s\":{at_s}}}\n")
        });
        format!("{{\"imas\":\"runs\",\"schema\":1}}\n{}", runs.collect::<String>())
    }

    #[test]
    fn rounds_of_separate_starts_do_not_clash() {
        // Begun, gone on with, begun anew and gone on with: 0 to 3, then 4 to 6.
        let text = start(10.0, 0..2) + &start(20.0, 2..4) + &start(30.0, 0..1) + &start(40.0, 1..3);
        let rounds = |data: Data| data.runs.iter().map(|run| run.round).collect::<Vec<_>>();
        assert_eq!(rounds(read(&text)), [0, 1, 2, 3, 4, 5, 6]);
        let files = [start(10.0, 0..2), start(30.0, 0..2), start(10.0, 0..2)];
        let joined = read_all(files.iter().map(String::as_str));
        assert_eq!(rounds(joined), [0, 1, 2, 3], "the third file is the first");
    }

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let run = RawRun {
            program: "p".into(),
            candidate: "c".into(),
            pace: Some(Pace { looks: 2, ..Pace::default() }),
            ..RawRun::default()
        };
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(read(&text).runs, [run]);
    }

    fn left_out(name: &str, why: &str, at_s: f64) -> NotRun {
        NotRun { left_out: name.into(), why: why.into(), at_s }
    }

    #[test]
    fn the_last_word_by_the_clock_counts() {
        let mut dropped = Dropped::default();
        // The later start's file was given first.
        dropped.left_out(left_out("a", "no input", 20.0));
        dropped.ran("b", 21.0);
        dropped.left_out(left_out("a", "not installed", 10.0));
        dropped.left_out(left_out("b", "not installed", 10.0));
        dropped.ran("a", 11.0);
        assert_eq!(dropped.reasons(), BTreeMap::from([("a", "no input")]));
    }
}
