// SPDX-License-Identifier: Apache-2.0
//! Figures of one cycle of load: read from the output of known load generators, by the rules in `adapters.toml`, and from
//! `$IMAS_METRICS`; then those of its lines together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use imas_core::server_run::{Better, CycleFigures, Figure, PhaseFigures, together};
use imas_linux::environment::Variables;
use serde::Deserialize;
use serde_json::Value;

use crate::service::adapter;
use crate::service::line::LineEnd;
use crate::service::request_log::{LogsBefore, RequestLog};

/// Rules to read the output of one load generator.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    program: String,
    #[serde(default)]
    clock: Vec<String>,
    #[serde(default)]
    always_clock: bool,
    #[serde(default)]
    rate: Vec<String>,
    #[serde(default)]
    work: Vec<String>,
    #[serde(default)]
    format: Format,
    /// Files in which it logs single requests.
    log: Option<RequestLog>,
    /// How many requests it has sent, where it prints that.
    requests: Option<Rule>,
    figure: Vec<Rule>,
}

/// A load fails if more than this share of its requests failed.
const MOST_FAILED: f64 = 0.1;

#[derive(Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Text,
    Json,
    Csv,
}

/// Rule to find one figure in the output.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
struct Rule {
    name: String,
    unit: String,
    #[serde(default)]
    better: Better,
    #[serde(default)]
    after: String,
    /// Text anywhere in a line; the first numbers of all such lines are added.
    #[serde(default)]
    lines_with: String,
    #[serde(default = "first")]
    nth: usize,
    #[serde(default)]
    path: Vec<String>,
    #[serde(default)]
    column: String,
    #[serde(default)]
    number: Option<String>,
}

fn first() -> usize {
    1
}

#[derive(Deserialize)]
struct File {
    adapter: Vec<Adapter>,
}

static ADAPTERS: LazyLock<Vec<Adapter>> = LazyLock::new(|| {
    // The file is part of this program, and a test parses it.
    toml::from_str::<File>(include_str!("adapters.toml")).map(|file| file.adapter).unwrap_or_default()
});

impl Adapter {
    /// The adapter for the load generator that a shell line names.
    #[must_use]
    pub fn of(line: &str) -> Option<&'static Self> {
        let names: Vec<&str> = words(line).map(base_name).collect();
        ADAPTERS.iter().find(|adapter| names.contains(&adapter.program.as_str()))
    }

    /// Whether the line runs for a fixed time and at no fixed rate.
    #[must_use]
    pub fn is_by_clock(&self, line: &str) -> bool {
        let words: BTreeSet<&str> = words(line).collect();
        let has = |options: &[String]| {
            let is = |word: &&str, option: &String| {
                let short = option.len() == 2 && word.starts_with(option.as_str());
                *word == option || word.starts_with(&format!("{option}=")) || short
            };
            options.iter().any(|option| words.iter().any(|word| is(word, option)))
        };
        (self.always_clock || has(&self.clock)) && !has(&self.rate) && !has(&self.work)
    }

    /// The logs of requests that are there before the line runs; None if it writes none that can be read.
    pub(crate) fn logs_before(
        &self,
        line: &str,
        folder: &Path,
        variables: &Variables,
    ) -> Option<LogsBefore<'_>> {
        let words: Vec<&str> = words(line).collect();
        self.log.as_ref()?.before(&words, folder, variables)
    }

    /// The figures in the output.
    #[must_use]
    pub fn read(&self, output: &str) -> Vec<Figure> {
        let figures = self.figure.iter().filter_map(|rule| {
            let value = self.value(rule, output)?;
            Some(Figure { name: rule.name.clone(), value, unit: rule.unit.clone(), better: rule.better })
        });
        merged(figures.collect())
    }

    fn value(&self, rule: &Rule, output: &str) -> Option<f64> {
        let value = match self.format {
            Format::Text => rule.in_text(output),
            Format::Json => rule.in_json(&json(output)?),
            Format::Csv => rule.in_csv(output),
        };
        value.filter(|value| value.is_finite())
    }

    /// How many requests of a load of `wall_s` seconds failed, in words, if they are too many. None also where
    /// the output does not show it.
    pub(crate) fn too_many_failed(&self, output: &str, wall_s: f64) -> Option<String> {
        let figures = self.read(output);
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).map(|figure| figure.value);
        let failed = of("errors")?;
        let counted = self.requests.as_ref().and_then(|rule| self.value(rule, output));
        let (all, about) = match counted.filter(|all| *all > 0.0) {
            Some(all) => (all, ""),
            None => (of("rate")? * wall_s, "about "),
        };
        // Some tools leave what failed out of their rate.
        let all = all.max(failed);
        (failed > all * MOST_FAILED).then(|| format!("{failed:.0} of {about}{all:.0} requests failed"))
    }
}

