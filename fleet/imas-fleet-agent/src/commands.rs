// SPDX-License-Identifier: Apache-2.0
//! Questions of an operator to a fleet: how it is, which programs it knows, which allocators no program
//! needs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use async_nats::jetstream::stream::Info;
use futures_util::TryStreamExt as _;
use imas_core::compare::{Answer, KnownFigure, judge};
use imas_exchange::{FleetStatistics, ProgramKey};
use imas_fleet::FleetBus as _;
use serde::Serialize;

use crate::jetstream::JetStreamBus;
use crate::names;

/// State of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct StreamState {
    /// Name of the stream.
    pub name: String,
    /// Messages in the stream.
    pub messages: u64,
    /// Bytes of the messages.
    pub bytes: u64,
    /// Most bytes that the stream may hold.
    pub max_bytes: i64,
    /// Sequence number of the last message.
    pub last_sequence: u64,
    /// Copies that the stream should have.
    pub replicas: usize,
    /// Server that leads the stream.
    pub leader: Option<String>,
    /// Servers of the copies that are behind or away.
    pub behind: Vec<String>,
    /// Consumers; a fleet needs none.
    pub consumers: usize,
}

/// A program in an environment, as the fleet knows it.
#[derive(Debug, Clone, Serialize)]
pub struct FleetProgram {
    /// `PROGRAM.ENVIRONMENT`.
    pub subject: String,
    /// Aggregates that are folded.
    pub folded: u64,
    /// Candidates, with their groups of hosts that gave figures, and the medians of these.
    pub candidates: Vec<ListedCandidate>,
}

/// A fleet's measurements of one candidate.
#[derive(Debug, Clone, Serialize)]
pub struct ListedCandidate {
    /// Name of the candidate.
    pub name: String,
    /// Version of the candidate's allocator.
    pub version: String,
    /// Groups of hosts with figures.
    pub groups: usize,
    /// Median over the groups: CPU against `system`, as a ratio.
    pub cpu: Option<f64>,
    /// Median over the groups: memory against `system`, as a ratio.
    pub memory: Option<f64>,
    /// Groups in which the candidate crashed.
    pub crashed: u32,
}

/// States of the stream and of the bucket's stream.
///
/// # Errors
/// When they are missing or the server does not answer.
pub async fn streams(bus: &JetStreamBus) -> Result<Vec<StreamState>> {
    let mut states = vec![];
    for name in [names::STREAM, names::BUCKET_STREAM] {
        let stream = bus.context().get_stream(name).await;
        let stream = stream.with_context(|| format!("{name}: run 'imas fleet init' first"))?;
        states.push(state(stream.cached_info()));
    }
    Ok(states)
}

fn state(info: &Info) -> StreamState {
    let cluster = info.cluster.as_ref();
    let replicas = cluster.map(|cluster| cluster.replicas.as_slice()).unwrap_or_default();
    let behind = replicas.iter().filter(|replica| !replica.current || replica.offline);
    StreamState {
        name: info.config.name.clone(),
        messages: info.state.messages,
        bytes: info.state.bytes,
        max_bytes: info.config.max_bytes,
        last_sequence: info.state.last_sequence,
        replicas: info.config.num_replicas,
        leader: cluster.and_then(|cluster| cluster.leader.clone()),
        behind: behind.map(|replica| replica.name.clone()).collect(),
        consumers: info.state.consumer_count,
    }
}

/// Every program with statistics.
///
/// # Errors
/// When the server does not list them.
pub async fn programs(bus: &JetStreamBus) -> Result<Vec<FleetProgram>> {
    let mut programs = vec![];
    for subject in known(bus).await? {
        let Some(stored) = bus.statistics(&subject).await? else { continue };
        match FleetStatistics::read_of(&subject, &stored.value) {
            Ok(statistics) => programs.push(program(subject, &statistics)),
            Err(error) => imas_cli::message::warning(&format!("{subject}: {error}")),
        }
    }
    Ok(programs)
}

async fn known(bus: &JetStreamBus) -> Result<BTreeSet<String>> {
    let begin = format!("$KV.{}", names::BUCKET);
    let stream = bus.context().get_stream_no_info(names::BUCKET_STREAM).await?;
    let mut listed = stream.info_with_subjects(format!("{begin}.>")).await?;
    let mut known = BTreeSet::new();
    while let Some((subject, _)) = listed.try_next().await? {
        known.extend(names::program_and_environment(&begin, &subject));
    }
    Ok(known)
}

