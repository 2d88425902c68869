// SPDX-License-Identifier: Apache-2.0
//! The raw runs: JSON lines, appended and flushed one by one.
//!
//! A header holds for the lines after it; each session writes one. Readers skip what they do not know.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use imas_core::bench;
use imas_core::curve::Curve;
use imas_core::latency::Latency;
use imas_core::simulate::dropped::{Dropped, NotRun};
use imas_core::simulate::outputs::Varying;
use imas_core::split::Split;
use serde::{Deserialize, Serialize};

use crate::error::{Result, SuiteError};

/// First line of each session. `H` is the machine's description.
#[derive(Debug, Clone, Serialize)]
pub struct Header<H> {
    /// Always "runs".
    pub imas: &'static str,
    /// 1.
    pub schema: u32,
    /// When the session began, seconds since 1970.
    pub began_unix_s: f64,
    /// Seed of the orders.
    pub seed: u64,
    /// The machine.
    pub host: H,
    /// Version of each candidate.
    pub versions: BTreeMap<String, String>,
    /// Load of the machine before the first run, one-minute average; None when it cannot be read.
    pub load1: Option<f64>,
}

/// What a run was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// CPU and memory from outside, nothing counted inside.
    #[default]
    Measured,
    /// Every malloc call counted by the hook.
    Counted,
}

/// One run. The outside figures are those of [`bench::Run`], by the same names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Line {
    /// Name in the suite.
    pub program: String,
    /// Name in the catalogue.
    pub candidate: String,
    /// What it was for; each kind has rounds of its own.
    pub kind: Kind,
    /// When it began, seconds since 1970.
    pub at_s: f64,
    /// It counts: it ended as it should, with the output of the first run under `system`.
    pub ok: bool,
    /// Why it does not: timeout, crash, exit, output, check, ready, load or counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the program or the load said last, when it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// The figures from outside.
    #[serde(flatten)]
    pub run: bench::Run,
    /// The figures from inside; counted runs only.
    #[serde(flatten)]
    pub counts: Option<Counts>,
    /// How long the calls took; counted runs only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Where the resident memory was, as far as the hook and the allocator tell; counted runs only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// Memory through the run; counted runs only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// Load of the machine before the run, one-minute average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// The CPU it was kept on; None when it could use all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<usize>,
}

/// The paper's figures of a counted run, whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Mean nanoseconds per operation, the mean of the class means.
    pub ns_per_op: Option<f64>,
    /// (heap - malloc) / heap over address space.
    pub frag: Option<f64>,
    /// Mean heap in bytes, address space.
    pub heap_bytes: u64,
    /// Mean live bytes.
    pub live_bytes: u64,
    /// Mean resident anonymous bytes.
    pub resident_bytes: u64,
    /// Calls of all classes.
    pub ops: u64,
}

/// What names a run.
pub type Key = (String, String, Kind, u32);

impl Line {
    /// What names this run.
    #[must_use]
    pub fn key(&self) -> Key {
        (self.program.clone(), self.candidate.clone(), self.kind, self.run.round)
    }

    /// Nobody is blamed for another output where it varies.
    fn forgive(&mut self, varying: &Varying) {
        if varying.forgive(&self.program, &mut self.ok, &mut self.why) {
            self.said = None;
        }
    }
}

/// The file, open for appending.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: File,
    /// Bytes of a half-written last line that were cut off when it was opened.
    pub torn_bytes: u64,
}

/// Name of the file in its folder.
pub const FILE: &str = "runs.jsonl";

impl Record {
    /// Opens the file for appending and reads what is in it; a last line that was cut short by a kill is cut off.
    ///
    /// # Errors
    /// When it has runs and `resume` is not set, or it cannot be read or written.
    pub fn open(folder: &Path, resume: bool) -> Result<(Self, Vec<Line>)> {
        std::fs::create_dir_all(folder).map_err(SuiteError::file(folder))?;
        let path = folder.join(FILE);
        let fail = || SuiteError::file(&path);
        let mut file = File::options().read(true).append(true).create(true).open(&path).map_err(fail())?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(fail())?;
        let lines = parse(&text);
        if !lines.is_empty() && !resume {
            return Err(SuiteError::HasRuns { path });
        }
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1) as u64;
        let torn_bytes = text.len() as u64 - whole;
        if torn_bytes > 0 {
            file.set_len(whole).map_err(fail())?;
            file.seek(SeekFrom::End(0)).map_err(fail())?;
        }
        Ok((Self { path, file, torn_bytes }, lines))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one line by a single write, so that a kill leaves it whole or absent but for a torn end.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line)
            .map_err(|error| SuiteError::file(&self.path)(std::io::Error::other(error)))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(SuiteError::file(&self.path))
    }
}

