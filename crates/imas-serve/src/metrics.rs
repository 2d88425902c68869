// SPDX-License-Identifier: Apache-2.0
//! `/metrics`: figures for Prometheus, computed at each scrape from what is known at that moment: as OpenMetrics for who
//! asks for that, else as Prometheus' text.
//!
//! The number of time series is bounded: the programs that gain most have their own, all others together are
//! the program `other`.
//!
//! Metrics of the fleet: what waits on this host, and what the agent has done since it started.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use imas_core::printable;
use imas_engine::daemon_status::FleetState;
use imas_engine::live::snapshot::{LiveProcess, LiveSnapshot};
use imas_exchange::AgentRecord;
use imas_linux::host::now_unix_s;
use imas_linux::index::ServiceUnit;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::answer;
use crate::keeper::{self, ServedState, Shared};
use crate::line::{Gain, ProgramLine};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Number of programs with time series of their own.
const PROGRAMS: usize = 50;
/// Number of services with a time series of their own.
const UNITS: usize = 50;
/// Number of allocators with a time series of their own: a user can map a library of any name.
const ALLOCATORS: usize = 50;
/// Name of the series that sums up the other programs, services or allocators.
const OTHER: &str = "other";

type Labels = Vec<(&'static str, String)>;
type Figure = Gauge<f64, AtomicU64>;
type Total = Counter<f64, AtomicU64>;

/// `/metrics`
pub(crate) async fn get(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let Some(known) = shared.known().await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the store is still being read\n").into_response();
    };
    let text = tokio::task::spawn_blocking(move || {
        let look = shared.live.now()?;
        text(&known, &look)
    });
    match text.await {
        Ok(Ok(text)) if wants_open_metrics(&headers) => answer::tagged(&headers, OPEN_METRICS, text),
        Ok(Ok(text)) => answer::tagged(&headers, PLAIN_TEXT, plain(&text)),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(axum::http::header::ACCEPT).iter().filter_map(|kinds| kinds.to_str().ok());
    accepted
        .flat_map(|kinds| kinds.split(','))
        .any(|kind| kind.trim().starts_with("application/openmetrics-text"))
}

/// OpenMetrics as Prometheus' text: there a counter has the name of its samples, and units and an end are not
/// known.
fn plain(open: &str) -> String {
    let counters: BTreeSet<&str> =
        open.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let of = |begin: &str| {
            let (name, rest) = line.strip_prefix(begin)?.split_once(' ')?;
            counters.contains(name).then(|| format!("{begin}{name}_total {rest}"))
        };
        let renamed = of("# TYPE ").or_else(|| of("# HELP "));
        text.push_str(renamed.as_deref().unwrap_or(line));
        text.push('\n');
    }
    text
}

fn text(known: &ServedState, look: &LiveSnapshot) -> anyhow::Result<String> {
    let mut registry = Registry::with_prefix("imas");
    of_store(&mut registry, known);
    of_daemon(&mut registry, known);
    of_machine(&mut registry, look);
    of_units(&mut registry, look);
    of_programs(&mut registry, known, look);
    of_ourselves(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Registers figures that have one value each: name, help, value.
fn single<const N: usize>(registry: &mut Registry, figures: [(&str, &str, f64); N]) {
    for (name, help, value) in figures {
        let gauge = Figure::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    }
}

/// The value of a figure that says yes or no.
fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn figures(registry: &mut Registry, name: &str, help: &str, values: impl Iterator<Item = (Labels, f64)>) {
    let family = Family::<Labels, Figure>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).set(value);
    }
    registry.register(name, help, family);
}

fn total(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>, value: f64) {
    let counter = Total::default();
    counter.inc_by(value);
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, counter),
        None => registry.register(name, help, counter),
    }
}

