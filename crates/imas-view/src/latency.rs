// SPDX-License-Identifier: Apache-2.0
//! Histograms of several trials as one.

use imas_core::latency::Latency;
use imas_report::html;

/// Latencies of a candidate added up, one section for each class of calls.
#[must_use]
pub fn added_up(candidate: &str, of_each: &[Latency]) -> Vec<html::LatencySection> {
    let ns_per_tick = of_each.iter().map(|latency| latency.ns_per_tick).find(|ns| *ns > 0.0);
    let classes = Latency::CLASSES.into_iter().enumerate();
    classes
        .map(|(i, class)| {
            let mut sum: Vec<u64> = vec![];
            for histogram in of_each.iter().map(|latency| latency.classes()[i].histogram()) {
                sum.resize(sum.len().max(histogram.len()), 0);
                sum.iter_mut().zip(histogram).for_each(|(sum, n)| *sum = sum.saturating_add(n));
            }
            html::LatencySection { class, candidate: candidate.to_owned(), histogram_ticks: sum, ns_per_tick }
        })
        .collect()
}