/// The runs of a finished or interrupted session.
///
/// # Errors
/// When the file cannot be read.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read(path).map_err(SuiteError::file(path))?;
    Ok(parse(&text))
}

/// A round of a program.
pub type Round = (String, Kind, u32);

/// By round that was begun: the candidates of the session that began it. One that joined later has no run in it: hours may lie between, and runs of one
/// round are compared with each other.
///
/// # Errors
/// When the file cannot be read.
pub fn begun(path: &Path) -> Result<BTreeMap<Round, Rc<BTreeSet<String>>>> {
    let text = std::fs::read(path).map_err(SuiteError::file(path))?;
    let mut begun = BTreeMap::new();
    let mut candidates = Rc::new(BTreeSet::new());
    for line in whole_lines(&text) {
        if let Ok(session) = serde_json::from_slice::<Session>(line) {
            candidates = Rc::new(session.versions.into_keys().collect());
        } else if let Ok(run) = serde_json::from_slice::<Line>(line) {
            let (program, _, kind, round) = run.key();
            // Lines without a header, put together by hand, say nothing of who was in.
            if !program.is_empty() && !candidates.is_empty() {
                begun.entry((program, kind, round)).or_insert_with(|| Rc::clone(&candidates));
            }
        }
    }
    Ok(begun)
}

/// Of a header what tells who was in the session.
#[derive(Deserialize)]
struct Session {
    versions: BTreeMap<String, String>,
}

/// What was left out as a whole ([`Dropped`]).
///
/// # Errors
/// When the file cannot be read.
pub fn dropped(path: &Path) -> Result<Dropped> {
    let text = std::fs::read(path).map_err(SuiteError::file(path))?;
    let mut dropped = Dropped::default();
    for line in whole_lines(&text) {
        if let Ok(one) = serde_json::from_slice::<NotRun>(line) {
            dropped.left_out(one);
        } else if let Some(run) = run(line) {
            dropped.ran(&run.program, run.at_s);
        }
    }
    Ok(dropped)
}

/// Programs whose output varies under `system`.
///
/// # Errors
/// When the file cannot be read.
pub fn varying(path: &Path) -> Result<Varying> {
    let text = std::fs::read(path).map_err(SuiteError::file(path))?;
    Ok(varying_in(&text))
}

fn varying_in(text: &[u8]) -> Varying {
    let mut varying = Varying::default();
    for line in whole_lines(text) {
        if let Ok(said) = serde_json::from_slice(line) {
            varying.told(said);
        } else if let Some(Line { program, candidate, ok: true, run, .. }) = run(line) {
            varying.saw(&program, &candidate, run.output.as_deref());
        }
    }
    varying
}

fn run(line: &[u8]) -> Option<Line> {
    serde_json::from_slice::<Line>(line).ok().filter(|line| !line.program.is_empty())
}

fn whole_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"))
}

