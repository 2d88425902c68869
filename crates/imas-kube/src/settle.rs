// SPDX-License-Identifier: Apache-2.0
//! `imas kube settle`: looks at a workload's pods for a while, takes back what fails, and says what is proven.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_cli::format::{change, counted};
use imas_cli::{message, output, table};
use serde_json::json;

use crate::cli::{PrometheusArgs, QueryArgs, SettleArgs};
use crate::kubectl::Kubectl;
use crate::nodes::{self, Types};
use crate::pods::{self, Pod};
use crate::prometheus;
use crate::verdict::{Observations, Verdict};
use crate::workload::Workload;

/// Exit status where nothing is proven.
const NOT_SHOWN: u8 = 1;

/// Looks, withdraws, decides.
pub(crate) fn run(args: &SettleArgs, kubectl: &Kubectl) -> Result<ExitCode> {
    let until = Instant::now() + args.lasts;
    let mut workload = Workload::read(kubectl, &args.workload)?;
    let prometheus = prometheus::asked(&args.prometheus, |key| workload.parameter(key))?;
    let mut seen = Observations::default();
    let mut withdrawn = vec![];
    let (mut looks, mut problem, mut types) = (0, None, Types::new());
    loop {
        match look(args, &prometheus, kubectl, &workload, &mut types) {
            Ok(pods) => {
                looks += 1;
                seen.add(&pods, &types);
            }
            Err(error) => {
                message::warning(&format!("{error:#}"));
                problem = Some(error);
            }
        }
        for verdict in seen.verdicts() {
            let Some(why) = &verdict.withdraw else { continue };
            if workload.entry().shares.contains_key(&verdict.candidate)
                && !withdrawn.contains(&verdict.candidate)
            {
                message::say(&format!("imas: {}: {} is taken back: {why}", workload.name, verdict.candidate));
                withdrawn.push(verdict.candidate.clone());
                if args.write {
                    let done = withdraw(kubectl, &mut workload, &args.workload, &verdict.candidate);
                    if let Err(error) = done {
                        message::warning(&format!("{error:#}"));
                        withdrawn.pop(); // at the next look again
                    }
                }
            }
        }
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        thread::sleep(rest.min(args.every).max(Duration::from_millis(50)));
    }
    if let (0, Some(error)) = (looks, problem) {
        return Err(error);
    }
    let verdicts = seen.verdicts();
    let queries = &prometheus.queries;
    let better = verdicts.iter().filter(|one| one.is_better(queries.latency.is_some()));
    let best = better.min_by(|a, b| a.product().total_cmp(&b.product()));
    if args.json.json {
        output::json(&document(&verdicts, best, queries))?;
    } else {
        output::text(&page(&verdicts, best, queries))?;
    }
    if let (Some(best), true) = (best, args.write) {
        let workload = Workload::read(kubectl, &args.workload)?;
        let mut entry = workload.entry();
        // Somebody may have taken it back since.
        if !entry.shares.contains_key(&best.candidate) || entry.withdrawn.contains(&best.candidate) {
            message::warning(&format!(
                "{}: {} was taken back meanwhile, so nothing is written",
                workload.name, best.candidate
            ));
            return Ok(ExitCode::from(NOT_SHOWN));
        }
        entry.shares = [(best.candidate.clone(), 100)].into();
        workload.write_entry(kubectl, &entry)?;
        message::say(&format!("imas: {}: {entry}: every new pod gets it", workload.name));
    }
    Ok(if best.is_some() { ExitCode::SUCCESS } else { ExitCode::from(NOT_SHOWN) })
}

/// The pods with what is known of them. Those of a candidate that was taken back are deleted again.
fn look(
    args: &SettleArgs,
    prometheus: &PrometheusArgs,
    kubectl: &Kubectl,
    workload: &Workload,
    types: &mut Types,
) -> Result<Vec<Pod>> {
    let mut pods = pods::all(kubectl, &workload.name, &workload.namespace)?;
    if args.write {
        replace(kubectl, &pods, &workload.entry().withdrawn);
    }
    if let Err(error) = nodes::learn(kubectl, &pods, types) {
        message::warning(&format!("{error:#}: pods are compared across all types of nodes"));
    }
    prometheus::add(prometheus, &mut pods, &workload.namespace);
    Ok(pods)
}

/// Takes a candidate back: no new pod gets it, and those that have it are replaced.
fn withdraw(kubectl: &Kubectl, workload: &mut Workload, word: &str, candidate: &str) -> Result<()> {
    *workload = Workload::read(kubectl, word)?; // somebody may have written since
    let mut entry = workload.entry();
    entry.withdraw(candidate);
    workload.write_entry(kubectl, &entry)?;
    let pods = pods::all(kubectl, &workload.name, &workload.namespace)?;
    replace(kubectl, &pods, &entry.withdrawn);
    *workload = Workload::read(kubectl, word)?;
    Ok(())
}

/// Deletes the pods that have a candidate which was taken back. A pod may get one a moment later: the apiserver reads
/// the ConfigMap from a copy.
fn replace(kubectl: &Kubectl, pods: &[Pod], withdrawn: &[String]) {
    let has_one = |pod: &&Pod| pod.candidate.as_ref().is_some_and(|name| withdrawn.contains(name));
    for pod in pods.iter().filter(has_one) {
        if let Err(error) = kubectl.delete_pod(&pod.name) {
            message::warning(&format!("{error:#}"));
        }
    }
}

fn page(verdicts: &[Verdict], best: Option<&Verdict>, queries: &QueryArgs) -> String {
    if verdicts.is_empty() {
        return "no pod has a candidate: 'imas kube status' says what pods have, and why\n".to_owned();
    }
    let figure = |ratio: &Option<_>| ratio.as_ref().map_or_else(|| "no data".to_owned(), change);
    let rows = verdicts.iter().map(|one| {
        let what = match &one.withdraw {
            Some(why) => format!("take it back: {why}"),
            None if one.is_better(queries.latency.is_some()) => "better".to_owned(),
            None => "no gain shown".to_owned(),
        };
        vec![
            one.candidate.clone(),
            format!("{} beside {}", one.pods, one.untouched),
            figure(&one.memory),
            figure(&one.cpu),
            figure(&one.latency),
            one.failures.to_string(),
            what,
        ]
    });
    let by_request = queries.requests.is_some();
    let cpu = if by_request { "CPU of a request" } else { "CPU" };
    let head = ["candidate", "pods", "memory", cpu, "latency", "failures", "what was seen"];
    let table = table::plain(&head, rows);
    let note = if by_request { "" } else { "CPU is by time, not by request (--prometheus)\n" };
    let last = match best {
        Some(best) => format!("best: {}\n", best.candidate),
        None => format!("none of {} is proven better\n", counted(verdicts.len(), "candidate")),
    };
    table + note + &last
}

fn document(verdicts: &[Verdict], best: Option<&Verdict>, queries: &QueryArgs) -> serde_json::Value {
    let candidates: Vec<_> = verdicts
        .iter()
        .map(|one| {
            json!({
                "candidate": one.candidate, "pods": one.pods, "untouched": one.untouched, "memory": one.memory,
                "cpu": one.cpu, "latency": one.latency, "failures": one.failures, "withdraw": one.withdraw,
                "better": one.is_better(queries.latency.is_some()),
            })
        })
        .collect();
    let by = if queries.requests.is_some() { "request" } else { "time" };
    json!({ "schema": 1, "cpu_by": by, "candidates": candidates, "best": best.map(|best| &best.candidate) })
}
