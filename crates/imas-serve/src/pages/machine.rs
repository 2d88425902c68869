// SPDX-License-Identifier: Apache-2.0
//! The machine: what it is short of, and which allocator serves how many processes.
//!
//! The page shows the program of a process, never its command line. It shows another user's process only
//! where the user of this server may look into it. The rest are counted.

use std::collections::BTreeMap;

use imas_cli::format::{self, counted};
use imas_cli::table::Table;
use imas_core::printable;
use imas_core::stats::Interval;
use imas_engine::live::snapshot::{Certainty, LiveProcess, LiveSnapshot, MachineState};
use imas_linux::serving::Injected;
use imas_report::chart::{BarRow, Bars, Chart};
use imas_report::page::{Block, PageSection, ResultPage};
use serde_json::json;

use super::{Answer, Failure, dash};
use crate::keeper::{ServedState, Shared};
use crate::listing::{Listed, Order, Words, short};

const ORDERS: [Order<LiveProcess>; 5] = [
    Order { word: "resident", falls: true, compare: |a, b| a.resident_bytes.cmp(&b.resident_bytes) },
    Order { word: "returnable", falls: true, compare: |a, b| a.returnable_bytes.cmp(&b.returnable_bytes) },
    Order {
        word: "cpu",
        falls: true,
        compare: |a, b| a.cpu_share.unwrap_or(0.0).total_cmp(&b.cpu_share.unwrap_or(0.0)),
    },
    Order { word: "allocator", falls: false, compare: |a, b| a.allocator.cmp(&b.allocator) },
    Order { word: "pid", falls: false, compare: |a, b| a.pid.cmp(&b.pid) },
];
const COLUMNS: [(&str, Option<&str>); 10] = [
    ("process", Some("pid")),
    ("program", None),
    ("candidate", Some("allocator")),
    ("resident", Some("resident")),
    ("could be returned", Some("returnable")),
    ("CPU", Some("cpu")),
    ("threads", None),
    ("memory", None),
    ("state", None),
    ("a restart would change", None),
];

/// Processes under one allocator.
#[derive(Debug, Default)]
struct Served {
    processes: usize,
    resident_bytes: u64,
}

/// `/machine`
pub(crate) fn answer(shared: &Shared, _: &ServedState, words: &Words) -> Result<Answer, Failure> {
    let look = shared.live.now()?;
    let listed = Listed::new(("/machine", words), look.processes.iter(), |process| &process.program, &ORDERS);
    let served = served(&look);
    let data = json!({
        "schema": 1,
        "at_unix_s": look.at_unix_s,
        "machine": look.machine,
        "hidden": look.hidden,
        "unseen": look.unseen,
        "problems": look.problems,
        "allocators": served.iter().map(|(name, one)| json!({
            "allocator": name, "processes": one.processes, "resident_bytes": one.resident_bytes,
        })).collect::<Vec<_>>(),
        "processes": listed.shown,
    });
    let sections = vec![
        PageSection::new("pressure", "Pressure", vec![pressure(&look.machine)]),
        PageSection::new("allocators", "Allocators", vec![allocators(&served)]),
        PageSection::new("processes", "Processes", processes(&listed, &look)),
    ];
    let page = ResultPage {
        title: "This machine".to_owned(),
        result: result(&look),
        picture: picture(&served),
        sections,
        ..ResultPage::default()
    };
    Ok(Answer { page, data })
}

fn served(look: &LiveSnapshot) -> BTreeMap<String, Served> {
    let mut all: BTreeMap<String, Served> = BTreeMap::new();
    for process in &look.processes {
        let one = all.entry(printable::name(&process.allocator).into_owned()).or_default();
        one.processes += 1;
        one.resident_bytes += process.resident_bytes;
    }
    all
}

fn result(look: &LiveSnapshot) -> String {
    let all = look.processes.len();
    let given = look.processes.iter().filter(|process| process.injected != Injected::Nothing).count();
    format!(
        "{given} of {} run on an allocator that IMAS gave them. What counts now: {}.",
        counted(all, "process"),
        look.machine.preference.words()
    )
}

