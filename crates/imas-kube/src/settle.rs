// SPDX-License-Identifier: Apache-2.0
//! `imas kube settle`: looks at a workload's pods for a while, takes back what fails, and says what is proven.
//!
//! A look into a pod by `kubectl exec`: whether its candidate serves in the process that holds the most memory.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_cli::format::{change, counted};
use imas_cli::{message, output, table};
use imas_core::printable;
use imas_linux::mapped_files::MappedFiles;
use imas_linux::serving::chooser::WantedLibraries;
use serde_json::json;

use crate::cli::{PrometheusArgs, QueryArgs, SettleArgs};
use crate::kubectl::Kubectl;
use crate::pods::{self, Pod, Types};
use crate::verdict::{Observations, Verdict};
use crate::workload::{Entry, Workload};
use crate::{manifests, prometheus};

/// Exit status where nothing is proven.
const NOT_SHOWN: u8 = 1;

/// Looks, withdraws, decides.
pub(crate) fn run(args: &SettleArgs, kubectl: &Kubectl) -> Result<ExitCode> {
    let until = Instant::now() + args.lasts;
    let mut workload = Workload::read(kubectl, &args.workload)?;
    let prometheus = prometheus::asked(&args.prometheus, |key| workload.parameter(key))?;
    let verdicts = watched(args, until, &prometheus, kubectl, &mut workload)?;
    let queries = &prometheus.queries;
    let better = verdicts.iter().filter(|one| one.is_better(queries.latency.is_some()));
    let best = better.min_by(|a, b| a.product().total_cmp(&b.product()));
    if args.json.json {
        output::json(&document(&verdicts, best, queries))?;
    } else if args.print {
        let entry = decided(workload.entry(), &verdicts, best);
        manifests::print_documents(&page(&verdicts, best, queries), &[workload.parameters_with(&entry)])?;
    } else {
        output::text(&page(&verdicts, best, queries))?;
    }
    match best {
        Some(best) if args.write => give_all(kubectl, &mut workload, &best.candidate),
        Some(_) => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(NOT_SHOWN)),
    }
}

/// Looks until the time is over, and takes back what fails.
///
/// # Errors
/// No look succeeds.
fn watched(
    args: &SettleArgs,
    until: Instant,
    prometheus: &PrometheusArgs,
    kubectl: &Kubectl,
    workload: &mut Workload,
) -> Result<Vec<Verdict>> {
    let mut seen = Observations::default();
    let mut withdrawn = vec![];
    let (mut looks, mut problem, mut types) = (0, None, Types::new());
    let mut inside = args.look_inside.then(LookInside::default);
    loop {
        match look(args, prometheus, kubectl, workload, &mut types) {
            Ok(mut pods) => {
                looks += 1;
                if let Some(Err(error)) = inside.as_mut().map(|inside| inside.look(kubectl, &mut pods)) {
                    message::warning(&format!("{error:#}: whether the candidate serves there is not known"));
                }
                seen.add(&pods, &types);
            }
            Err(error) => {
                message::warning(&format!("{error:#}"));
                problem = Some(error);
            }
        }
        if args.write {
            // A candidate that somebody began again has other pods now.
            let entry = workload.entry();
            let again = withdrawn.extract_if(.., |name: &mut String| !entry.withdrawn.contains(name));
            again.for_each(|name| seen.forget(&name));
        }
        for verdict in seen.verdicts() {
            let Some(why) = &verdict.withdraw else { continue };
            if workload.entry().shares.contains_key(&verdict.candidate)
                && !withdrawn.contains(&verdict.candidate)
            {
                message::say(&format!("imas: {}: {} is taken back: {why}", workload.name, verdict.candidate));
                withdrawn.push(verdict.candidate.clone());
                if args.write
                    && let Err(error) = withdraw(kubectl, workload, &verdict.candidate)
                {
                    message::warning(&format!("{error:#}"));
                    withdrawn.pop(); // at the next look again
                }
            }
        }
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        thread::sleep(rest.min(args.every).max(Duration::from_millis(50)));
    }
    match problem {
        Some(error) if looks == 0 => Err(error),
        _ => Ok(seen.verdicts()),
    }
}

/// The entry as the verdicts would have it: without what fails, and with what is better for all new pods.
fn decided(mut entry: Entry, verdicts: &[Verdict], best: Option<&Verdict>) -> Entry {
    let fails = |one: &&Verdict| one.withdraw.is_some() && entry.shares.contains_key(&one.candidate);
    let failing: Vec<_> = verdicts.iter().filter(fails).collect();
    failing.into_iter().for_each(|one| entry.withdraw(&one.candidate));
    let kept = best.filter(|best| entry.shares.contains_key(&best.candidate));
    if let Some(best) = kept {
        entry.keep(&best.candidate);
    }
    entry
}