fn of_store(registry: &mut Registry, known: &ServedState) {
    let mut starts: BTreeMap<(String, &str), f64> = BTreeMap::new();
    let mut states: BTreeMap<&str, f64> = BTreeMap::new();
    for program in &known.programs {
        *states.entry(program.line.standing).or_default() += 1.0;
        for record in &program.state.known.records {
            let kind = match record.sample.kind {
                imas_core::sample::PageKind::Trial => "trial",
                imas_core::sample::PageKind::Flight => "production",
            };
            *starts.entry((printable::name(&record.sample.candidate).into_owned(), kind)).or_default() += 1.0;
        }
    }
    let trials: usize = known.lines().map(|line| line.trials).sum();
    let samples = trials + known.lines().map(|line| line.starts).sum::<usize>();
    let quarantines: usize = known.lines().map(|line| line.quarantined.len()).sum();
    let crashes: usize = known.lines().map(|line| line.crashes).sum();
    let labelled = |((candidate, kind), count)| {
        (vec![("candidate", candidate), ("decision", str::to_owned(kind))], count)
    };
    figures(registry, "stored_starts", "Starts in the store, by decision", starts.into_iter().map(labelled));
    figures(
        registry,
        "programs",
        "Known programs, by what their next starts are about",
        states.into_iter().map(|(state, count)| (vec![("state", state.to_owned())], count)),
    );
    let store = &known.store;
    let values = [
        ("trials", "Trials in the store", trials as f64),
        ("samples", "Samples in the store: of trials and of other starts", samples as f64),
        ("crashes", "Starts in the store that crashed or hung", crashes as f64),
        ("quarantines", "Candidates in quarantine, added up over the programs", quarantines as f64),
        ("disabled_allocators", "Allocators that are given to nobody", store.disabled.len() as f64),
        ("store_size_bytes", "Size of the store's files", store.bytes as f64),
        ("store_readable", "1 if the store can be read", flag(store.obstacle.is_none())),
    ];
    single(registry, values);
    let [offers, processes, pages] = store.queue.map(|count| count as f64);
    let queue = [("offers", offers), ("processes", processes), ("pages", pages)];
    let labelled = queue.into_iter().map(|(of, count)| (vec![("of", of.to_owned())], count));
    let help = "What waits: trials on offer, processes not processed, pages to be collected";
    figures(registry, "queue", help, labelled);
    ages(registry, known);
}

/// Registers the ages of the programs' newest decisions: newest, median and oldest, in seconds.
fn ages(registry: &mut Registry, known: &ServedState) {
    let now_s = now_unix_s();
    let mut ages: Vec<f64> =
        known.lines().filter_map(|line| Some((now_s - line.decided_unix_s?).max(0.0))).collect();
    ages.sort_by(f64::total_cmp);
    let places = [("newest", 0), ("median", ages.len() / 2), ("oldest", ages.len().saturating_sub(1))];
    let labelled = places
        .into_iter()
        .filter_map(|(which, at)| Some((vec![("which", which.to_owned())], *ages.get(at)?)));
    figures(registry, "decision_age_seconds", "Age of each program's newest decision", labelled);
}

fn of_daemon(registry: &mut Registry, known: &ServedState) {
    let daemon = &known.daemon;
    let help = "0 if programs ignore what imasd has published";
    let values = [
        ("daemon_up", "1 if imasd runs", flag(daemon.status.is_some())),
        ("daemon_effective", help, flag(daemon.ineffective.is_none())),
    ];
    single(registry, values);
    let Some(status) = &daemon.status else { return };
    let help = "Processes in production that imasd watches";
    let values = [
        ("daemon_emergency", "1 if every program starts untouched", flag(status.emergency.is_some())),
        ("trials_running", "Processes that run a trial of imasd", status.trials_running as f64),
        ("placed_processes", help, status.flights_watched as f64),
    ];
    single(registry, values);
    let family = Family::<Labels, Counter>::default();
    for (event, count) in status.counters.counted() {
        family.get_or_create(&vec![("event", event)]).inc_by(count);
    }
    registry.register("daemon_events", "What imasd has counted since its start", family);
    if let Some(state) = &status.fleet {
        register_fleet(registry, state);
    }
    // No state is made for these alone: the state's may be minutes old.
    if let Some((cpu_s, bytes)) = keeper::cost(status) {
        total(registry, "daemon_cpu", "CPU time of imasd", Some(Unit::Seconds), cpu_s);
        single(registry, [("daemon_resident_bytes", "Resident memory of imasd", bytes as f64)]);
    }
}

fn of_machine(registry: &mut Registry, look: &LiveSnapshot) {
    let mut processes: BTreeMap<String, f64> = BTreeMap::new();
    for process in &look.processes {
        *processes.entry(printable::name(&process.allocator).into_owned()).or_default() += 1.0;
    }
    let mut own: Vec<(String, f64)> = processes.into_iter().collect();
    own.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let others = own.split_off(own.len().min(ALLOCATORS));
    let other = (OTHER.to_owned(), others.iter().map(|(_, count)| count).sum());
    let all = own.into_iter().chain((!others.is_empty()).then_some(other));
    let labelled = all.map(|(name, count)| (vec![("allocator", name)], count));
    figures(registry, "processes", "Running processes by the allocator that serves them", labelled);
    let help = "Processes of others that may not be looked into";
    single(registry, [("processes_hidden", help, look.hidden as f64)]);
    let help =
        "Processes that were not looked at: looks at those of their owner took too long, or one has too much";
    single(registry, [("processes_unseen", help, look.unseen as f64)]);
}