fn parse(text: &[u8]) -> Vec<Line> {
    let mut seen = BTreeSet::new();
    let mut lines: Vec<Line> =
        whole_lines(text).filter_map(run).filter(|line| seen.insert(line.key())).collect();
    let varying = varying_in(text);
    lines.iter_mut().for_each(|line| line.forgive(&varying));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(program: &str, round: u32) -> Line {
        let run = bench::Run { round, user_s: 0.5, output: Some("x".into()), ..Default::default() };
        let counts = Counts {
            ns_per_op: Some(1.5),
            frag: None,
            heap_bytes: 1,
            live_bytes: 2,
            resident_bytes: 3,
            ops: 4,
        };
        let counts = (round == 1).then_some(counts);
        Line { program: program.into(), candidate: "system".into(), ok: true, run, counts, ..Line::default() }
    }

    #[test]
    fn what_is_appended_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let (mut record, before) = Record::open(folder.path(), false).unwrap();
        assert!(before.is_empty());
        record.append(&serde_json::json!({"imas": "runs", "schema": 1})).unwrap();
        for round in 0..2 {
            record.append(&line("a", round)).unwrap();
        }
        assert_eq!(read(record.path()).unwrap(), [line("a", 0), line("a", 1)]);
    }

    #[test]
    fn a_round_has_the_candidates_of_the_session_that_began_it() {
        let folder = tempfile::tempdir().unwrap();
        let (mut record, _) = Record::open(folder.path(), false).unwrap();
        let header = |names: &[&str]| {
            let versions: BTreeMap<_, _> = names.iter().map(|name| (*name, "1")).collect();
            serde_json::json!({"imas": "runs", "schema": 1, "versions": versions})
        };
        record.append(&header(&["system", "a"])).unwrap();
        record.append(&line("p", 0)).unwrap();
        record.append(&header(&["system", "a", "b"])).unwrap();
        record.append(&Line { candidate: "a".into(), ..line("p", 0) }).unwrap();
        record.append(&line("p", 1)).unwrap();
        let begun = begun(record.path()).unwrap();
        let of = |round| begun[&("p".to_owned(), Kind::Measured, round)].iter().cloned().collect::<Vec<_>>();
        assert_eq!(
            (of(0), of(1)),
            (vec!["a".into(), "system".into()], vec!["a".into(), "b".into(), "system".into()])
        );
    }

    #[test]
    fn what_was_dropped_is_read_back_unless_it_ran_since() {
        let folder = tempfile::tempdir().unwrap();
        let (mut record, _) = Record::open(folder.path(), false).unwrap();
        record.append(&line("c", 0)).unwrap();
        for (name, why) in [("a", "gone"), ("b", "gone"), ("b", "fails"), ("c", "no such input")] {
            record.append(&NotRun { left_out: name.into(), why: why.into(), at_s: 1.0 }).unwrap();
        }
        record.append(&line("a", 0)).unwrap();
        let wanted = [("b", "fails"), ("c", "no such input")];
        assert_eq!(dropped(record.path()).unwrap().reasons(), BTreeMap::from(wanted));
        assert_eq!(read(record.path()).unwrap().len(), 2);
    }

    #[test]
    fn nobody_is_blamed_where_the_output_varies() {
        let folder = tempfile::tempdir().unwrap();
        let (mut record, _) = Record::open(folder.path(), false).unwrap();
        let blamed = |program: &str, round, why: &str| {
            let why = Some(why.to_owned());
            Line { ok: false, why, said: Some("what".into()), ..line(program, round) }
        };
        for one in [blamed("a", 0, "output"), blamed("a", 2, "crash"), blamed("b", 0, "output")] {
            record.append(&one).unwrap();
        }
        let said = imas_core::simulate::outputs::OutputVaries { output_varies: "a".into(), at_s: 1.0 };
        record.append(&said).unwrap();
        let lines = read(record.path()).unwrap();
        assert_eq!(lines, [line("a", 0), blamed("a", 2, "crash"), blamed("b", 0, "output")]);
        let varying = varying(record.path()).unwrap();
        assert!(varying.contains("a") && !varying.contains("b"), "{varying:?}");
    }

    /// A record from before such lines.
    #[test]
    fn nobody_is_blamed_where_system_wrote_different_things() {
        let folder = tempfile::tempdir().unwrap();
        let (mut record, _) = Record::open(folder.path(), false).unwrap();
        let blamed = Line {
            candidate: "b".into(),
            ok: false,
            why: Some("output".into()),
            said: Some("what".into()),
            ..line("a", 0)
        };
        let mut other = line("a", 2);
        other.run.output = Some("y".into());
        record.append(&blamed).unwrap();
        record.append(&line("a", 0)).unwrap();
        assert!(read(record.path()).unwrap().contains(&blamed), "one output of system");
        record.append(&other).unwrap();
        let forgiven = Line { candidate: "b".into(), ..line("a", 0) };
        assert_eq!(read(record.path()).unwrap(), [forgiven, line("a", 0), other]);
    }

    #[test]
    fn a_torn_line_is_cut_off_and_the_rest_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let (mut record, _) = Record::open(folder.path(), false).unwrap();
        record.append(&line("a", 0)).unwrap();
        record.file.write_all(b"{\"program\":\"a\",\"cand").unwrap();
        assert!(matches!(Record::open(folder.path(), false), Err(SuiteError::HasRuns { .. })));
        let (mut record, lines) = Record::open(folder.path(), true).unwrap();
        assert_eq!((lines.len(), record.torn_bytes), (1, 20));
        record.append(&line("a", 1)).unwrap();
        assert_eq!(read(record.path()).unwrap().len(), 2);
    }
}
