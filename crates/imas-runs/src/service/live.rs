// SPDX-License-Identifier: Apache-2.0
//! Memory of a server in live blocks, from a counted run.

use imas_core::run::{MemorySnapshot, RawRun};
use imas_core::server_run::work::mean_by_work;
use imas_core::server_run::{LiveMemory, ServerRun};

use crate::counted::CountedRun;
use crate::record::inside;

/// The run with the figures of its counted pages. Where no process left one (a static program, one that starts its
/// children with an empty environment), a note says so.
pub(crate) fn with_live(mut run: RawRun, counted: anyhow::Result<CountedRun>) -> RawRun {
    let Some(server) = run.server.as_deref_mut() else { return run };
    let counted = match counted {
        Ok(counted) => counted,
        Err(error) => {
            server.notes.push(format!("live memory is unknown: {error:#}"));
            return run;
        }
    };
    let looks = counted.curve.as_ref().map(imas_core::run::Curve::looks).unwrap_or_default();
    server.live = live(server, &looks);
    let inside = inside(&counted);
    RawRun {
        ns_per_op: inside.ns_per_op,
        frag: inside.frag,
        heap_bytes: inside.heap_bytes,
        live_bytes: inside.live_bytes,
        resident_bytes: inside.resident_bytes,
        ops: inside.ops,
        latency: inside.latency,
        split: inside.split,
        ..run
    }
}

/// Resident and live memory under load and after the pause. None where the hook's estimate of live blocks is missing,
/// as where forked workers go on with their parent's.
fn live(server: &ServerRun, looks: &[MemorySnapshot]) -> Option<LiveMemory> {
    let curve = |of: fn(&MemorySnapshot) -> u64| -> Vec<(f64, f64)> {
        looks.iter().map(|look| (look.ms as f64 / 1e3, of(look) as f64 * 1024.0)).collect()
    };
    let both = [curve(|look| look.resident_kib), curve(|look| look.live_kib)];
    let ready_s = server.value("ready").unwrap_or(0.0);
    let loaded_s = ready_s + server.cycles.iter().map(|cycle| cycle.wall_s).sum::<f64>();
    let load = [mean_by_work(server, &both[0])?, mean_by_work(server, &both[1])?];
    let last = looks.iter().rev().find(|look| look.ms as f64 / 1e3 > loaded_s && look.resident_kib > 0)?;
    let idle = [last.resident_kib, last.live_kib].map(|kib| kib as f64 * 1024.0);
    (load[1] > 0.0).then_some(LiveMemory { load, idle })
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_run::{CycleFigures, Figure, PhaseFigures};

    #[test]
    fn a_counted_run_without_pages_is_kept_with_a_note() {
        let run = RawRun { ok: true, ..RawRun::default() }.with_server(ServerRun::default());
        let found = with_live(run, Err(anyhow::anyhow!("no process of the tree was counted")));
        let server = found.of_server();
        assert!(found.ok && server.live.is_none());
        assert_eq!(server.notes, ["live memory is unknown: no process of the tree was counted"]);
    }

    #[test]
    fn live_memory_is_by_work_and_after_the_pause() {
        let phase = |wall_s| PhaseFigures { wall_s, ..PhaseFigures::default() };
        let phases = vec![phase(1.0), phase(9.0)];
        let cycles = vec![CycleFigures { wall_s: 10.0, phases, ..CycleFigures::default() }];
        let server = ServerRun { cycles, ..ServerRun::of([Figure::lower("ready", 0.0, "s")]) };
        let look = |ms, resident_kib, live_kib| MemorySnapshot {
            ms,
            resident_kib,
            live_kib,
            ..MemorySnapshot::default()
        };
        let looks = [
            look(0, 10, 8),
            look(1000, 10, 8),
            look(1001, 30, 16),
            look(10_000, 30, 16),
            look(12_000, 20, 4),
        ];
        let found = live(&server, &looks).unwrap();
        assert!(
            (found.load[0] / 1024.0 - 20.0).abs() < 0.1 && (found.load[1] / 1024.0 - 12.0).abs() < 0.1,
            "{found:?}"
        );
        assert_eq!(found.idle, [20.0 * 1024.0, 4.0 * 1024.0]);
        assert_eq!(live(&server, &looks[..4]), None, "nobody looked in the pause");
        assert_eq!(live(&server, &looks.map(|look| MemorySnapshot { live_kib: 0, ..look })), None);
    }
}