fn picture(served: &BTreeMap<String, Served>) -> Option<Chart> {
    let bar = |count: usize| Interval { lo: count as f64, mid: count as f64, hi: count as f64 };
    Bars {
        title: "Processes by the allocator that serves them".to_owned(),
        caption: "By what each has really mapped.".to_owned(),
        series: vec!["processes".to_owned()],
        rows: served
            .iter()
            .map(|(name, one)| BarRow { name: name.clone(), bars: vec![bar(one.processes)] })
            .collect(),
        ..Bars::default()
    }
    .draw()
}

fn allocators(served: &BTreeMap<String, Served>) -> Block {
    let mut table = Table::new("allocators", "", &["candidate", "processes", "resident"]);
    for (name, one) in served {
        table.push(vec![name.clone(), one.processes.to_string(), format::size(one.resident_bytes as f64)]);
    }
    Block::Table(table)
}

fn pressure(machine: &MachineState) -> Block {
    let mut table = Table::new("pressure", "", &["what", "value"]);
    let mut put = |what: &str, value: String| table.push(vec![what.to_owned(), value]);
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "not reported by the kernel".to_owned(), |share| format!("{share:.1} %"))
    };
    put("CPUs", machine.cpus.to_string());
    put("load over five minutes", format!("{:.2}", machine.load5));
    put("memory", format::size(machine.memory_bytes as f64));
    put("available memory", format::size(machine.available_bytes as f64));
    let stalls = &machine.pressure;
    put("a task waited for a CPU, of the last minute", percent(stalls.cpu_some));
    put("a task waited for memory", percent(stalls.memory_some));
    put("all tasks waited for memory", percent(stalls.memory_full));
    put("a task waited for a disk", percent(stalls.io_some));
    put("all tasks waited for a disk", percent(stalls.io_full));
    put("weight of CPU in the score", format!("{:.2}", machine.weight.w));
    Block::Table(table)
}

fn processes(listed: &Listed<'_, LiveProcess>, look: &LiveSnapshot) -> Vec<Block> {
    let hidden = format!(
        "Not shown: {} of other users, which the user of this server may not look into.",
        counted(look.hidden, "process")
    );
    let form = listed.form("Programs");
    let mut blocks = listed.blocks(form, ("processes", "process"), &COLUMNS, row, vec![]);
    if look.hidden > 0 {
        blocks.push(Block::Note(hidden));
    }
    if look.unseen > 0 {
        blocks.push(Block::Note(format!(
            "Not looked at, or not to the end: {}. Looks at those of the same owner, pod or container took too long, or \
             a process has too much to be looked at.",
            counted(look.unseen, "process")
        )));
    }
    blocks.push(Block::List(
        look.problems.iter().map(|problem| printable::name(problem).into_owned()).collect(),
    ));
    blocks
}

fn row(process: &LiveProcess) -> Vec<String> {
    vec![
        process.pid.to_string(),
        short(&printable::name(&process.program)),
        printable::name(process.candidate.as_ref().unwrap_or(&process.allocator)).into_owned(),
        format::size(process.resident_bytes as f64),
        process.returnable_bytes.map_or_else(dash, |bytes| format::size(bytes as f64)),
        process.cpu_share.map_or_else(dash, |share| format!("{:.1} %", share * 100.0)),
        process.threads.to_string(),
        process.memory.as_ref().map_or_else(dash, |memory| printable::name(&memory.sentence).into_owned()),
        process.state.words(),
        gain(process),
    ]
}

fn gain(process: &LiveProcess) -> String {
    let Some(gain) = &process.gain else { return dash() };
    let memory = gain.memory_bytes.map(|bytes| format::size_change(-bytes.mid));
    let cpu = gain.cpu_percent.map(|percent| format!("{:+.1} % CPU", 0.0 - percent.mid));
    let both: Vec<String> = memory.into_iter().chain(cpu).collect();
    let figures = if both.is_empty() { "no data".to_owned() } else { both.join(", ") };
    let sure = match gain.certainty {
        Certainty::Proven => "",
        Certainty::NotProven => ", not proven",
        Certainty::Estimate => ", no trial was made",
    };
    format!("{figures} under {}{sure}", gain.candidate)
}