/// Combines figures of the same name: counts are added, others averaged.
fn merged(figures: Vec<Figure>) -> Vec<Figure> {
    let mut names: Vec<&str> = Vec::new();
    for figure in &figures {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    let of = |name: &str| figures.iter().filter(|figure| figure.name == name).collect::<Vec<_>>();
    names.into_iter().filter_map(|name| together(&of(name))).collect()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || ";|&()'\"".contains(c)).filter(|word| !word.is_empty())
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The JSON object in the output. There may be other lines around it.
fn json(output: &str) -> Option<Value> {
    let (begin, end) = (output.find('{')?, output.rfind('}')?);
    serde_json::from_str(output.get(begin..=end)?).ok()
}

impl Rule {
    fn in_text(&self, output: &str) -> Option<f64> {
        if !self.lines_with.is_empty() {
            let lines = output.lines().filter(|line| line.contains(&self.lines_with));
            let numbers = lines.filter_map(|line| Numbers(line).next());
            return Some(numbers.fold(0.0, |sum, (number, _)| sum + number)); // a `sum` of nothing would be -0
        }
        let rest = output.lines().find_map(|line| line.trim_start().strip_prefix(self.after.as_str()))?;
        let mut numbers = Numbers(rest);
        let (value, unit) = numbers.nth(self.nth - 1)?;
        Some(self.scaled(value, unit))
    }

    fn in_json(&self, value: &Value) -> Option<f64> {
        let found = self.path.iter().try_fold(value, |value, key| value.get(key))?;
        let number = match found {
            Value::Object(map) => map.values().filter_map(Value::as_f64).sum(),
            other => other.as_f64()?,
        };
        Some(self.scaled(number, ""))
    }

    fn in_csv(&self, output: &str) -> Option<f64> {
        let mut rows = output.lines().map(|line| line.split(',').map(|cell| cell.trim().trim_matches('"')));
        let title = |cell: &str| cell.eq_ignore_ascii_case(&self.column);
        let at = rows.find_map(|mut row| row.position(title))?;
        let cell = |mut row: Box<dyn Iterator<Item = &str> + '_>| row.nth(at)?.parse::<f64>().ok();
        let values = rows.filter_map(|row| cell(Box::new(row)));
        let figures: Vec<Figure> =
            values.map(|value| Figure::lower("", self.scaled(value, ""), "x")).collect();
        together(&figures.iter().collect::<Vec<_>>()).map(|figure| figure.value)
    }

    /// Converts to the figure's unit: by the unit after the number, else by the rule.
    fn scaled(&self, value: f64, unit: &str) -> f64 {
        if self.unit != "ms" {
            return value
                * match unit {
                    "k" | "K" => 1e3,
                    "m" | "M" if self.unit == "1/s" => 1e6,
                    _ => 1.0,
                };
        }
        match if unit.is_empty() { self.number.as_deref().unwrap_or("ms") } else { unit } {
            "s" | "sec" | "secs" | "seconds" => value * 1e3,
            "us" | "µs" => value / 1e3,
            "m" => value * 60e3,
            _ => value,
        }
    }
}

/// The numbers of a line, each with the letters that follow it directly.
struct Numbers<'a>(&'a str);

