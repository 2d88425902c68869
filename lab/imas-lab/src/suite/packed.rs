// SPDX-License-Identifier: Apache-2.0
//! Files of raw runs made small enough to be kept with a source tree: gzip, without keys that say nothing.
//!
//! One counted run of each program and candidate keeps its latencies, where its memory was and its memory
//! through time. All three are rounded, and the last is thinned. Other runs do not keep them: they would fill
//! the file and change no drawing.

use std::collections::HashSet;
use std::io::{Result, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use imas_cli::output_file;
use imas_core::run::{Curve, Latency};
use imas_core::split::Split;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Looks at memory that are kept in all: what a page can draw of some runs, or the rough course of many. 120
/// programs under ten candidates have 12 each, which with their latencies are 0.26 MB packed.
const LOOKS: usize = 15_000;
/// Fewest looks that are kept of each run, however many runs there are.
const FEWEST_LOOKS: usize = 8;
const MOST_LOOKS: usize = 32;

/// Counts of a packed file.
#[derive(Default)]
pub(super) struct Packed {
    /// Lines that are no JSON object, such as a torn last one, and are not in it.
    pub(super) skipped: usize,
    /// Size of the file.
    pub(super) bytes: u64,
}

/// Packs files, one after the other, into one, which is there whole or not at all. Numbers stay as they are.
pub(super) fn write(texts: &[String], path: &Path) -> Result<Packed> {
    let mut gzip = GzEncoder::new(vec![], Compression::best());
    let mut packed = Packed::default();
    let lines = || texts.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty());
    let mut shown = Shown::of(lines());
    for line in lines() {
        let Ok(object) = serde_json::from_str::<Map<String, Value>>(line) else {
            packed.skipped += 1;
            continue;
        };
        let mut kept: Map<String, Value> = object.into_iter().filter(|(_, value)| !value.is_null()).collect();
        shown.thin(&mut kept);
        serde_json::to_writer(&mut gzip, &kept)?;
        gzip.write_all(b"\n")?;
    }
    let bytes = gzip.finish()?;
    packed.bytes = bytes.len() as u64;
    output_file::write(path, &bytes)?;
    Ok(packed)
}

/// Records that are kept of some run already.
struct Shown {
    /// Program, candidate, key.
    kept: HashSet<(Value, Value, &'static str)>,
    /// Looks for each run.
    looks: usize,
}

const LATENCY: &str = "latency";
const CURVE: &str = "curve";
const SPLIT: &str = "split";

impl Shown {
    /// An empty record of what is kept, for these runs.
    fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let runs = lines.filter_map(|line| serde_json::from_str::<Map<String, Value>>(line).ok());
        let drawn: HashSet<_> =
            runs.filter(|run| run.contains_key(CURVE)).map(|run| name(&run, CURVE)).collect();
        let looks = (LOOKS / drawn.len().max(1)).clamp(FEWEST_LOOKS, MOST_LOOKS);
        Self { kept: HashSet::new(), looks }
    }

    /// Shortens latency, split and curve of a run. Only the first run of each program and candidate that
    /// counts keeps them. What cannot be read is dropped.
    fn thin(&mut self, run: &mut Map<String, Value>) {
        let looks = self.looks;
        self.keep(run, LATENCY, |latency: Latency| latency.rounded());
        self.keep(run, SPLIT, |split: Split| split.rounded());
        self.keep(run, CURVE, |curve: Curve| curve.thinned(looks));
    }

    fn keep<T: Serialize + DeserializeOwned>(
        &mut self,
        run: &mut Map<String, Value>,
        key: &'static str,
        short: impl Fn(T) -> T,
    ) {
        let Some(Ok(whole)) = run.remove(key).map(serde_json::from_value::<T>) else { return };
        let is_ok = run.get("ok").is_some_and(|ok| *ok == true);
        if is_ok && self.kept.insert(name(run, key)) {
            run.insert(key.to_owned(), json!(short(whole)));
        }
    }
}

fn name(run: &Map<String, Value>, key: &'static str) -> (Value, Value, &'static str) {
    let of = |name: &str| run.get(name).cloned().unwrap_or_default();
    (of("program"), of("candidate"), key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_runs::journal::read_text;

    #[test]
    fn packed_runs_are_read_back_without_nulls_and_torn_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl.gz");
        let text = "{\"a\":0.1234567890123,\"b\":null}\n{\"c\":1}\n{\"d\":".to_owned();
        let packed = write(&[text, "{\"e\":2}\n".to_owned()], &path).unwrap();
        assert_eq!(packed.skipped, 1);
        assert_eq!(read_text(&path).unwrap(), "{\"a\":0.1234567890123}\n{\"c\":1}\n{\"e\":2}\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        std::fs::write(&path, &std::fs::read(&path).unwrap()[..20]).unwrap();
        assert!(read_text(&path).is_err(), "a damaged file is not taken for a short one");
    }

    #[test]
    fn one_run_of_each_keeps_what_is_drawn_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl.gz");
        let numbers: Vec<u64> = (0..64).map(|i| i * 12_345).collect();
        let curve = json!({"ms": numbers, "resident_kib": numbers, "heap_kib": numbers, "live_kib": numbers});
        let run = |candidate: &str, ok: bool| {
            let latency = json!({"ns_per_tick": 0.5, "malloc": {"from": 3, "calls": [123_456]}});
            let run =
                json!({"program": "p", "candidate": candidate, "ok": ok, "latency": latency, "curve": curve});
            run.to_string()
        };
        let torn = json!({"program": "q", "candidate": "a", "ok": true, "curve": {"ms": "soon"}}).to_string();
        let lines = [run("a", false), run("a", true), run("a", true), run("b", true), torn];
        write(&[lines.join("\n")], &path).unwrap();
        let text = read_text(&path).unwrap();
        let packed: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let has = |key: &str| packed.iter().map(|run| !run[key].is_null()).collect::<Vec<_>>();
        assert_eq!(has("curve"), [false, true, false, true, false]);
        assert_eq!(has("latency"), has("curve"));
        assert_eq!(packed[1]["latency"]["malloc"], json!({"from": 3, "calls": [120_000]}));
        assert_eq!(packed[1]["curve"]["ms"].as_array().unwrap().len(), MOST_LOOKS);
    }
}
