// SPDX-License-Identifier: Apache-2.0
//! Allocators for a phone: size, three benchmarks and the memory of a whole machine, after a published
//! comparison for Android.
//!
//! ```text
//! `imas-lab study mobile` runs things and appends samples (sample) -> paired intervals (contrast) -> findings, tables, figures
//! ```

mod change;
mod contrast;
mod figures;
mod findings;
mod sample;
mod tables;

use std::path::PathBuf;

use imas_report::chart::Chart;

use crate::error::StudyResult;
use crate::page;
use crate::study::{Study, StudyFigure};
use sample::Samples;
pub use sample::{MOBILE, MobileKey, MobilePart, MobileSample, mobile_samples};

const RULE: &str = "Reproduced: the 95 % interval of ours lies wholly on the side that is claimed, against each of those it is claimed against; sizes are \
                    exact. Not reproduced: it lies on the other side. Differs: the claim holds against some of them only. Undecided: our runs cannot \
                    tell (the interval holds no difference, or there are fewer than 6 rounds). In brackets: 95 % intervals (bootstrap over the rounds) of the median ratio \
                    or difference in the same round, or of the ratio of median absolute deviations.";

/// The options of the study.
#[derive(Clone, Debug)]
pub struct MobileOptions {
    /// Files of raw samples, JSON lines.
    pub data: Vec<PathBuf>,
}

/// Judges the printed findings by raw samples.
///
/// # Errors
/// When a file cannot be read or holds no samples.
pub fn mobile(options: &MobileOptions) -> StudyResult<Study> {
    let samples = change::derived(Samples::read(&options.data)?);
    let (findings, figures) = (findings::findings(&samples), figures::figures(&samples));
    Ok(Study {
        id: "mobile".to_owned(),
        title: "Allocators for a phone".to_owned(),
        paper: "A comparison of memory allocators for Android on a HiKey board: tlsf, musl, tcmalloc and nedmalloc ported there, beside dlmalloc and \
                jemalloc. The text that we have names neither author nor year; it prints findings, and of its figures one number."
            .to_owned(),
        method: method(&samples),
        rule: RULE.to_owned(),
        result: page::verdicts(&findings),
        picture: picture(&figures),
        findings,
        tables: tables::tables(&samples),
        figures,
    })
}

/// Memory of the programs, the scarcest resource of a phone. If it was not measured, the first figure.
fn picture(figures: &[StudyFigure]) -> Option<Chart> {
    let memory = figures.iter().find(|figure| figure.data.id == "programs-memory");
    memory.or_else(|| figures.first())?.chart.clone()
}

fn method(samples: &Samples) -> Vec<String> {
    let rounds = |part: MobilePart| {
        let of_part = samples.samples.iter().filter(|sample| sample.part == part);
        of_part.map(|sample| sample.round + 1).max().unwrap_or(0)
    };
    let failed = samples.samples.iter().filter(|sample| sample.failed.is_some()).count();
    vec![
        format!(
            "{} samples of {} candidates, each in a process of its own, in random order within each round: {} rounds of sizes and benchmarks, {} \
             iterations of the use case. {failed} samples failed and count nowhere. {}{}",
            samples.samples.len(),
            samples.candidates().len(),
            rounds(MobilePart::Benchmarks).max(rounds(MobilePart::Size)),
            rounds(MobilePart::UseCase),
            machine(samples),
            unreadable(samples),
        ),
        "Size: bytes of the file; loaded: of the sections that the loader maps, which is what strip leaves; code: executable sections. glibc's malloc is part \
         of libc.so.6 and has no size of its own. A minimal process allocates and writes 100 bytes and reads its own smaps_rollup; what it has more than under \
         system, the guard that every candidate is started with included, is what the allocator adds."
            .to_owned(),
        "Benchmarks, ours, written after the published descriptions: chunks (blocks of many sizes, pointers kept in an array, a list or a table, read and freed \
         in order or at random), threads-N (N threads, random sizes, malloc, calloc, realloc and memalign), timed (until a given time is up). Nanoseconds of CPU \
         time an operation; ratios to system in the same round, lower is better. glibc gives the top of its heap back each time that a pass of chunks is freed, and \
         takes the page faults again in the next: where candidates need a tenth of its time in linear passes, this is why."
            .to_owned(),
        "Use case: a browser loads three local pages at intervals, five pictures are fetched from a local server, scaled for a gallery, and 15 s of video are \
         decoded; /proc/buddyinfo, MemFree, MemAvailable and the programs' own memory are captured before, while all of it runs, and after everything was \
         stopped and killed. Changes are against the capture before, since the machine drifts. Memory of the programs is resident anonymous memory, summed over \
         all processes. The paper's machine had one allocator for every process; here the programs of the use case alone have it, and Chromium serves \
         itself (PartitionAlloc is built into its executable): the table of who served says so."
            .to_owned(),
    ]
}

fn machine(samples: &Samples) -> String {
    let Some(header) = samples.headers.last() else { return String::new() };
    let text = |key: &str| match &header.host[key] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    };
    let loads = || samples.samples.iter().filter_map(|sample| sample.load1);
    let (low, high) = (loads().fold(f64::INFINITY, f64::min), loads().fold(0.0, f64::max));
    let load = if low <= high { format!(", load {low:.1} to {high:.1} while it ran") } else { String::new() };
    format!("Machine: {}, {} CPUs, {}, {}{load}. ", text("cpu"), text("cpus"), text("kernel"), text("libc"))
}

fn unreadable(samples: &Samples) -> String {
    match samples.unreadable {
        0 => String::new(),
        n => format!("{n} lines are no samples and were skipped."),
    }
}