impl<'a> Iterator for Numbers<'a> {
    type Item = (f64, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let begin = self.0.find(|c: char| c.is_ascii_digit())?;
        let rest = &self.0[begin..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let after = &rest[end..];
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        self.0 = &after[letters..];
        Some((rest[..end].trim_end_matches('.').parse().ok()?, &after[..letters]))
    }
}

/// Reads the lines `name value unit better` of a file that the load wrote. Other lines are skipped.
#[must_use]
pub fn metrics(file: &Path) -> Vec<Figure> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    merged(text.lines().filter_map(metric).collect())
}

fn metric(line: &str) -> Option<Figure> {
    let mut words = line.split_whitespace();
    let (name, value) = (words.next()?, words.next()?.parse::<f64>().ok().filter(|value| value.is_finite())?);
    let (unit, better) = (words.next().unwrap_or("-"), words.next().unwrap_or("lower"));
    let unit = if unit == "-" { "" } else { unit };
    match better {
        "lower" => Some(Figure::lower(name, value, unit)),
        "higher" => Some(Figure::higher(name, value, unit)),
        _ => None,
    }
}

/// The logs of requests that are there before a line runs.
pub(crate) fn logs_before(line: &str, folder: &Path, variables: &Variables) -> Option<LogsBefore<'static>> {
    Adapter::of(line)?.logs_before(line, folder, variables)
}

/// The figures of one line: from the file that it may have written, from its output, and from the requests that
/// it logged. The former have priority.
pub(crate) fn figures_of(
    line: &str,
    output: &str,
    metrics: &Path,
    logs: Option<LogsBefore<'_>>,
) -> Vec<Figure> {
    let mut figures = adapter::metrics(metrics);
    let printed = Adapter::of(line).map(|adapter| adapter.read(output)).unwrap_or_default();
    let logged = logs.map(|logs| logs.figures()).unwrap_or_default();
    for figure in printed.into_iter().chain(logged) {
        if !figures.iter().any(|known| known.name == figure.name) {
            figures.push(figure);
        }
    }
    figures
}

/// How many requests of the line failed, in words, if they are too many: some tools end well whatever fails.
pub(crate) fn too_many_failed(line: &str, end: &LineEnd) -> Option<String> {
    Adapter::of(line)?.too_many_failed(&end.output, end.wall_s)
}

/// Whether one of these lines runs for a fixed time.
pub(crate) fn is_by_clock(lines: &[String]) -> bool {
    lines.iter().any(|line| Adapter::of(line).is_some_and(|adapter| adapter.is_by_clock(line)))
}