/// Registers the memory of each service, of those that hold most: free pages in the heaps, each part, and its processes
/// by the verdict on their memory.
fn of_units(registry: &mut Registry, look: &LiveSnapshot) {
    let returnable = sums(look, |process| {
        process.returnable_bytes.map(|bytes| (String::new(), bytes as f64)).into_iter().collect()
    });
    let labelled = returnable.into_iter().map(|((unit, _), bytes)| (vec![("unit", unit)], bytes));
    let help = "Free pages in glibc's heaps of a service that malloc_trim(0) would return";
    figures(registry, "unit_returnable_bytes", help, labelled);
    let both = |name: &'static str, sums: BTreeMap<(String, String), f64>| {
        sums.into_iter().map(move |((unit, label), value)| (vec![("unit", unit), (name, label)], value))
    };
    let parts = sums(look, |process| {
        let parts = process.memory.iter().flat_map(|memory| &memory.parts);
        parts.map(|part| (part.kind.id().to_owned(), part.resident_bytes as f64)).collect()
    });
    let help = "Resident memory of a service by owner, of its processes that were looked into";
    figures(registry, "unit_memory_bytes", help, both("part", parts));
    let verdicts = sums(look, |process| {
        process.memory.iter().map(|memory| (memory.verdict.id().to_owned(), 1.0)).collect()
    });
    let help = "Processes of a service by the verdict on their memory";
    figures(registry, "unit_verdicts", help, both("verdict", verdicts));
}

/// Sums over the processes of each service, by service and label. Those of the services with the smallest sums are added
/// up.
fn sums(
    look: &LiveSnapshot,
    values: impl Fn(&LiveProcess) -> Vec<(String, f64)>,
) -> BTreeMap<(String, String), f64> {
    let mut units: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for process in &look.processes {
        for (label, value) in values(process) {
            let unit = process.unit.as_ref().map_or_else(|| "none".to_owned(), ServiceUnit::to_string);
            *units.entry(unit).or_default().entry(label).or_default() += value;
        }
    }
    let mut units: Vec<_> = units.into_iter().collect();
    let whole = |labels: &BTreeMap<String, f64>| -> f64 { labels.values().sum() };
    units.sort_by(|a, b| whole(&b.1).total_cmp(&whole(&a.1)).then_with(|| a.0.cmp(&b.0)));
    let mut sums = BTreeMap::new();
    for (at, (unit, labels)) in units.into_iter().enumerate() {
        let unit = if at < UNITS { printable::name(&unit).into_owned() } else { OTHER.to_owned() };
        for (label, value) in labels {
            *sums.entry((unit.clone(), label)).or_default() += value;
        }
    }
    sums
}

/// A program with the sums over its processes.
struct Series<'a> {
    line: &'a ProgramLine,
    resident_bytes: f64,
}

fn of_programs(registry: &mut Registry, known: &ServedState, look: &LiveSnapshot) {
    let mut resident: BTreeMap<i64, f64> = BTreeMap::new();
    for process in &look.processes {
        // Numbers are of one store; what another store knows has no line here.
        if let Some(number) = process.number.filter(|_| is_of_this_store(known, process.store)) {
            *resident.entry(number).or_default() += process.resident_bytes as f64;
        }
    }
    let mut all: Vec<Series<'_>> = known
        .lines()
        .map(|line| Series { line, resident_bytes: resident.get(&line.id).copied().unwrap_or(0.0) })
        .collect();
    let worth = |one: &Series<'_>| one.line.gained_together().max(one.line.possible_together());
    all.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then_with(|| a.line.id.cmp(&b.line.id)));
    let (own, others) = all.split_at(all.len().min(PROGRAMS));
    let sum = |get: fn(&Series<'_>) -> f64| {
        let other = (vec![("program", OTHER.to_owned())], others.iter().map(get).sum());
        own.iter().map(move |one| (labels(one.line), get(one))).chain((!others.is_empty()).then_some(other))
    };
    let help = "Resident memory of a program's running processes";
    figures(registry, "program_resident_bytes", help, sum(|one| one.resident_bytes));
    let help = "What they would hold more under system, by the program's trials";
    figures(registry, "program_saved_bytes", help, sum(saved_bytes));
    let help = "CPU time and memory saved together, as a fraction, by what is in use";
    let gains = own.iter().map(|one| (labels(one.line), one.line.gained_together()));
    figures(registry, "program_gain_ratio", help, gains);
    let help = "The same under the best candidate that is not in use";
    let gains = own.iter().map(|one| (labels(one.line), one.line.possible_together()));
    figures(registry, "program_expected_gain_ratio", help, gains);
    let allocators = own.iter().map(|one| {
        let mut labels = labels(one.line);
        labels.push(("candidate", printable::name(&one.line.candidate).into_owned()));
        (labels, 1.0)
    });
    figures(registry, "program_allocator", "What a program's starts get", allocators);
}

fn saved_bytes(one: &Series<'_>) -> f64 {
    one.line.gained.as_ref().map_or(0.0, |gain: &Gain| one.resident_bytes * (1.0 / gain.memory.mid - 1.0))
}