/// Gives all new pods the candidate, unless somebody took it back meanwhile.
fn give_all(kubectl: &Kubectl, workload: &mut Workload, candidate: &str) -> Result<ExitCode> {
    workload.read_again(kubectl)?;
    let mut entry = workload.entry();
    if !entry.shares.contains_key(candidate) || entry.withdrawn.iter().any(|one| one == candidate) {
        message::warning(&format!(
            "{}: {candidate} was taken back meanwhile, so nothing is written",
            workload.name
        ));
        return Ok(ExitCode::from(NOT_SHOWN));
    }
    entry.keep(candidate);
    workload.write_entry(kubectl, &entry)?;
    message::say(&format!("imas: {}: {entry}: every new pod gets it", workload.name));
    Ok(ExitCode::SUCCESS)
}

/// The pods with what is known of them. Pods of a candidate that was taken back are deleted again. The entry
/// is read anew: what somebody took back, or began again, meanwhile counts.
fn look(
    args: &SettleArgs,
    prometheus: &PrometheusArgs,
    kubectl: &Kubectl,
    workload: &mut Workload,
    types: &mut Types,
) -> Result<Vec<Pod>> {
    workload.read_again(kubectl)?;
    let mut pods = pods_of(kubectl, workload)?;
    if args.write {
        replace(kubectl, &pods, &workload.entry().withdrawn);
    }
    if let Err(error) = pods::learn_nodes(kubectl, &pods, types) {
        message::warning(&format!("{error:#}: pods are compared across all types of nodes"));
    }
    prometheus::add(prometheus, &mut pods, &workload.namespace);
    Ok(pods)
}

fn pods_of(kubectl: &Kubectl, workload: &Workload) -> Result<Vec<Pod>> {
    pods::all(kubectl, &workload.name, &workload.namespace, workload.entry().container.as_deref())
}

/// Takes a candidate back: no new pod gets it, and those that have it are replaced.
fn withdraw(kubectl: &Kubectl, workload: &mut Workload, candidate: &str) -> Result<()> {
    workload.read_again(kubectl)?; // somebody may have written since
    let mut entry = workload.entry();
    entry.withdraw(candidate);
    workload.write_entry(kubectl, &entry)?;
    workload.read_again(kubectl)?;
    replace(kubectl, &pods_of(kubectl, workload)?, &entry.withdrawn);
    Ok(())
}

/// Deletes pods that have a candidate which was taken back; those that have to stay go at a later look. A pod may get
/// one a moment later: the apiserver reads the ConfigMap from a copy.
fn replace(kubectl: &Kubectl, pods: &[Pod], withdrawn: &[String]) {
    for pod in replaced_now(pods, withdrawn) {
        if let Err(error) = kubectl.delete_pod(&pod.name) {
            message::warning(&format!("{error:#}"));
        }
    }
}

/// The pods to delete now. Half of the workload's stay ready: where all have the candidate, taking it back is no outage.
fn replaced_now<'a>(pods: &'a [Pod], withdrawn: &[String]) -> Vec<&'a Pod> {
    let has_one = |pod: &&Pod| pod.candidate.as_ref().is_some_and(|name| withdrawn.contains(name));
    let wanted = pods.iter().filter(|pod| !pod.has_ended).count();
    let ready = pods.iter().filter(|pod| pod.is_ready).count();
    let (serving, others): (Vec<_>, Vec<_>) = pods.iter().filter(has_one).partition(|pod| pod.is_ready);
    others.into_iter().chain(serving.into_iter().take(ready.saturating_sub(wanted / 2))).collect()
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

/// A program younger than this may not have started what it becomes.
const YOUNG_S: u64 = 30;
/// Prints `= PAGES NAME` for each process but itself, and then the libraries that it has mapped, with nothing but a shell.
const SCRIPT: &str = r#"for p in /proc/[0-9]*; do
[ "$p" = "/proc/$$" ] || { read -r size pages rest <$p/statm && read -r name <$p/comm && echo "= $pages $name" &&
while read -r a b c d e file; do case $file in *.so*) echo "$file" ;; esac; done <$p/maps; } 2>/dev/null
done"#;

/// Looks into one ready pod of each candidate, each time into the one that was looked into least recently.
#[derive(Debug, Default)]
pub(super) struct LookInside {
    /// Number of the look in which a pod was looked into, by its uid.
    looked: BTreeMap<String, u64>,
    looks: u64,
    /// A look has failed. The message about it is printed once.
    has_failed: bool,
}

impl LookInside {
    /// Notes in the pods what they lack. Returns the first error, for people.
    pub(super) fn look(&mut self, kubectl: &Kubectl, pods: &mut [Pod]) -> Result<()> {
        self.looks += 1;
        let mut next = BTreeMap::<String, &mut Pod>::new();
        let is_old = |pod: &Pod| pod.is_ready && pod.age_s.is_some_and(|age_s| age_s >= YOUNG_S);
        for pod in pods.iter_mut().filter(|pod| pod.preload.is_some() && is_old(pod)) {
            let Some(candidate) = pod.candidate.clone() else { continue };
            let last = |pod: &Pod| self.looked.get(&pod.uid).copied();
            if next.get(&candidate).is_none_or(|known| last(pod) < last(known)) {
                next.insert(candidate, pod);
            }
        }
        let mut first = Ok(());
        for pod in next.into_values() {
            self.looked.insert(pod.uid.clone(), self.looks);
            match kubectl.exec(&pod.name, &pod.container, SCRIPT) {
                Ok(text) => pod.lacks = lacking(pod.preload.as_deref().unwrap_or_default(), &text),
                Err(error) if !self.has_failed => first = first.and(Err(error)),
                Err(_) => {}
            }
        }
        self.has_failed |= first.is_err();
        first
    }
}

