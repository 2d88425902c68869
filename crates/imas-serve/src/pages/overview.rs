// SPDX-License-Identifier: Apache-2.0
//! The first page: what the programs gained and could gain, what is tried, what is in quarantine, how the
//! daemon is.

use imas_cli::format::{self, counted, when};
use imas_cli::table::Table;
use imas_core::stats::{Interval, median};
use imas_report::chart::{BarRow, Bars, Chart};
use imas_report::page::{Block, PageSection, ResultPage};
use serde_json::json;

use super::{Answer, Failure, dash, saved};
use crate::keeper::{DaemonFacts, ServedState, Shared, StoreFacts};
use crate::line::{Gain, ProgramLine};
use crate::listing::{Listed, Order, Words, short};

/// Programs in the picture.
const DRAWN: usize = 12;
/// Rows of trials and of quarantines.
const MOST: usize = 200;

const ORDERS: [Order<ProgramLine>; 7] = [
    Order {
        word: "gained",
        falls: true,
        compare: |a, b| a.gained_together().total_cmp(&b.gained_together()),
    },
    Order {
        word: "possible",
        falls: true,
        compare: |a, b| a.possible_together().total_cmp(&b.possible_together()),
    },
    Order { word: "name", falls: false, compare: |a, b| a.name.cmp(&b.name) },
    Order { word: "candidate", falls: false, compare: |a, b| a.candidate.cmp(&b.candidate) },
    Order { word: "state", falls: false, compare: |a, b| a.standing.cmp(b.standing) },
    Order { word: "trials", falls: true, compare: |a, b| a.trials.cmp(&b.trials) },
    Order { word: "resident", falls: true, compare: |a, b| a.resident_bytes.cmp(&b.resident_bytes) },
];
const COLUMNS: [(&str, Option<&str>); 9] = [
    ("program", Some("name")),
    ("candidate", Some("candidate")),
    ("state", Some("state")),
    ("CPU", None),
    ("memory", None),
    ("together", Some("gained")),
    ("possible beyond", Some("possible")),
    ("resident", Some("resident")),
    ("trials", Some("trials")),
];

/// `/`
pub(crate) fn answer(_: &Shared, known: &ServedState, words: &Words) -> Result<Answer, Failure> {
    let listed = Listed::new(("/", words), known.lines(), |line| &line.name, &ORDERS);
    let data = json!({
        "schema": 1,
        "generation": known.generation,
        "made_unix_s": known.made_unix_s,
        "programs_known": known.programs.len(),
        "programs_found": listed.found,
        "programs": listed.shown,
        "daemon": known.daemon,
        "store": known.store,
    });
    let page = ResultPage {
        title: "Programs and their allocators".to_owned(),
        result: result(known),
        picture: picture(known),
        sections: vec![
            PageSection::new("programs", "Programs", programs(&listed)),
            PageSection::new("trials", "Trials under way", vec![trials(known)]),
            PageSection::new("quarantine", "Quarantine", quarantine(known)),
            PageSection::new("daemon", "Daemon and store", health(known)),
        ],
        ..ResultPage::default()
    };
    Ok(Answer { page, data })
}

fn result(known: &ServedState) -> String {
    if let Some(why) = known.store.obstacle.as_ref().filter(|_| known.programs.is_empty()) {
        return format!("No program is shown. The store: {why}.");
    }
    let served: Vec<&ProgramLine> = known.served().collect();
    let gains: Vec<f64> = served.iter().filter_map(|line| Some(line.gained.as_ref()?.together())).collect();
    let median = median(&gains).map_or(String::new(), |gain| {
        format!("; the median change of CPU time and memory together is {}", saved(gain))
    });
    let bytes: f64 =
        served.iter().filter_map(|line| Some(line.gained.as_ref()?.saved_bytes(line.resident_bytes?))).sum();
    let memory = match bytes.abs() >= 1_048_576.0 {
        true => format!(" One process of each holds {}.", format::size_change(-bytes)),
        false => String::new(),
    };
    let all = counted(known.programs.len(), "program");
    match served.len() {
        0 => format!("{all} known; none is started under another allocator than system yet."),
        count => format!("{count} of {all} start under another allocator than system{median}.{memory}"),
    }
}

fn picture(known: &ServedState) -> Option<Chart> {
    let worth = |line: &&ProgramLine| line.gained_together().abs().max(line.possible_together());
    let mut lines: Vec<&ProgramLine> = known.lines().filter(|line| worth(line) > 0.0).collect();
    lines.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    let bar = |fraction: f64| Interval { lo: fraction * 100.0, mid: fraction * 100.0, hi: fraction * 100.0 };
    let row = |line: &&ProgramLine| BarRow {
        name: file_name(&line.name),
        bars: vec![bar(-line.gained_together()), bar(-line.possible_together())],
    };
    Bars {
        title: "Change of CPU time and memory, per cent".to_owned(),
        caption: "Less is better; square root of the product of both. Possible: under the best candidate that is not in use; where it is not proven yet, \
                  trials go on."
            .to_owned(),
        unit: " %".to_owned(),
        decimals: 1,
        signed: true,
        least: Some(-100.0),
        series: vec!["changed".to_owned(), "possible".to_owned()],
        rows: lines.iter().take(DRAWN).map(row).collect(),
    }
    .draw()
}

