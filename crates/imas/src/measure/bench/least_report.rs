// SPDX-License-Identifier: Apache-2.0
//! The answer of `imas bench --least-memory`: a table, a sentence, lines to paste, and a page with the rate within each
//! limit.

use anyhow::{Context as _, Result};
use imas_cli::format::{percent, size};
use imas_cli::table::Table;
use imas_cli::{message, output, output_file, table};
use imas_core::SYSTEM;
use imas_core::least_memory::{
    LeastEnd, LeastOptions, LimitEnd, LimitRun, RESERVE, Unlimited, growth_of_a_cycle, suggested_limit,
};
use imas_linux::host::{self, Host};
use imas_report::chart::{Axis, Chart, CurveLine, Curves, ReferenceLine, Spacing};
use imas_report::page::{Block, PageSection, ResultPage};
use imas_runs::service::Service;
use serde::Serialize;

use crate::command_line::bench_args::BenchArgs;

const MIB: f64 = 1048576.0;

/// Answer for one contender.
#[derive(Debug, Serialize)]
pub(super) struct LeastOfCandidate {
    pub(super) name: String,
    pub(super) candidate: String,
    pub(super) end: LeastEnd,
    /// Variables beside the candidate at its least limit.
    pub(super) variables: Vec<(String, String)>,
    /// Number of workers, where it was asked for.
    pub(super) workers: Option<u32>,
    /// Rate without a limit that its runs are compared with, 1/s.
    pub(super) rate: Option<f64>,
    pub(super) runs: Vec<LimitRun>,
}

/// Heads of the table's columns.
const HEADS: [&str; 5] = ["candidate", "works in", "vs system", "runs", ""];

/// Limits to set.
#[derive(Debug, Serialize)]
struct Suggestion {
    name: String,
    least_bytes: u64,
    limit_bytes: u64,
    request_bytes: u64,
}

/// The shape of `--json` and `--export-json`.
#[derive(Debug, Serialize)]
pub(super) struct LeastReport {
    schema: u32,
    kind: &'static str,
    service: Service,
    command: Vec<String>,
    host: Host,
    options: LeastOptions,
    unlimited: Option<Unlimited>,
    candidates: Vec<LeastOfCandidate>,
    suggestion: Option<Suggestion>,
    sentence: String,
    notes: Vec<String>,
    unusable: Vec<(String, String)>,
}

/// The one with the least limit, and that limit in bytes. Fewer workers need less, and do less.
pub(super) fn best_of(found: &[LeastOfCandidate]) -> Option<(&LeastOfCandidate, u64)> {
    let alike = found.iter().filter(|one| one.workers.is_none());
    alike.filter_map(|one| Some((one, one.end.least()?))).min_by_key(|(_, least)| *least)
}

/// Whether the search of a candidate came to its end.
fn is_settled(one: &LeastOfCandidate) -> bool {
    matches!(one.end, LeastEnd::Found(_) | LeastEnd::NoBetter(_))
}

fn sentence(found: &[LeastOfCandidate], best: Option<(&LeastOfCandidate, u64)>) -> String {
    let system = found.iter().find(|one| one.name == SYSTEM);
    let Some((best, least)) = best else {
        let why = match system.map(|one| &one.end) {
            Some(LeastEnd::Fails(why)) => format!(": {}", why.trim_end_matches('.')),
            _ => String::new(),
        };
        return format!("No least limit was found{why}.");
    };
    let works = format!("It works in {} under {}", size(least as f64), best.name);
    match system.and_then(|one| one.end.least()).filter(|_| best.name != SYSTEM) {
        Some(untouched) => {
            let change = least as f64 / untouched as f64;
            format!("{works}; untouched it needs {} ({}).", size(untouched as f64), percent(change))
        }
        None if found.len() > 1 && found.iter().all(is_settled) => {
            format!("{works}, and no candidate needs less.")
        }
        None => format!("{works}."),
    }
}

impl LeastReport {
    pub(super) fn new(
        service: &Service,
        command: &[String],
        unusable: &[(String, String)],
        options: LeastOptions,
        unlimited: Option<Unlimited>,
        found: Vec<LeastOfCandidate>,
    ) -> Self {
        let best = best_of(&found);
        let suggestion = best.map(|(one, least)| Suggestion {
            name: one.name.clone(),
            least_bytes: least,
            limit_bytes: suggested_limit(least),
            request_bytes: least,
        });
        let mut report = Self {
            schema: 1,
            kind: "least-memory",
            service: service.clone(),
            command: command.to_vec(),
            host: Host::now(),
            options,
            sentence: sentence(&found, best),
            unlimited,
            candidates: found,
            suggestion,
            notes: vec![],
            unusable: unusable.to_vec(),
        };
        report.notes = report.noise().into_iter().chain(report.growth()).collect();
        report
    }