/// The process that holds the most memory, where it lacks what is preloaded. The text is the pod's: whatever it says
/// decides about this pod's candidate alone.
fn lacking(preload: &str, text: &str) -> Option<String> {
    let wanted = WantedLibraries::of_preload(preload)?;
    let processes = text.split("= ").filter_map(|one| {
        let (head, files) = one.split_once('\n')?;
        let (pages, name) = head.split_once(' ')?;
        Some((pages.parse::<u64>().ok()?, name, files))
    });
    let (_, name, files) = processes.max_by_key(|(pages, ..)| *pages)?;
    let files: MappedFiles = files.lines().collect();
    (!wanted.is_in(&files)).then(|| printable::name(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(candidate: &str, withdraw: Option<&str>) -> Verdict {
        Verdict {
            candidate: candidate.to_owned(),
            pods: 3,
            untouched: 3,
            memory: None,
            cpu: None,
            latency: None,
            failures: 0,
            withdraw: withdraw.map(str::to_owned),
        }
    }

    fn pod(name: &str, candidate: &str, is_ready: bool) -> Pod {
        Pod {
            name: name.to_owned(),
            uid: name.to_owned(),
            candidate: Some(candidate.to_owned()),
            left_alone: None,
            container: "app".to_owned(),
            preload: None,
            lacks: None,
            is_ready,
            has_ended: false,
            waits: None,
            waits_for_us: false,
            node: None,
            age_s: None,
            failures: 0,
            oom_kills: 0,
            last_failure: None,
            memory: None,
            cpu: None,
            latency: None,
        }
    }

    #[test]
    fn half_of_the_pods_stay_ready_while_a_candidate_is_taken_back() {
        let gone = |pods: &[Pod]| {
            let now = replaced_now(pods, &["jemalloc".to_owned()]);
            now.into_iter().map(|pod| pod.name.clone()).collect::<Vec<_>>()
        };
        let all = ["a", "b", "c", "d"].map(|name| pod(name, "jemalloc", true));
        assert_eq!(gone(&all), ["a", "b"]);
        let [.., c, d] = all;
        let mut next = [pod("new", "system", false), pod("broken", "jemalloc", false), c.clone(), d];
        assert_eq!(gone(&next), ["broken"], "no other is ready yet");
        next[0].is_ready = true;
        next[1].has_ended = true;
        assert_eq!(gone(&next), ["broken", "c", "d"], "nobody waits for one that has ended");
        assert_eq!(gone(&[c]), ["c"], "the only one");
    }

    #[test]
    fn what_fails_leaves_the_entry_and_what_is_better_is_for_all() {
        let verdicts =
            [verdict("jemalloc", None), verdict("mimalloc", Some("x")), verdict("gone", Some("x"))];
        let entry = || Entry::read("container=app jemalloc=20 mimalloc=20");
        let of = |best| decided(entry(), &verdicts, best).to_string();
        assert_eq!(of(None), "container=app jemalloc=20 withdrawn=mimalloc");
        assert_eq!(of(Some(&verdicts[0])), "container=app jemalloc=100 withdrawn=mimalloc");
        let elsewhere = verdict("tcmalloc", None);
        assert_eq!(of(Some(&elsewhere)), "container=app jemalloc=20 withdrawn=mimalloc", "nobody tries it");
    }

    const PRELOAD: &str = "/opt/imas/libimas-guard.so:/opt/imas/libjemalloc.so";

    #[test]
    fn the_process_that_holds_most_is_judged() {
        let serves = "/lib/libc.so.6\n/opt/imas/libimas-guard.so\n/opt/imas/libjemalloc.so\n";
        let text =
            |shell: &str, server: &str| format!("= 300 sh\n{shell}= 90000 node server\n{server}= 9 x\n");
        assert_eq!(lacking(PRELOAD, &text("/lib/libc.so.6\n", serves)), None);
        assert_eq!(lacking(PRELOAD, &text(serves, "/lib/libc.so.6\n")).as_deref(), Some("node server"));
        assert_eq!(lacking(PRELOAD, "nonsense\n= x y\n"), None, "nothing is known");
    }

    /// This very process, as the script sees it.
    #[test]
    fn a_shell_alone_can_look() {
        let done = std::process::Command::new("sh").args(["-c", SCRIPT]).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(text.contains("libc.so.6\n") && text.starts_with("= "), "{text}");
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert!(text.lines().any(|line| line.starts_with("= ") && line.ends_with(own.trim())), "{text}");
    }
}
