// SPDX-License-Identifier: Apache-2.0
//! The part of its large blocks that a program writes.
//!
//! A trace does not record this. It follows from the resident memory of the recorded run: the share of each
//! size class is fitted so that the replay under `system` gives the recorded curve.

/// Number of classes: from 4 KiB, from 64 KiB, from 1 MiB, and calloc from 128 KiB, whose pages are zero
/// without a write.
pub const CLASSES: usize = 4;
/// The unit of [`TouchingShares`]: this many parts are a whole block.
pub const WHOLE: u32 = 1024;

/// For each class, the parts of [`WHOLE`] that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TouchingShares(pub [u32; CLASSES]);

impl Default for TouchingShares {
    /// Before calibration: every block is written whole, and a large calloc not at all.
    fn default() -> Self {
        Self([WHOLE, WHOLE, WHOLE, 0])
    }
}

/// One look of a replay that wrote every block whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TouchingLook {
    /// Resident bytes of the recorded program.
    pub recorded: f64,
    /// Resident bytes of the replay.
    pub replayed: f64,
    /// Live bytes of each class.
    pub live: [f64; CLASSES],
}

const ROUNDS: usize = 200;

/// Fits the shares by least squares, so that replay and recording differ by a constant. It fits one class
/// after the other and keeps each share between 0 and 1. In `replayed`, every class is written whole.
#[must_use]
pub fn fit(looks: &[TouchingLook]) -> TouchingShares {
    let mut shares = [1.0; CLASSES];
    for _ in 0..ROUNDS {
        for class in 0..CLASSES {
            shares[class] = best_share(looks, &shares, class);
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1024")]
    TouchingShares(shares.map(|share: f64| (share * f64::from(WHOLE)).round() as u32))
}

/// Resident bytes of the replay with these shares, minus those of the recorded program.
fn surplus(look: &TouchingLook, shares: &[f64; CLASSES]) -> f64 {
    let untouched: f64 = look.live.iter().zip(shares).map(|(live, share)| live * (1.0 - share)).sum();
    look.replayed - untouched - look.recorded
}

fn best_share(looks: &[TouchingLook], shares: &[f64; CLASSES], class: usize) -> f64 {
    let others = shares.map(f64::from);
    let mean =
        |of: &dyn Fn(&TouchingLook) -> f64| looks.iter().map(of).sum::<f64>() / looks.len().max(1) as f64;
    let mean_surplus = mean(&|look| surplus(look, &others));
    let mean_live = mean(&|look| look.live[class]);
    let (mut with, mut square) = (0.0, 0.0);
    for look in looks {
        let live = look.live[class] - mean_live;
        with += live * (surplus(look, &others) - mean_surplus);
        square += live * live;
    }
    if square <= 0.0 {
        return shares[class];
    }
    (shares[class] - with / square).clamp(0.0, 1.0)
}
