// SPDX-License-Identifier: Apache-2.0
//! How long the calls of each class took, short enough to be kept with every counted run.

use serde::{Deserialize, Serialize};

use crate::Sample;
use crate::stats::significant;

/// The latency histograms of a sample. A class that was never timed has none.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Latency {
    /// Nanoseconds of one clock tick; 0 when it is not known.
    pub ns_per_tick: f64,
    /// malloc and calloc.
    #[serde(skip_serializing_if = "Buckets::is_empty")]
    pub malloc: Buckets,
    /// realloc.
    #[serde(skip_serializing_if = "Buckets::is_empty")]
    pub realloc: Buckets,
    /// Every aligned form.
    #[serde(skip_serializing_if = "Buckets::is_empty")]
    pub memalign: Buckets,
    /// free.
    #[serde(skip_serializing_if = "Buckets::is_empty")]
    pub free: Buckets,
}

/// Estimated calls by log2 of clock ticks, without the empty buckets at both ends.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Buckets {
    /// The bucket of the first entry (bucket b: 2^b <= ticks < 2^(b+1); bucket 0 holds 0 too).
    pub from: u8,
    /// Calls in it and in those that follow.
    pub calls: Vec<u64>,
}

impl Latency {
    /// Names of the classes, in the order of [`Latency::classes`] and [`Sample::classes`].
    pub const CLASSES: [&'static str; 4] = ["malloc", "realloc", "memalign", "free"];

    /// Latency histograms of a sample. None when no call was timed.
    #[must_use]
    pub fn of(sample: &Sample) -> Option<Self> {
        let [malloc, realloc, memalign, free] =
            sample.classes().map(|class| Buckets::of(&class.histogram_ticks));
        let latency = Self {
            ns_per_tick: sample.classes().into_iter().map(|class| class.ns_per_tick).fold(0.0, f64::max),
            malloc,
            realloc,
            memalign,
            free,
        };
        latency.classes().iter().any(|class| !class.is_empty()).then_some(latency)
    }

    /// The four classes: malloc, realloc, memalign, free.
    #[must_use]
    pub fn classes(&self) -> [&Buckets; 4] {
        [&self.malloc, &self.realloc, &self.memalign, &self.free]
    }

    /// These histograms with calls rounded to two digits, which is closer than samples know them, and the
    /// clock's rate to four.
    #[must_use]
    pub fn rounded(&self) -> Self {
        let [malloc, realloc, memalign, free] = self.classes().map(Buckets::rounded);
        let ns_per_tick = (self.ns_per_tick * 1e4).round() / 1e4;
        Self { ns_per_tick, malloc, realloc, memalign, free }
    }
}

impl Buckets {
    /// Buckets of a histogram that begins with bucket 0.
    #[must_use]
    pub fn of(histogram: &[u64]) -> Self {
        let first = histogram.iter().position(|&n| n > 0);
        let last = histogram.iter().rposition(|&n| n > 0);
        match (first, last) {
            (Some(first), Some(last)) if u8::try_from(first).is_ok() => {
                Self { from: u8::try_from(first).unwrap_or(0), calls: histogram[first..=last].to_vec() }
            }
            _ => Self::default(),
        }
    }

    /// Whether no call is in the buckets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Number of calls in each bucket, from bucket 0 on.
    #[must_use]
    pub fn histogram(&self) -> Vec<u64> {
        let empty = std::iter::repeat_n(0, usize::from(self.from));
        empty.chain(self.calls.iter().copied()).collect()
    }

    fn rounded(&self) -> Self {
        Self { from: self.from, calls: self.calls.iter().map(|&calls| significant(calls, 2)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::OpFigures;

    fn op(histogram_ticks: Vec<u64>) -> OpFigures {
        OpFigures { histogram_ticks, ns_per_tick: 0.5, ..OpFigures::default() }
    }

    #[test]
    fn empty_ends_are_left_out_and_come_back() {
        let sample = Sample { malloc: op(vec![0, 0, 3, 0, 123_456, 0]), ..Sample::default() };
        let latency = Latency::of(&sample).unwrap();
        assert_eq!(latency.malloc, Buckets { from: 2, calls: vec![3, 0, 123_456] });
        assert_eq!(latency.malloc.histogram(), [0, 0, 3, 0, 123_456]);
        assert_eq!(latency.rounded().malloc.calls, [3, 0, 120_000]);
        let text = serde_json::to_string(&latency).unwrap();
        assert_eq!(text, "{\"ns_per_tick\":0.5,\"malloc\":{\"from\":2,\"calls\":[3,0,123456]}}");
        assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), latency);
    }

    #[test]
    fn without_a_timed_call_there_is_nothing_to_keep() {
        assert_eq!(Latency::of(&Sample { malloc: op(vec![0; 48]), ..Sample::default() }), None);
    }
}
