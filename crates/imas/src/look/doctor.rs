// SPDX-License-Identifier: Apache-2.0
//! `imas doctor`: what IMAS needs of this machine, and what to do where it is missing.
//!
//! System calls without which something is lost: the kernel may be too old for one, or the filter of a container refuse
//! it. Of others nothing is lost: the C library and the allocators have another way.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::{message, output};
use imas_engine::config::Config;
use imas_engine::context::Context;
use imas_engine::outside;
use imas_engine::pending::Pending;
use imas_linux::sampler::Counters;
use imas_linux::{host, page};
use imas_store::Store;
use nix::sys::memfd::{MFdFlags, memfd_create};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use serde::Serialize;
use serde_json::json;

use crate::command_line::cli::{JsonArgs, Places};

/// Exit status when something does not work.
const NOT_WELL: u8 = 1;

/// Finding about one thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    /// `ok`, `note` (works, but less well) or `broken`.
    state: &'static str,
    says: String,
    /// Advice on what to do about it.
    hint: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, says: impl Into<String>) -> Self {
        Self { what, state: "ok", says: says.into(), hint: None }
    }

    fn note(what: &'static str, says: impl Into<String>, hint: &str) -> Self {
        Self { what, state: "note", says: says.into(), hint: Some(hint.to_owned()) }
    }

    fn broken(what: &'static str, says: impl Into<String>, hint: &str) -> Self {
        Self { what, state: "broken", says: says.into(), hint: Some(hint.to_owned()) }
    }
}

pub(crate) fn run(args: JsonArgs, places: &Places) -> Result<ExitCode> {
    let findings = match Context::new(places) {
        Ok(context) => findings(&context),
        Err(error) => vec![nothing_works(&error)],
    };
    if args.json {
        output::json(&json!({ "schema": 1, "host": host::Host::now(), "findings": findings }))?;
    } else {
        output::text(&page_of(&findings))?;
    }
    let broken = findings.iter().any(|finding| finding.state == "broken");
    Ok(if broken { ExitCode::from(NOT_WELL) } else { ExitCode::SUCCESS })
}

/// The reason why no command works here: a configuration that cannot be read, or the installation.
fn nothing_works(error: &anyhow::Error) -> Finding {
    match Config::read() {
        Ok(_) => {
            let hint = message::hint(error).unwrap_or("run 'make build' or 'make install'");
            Finding::broken("installation", format!("{error:#}"), hint)
        }
        Err(error) => {
            let hint = message::hint(&error).unwrap_or("correct the file, or move it away");
            Finding::broken("configuration", format!("{error:#}"), hint)
        }
    }
}

fn findings(context: &Context) -> Vec<Finding> {
    let mut findings = vec![];
    let store = store(context, &mut findings);
    findings.insert(0, installation(context, store.as_ref()));
    findings.push(pages(context));
    candidates(context, store.as_ref(), &mut findings);
    findings.push(counters());
    findings.push(calls());
    findings.push(conditions());
    findings.push(preloads());
    findings.push(without_hook());
    findings
}

fn installation(context: &Context, store: Option<&Store>) -> Finding {
    match context.own_obstacle(store) {
        None => Finding::ok("installation", context.lib_dir.display().to_string()),
        Some(why) => Finding::broken("installation", why, "build and install anew: make build, make install"),
    }
}

fn store(context: &Context, findings: &mut Vec<Finding>) -> Option<Store> {
    let path = context.store_path.display().to_string();
    match Store::view(&context.store_path).and_then(|store| Ok((store.check()?, store))) {
        Ok((faults, store)) if faults.is_empty() => {
            findings.push(Finding::ok("store", path));
            Some(store)
        }
        Ok((faults, _)) => {
            let says = format!("{path}: {}", faults.join("; "));
            findings.push(Finding::broken("store", says, "move the file away; a new one is begun"));
            None
        }
        Err(error) => {
            findings.push(Finding::broken(
                "store",
                error.to_string(),
                "name another with --store FILE or IMAS_STORE",
            ));
            None
        }
    }
}

fn pages(context: &Context) -> Finding {
    let folder = context.page_place();
    let says = folder.display().to_string();
    match page::check_private(&folder) {
        Err(error) if folder.symlink_metadata().is_ok() => {
            let hint = "without pages there are no trials; programs run untouched";
            return Finding::broken("trial pages", error.to_string(), hint);
        }
        Err(_) => return Finding::ok("trial pages", format!("{says}: made by the first start")),
        Ok(()) => {}
    }
    let pending = Pending::of(&context.page_place());
    let damaged = damaged(&folder) + pending.damaged.len();
    if damaged > 0 {
        let says = format!("{says}: {}", counted(damaged, "damaged page"));
        return Finding::note("trial pages", says, "remove the *.damaged files once you have looked at them");
    }
    let (finished, running) = (pending.finished(), pending.running);
    Finding::ok("trial pages", format!("{says}: {finished} finished, {running} of running programs"))
}

