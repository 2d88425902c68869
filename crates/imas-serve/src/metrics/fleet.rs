// SPDX-License-Identifier: Apache-2.0
//! Metrics of the fleet: what waits on this host, and what the agent has done since it started.

use imas_engine::daemon_status::FleetState;
use imas_exchange::AgentRecord;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{Labels, flag, single};

/// Registers the figures of the fleet that imasd takes part in.
pub(super) fn register(registry: &mut Registry, fleet: &FleetState) {
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
    fn the_agents_counts_are_there_only_with_an_agent() {
        let text = |fleet: &FleetState| {
            let mut registry = Registry::with_prefix("imas");
            register(&mut registry, fleet);
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
