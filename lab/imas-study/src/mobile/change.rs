// SPDX-License-Identifier: Apache-2.0
//! Figures of the use case that are computed from captured ones: changes since the capture before.

use std::collections::BTreeMap;

use super::sample::{MobilePart, Samples};

/// The captures of memory after the first one.
pub(crate) const STATES: [&str; 2] = ["running", "idle"];
/// Free blocks of order `n` are of `2^n` pages.
pub(crate) const ORDERS: usize = 11;
/// Orders of blocks of 4, 8 and 16 KiB, with pages of 4 KiB.
const LOW_ORDERS: std::ops::Range<usize> = 0..3;
/// Orders of blocks of 32 KiB and more.
const HIGH_ORDERS: std::ops::Range<usize> = 3..ORDERS;

/// Name of the count of free blocks of an order, without the state.
pub(crate) fn order_name(order: usize) -> String {
    format!("order{order:02}")
}

/// Adds `STATE.NAME.change` for `free`, `available`, each order, `low` and `high` orders.
pub(crate) fn derived(mut samples: Samples) -> Samples {
    for sample in samples.samples.iter_mut().filter(|sample| sample.part == MobilePart::UseCase) {
        for state in STATES {
            add(&mut sample.figures, state);
        }
    }
    samples
}

fn add(figures: &mut BTreeMap<String, f64>, state: &str) {
    let change = |figures: &BTreeMap<String, f64>, name: &str| {
        Some(figures.get(&format!("{state}.{name}"))? - figures.get(&format!("before.{name}"))?)
    };
    let orders: Vec<String> = (0..ORDERS).map(order_name).collect();
    for name in ["free", "available"].into_iter().chain(orders.iter().map(String::as_str)) {
        if let Some(value) = change(figures, name) {
            figures.insert(format!("{state}.{name}.change"), value);
        }
    }
    for (name, range) in [("low", LOW_ORDERS), ("high", HIGH_ORDERS)] {
        let changes: Option<Vec<f64>> = orders[range].iter().map(|order| change(figures, order)).collect();
        if let Some(changes) = changes {
            figures.insert(format!("{state}.{name}.change"), changes.iter().sum());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_against_the_look_before() {
        let mut figures: BTreeMap<String, f64> = BTreeMap::new();
        for order in 0..ORDERS {
            figures.insert(format!("before.{}", order_name(order)), 10.0);
            figures.insert(
                format!("idle.{}", order_name(order)),
                10.0 + f64::from(u32::try_from(order).unwrap()),
            );
        }
        figures.insert("before.free".into(), 100.0);
        figures.insert("idle.free".into(), 90.0);
        add(&mut figures, "idle");
        assert!((figures["idle.free.change"] + 10.0).abs() < 1e-9);
        assert!((figures["idle.low.change"] - 3.0).abs() < 1e-9);
        assert!((figures["idle.high.change"] - 52.0).abs() < 1e-9);
        assert!(!figures.contains_key("idle.available.change"));
    }
}
