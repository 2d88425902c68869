// SPDX-License-Identifier: Apache-2.0
//! How fast the machine is at this moment: the CPU time of a fixed amount of work.
//!
//! Half of it is arithmetic, half a walk through memory larger than the inner caches, so that a neighbour who takes cycles
//! and one who takes cache are both seen. Whether dividing by it makes figures steadier is for `imas doctor --noise` to say.

use std::hint::black_box;

use nix::time::{ClockId, clock_gettime};

/// Steps of the arithmetic; a few milliseconds on a machine of 2020.
const STEPS: u64 = 2_000_000;
/// Words walked through: 8 MiB.
const WORDS: usize = 1 << 20;
/// Words from one step of the walk to the next: odd, so that all are met, and far enough that no line serves twice in a row.
const STRIDE: usize = 40_503;

/// CPU seconds that the work takes now.
#[must_use]
pub fn calibrate() -> f64 {
    let mut walk = vec![1_u64; WORDS];
    let start = cpu_s();
    black_box(arithmetic());
    black_box(walk_through(&mut walk));
    cpu_s() - start
}

fn arithmetic() -> u64 {
    (0..STEPS)
        .fold(0x9E37_79B9, |state, step| black_box((state ^ step).rotate_left(7).wrapping_mul(0xBF58_476D)))
}

fn walk_through(words: &mut [u64]) -> u64 {
    let mut at = 0;
    (0..words.len()).fold(0, |sum, _| {
        at = (at + STRIDE) % words.len();
        words[at] += sum & 1;
        sum.wrapping_add(words[at])
    })
}

/// CPU time of this thread so far, seconds; 0 where the clock is not to be had.
fn cpu_s() -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "seconds and nanoseconds of a process are far below 2^52")]
    let seconds = |time: nix::sys::time::TimeSpec| time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9;
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0.0, seconds)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_work_takes_time() {
        assert!(super::calibrate() > 1e-4);
    }
}