    /// Prints it, and writes the files that were asked for.
    pub(super) fn write(&self, args: &BenchArgs) -> Result<()> {
        crate::measure::bench::export::json(args, self)?;
        if let Some(file) = &args.server.html {
            output_file::write(file, self.page().render().as_bytes())
                .with_context(|| file.display().to_string())?;
        }
        if args.json {
            return output::json(self);
        }
        let text = format!(
            "\n{}\n{}\n{}",
            table::plain(&HEADS, self.rows().into_iter()),
            self.sentence,
            self.lines()
        );
        match crate::measure::bench::export::takes_stdout(args) {
            true => message::say(text.trim_end_matches('\n')),
            false => output::text(&text)?,
        }
        self.notes.iter().for_each(|note| message::say(&format!("imas: note: {note}")));
        Ok(())
    }

    /// A row of the table for each candidate.
    fn rows(&self) -> Vec<Vec<String>> {
        let system = self.candidates.first().and_then(|one| one.end.least());
        let row = |one: &LeastOfCandidate| {
            let change = one.end.least().zip(system).filter(|_| one.name != SYSTEM);
            let (least, why) = match &one.end {
                LeastEnd::Found(bytes) => (size(*bytes as f64), String::new()),
                LeastEnd::NotSettled(bytes) => (size(*bytes as f64), "perhaps less".to_owned()),
                LeastEnd::NoBetter(bytes) => ("-".to_owned(), format!("fails in {}", size(*bytes as f64))),
                LeastEnd::Fails(why) => ("-".to_owned(), why.clone()),
            };
            let change = change.map_or_else(String::new, |(own, system)| percent(own as f64 / system as f64));
            let rate = one.rate.filter(|_| one.workers.is_some() && why.is_empty());
            let why = rate.map_or(why, |rate| format!("at {rate:.1}/s"));
            vec![one.name.clone(), least, change, one.runs.len().to_string(), why]
        };
        self.candidates.iter().map(row).collect()
    }

    /// The page for a browser.
    fn page(&self) -> ResultPage {
        let mut table = Table::new("candidates", "Least limit of each candidate", &HEADS);
        self.rows().into_iter().for_each(|row| table.push(row));
        let lines = self.lines().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        let p99 =
            self.curves("99th percentile of the latency, ms", Axis::new("ms").from_zero(), |run| run.p99);
        let notes =
            [format!("Command: {}", self.command.join(" "))].into_iter().chain(self.notes.iter().cloned());
        let section = PageSection::new;
        let latency = p99.map(|chart| section("latency", "Latency", vec![Block::Charts(vec![chart])]));
        let sections = [
            section("candidates", "Candidates", vec![Block::Table(table)]),
            section("settings", "Limits to set", vec![Block::List(lines)]),
        ];
        let method = section("method", "Method", vec![Block::List(notes.collect())]);
        ResultPage {
            title: self.service.name.clone(),
            subtitle: "The least memory in which a server does its work".to_owned(),
            result: self.sentence.clone(),
            picture: self.rates(),
            sections: sections.into_iter().chain(latency).chain([method]).collect(),
            is_group: true,
        }
    }

    /// The rate of each run over its limit; a run that was killed or failed has none.
    fn rates(&self) -> Option<Chart> {
        let most = 100.0 * (1.0 - self.unlimited?.tolerance(&self.options));
        let axis = Axis::new("per cent of the rate without a limit").from_zero();
        let rate = |one: &LeastOfCandidate, run: &LimitRun| match run.end {
            LimitEnd::Worked => Some(run.rate? / one.rate? * 100.0),
            _ => Some(0.0),
        };
        let mut curves = self.curves_of("Rate within each limit of memory", axis, rate);
        curves.references = vec![ReferenceLine {
            name: "least that passes".to_owned(),
            value: most,
            ..ReferenceLine::default()
        }];
        curves.draw()
    }

    fn curves(&self, title: &str, y: Axis, value: impl Fn(&LimitRun) -> Option<f64>) -> Option<Chart> {
        self.curves_of(title, y, |_, run| value(run)).draw()
    }