/// Labels of a program, with its number. Names are not unique: one user's program may be another's.
fn labels(line: &ProgramLine) -> Labels {
    vec![("program", line.name.chars().take(200).collect()), ("number", line.id.to_string())]
}

fn is_of_this_store(known: &ServedState, store: Option<imas_engine::live::snapshot::StoreKind>) -> bool {
    let is_system = known.lines().any(|line| line.domain != "own");
    store.is_some_and(|store| (store == imas_engine::live::snapshot::StoreKind::System) == is_system)
}

fn of_ourselves(registry: &mut Registry) {
    let stat = procfs::process::Process::myself().and_then(|own| own.stat());
    let Ok(stat) = stat else { return };
    let seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    total(registry, "serve_cpu", "CPU time of imas serve", Some(Unit::Seconds), seconds);
    let bytes = (stat.rss * procfs::page_size()) as f64;
    single(registry, [("serve_resident_bytes", "Resident memory of imas serve", bytes)]);
}

/// Registers the figures of the fleet that imasd takes part in.
fn register_fleet(registry: &mut Registry, fleet: &FleetState) {
    let help = "Messages in the store that cannot be written into the exchange folder";
    let values = [
        ("fleet_connected", "1 if the agent of the fleet is connected", flag(fleet.connected)),
        ("fleet_outbox_messages", "Messages that wait for the agent", fleet.waiting as f64),
        ("fleet_outbox_bytes", "Bytes of them", fleet.waiting_bytes as f64),
        ("fleet_unwritten_messages", help, fleet.unwritten as f64),
        ("fleet_wanted_programs", "Programs of which statistics are wanted", fleet.wanted as f64),
    ];
    single(registry, values);
    let Some(agent) = fleet.agent_record() else { return };
    if let Some(since) = agent.connected_since_unix_s.filter(|_| fleet.connected) {
        let help = "When the agent's connection was made, Unix time";
        single(registry, [("fleet_connected_since_seconds", help, since as f64)]);
    }
    let family = Family::<Labels, Counter>::default();
    for (event, count) in counts(&agent) {
        family.get_or_create(&vec![("event", event.to_owned())]).inc_by(count);
    }
    registry.register("fleet_agent_events", "What the agent has counted since its start", family);
}

fn counts(agent: &AgentRecord) -> [(&'static str, u64); 11] {
    [
        ("connections", agent.connections),
        ("published", agent.published),
        ("acknowledged", agent.acknowledged),
        ("duplicates", agent.duplicates),
        ("refused", agent.refused),
        ("received", agent.received),
        ("forgotten", agent.forgotten),
        ("folded", agent.folded),
        ("conflicts", agent.conflicts),
        ("rejected", agent.rejected),
        ("excessive", agent.excessive),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_the_name_of_its_samples_in_plain_text() {
        let open = "# HELP imas_cpu_seconds CPU.\n# TYPE imas_cpu_seconds counter\n# UNIT imas_cpu_seconds seconds\n\
                    imas_cpu_seconds_total 1.5\n# HELP imas_up Up.\n# TYPE imas_up gauge\nimas_up 1.0\n# EOF\n";
        assert_eq!(
            plain(open),
            "# HELP imas_cpu_seconds_total CPU.\n# TYPE imas_cpu_seconds_total counter\nimas_cpu_seconds_total 1.5\n\
             # HELP imas_up Up.\n# TYPE imas_up gauge\nimas_up 1.0\n"
        );
        let accept = |kinds: &'static str| {
            wants_open_metrics(&HeaderMap::from_iter([(axum::http::header::ACCEPT, kinds.parse().unwrap())]))
        };
        assert!(accept("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"));
        assert!(!accept("text/plain") && !wants_open_metrics(&HeaderMap::new()));
    }

    #[test]
    fn the_agents_counts_are_there_only_with_an_agent() {
        let text = |fleet: &FleetState| {
            let mut registry = Registry::with_prefix("imas");
            register_fleet(&mut registry, fleet);
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        let agent = serde_json::json!({"connected_since_unix_s": 60, "conflicts": 4, "excessive": 7});
        let agent = agent.as_object().cloned();
        let fleet = FleetState { waiting: 3, connected: true, agent, ..FleetState::default() };
        let with = text(&fleet);
        for line in [
            "imas_fleet_connected 1.0",
            "imas_fleet_outbox_messages 3.0",
            "imas_fleet_connected_since_seconds 60.0",
            "imas_fleet_agent_events_total{event=\"conflicts\"} 4",
            "imas_fleet_agent_events_total{event=\"excessive\"} 7",
        ] {
            assert!(with.lines().any(|one| one == line), "{line}: {with}");
        }
        let without = text(&FleetState { connected: false, agent: None, ..fleet });
        assert!(
            without.contains("imas_fleet_connected 0.0") && !without.contains("agent_events"),
            "{without}"
        );
    }
}