fn program(subject: String, statistics: &FleetStatistics) -> FleetProgram {
    let candidates = statistics.candidates.iter().map(|candidate| ListedCandidate {
        name: candidate.name.clone(),
        version: candidate.version.clone(),
        groups: candidate.pairs.len(),
        cpu: median(candidate.pairs.iter().map(|seat| seat.x).collect()),
        memory: median(candidate.pairs.iter().map(|seat| seat.y).collect()),
        crashed: candidate.crashed.len(),
    });
    FleetProgram { subject, folded: statistics.folded, candidates: candidates.collect() }
}

/// Median of differences of logarithms, as a ratio to `system`. None without figures.
fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).map(|figure| figure.exp())
}

/// A candidate, and for how many programs it is the best one in some respect.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CandidateUse {
    /// Name of the candidate.
    pub name: String,
    /// Programs with figures of the candidate.
    pub measured: usize,
    /// Programs for which the candidate needs the least CPU, by more than `margin`.
    pub fastest: usize,
    /// Programs for which the candidate needs the least memory, by more than `margin`.
    pub leanest: usize,
    /// Programs that the candidate crashed.
    pub crashed: usize,
}

/// How often each candidate is the best: less than `system` by `margin`, a share, and not more than any
/// other.
#[must_use]
pub fn uses(programs: &[FleetProgram], margin: f64) -> Vec<CandidateUse> {
    let mut uses: BTreeMap<&str, CandidateUse> = BTreeMap::new();
    for program in programs {
        let best = |figure: fn(&ListedCandidate) -> Option<f64>| {
            let sound = program.candidates.iter().filter(|one| one.crashed == 0);
            let figures = sound.filter_map(|one| Some((one.name.as_str(), figure(one)?)));
            let least = figures.min_by(|a, b| a.1.total_cmp(&b.1));
            let is_better = |ratio: f64| judge(KnownFigure::Ratio(ratio), margin) == Answer::Better;
            least.filter(|(_, ratio)| is_better(*ratio)).map(|(name, _)| name)
        };
        let (fastest, leanest) = (best(|one| one.cpu), best(|one| one.memory));
        for one in &program.candidates {
            let name = one.name.as_str();
            let none = || CandidateUse { name: name.to_owned(), ..CandidateUse::default() };
            let entry = uses.entry(name).or_insert_with(none);
            entry.measured += usize::from(one.groups > 0);
            entry.fastest += usize::from(fastest == Some(name));
            entry.leanest += usize::from(leanest == Some(name));
            entry.crashed += usize::from(one.crashed > 0);
        }
    }
    uses.into_values().collect()
}

/// Removes all that the fleet has of a program, in every environment, and notifies the hosts. How many
/// aggregates it had.
///
/// # Errors
/// When the key is none, or the server refuses.
pub async fn forget(bus: &JetStreamBus, program: &str) -> Result<u64> {
    // The list has the environment behind the key.
    let key = program.split_once('.').map_or(program, |(key, _)| key);
    let Ok(key) = ProgramKey::try_from(key.to_owned()) else {
        bail!("{program:?} is no program's key: 'imas fleet programs' lists them");
    };
    let subjects: Vec<String> =
        known(bus).await?.into_iter().filter(|subject| subject.starts_with(key.as_str())).collect();
    // First the aggregates: a merger that writes meanwhile has read them before, and its write comes before
    // the bucket's purge or is in conflict with it.
    let stream = bus.context().get_stream_no_info(names::STREAM).await?;
    let purged = stream.purge().filter(format!("{}.{}.>", names::AGGREGATES, key.as_str())).await?.purged;
    let bucket = bus.context().get_stream_no_info(names::BUCKET_STREAM).await?;
    bucket.purge().filter(format!("$KV.{}.{}.>", names::BUCKET, key.as_str())).await?;
    for subject in subjects {
        bus.context().client().publish(format!("{}.{subject}", names::DECISIONS), "".into()).await?;
    }
    bus.context().client().flush().await?;
    Ok(purged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, cpu: f64, memory: f64, crashed: u32) -> ListedCandidate {
        let (name, version) = (name.to_owned(), String::new());
        ListedCandidate { name, version, groups: 3, cpu: Some(cpu), memory: Some(memory), crashed }
    }

    #[test]
    fn a_candidate_is_used_where_it_is_the_best_beyond_the_margin_and_sound() {
        let candidates = vec![
            candidate("a", 0.8, 1.2, 0),
            candidate("b", 0.5, 0.5, 1),
            candidate("c", 0.9, 0.995, 0),
            candidate("d", 0.85, 1.0, 0),
        ];
        let program = FleetProgram { subject: String::new(), folded: 1, candidates };
        let uses = uses(&[program], 0.01);
        let counts: Vec<_> = uses.iter().map(|one| (one.name.as_str(), one.fastest, one.leanest)).collect();
        assert_eq!(counts, [("a", 1, 0), ("b", 0, 0), ("c", 0, 0), ("d", 0, 0)]);
        assert_eq!(uses[1].crashed, 1);
    }
}