/// The figures of all cycles and lines, combined by name.
pub(crate) fn over_all(cycles: &[CycleFigures]) -> BTreeMap<String, Figure> {
    let phases = cycles.iter().flat_map(|cycle: &CycleFigures| &cycle.phases);
    let mut named: BTreeMap<&str, Vec<&Figure>> = BTreeMap::new();
    for figure in phases.flat_map(|phase: &PhaseFigures| &phase.figures) {
        named.entry(&figure.name).or_default().push(figure);
    }
    let one = |(name, figures): (&str, Vec<&Figure>)| Some((name.to_owned(), together(&figures)?));
    named.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, output: &str) -> Vec<(String, f64)> {
        let figures = Adapter::of(line).unwrap().read(output);
        figures.into_iter().map(|figure| (figure.name, (figure.value * 1e6).round() / 1e6)).collect()
    }

    fn of(figures: &[(&str, f64)]) -> Vec<(String, f64)> {
        figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn the_file_of_adapters_is_sound() {
        let adapters = toml::from_str::<File>(include_str!("adapters.toml")).unwrap().adapter;
        for adapter in &adapters {
            let wanted = [Format::Text, Format::Json, Format::Csv].map(|format| format == adapter.format);
            for rule in adapter.figure.iter().chain(&adapter.requests) {
                let has = [
                    !rule.after.is_empty() || !rule.lines_with.is_empty(),
                    !rule.path.is_empty(),
                    !rule.column.is_empty(),
                ];
                assert_eq!(has, wanted, "{} {}", adapter.program, rule.name);
            }
        }
    }

    // The texts are the output of the programs in Debian 12.
    #[test]
    fn ab() {
        let text = "Complete requests:      2000\nFailed requests:        3\nNon-2xx responses:      2\nRequests per second:    1834.66 [#/sec] (mean)\n\
                    Percentage of the requests served within a certain time (ms)\n  50%      8\n  66%      9\n  90%     12\n  99%     21\n 100%     34 (longest request)\n";
        let want = of(&[("rate", 1834.66), ("p50", 8.0), ("p90", 12.0), ("p99", 21.0), ("errors", 5.0)]);
        assert_eq!(read("ab -q -n 2000 -c 8 http://127.0.0.1:$PORT/", text), want);
    }

    #[test]
    fn wrk() {
        let text = "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   635.91us    0.89ms  12.92ms   93.69%\n  Latency Distribution\n     50%  409.00us\n     75%  550.00us\n\
                     90%    1.20ms\n     99%    4.61ms\n  22464657 requests in 30.00s, 17.76GB read\n  Socket errors: connect 0, read 2, write 0, timeout 1\nRequests/sec: 748868.53\n";
        let want = of(&[("rate", 748868.53), ("p50", 0.409), ("p90", 1.2), ("p99", 4.61), ("errors", 3.0)]);
        assert_eq!(read("wrk --latency -t2 http://x/", text), want);
    }

    #[test]
    fn hey() {
        let text = "Summary:\n  Total:\t0.0521 secs\n  Requests/sec:\t3838.2205\n\nLatency distribution:\n  50% in 0.0021 secs\n  90% in 0.0041 secs\n  99% in 0.0082 secs\n\nStatus code distribution:\n  [200]\t190 responses\n  [403]\t1 responses\n  [502]\t2 responses\n\nError distribution:\n  [7]\tGet \"http://x/\": refused\n";
        assert_eq!(
            read("hey -n 200 http://x/", text),
            of(&[("rate", 3838.2205), ("p50", 2.1), ("p90", 4.1), ("p99", 8.2), ("errors", 10.0)])
        );
    }

    #[test]
    fn oha() {
        let text = r#"{"summary":{"requestsPerSec":1000.5},"latencyPercentiles":{"p50":0.001,"p90":0.002,"p99":0.004,"p99.9":0.008},"errorDistribution":{"aborted":2,"refused":1}}"#;
        let want = of(&[
            ("rate", 1000.5),
            ("p50", 1.0),
            ("p90", 2.0),
            ("p99", 4.0),
            ("p99.9", 8.0),
            ("errors", 3.0),
        ]);
        assert_eq!(read("/opt/oha --no-tui -j -n 100 http://x/", text), want);
    }

    #[test]
    fn redis_benchmark_has_a_row_for_each_test() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET\",\"100000.00\",\"0.3\",\"0.1\",\"0.2\",\"0.4\",\"1.0\",\"2\"\n\"GET\",\"400000.00\",\"0.3\",\"0.1\",\"0.2\",\"0.4\",\"4.0\",\"2\"\n";
        assert_eq!(
            read("redis-benchmark --csv -t set,get", text),
            of(&[("rate", 200000.0), ("p50", 0.2), ("p99", 2.0)])
        );
    }

    #[test]
    fn databases() {
        let text = "number of failed transactions: 0 (0.000%)\nlatency average = 1.254 ms\ninitial connection time = 9.1 ms\ntps = 797.448405 (without initial connection time)\n";
        assert_eq!(
            read("pgbench -t 100", text),
            of(&[("rate", 797.448405), ("mean", 1.254), ("errors", 0.0)])
        );
        let text = "    transactions:                        1000   (333.11 per sec.)\n    ignored errors:                      0      (0.00 per sec.)\nLatency (ms):\n         min:  1.1\n         avg:                                    2.97\n         99th percentile:                        5.57\n";
        assert_eq!(
            read("sysbench oltp_read_write run", text),
            of(&[("rate", 333.11), ("mean", 2.97), ("p99", 5.57), ("errors", 0.0)])
        );
        let text = "Benchmark\n\tAverage number of seconds to run all queries: 1.503 seconds\n";
        assert_eq!(read("mysqlslap --concurrency=16", text), of(&[("mean", 1503.0)]));
    }

    #[test]
    fn dnsperf() {
        let text = "  Queries sent:         1000\n  Queries lost:         2 (0.20%)\n  Queries per second:   55555.5\n  Average Latency (s):  0.000150 (min 0.00002, max 0.01)\n";
        assert_eq!(
            read("dnsperf -d q -n 1", text),
            of(&[("rate", 55555.5), ("mean", 0.15), ("errors", 2.0)])
        );
    }

    #[test]
    fn a_load_of_which_more_than_a_tenth_failed_is_known() {
        let failed = |line: &str, output: &str| Adapter::of(line).unwrap().too_many_failed(output, 2.0);
        let hey = |errors: u32| format!("  Requests/sec:\t100.0\n  [{errors}]\tGet \"http://x/\": refused\n");
        assert_eq!(failed("hey -n 200 http://x/", &hey(20)), None);
        let all = failed("hey -n 200 http://x/", &hey(200));
        assert_eq!(all.as_deref(), Some("200 of about 200 requests failed"));
        let ab = |of: u32| format!("Complete requests:      {of}\nFailed requests:        30\n");
        assert_eq!(failed("ab -n 300 http://x/", &ab(300)), None);
        let some = failed("ab -n 299 http://x/", &ab(299));
        assert_eq!(some.as_deref(), Some("30 of 299 requests failed"), "by its count and without a rate");
        let wrk = "  90 requests in 30.00s\n  Socket errors: connect 99, read 0, write 0, timeout 0\n";
        let none = failed("wrk http://x/", wrk);
        assert_eq!(none.as_deref(), Some("99 of 99 requests failed"), "it does not count them as requests");
        let pgbench = |done: &str| {
            let done = format!("number of transactions actually processed: {done}\n");
            failed("pgbench -t 10", &(done + "number of failed transactions: 8 (5.000%)\n"))
        };
        assert_eq!(pgbench("152/160"), None);
        assert_eq!(pgbench("16/24").as_deref(), Some("8 of 16 requests failed"));
        let sysbench = "    transactions:  80  (40.00 per sec.)\n    ignored errors:  9  (4.50 per sec.)\n";
        assert_eq!(failed("sysbench run", sysbench).as_deref(), Some("9 of 80 requests failed"));
        let dnsperf = "  Queries sent:         1000\n  Queries lost:         101 (10.10%)\n";
        assert_eq!(failed("dnsperf -n 1", dnsperf).as_deref(), Some("101 of 1000 requests failed"));
        for (line, output) in [
            ("hey http://x/", "  [9]\tGet \"http://x/\": refused\n"),
            ("redis-benchmark --csv", "\"test\",\"rps\"\n\"SET\",\"1.0\"\n"),
        ] {
            assert_eq!(failed(line, output), None, "nothing shows how many there were");
        }
    }

    #[test]
    fn loads_that_end_by_the_clock_are_known() {
        let by_clock = |line: &str| Adapter::of(line).unwrap().is_by_clock(line);
        for line in [
            "wrk -t2 http://x",
            "ab -t 10 http://x/",
            "ab -t10 http://x/",
            "hey -z 10s http://x",
            "pgbench -T 30",
            "sysbench --time=3 run",
        ] {
            assert!(by_clock(line), "{line}");
        }
        for line in [
            "ab -n 10 http://x/",
            "hey -z 10s -q 5 http://x",
            "wrk2 -R 100 http://x",
            "pgbench -t 30",
            "sysbench --time=0 --events=9 run",
        ] {
            assert!(!by_clock(line), "{line}");
        }
    }

    #[test]
    fn a_load_of_your_own_writes_lines() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m");
        std::fs::write(&file, "p99 1.5 ms lower\nrate 10 1/s higher\nerrors 1\nerrors 2\nnonsense\nx y z\n")
            .unwrap();
        let want = [
            Figure::lower("p99", 1.5, "ms"),
            Figure::higher("rate", 10.0, "1/s"),
            Figure::lower("errors", 3.0, ""),
        ];
        assert_eq!(metrics(&file), want);
        assert!(metrics(Path::new("/nonexistent")).is_empty());
    }
}
