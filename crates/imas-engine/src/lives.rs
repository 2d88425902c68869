// SPDX-License-Identifier: Apache-2.0
//! How the processes of a service lived on under each candidate, for people and scripts.

use imas_cli::format::{mib, span};
use imas_cli::table::plain;
use imas_core::candidate::cost;
use imas_core::service_life::{LifeWindow, ServiceLife};
use imas_core::stats::median;
use serde::Serialize;

use crate::program_view::ProgramView;

/// The lives under one candidate. Each process counts by the newest part of its life; of several the median.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CandidateLives {
    /// Name of the candidate.
    pub candidate: String,
    /// Processes that were looked at.
    pub processes: usize,
    /// Age up to which the longest was looked at, seconds.
    pub until_s: f64,
    /// Steady memory: mean over the later half of the life, bytes.
    pub steady_bytes: f64,
    /// Highest of all, bytes.
    pub peak_bytes: u64,
    /// Growth in that half, bytes an hour.
    pub slope_bytes_per_h: f64,
    /// CPU seconds of a unit of work; None where no counter is named.
    pub cpu_of_a_unit_s: Option<f64>,
}

impl CandidateLives {
    fn of(candidate: &str, lives: &[&ServiceLife]) -> Option<Self> {
        let newest: Vec<&LifeWindow> = lives.iter().filter_map(|life| life.latest()).collect();
        let of = |figure: &dyn Fn(&LifeWindow) -> f64| {
            median(&newest.iter().map(|window| figure(window)).collect::<Vec<_>>())
        };
        let units: Vec<f64> = newest.iter().filter_map(|window| window.work?.cpu_of_a_unit()).collect();
        Some(Self {
            candidate: candidate.to_owned(),
            processes: newest.len(),
            until_s: newest.iter().map(|window| window.until_s).fold(0.0, f64::max),
            steady_bytes: of(&|window| window.mean_bytes as f64)?,
            peak_bytes: lives.iter().map(|life| life.peak_bytes()).max()?,
            slope_bytes_per_h: of(&|window| window.slope_bytes_per_h)?,
            cpu_of_a_unit_s: median(&units),
        })
    }

    fn row(&self) -> Vec<String> {
        let sign = if self.slope_bytes_per_h < 0.0 { "-" } else { "+" };
        vec![
            self.candidate.clone(),
            self.processes.to_string(),
            span(self.until_s),
            mib(self.steady_bytes),
            mib(self.peak_bytes as f64),
            format!("{sign}{}", mib(self.slope_bytes_per_h.abs())),
            self.cpu_of_a_unit_s.map_or_else(|| "-".to_owned(), |cpu_s| format!("{cpu_s:.3e} s")),
        ]
    }
}

/// Lives of the candidates under which trials that count lived on.
#[must_use]
pub fn lives(state: &ProgramView) -> Vec<CandidateLives> {
    let of = |candidate: &imas_core::Candidate| {
        let counted =
            state.known.records.iter().filter(|r| cost(r, candidate, &state.known.build_id).is_ok());
        let lives: Vec<_> = counted.filter_map(|record| record.sample.life.as_ref()).collect();
        CandidateLives::of(&candidate.name, &lives)
    };
    state.known.candidates().iter().filter_map(of).collect()
}

/// A table of them, closed by an empty line; empty where there are none.
#[must_use]
pub fn text(lives: &[CandidateLives]) -> String {
    const HEAD: [&str; 7] = [
        "lived under",
        "processes",
        "seen for",
        "steady memory",
        "peak",
        "growth an hour",
        "CPU for a unit of work",
    ];
    if lives.is_empty() { String::new() } else { plain(&HEAD, lives.iter().map(CandidateLives::row)) + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::service_life::Work;

    #[test]
    fn the_newest_window_of_each_process_counts() {
        let window = |until_s, mebibytes: u64| LifeWindow {
            until_s,
            mean_bytes: mebibytes << 20,
            peak_bytes: (mebibytes + 1) << 20,
            slope_bytes_per_h: -2.0 * f64::from(1 << 20),
            work: Some(Work { units: 1000.0, cpu_s: 0.5 }),
            ..LifeWindow::default()
        };
        let one = ServiceLife { windows: vec![window(600.0, 900), window(1200.0, 100)] };
        let other = ServiceLife { windows: vec![window(600.0, 300)] };
        let found = CandidateLives::of("jemalloc", &[&one, &other]).unwrap();
        assert_eq!((found.processes, found.until_s), (2, 1200.0));
        assert_eq!((found.steady_bytes, found.peak_bytes), (200.0 * f64::from(1 << 20), 901 << 20));
        let shown = text(&[found]);
        for word in ["jemalloc", "20 min", "200", "901", "-2", "5.000e-4 s"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        assert_eq!(CandidateLives::of("jemalloc", &[]), None);
        assert_eq!(text(&[]), "");
    }
}