fn damaged(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|e| e == "damaged")).count()
}

fn candidates(context: &Context, store: Option<&Store>, findings: &mut Vec<Finding>) {
    for problem in context.catalogue.problems() {
        findings.push(Finding::broken(
            "catalogue",
            problem.to_string(),
            "correct or remove the entry; the rest is used",
        ));
    }
    let named = context.config.candidates.iter().flatten();
    for name in named.filter(|name| context.catalogue.find(name).is_none()) {
        findings.push(Finding::broken(
            "configuration",
            format!("candidates: {name}: no such candidate"),
            "'imas list' shows their names; the others are tested",
        ));
    }
    let set = context.test_set();
    let obstacles: Vec<_> = set
        .iter()
        .filter_map(|c| context.obstacle(c, store).map(|why| format!("{}: {why}", c.name)))
        .collect();
    let usable = set.len() - obstacles.len();
    let says = format!("{usable} of {} of the test set can be used", counted(set.len(), "candidate"));
    findings.push(if obstacles.is_empty() {
        Finding::ok("candidates", says)
    } else {
        Finding::note("candidates", format!("{says}; {}", obstacles.join("; ")), "'imas list' says more")
    });
}

fn counters() -> Finding {
    let counters = Counters::open();
    let _ = std::process::Command::new("true").status(); // something to count
    match counters.read().instructions {
        Some(_) => {
            Finding::ok("hardware counters", "instructions, cycles and misses are counted by 'imas bench'")
        }
        None => Finding::note(
            "hardware counters",
            "the kernel does not give them here; 'imas bench' uses CPU seconds alone",
            "as root: sysctl kernel.perf_event_paranoid=1 (a virtual machine may lack them altogether)",
        ),
    }
}

fn calls() -> Finding {
    let losses = losses();
    if losses.is_empty() {
        return Finding::ok("system calls", "all that IMAS makes can be made");
    }
    let hint = "Linux 5.10 has all of them; a filter comes from the container or the unit";
    Finding::note("system calls", losses.join("; "), hint)
}

fn conditions() -> Finding {
    match imas_linux::host::conditions() {
        Ok(now) => Finding::ok(
            "conditions",
            format!(
                "load {:.2} on {}, {} MiB of memory available",
                now.load5,
                counted(now.cpus, "CPU"),
                now.mem_available_bytes >> 20
            ),
        ),
        Err(error) => Finding::broken("conditions", error.to_string(), "mount /proc"),
    }
}

/// Finding about other libraries that are preloaded. Their order and quality are not ours to change.
fn preloads() -> Finding {
    let system = std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    let own = std::env::var("LD_PRELOAD").unwrap_or_default();
    let foreign = format!("{} {}", system.trim(), own.trim()).trim().to_owned();
    if foreign.is_empty() {
        Finding::ok("other preloads", "none")
    } else {
        let hint = "if one of them brings a malloc, it wins or loses by its place in the list: see what 'imas bench' says serves";
        Finding::note("other preloads", foreign, hint)
    }
}

/// Finding about programs into which nothing can be loaded: static ones of Go, and programs of musl.
fn without_hook() -> Finding {
    let what = "programs without a hook";
    match outside::folder() {
        Ok(_) => Finding::ok(what, "'imas run' tries them, measured from outside by imasd"),
        Err(why) => {
            let hint = "'imas bench' measures them and 'imas pin' gives them settings; the machine's imasd has accounts";
            Finding::note(what, format!("not measured from outside: {why}"), hint)
        }
    }
}

fn page_of(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        text.push_str(&format!("{:<7}{}: {}\n", finding.state, finding.what, finding.says));
        if let Some(hint) = &finding.hint {
            text.push_str(&format!("       hint: {hint}\n"));
        }
    }
    text
}

/// Losses here, a clause for people each.
fn losses() -> Vec<String> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).is_ok();
    let process = pidfd_open(getpid(), PidfdFlags::empty()).is_ok();
    let memory = memfd_create("imas-doctor", MFdFlags::MFD_CLOEXEC).is_ok();
    let calls = [
        ("openat2", file, "the heap of a JVM is not read"),
        ("pidfd_open", process, "imasd sees the end of a process up to 5 s later"),
        ("memfd_create", memory, "'imas system verify' and 'enable' end with an error"),
    ];
    let missing = calls.into_iter().filter(|(_, works, _)| !works);
    missing.map(|(name, _, lost)| format!("without {name} {lost}")).collect()
}