/// The file name of a program, and of the script that follows it.
fn file_name(name: &str) -> String {
    let parts = name.split(' ').map(|word| word.rsplit('/').next().unwrap_or(word));
    parts.collect::<Vec<_>>().join(" ")
}

fn programs(listed: &Listed<'_, ProgramLine>) -> Vec<Block> {
    let links = listed.shown.iter().map(|line| format!("/program?id={}", line.id)).collect();
    listed.blocks(listed.form("Programs"), ("programs", "program"), &COLUMNS, row, links)
}

fn row(line: &ProgramLine) -> Vec<String> {
    let figure = |gain: Option<&Gain>, get: fn(&Gain) -> f64| gain.map_or_else(dash, |gain| saved(get(gain)));
    let gained = line.gained.as_ref();
    let possible = line.possible.as_ref().map_or_else(dash, |gain| {
        format!(
            "{} {}{}",
            saved(gain.together()),
            gain.candidate,
            if gain.is_proven { "" } else { ", not proven" }
        )
    });
    vec![
        short(&line.name),
        line.candidate.clone(),
        line.state.clone(),
        figure(gained, |gain| 1.0 - gain.cpu.mid),
        figure(gained, |gain| 1.0 - gain.memory.mid),
        figure(gained, Gain::together),
        possible,
        line.resident_bytes.map_or_else(dash, |bytes| format::size(bytes as f64)),
        line.trials.to_string(),
    ]
}

fn trials(known: &ServedState) -> Block {
    let mut table = Table::new("trials", "", &["program", "candidate", "process", "since"]);
    let mut links = vec![];
    for line in known.lines() {
        let Some(trial) = &line.under_way else { continue };
        table.push(vec![
            short(&line.name),
            trial.candidate.clone(),
            trial.pid.map_or_else(dash, |pid| pid.to_string()),
            trial.since_unix_s.map_or_else(dash, when),
        ]);
        links.push(format!("/program?id={}", line.id));
    }
    table.rows.truncate(MOST);
    Block::Index(table, links)
}

fn quarantine(known: &ServedState) -> Vec<Block> {
    let mut table = Table::new("quarantine", "", &["program", "candidate", "since", "because it"]);
    let mut links = vec![];
    for line in known.lines() {
        for one in &line.quarantined {
            table.push(vec![
                short(&line.name),
                one.candidate.clone(),
                when(one.since_unix_s),
                one.because.to_owned(),
            ]);
            links.push(format!("/program?id={}", line.id));
        }
    }
    table.rows.truncate(MOST);
    let mut blocks = vec![Block::Index(table, links)];
    let disabled: Vec<String> = known
        .store
        .disabled
        .iter()
        .map(|one| {
            format!(
                "{} {} is given to nobody since {}: {}",
                one.allocator,
                one.version,
                when(one.at_s),
                one.why
            )
        })
        .collect();
    if !disabled.is_empty() {
        blocks.push(Block::List(disabled));
    }
    blocks
}

fn health(known: &ServedState) -> Vec<Block> {
    let mut table = Table::new("health", "", &["what", "value"]);
    let mut put = |what: &str, value: String| table.push(vec![what.to_owned(), value]);
    daemon(&known.daemon, &mut put);
    store(&known.store, &mut put);
    vec![Block::Table(table)]
}

fn daemon(facts: &DaemonFacts, put: &mut impl FnMut(&str, String)) {
    let Some(status) = &facts.status else {
        put("imasd", "does not run: programs start as last decided, 'imas run' alone learns".to_owned());
        return;
    };
    put("imasd", format!("runs, process {}, version {}", status.pid, status.version));
    if let Some(why) = facts.ineffective.as_ref().or(status.emergency.as_ref()) {
        put("every program starts untouched", why.trim_end().to_owned());
    }
    put("CPU time of imasd", facts.cpu_s.map_or_else(dash, format::seconds));
    put("memory of imasd", facts.resident_bytes.map_or_else(dash, |bytes| format::size(bytes as f64)));
    put("process events from", status.events.clone());
    put("accounts of processes", status.accounts.clone());
    put("trials on offer", status.trials_offered.to_string());
    put("trials running", status.trials_running.to_string());
    put("placed processes watched", status.flights_watched.to_string());
    for (name, count) in status.counters.counted() {
        put(&name.replace('_', " "), count.to_string());
    }
}

fn store(facts: &StoreFacts, put: &mut impl FnMut(&str, String)) {
    put("store", facts.path.clone());
    if let Some(obstacle) = &facts.obstacle {
        put("store cannot be read", obstacle.clone());
    }
    put("size of the store", format::size(facts.bytes as f64));
    let [offers, witnesses, pages] = facts.queue;
    put("trials waiting for a start", offers.to_string());
    put("processes whose pages are not processed", witnesses.to_string());
    put("pages to be collected by 'imas run'", pages.to_string());
}
