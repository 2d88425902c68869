// SPDX-License-Identifier: Apache-2.0
//! Predicts a program's figures under a candidate: the recorded figures plus the difference between the
//! replays.

use serde::Serialize;

use crate::program::Look;
use crate::result::Replay;

/// Figures of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// CPU seconds.
    pub cpu_s: f64,
    /// The highest resident memory of all looks, bytes.
    pub peak_bytes: f64,
    /// Mean resident memory over time, bytes.
    pub mean_bytes: f64,
    /// Resident memory at the end, bytes.
    pub end_bytes: f64,
}

/// Figures of the recorded program.
#[must_use]
pub fn recorded(looks: &[Look]) -> Figures {
    let curve: Vec<f64> = looks.iter().map(|look| look.bytes as f64).collect();
    figures(looks, &curve, looks.last().map_or(0.0, |look| look.cpu_ns as f64 / 1e9))
}

fn figures(looks: &[Look], curve: &[f64], cpu_s: f64) -> Figures {
    Figures {
        cpu_s,
        peak_bytes: curve.iter().copied().fold(0.0, f64::max),
        mean_bytes: mean(looks, curve),
        end_bytes: curve.last().copied().unwrap_or(0.0),
    }
}

/// Integrates by trapezoids over time. Without elapsed time, the plain mean.
fn mean(looks: &[Look], curve: &[f64]) -> f64 {
    let (mut sum, mut span) = (0.0, 0.0);
    for (pair, bytes) in looks.windows(2).zip(curve.windows(2)) {
        let ns = pair[1].ns.saturating_sub(pair[0].ns) as f64;
        sum += ns * (bytes[0] + bytes[1]) / 2.0;
        span += ns;
    }
    if span > 0.0 { sum / span } else { curve.iter().sum::<f64>() / curve.len().max(1) as f64 }
}

/// The replay with the median CPU time.
#[must_use]
pub fn middle(replays: &[Replay]) -> Option<&Replay> {
    let mut by_cpu: Vec<&Replay> = replays.iter().collect();
    by_cpu.sort_by(|a, b| a.cpu_s.total_cmp(&b.cpu_s));
    by_cpu.get(by_cpu.len().saturating_sub(1) / 2).copied()
}

/// The lowest CPU time of some replays, because disturbances only add to it; infinite without any.
#[must_use]
pub fn least_cpu(replays: &[Replay]) -> f64 {
    replays.iter().map(|replay| replay.cpu_s).fold(f64::INFINITY, f64::min)
}

/// The predicted resident bytes under a candidate at each look. None without a replay under both.
#[must_use]
pub fn curve(looks: &[Look], system: &[Replay], candidate: &[Replay]) -> Option<Vec<f64>> {
    let (base, other) = (middle(system)?, middle(candidate)?);
    let at = |((look, base), other): ((&Look, _), _)| {
        let (base, other): (&crate::result::ReplayLook, &crate::result::ReplayLook) = (base, other);
        (look.bytes as f64 + other.bytes as f64 - base.bytes as f64).max(0.0)
    };
    Some(looks.iter().zip(&base.looks).zip(&other.looks).map(at).collect())
}

/// The predicted figures under a candidate. None without a replay under both.
#[must_use]
pub fn predict(looks: &[Look], system: &[Replay], candidate: &[Replay]) -> Option<Figures> {
    let curve = curve(looks, system, candidate)?;
    let cpu_s = recorded(looks).cpu_s + least_cpu(candidate) - least_cpu(system);
    Some(figures(looks, &curve, cpu_s.max(0.0)))
}