    fn curves_of(
        &self,
        title: &str,
        y: Axis,
        value: impl Fn(&LeastOfCandidate, &LimitRun) -> Option<f64>,
    ) -> Curves {
        let line = |one: &LeastOfCandidate| {
            let points = one.runs.iter().filter_map(|run| Some((run.limit? as f64 / MIB, value(one, run)?)));
            let mut points: Vec<(f64, f64)> = points.collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
            CurveLine::new(&one.name, points).dotted()
        };
        Curves {
            title: title.to_owned(),
            caption: "A dot is one run. A run that was killed, or whose load failed, has the rate 0."
                .to_owned(),
            x: Axis::new("limit of memory, MiB").spaced(Spacing::Logarithmic),
            y,
            lines: self.candidates.iter().map(line).filter(|line| !line.points.is_empty()).collect(),
            ..Curves::default()
        }
    }

    /// Lines to set the limit and the candidate by.
    fn lines(&self) -> String {
        let Some(Suggestion { name, limit_bytes, request_bytes, .. }) = &self.suggestion else {
            return String::new();
        };
        let (limit, request) = (limit_bytes >> 20, request_bytes.div_ceil(1 << 20));
        let best = self.candidates.iter().find(|one| one.name == *name);
        let set = best.map(|one| one.variables.as_slice()).unwrap_or_default();
        let set: String = set.iter().map(|(name, value)| format!("variable:    {name}={value}\n")).collect();
        let candidate = best.filter(|one| one.candidate != SYSTEM).map_or_else(String::new, |one| {
            format!("candidate:   imas apply UNIT --candidate {} --write\n", one.candidate)
        });
        format!(
            "Suggested: a limit of {limit} MiB, which is {RESERVE} % more, and a request of {request} MiB.\n\n\
             systemd:     MemoryMax={limit}M\n\
             docker:      --memory {limit}m\n\
             kubernetes:  resources: {{requests: {{memory: {request}Mi}}, limits: {{memory: {limit}Mi}}}}\n\
             {set}{candidate}"
        )
    }

    /// Note on a slowdown that could not be seen.
    fn noise(&self) -> Option<String> {
        let noise = self.unlimited?.noise;
        (noise > self.options.slower).then(|| {
            let load = host::load1().map_or_else(String::new, |load| format!(", load {load:.0}"));
            format!(
                "two runs without a limit differed by {:.0} %{load}: a limit that slows the server down by less is not seen",
                noise * 100.0
            )
        })
    }

    /// Note on a server that holds more after each cycle of the load.
    fn growth(&self) -> Option<String> {
        let more = growth_of_a_cycle(&self.candidates.first()?.runs)?;
        Some(format!(
            "the last cycle of the load added {}: a longer load needs more than these limits (--cycles N)",
            size(more as f64)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_the_least() {
        let of = |name: &str, end| LeastOfCandidate {
            name: name.to_owned(),
            candidate: name.to_owned(),
            end,
            variables: vec![],
            workers: None,
            rate: None,
            runs: vec![],
        };
        let found = [of(SYSTEM, LeastEnd::Found(400 << 20)), of("jemalloc", LeastEnd::Found(300 << 20))];
        assert_eq!(
            sentence(&found, best_of(&found)),
            "It works in 300 MiB under jemalloc; untouched it needs 400 MiB (-25 %)."
        );
        let found = [of(SYSTEM, LeastEnd::Found(400 << 20)), of("jemalloc", LeastEnd::NoBetter(300 << 20))];
        assert!(sentence(&found, best_of(&found)).ends_with("under system, and no candidate needs less."));
        let one_worker = LeastOfCandidate { workers: Some(1), ..of(SYSTEM, LeastEnd::Found(100 << 20)) };
        let found = [of(SYSTEM, LeastEnd::Found(400 << 20)), one_worker];
        assert_eq!(best_of(&found).map(|(_, least)| least >> 20), Some(400), "one worker does less");
        let found = [of(SYSTEM, LeastEnd::Fails("no port".into()))];
        assert_eq!(sentence(&found, best_of(&found)), "No least limit was found: no port.");
        let found = [of(SYSTEM, LeastEnd::Found(400 << 20))];
        assert_eq!(
            sentence(&found, best_of(&found)),
            "It works in 400 MiB under system.",
            "nothing else was tried"
        );
    }
}
