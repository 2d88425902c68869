// SPDX-License-Identifier: Apache-2.0
//! imasd's fleet in `imas status`: what waits, and what the agent has done since it started.

use imas_cli::when::when;
use imas_core::plural::counted;
use imas_engine::daemon_status::FleetState;
use imas_exchange::AgentRecord;

/// Lines about the fleet, each after a line break.
pub(super) fn lines(fleet: &FleetState) -> String {
    let mut lines = vec![connection(fleet)];
    lines.push(format!(
        "  outbox: {} ({} bytes); statistics are wanted of {}",
        counted(fleet.waiting, "message"),
        fleet.waiting_bytes,
        counted(fleet.wanted, "program")
    ));
    if fleet.unwritten > 0 {
        lines.push(format!("  {} in the store are not written yet", counted(fleet.unwritten, "message")));
    }
    if let Some(agent) = fleet.agent_record() {
        lines.extend(work(&agent));
    }
    lines.extend(fleet.trouble.as_ref().map(|trouble| format!("  {trouble}")));
    lines.iter().map(|line| format!("\n{line}")).collect()
}

fn connection(fleet: &FleetState) -> String {
    let agent = fleet.agent_record();
    let since = agent.as_ref().and_then(|agent| agent.connected_since_unix_s);
    match (fleet.connected, agent, since) {
        (true, Some(agent), Some(since)) => {
            format!("fleet: connected with {} since {}, as {}", agent.server, time(since), fleet.host)
        }
        (_, Some(_), _) => format!("fleet: not connected, as {}: see imas fleet doctor", fleet.host),
        (_, None, _) => {
            format!("fleet: its agent does not run (systemctl start imas-fleet), as {}", fleet.host)
        }
    }
}

fn work(agent: &AgentRecord) -> Vec<String> {
    let AgentRecord { acknowledged, refused, received, folded, conflicts, rejected, excessive, .. } = agent;
    let passed_over = rejected + excessive;
    let mut lines =
        vec![format!("  agent: {acknowledged} acknowledged, {refused} refused, {received} received")];
    if folded + conflicts + passed_over > 0 {
        lines.push(format!("  merges: {folded} folded, {conflicts} conflicts, {passed_over} passed over"));
    }
    if let (Some(error), Some(at)) = (&agent.last_error, agent.last_error_unix_s) {
        lines.push(format!("  last error, {}: {error}", time(at)));
    }
    lines
}

fn time(unix_s: u64) -> String {
    when(unix_s as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state(connected: bool, agent: Option<serde_json::Value>) -> FleetState {
        let agent = agent.and_then(|agent| agent.as_object().cloned());
        FleetState {
            host: "abc".into(),
            waiting: 2,
            waiting_bytes: 900,
            wanted: 1,
            connected,
            agent,
            ..FleetState::default()
        }
    }

    #[test]
    fn the_connection_and_the_work_of_the_agent_are_shown() {
        let record =
            json!({"connected_since_unix_s": 60, "server": "fleet-1", "acknowledged": 7, "folded": 3});
        let text = lines(&state(true, Some(record.clone())));
        for part in [
            "connected with fleet-1 since 1970-",
            "outbox: 2 messages (900 bytes)",
            "7 acknowledged",
            "3 folded",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let ended = lines(&state(false, Some(record)));
        assert!(ended.contains("fleet: not connected") && ended.contains("7 acknowledged"), "{ended}");
        assert!(lines(&state(false, None)).contains("its agent does not run"));
        let absurd = lines(&state(true, Some(json!({"acknowledged": "many"}))));
        assert!(absurd.contains("its agent does not run"), "a record that no agent writes: {absurd}");
    }
}
