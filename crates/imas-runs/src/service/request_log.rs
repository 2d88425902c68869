// SPDX-License-Identifier: Apache-2.0
//! Percentiles from the files in which a load generator logs its requests, one on each line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use imas_linux::environment::Variables;
use serde::Deserialize;

use crate::service::line::{NAMES, expand};
use imas_core::server_run::Figure;

/// The percentiles, and the shares of the requests that are not slower.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Rules to read the logs of one load generator.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestLog {
    /// Start of the file names. The pid of the load generator follows, and a number in the file of a thread.
    prefix: String,
    /// The option that changes the prefix.
    prefix_option: String,
    /// Options with which the lines are something other than requests.
    #[serde(default)]
    unless: Vec<String>,
    /// The word of a line that is the latency, from 1. A line in which it is not a number is skipped.
    column: usize,
    /// Milliseconds in a unit of that number.
    unit_ms: f64,
}

impl RequestLog {
    /// The logs that are there before the load runs. None if this line writes none that can be read.
    pub(crate) fn before<'a>(
        &'a self,
        words: &[&str],
        folder: &Path,
        variables: &Variables,
    ) -> Option<LogsBefore<'a>> {
        let is = |word: &str, option: &str| word.split('=').next() == Some(option);
        if words.iter().any(|word| self.unless.iter().any(|option| is(word, option))) {
            return None;
        }
        let at = words.iter().position(|word| is(word, &self.prefix_option));
        let given = at.and_then(|at| {
            words[at].split_once('=').map(|(_, value)| value).or_else(|| words.get(at + 1).copied())
        });
        let prefix = folder.join(expand(given.unwrap_or(&self.prefix), variables, &NAMES));
        Some(LogsBefore { rules: self, files: files(&prefix), prefix })
    }

    /// The latencies of a file, in ms.
    fn latencies(&self, file: &Path) -> std::io::Result<Vec<f64>> {
        let mut found = Vec::new();
        for line in BufReader::new(File::open(file)?).lines() {
            let line = line?;
            let word = line.split_whitespace().nth(self.column - 1);
            found.extend(word.and_then(|word| word.parse::<f64>().ok()).map(|value| value * self.unit_ms));
        }
        Ok(found)
    }
}

/// The logs that were there before a line of load, so that only those that it writes are read.
#[derive(Debug)]
pub(crate) struct LogsBefore<'a> {
    rules: &'a RequestLog,
    prefix: PathBuf,
    files: BTreeMap<PathBuf, SystemTime>,
}

impl LogsBefore<'_> {
    /// Percentiles of all requests in the logs that are new or changed.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let new = files(&self.prefix).into_iter().filter(|(file, at)| self.files.get(file) != Some(at));
        // A file that cannot be read has no requests: without any, there are no percentiles.
        let mut found: Vec<f64> =
            new.flat_map(|(file, _)| self.rules.latencies(&file).unwrap_or_default()).collect();
        found.retain(|latency| latency.is_finite());
        found.sort_by(f64::total_cmp);
        let figure = |(name, share): (&str, f64)| Some(Figure::lower(name, percentile(&found, share)?, "ms"));
        PERCENTILES.into_iter().filter_map(figure).collect()
    }
}

/// The least value that is not below this share of the sorted values.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * share).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

/// The files `PREFIX.PID` and `PREFIX.PID.THREAD`, with the time of their last change.
fn files(prefix: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let (Some(folder), Some(name)) = (prefix.parent(), prefix.file_name().and_then(|name| name.to_str()))
    else {
        return BTreeMap::new();
    };
    let is_log = |file: &str| {
        let rest = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| rest.split('.').all(|part| part.parse::<u32>().is_ok()))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_log));
    logs.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::adapter::Adapter;

    const THREADS: [(&str, &str); 2] = [
        ("18523", include_str!("../../tests/pgbench/pgbench_log.18523")),
        ("18523.1", include_str!("../../tests/pgbench/pgbench_log.18523.1")),
    ];

    fn write(folder: &Path, prefix: &str, logs: &[(&str, &str)]) {
        for (pid, text) in logs {
            std::fs::write(folder.join(format!("{prefix}.{pid}")), text).unwrap();
        }
    }

    fn figures(line: &str, folder: &Path, write: impl FnOnce()) -> Vec<(String, f64)> {
        let before = Adapter::of(line).unwrap().logs_before(line, folder, &Variables::new());
        write();
        let figures = before.map(|before| before.figures()).unwrap_or_default();
        figures.into_iter().map(|figure| (figure.name, figure.value)).collect()
    }

    fn named(p50: f64, p90: f64, p99: f64, p999: f64) -> Vec<(String, f64)> {
        [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999)]
            .map(|(name, value)| (name.into(), value))
            .into()
    }

    /// The logs of pgbench 15 with two threads.
    #[test]
    fn the_percentiles_are_those_of_all_threads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let found = figures("pgbench -l -c 4 -j 2 -t 25", path, || write(path, "pgbench_log", &THREADS));
        let mut all: Vec<f64> = THREADS
            .iter()
            .flat_map(|(_, text)| text.lines())
            .map(|line| line.split(' ').nth(2).unwrap().parse::<f64>().unwrap() / 1e3)
            .collect();
        all.sort_by(f64::total_cmp);
        assert_eq!(all.len(), 100);
        let found: Vec<(String, f64)> =
            found.into_iter().map(|(name, value)| (name, (value * 1e3).round() / 1e3)).collect();
        assert_eq!(found, named(all[49], all[89], all[98], all[99]));
    }

    #[test]
    fn logs_of_an_earlier_line_and_other_files_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        write(path, "pgbench_log", &THREADS);
        let found = figures("pgbench -l -t 1", path, || {
            write(path, "pgbench_log", &[("7", "0 1 2000 0 1795491292 1\n"), ("old", "0 1 9000 0 1 1\n")]);
        });
        assert_eq!(found, named(2.0, 2.0, 2.0, 2.0));
        assert_eq!(figures("pgbench -t 1", path, || ()), []);
    }

    /// With a rate and a limit of the latency, some transactions are skipped.
    #[test]
    fn another_prefix_and_skipped_transactions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for (line, prefix) in
            [("pgbench -l --log-prefix=rate -R 200 -L 1", "rate"), ("pgbench -l --log-prefix 'two'", "two")]
        {
            let text = include_str!("../../tests/pgbench/rate.18535");
            let found = figures(line, path, || write(path, prefix, &[("18535", text)]));
            assert_eq!(found, named(1.806, 25.855, 25.855, 25.855), "{line}");
        }
    }

    /// The lines are sums over intervals: no percentile can be computed from them.
    #[test]
    fn aggregated_logs_give_no_percentiles() {
        let folder = tempfile::tempdir().unwrap();
        let text = "1649114136 5815 27552565 177846919143 1078 21716\n";
        let line = "pgbench -l --aggregate-interval=10 -t 9";
        assert_eq!(figures(line, folder.path(), || write(folder.path(), "pgbench_log", &[("1", text)])), []);
    }
}
