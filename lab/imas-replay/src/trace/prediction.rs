// SPDX-License-Identifier: Apache-2.0
//! Predicts a program's figures under a candidate: the recorded figures plus the difference between the
//! replays.

use serde::Serialize;

use crate::trace::program::{CALLS_ZEROED, Look};

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

/// The mean over a span of time of the bytes that a process has more under a candidate than it had when it was
/// recorded; negative if it has less. `more` has them at each look. From `from_ns` to `to_ns`, as in [`Look::ns`].
/// Before its first look and after its last one the process adds nothing.
#[must_use]
pub fn mean_change(looks: &[Look], more: &[f64], (from_ns, to_ns): (u64, u64)) -> f64 {
    let inside = |ns: u64| ns.clamp(from_ns, to_ns.max(from_ns));
    let steps = looks.windows(2).zip(more.windows(2));
    let area = steps.map(|(pair, more)| {
        let ns = inside(pair[1].ns).saturating_sub(inside(pair[0].ns));
        ns as f64 * (more[0] + more[1]) / 2.0
    });
    area.sum::<f64>() / to_ns.saturating_sub(from_ns).max(1) as f64
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
    let all = || looks.iter().zip(&base.looks).zip(&other.looks);
    let surplus = |look: &Look, base: &ReplayLook| look.bytes as f64 - base.bytes as f64;
    // At least so much of the recorded memory is not malloc's.
    let outside = all().map(|((look, base), _)| surplus(look, base)).fold(f64::INFINITY, f64::min).max(0.0);
    let at = |((look, base), other): ((&Look, &ReplayLook), &ReplayLook)| {
        let unwritten = surplus(look, base) - outside;
        let more = other.bytes as f64 - base.bytes as f64;
        (look.bytes as f64 + more - zeroed(unwritten, more, base)).max(0.0)
    };
    Some(all().map(at).collect())
}

/// Bytes that count twice: the program wrote them to large calloc'ed blocks, the replay did not, but the candidate
/// did to zero them. `unwritten` are the bytes that the program has more than the replay under `system`, `more`
/// those that the replay under the candidate has more.
fn zeroed(unwritten: f64, more: f64, base: &ReplayLook) -> f64 {
    unwritten.min(more).min(base.untouched[CALLS_ZEROED] as f64).max(0.0)
}

/// The predicted figures under a candidate. None without a replay under both.
#[must_use]
pub fn predict(looks: &[Look], system: &[Replay], candidate: &[Replay]) -> Option<Figures> {
    let curve = curve(looks, system, candidate)?;
    let cpu_s = recorded(looks).cpu_s + least_cpu(candidate) - least_cpu(system);
    Some(figures(looks, &curve, cpu_s.max(0.0)))
}

/// First bytes of the file.
const MAGIC: u64 = 0x3153_5252_5241_4D49;
const HEADER: usize = 8;
/// Numbers of one look.
const PER_LOOK: usize = 8;

/// One replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replay {
    /// CPU seconds of the calls, without the looks at memory.
    pub cpu_s: f64,
    /// Calls that returned no block.
    pub refused: u64,
    /// Page faults of the calls and of the first writes to their blocks, without those that read the disk.
    pub faults: u64,
    /// Memory at each look of the program.
    pub looks: Vec<ReplayLook>,
}

/// Memory of the replay at one look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayLook {
    /// Resident anonymous bytes.
    pub bytes: u64,
    /// Bytes in live blocks of the program.
    pub live_bytes: u64,
    /// Bytes in large blocks that were not written, by class ([`crate::trace::program`]).
    pub untouched: [u64; 4],
    /// Resident bytes in huge pages.
    pub huge_bytes: u64,
}

/// Reads a result file. None if it is not one, or if the replay did not finish.
#[must_use]
pub fn parse_result(bytes: &[u8]) -> Option<Replay> {
    let numbers: Vec<u64> = bytes.as_chunks().0.iter().map(|number| u64::from_ne_bytes(*number)).collect();
    let header = numbers.get(..HEADER).filter(|header| header[0] == MAGIC && header[1] == 1)?;
    let count = usize::try_from(header[4]).ok()?;
    let looks = numbers[HEADER..].as_chunks::<PER_LOOK>().0;
    let looks = looks.get(..count)?;
    Some(Replay {
        cpu_s: header[2] as f64 / 1e9,
        refused: header[3],
        faults: header[5],
        looks: looks.iter().map(look).collect(),
    })
}

fn look(numbers: &[u64; PER_LOOK]) -> ReplayLook {
    let [bytes, live_bytes, a, b, c, d, huge_bytes, _] = *numbers;
    ReplayLook { bytes, live_bytes, untouched: [a, b, c, d], huge_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn looks(mib: &[u64]) -> Vec<Look> {
        let look = |(at, mib): (usize, &u64)| Look { ns: at as u64, bytes: mib * MIB, cpu_ns: 0 };
        mib.iter().enumerate().map(look).collect()
    }

    /// A replay whose looks find `mib` MiB, `zeroed_mib` of them untouched in the last class.
    fn replay(mib: &[u64], zeroed_mib: u64) -> Vec<Replay> {
        let look = |mib: &u64| ReplayLook {
            bytes: mib * MIB,
            untouched: [0, 0, 0, zeroed_mib * MIB],
            ..ReplayLook::default()
        };
        vec![Replay { looks: mib.iter().map(look).collect(), ..Replay::default() }]
    }

    fn predicted(recorded: &[u64], system: &[u64], candidate: &[u64], zeroed_mib: u64) -> Vec<f64> {
        let curve =
            curve(&looks(recorded), &replay(system, zeroed_mib), &replay(candidate, zeroed_mib)).unwrap();
        curve.into_iter().map(|bytes| bytes / MIB as f64).collect()
    }

    #[test]
    fn a_change_counts_for_the_time_that_it_lasts() {
        let looks: Vec<Look> = [0, 100, 200].map(|ns| Look { ns, bytes: 0, cpu_ns: 0 }).to_vec();
        let mean = |from, to| mean_change(&looks, &[8.0, 8.0, -4.0], (from, to));
        assert_eq!(mean(0, 100), 8.0);
        assert_eq!(mean(0, 200), 5.0);
        assert_eq!(mean(100, 200), 2.0);
        assert_eq!(mean(100, 300), 1.0, "the process has ended at 200");
        assert_eq!(mean(300, 400), 0.0);
        assert_eq!((mean(50, 50), mean(50, 20)), (0.0, 0.0));
    }

    #[test]
    fn the_difference_between_replays_is_added() {
        assert_eq!(predicted(&[12, 52], &[10, 50], &[15, 40], 0), [17.0, 42.0]);
    }

    /// A hash table of 128 MiB that the program fills late: the candidate zeroes it at once, so it has it from the
    /// begin on, and not twice at the end.
    #[test]
    fn memory_that_a_candidate_zeroes_is_not_counted_twice() {
        assert_eq!(predicted(&[12, 140], &[10, 10], &[138, 138], 128), [140.0, 140.0]);
        // More than the program's large zeroed blocks hold is the candidate's own.
        assert_eq!(predicted(&[12, 140], &[10, 10], &[138, 138], 28), [140.0, 240.0]);
        assert_eq!(predicted(&[12, 140], &[10, 10], &[8, 8], 128), [10.0, 138.0]);
    }
}
