// SPDX-License-Identifier: Apache-2.0
//! The part of its large blocks that a program writes.
//!
//! A trace does not record this. It follows from the resident memory of the recorded run: the share of each
//! size class is fitted so that the replay under `system` gives the recorded curve.

/// Number of classes: from 4 KiB, from 64 KiB, from 1 MiB, and calloc from 128 KiB, whose pages are zero
/// without a write.
pub const CLASSES: usize = 4;
/// The class of large calloc'ed blocks.
pub const ZEROED: usize = 3;
/// The unit of [`TouchingShares`]: this many parts are a whole block.
pub const WHOLE: u32 = 1024;

/// For each class, the parts of [`WHOLE`] that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TouchingShares(pub [u32; CLASSES]);

impl Default for TouchingShares {
    /// The shares before calibration: every block is written whole, and a large calloc not at all.
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
/// after the other and keeps each share between 0 and 1. In `replayed`, every class is written whole. A class
/// without a block at any look, or with the same bytes at each, keeps the share of [`TouchingShares::default`].
#[must_use]
pub fn fit(looks: &[TouchingLook]) -> TouchingShares {
    let mut shares = TouchingShares::default().0.map(|share| f64::from(share) / f64::from(WHOLE));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks of a program that writes these shares of its blocks, and has 7 bytes that are not malloc's.
    fn looks(shares: [f64; CLASSES], live: &[[f64; CLASSES]]) -> Vec<TouchingLook> {
        let look = |live: &[f64; CLASSES]| {
            let written: f64 = live.iter().zip(shares).map(|(live, share)| live * share).sum();
            TouchingLook { recorded: written + 7.0, replayed: live.iter().sum(), live: *live }
        };
        live.iter().map(look).collect()
    }

    #[test]
    fn shares_are_found() {
        let live = [
            [8.0, 0.0, 1.0, 0.0],
            [2.0, 9.0, 3.0, 5.0],
            [1.0, 4.0, 7.0, 9.0],
            [3.0, 3.0, 9.0, 1.0],
            [0.0; 4],
        ];
        let TouchingShares(found) = fit(&looks([1.0, 0.5, 0.25, 0.125], &live));
        for (found, wanted) in found.into_iter().zip([1024, 512, 256, 128]) {
            assert!(u32::abs_diff(found, wanted) <= 2, "{found} {wanted}");
        }
    }

    #[test]
    fn a_class_that_no_look_sees_keeps_its_default() {
        assert_eq!(fit(&looks([1.0; CLASSES], &[[0.0; CLASSES]; 5])), TouchingShares::default());
        assert_eq!(fit(&[]), TouchingShares::default());
    }
}
