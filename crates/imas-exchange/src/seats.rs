// SPDX-License-Identifier: Apache-2.0
//! One host's figures for each group, in few bytes.
//!
//! A mean over the hosts of a group would be moved by every liar among them, and from some thousand hosts on
//! each group has one. So a group keeps the figures of one host, which its hash chooses (`Place`): of all
//! hosts together this is a sample into which no host can put itself on purpose. Figures are whole numbers,
//! so that every merger computes the same ones.
//!
//! The strongest figures that a fleet has had for a candidate, as they are stored: whole numbers, as all figures are.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use imas_core::fleet_prior::RobustFigure;
use serde::{Deserialize, Serialize};

use crate::group::{GROUPS, Place};

/// Greatest difference of logarithms that counts: e^2 is more than seven times as much.
pub const CLIP: f64 = 2.0;
/// Most rounds of one message that count.
pub const MOST_OF_MESSAGE: u32 = 8;
/// Most rounds that a seat holds: of a long series the newest ones count.
pub const MOST_OF_SEAT: u32 = 64;
/// Unit of a stored figure.
const UNIT: f64 = 1e-4;
/// Bytes of an encoded seat: group, rank, rounds, two figures.
const ENCODED: usize = 10;

/// Content of a seat: the means of two figures over a number of rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seat {
    /// Rounds, from 1 to [`MOST_OF_SEAT`].
    pub count: u32,
    /// Mean of the first figure.
    pub x: f64,
    /// Mean of the second figure.
    pub y: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    rank: u32,
    count: u8,
    x: i16,
    y: i16,
}

/// Seats by group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seats {
    by_group: BTreeMap<u8, Held>,
}

impl Seats {
    /// Adds what a host reports: `count` rounds with these means. Nothing happens where another host of its
    /// group goes before it.
    pub(crate) fn add(&mut self, place: Place, count: u32, x: f64, y: f64) {
        let count = count.min(MOST_OF_MESSAGE);
        if count == 0 || !x.is_finite() || !y.is_finite() {
            return;
        }
        let fresh = Held { rank: place.rank, count: 0, x: 0, y: 0 };
        let held = self.by_group.get(&place.group).copied();
        let held = match held {
            Some(held) if held.rank < place.rank => return,
            Some(held) if held.rank == place.rank => held,
            _ => fresh,
        };
        self.by_group.insert(place.group, held.with(count, x, y));
    }

    /// Contents of the seats, in the order of the groups.
    pub fn iter(&self) -> impl Iterator<Item = Seat> + '_ {
        self.by_group.values().map(|held| Seat {
            count: u32::from(held.count),
            x: f64::from(held.x) * UNIT,
            y: f64::from(held.y) * UNIT,
        })
    }

    /// Number of seats that are taken.
    pub fn len(&self) -> usize {
        self.by_group.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.by_group.is_empty()
    }
}

impl Held {
    fn with(self, count: u32, x: f64, y: f64) -> Self {
        let before = u32::from(self.count).min(MOST_OF_SEAT - count);
        let all = before + count;
        let mean = |held: i16, new: f64| {
            let sum = f64::from(held) * f64::from(before) + new.clamp(-CLIP, CLIP) / UNIT * f64::from(count);
            whole((sum / f64::from(all)).round())
        };
        Self { count: u8::try_from(all).unwrap_or(u8::MAX), x: mean(self.x, x), y: mean(self.y, y), ..self }
    }

    fn is_valid(self) -> bool {
        let most = whole(CLIP / UNIT);
        (1..=MOST_OF_SEAT).contains(&u32::from(self.count))
            && [self.x, self.y].iter().all(|figure| (-most..=most).contains(figure))
    }

    fn encoded(self, group: u8) -> [u8; ENCODED] {
        let ([a, b, c, d], [e, f], [g, h]) =
            (self.rank.to_le_bytes(), self.x.to_le_bytes(), self.y.to_le_bytes());
        [group, a, b, c, d, self.count, e, f, g, h]
    }

    fn decoded([group, a, b, c, d, count, e, f, g, h]: [u8; ENCODED]) -> Option<(u8, Self)> {
        let (rank, x, y) =
            (u32::from_le_bytes([a, b, c, d]), i16::from_le_bytes([e, f]), i16::from_le_bytes([g, h]));
        let held = Self { rank, count, x, y };
        (usize::from(group) < GROUPS && held.is_valid()).then_some((group, held))
    }
}

/// A figure in units; the clip keeps it within the type.
#[allow(clippy::cast_possible_truncation)]
fn whole(units: f64) -> i16 {
    units as i16
}

impl serde::Serialize for Seats {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.by_group.iter().flat_map(|(group, held)| held.encoded(*group)).collect();
        to.serialize_str(&STANDARD_NO_PAD.encode(bytes))
    }
}

impl<'de> serde::Deserialize<'de> for Seats {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        decoded(&text).ok_or_else(|| serde::de::Error::custom("these are no seats"))
    }
}

/// Seats in the order of their groups, each once: there is one way to write them.
fn decoded(text: &str) -> Option<Seats> {
    let bytes = STANDARD_NO_PAD.decode(text).ok()?;
    let (seats, rest) = bytes.as_chunks::<ENCODED>();
    let seats: Option<Vec<(u8, Held)>> = seats.iter().map(|seat| Held::decoded(*seat)).collect();
    let seats = seats.filter(|seats| rest.is_empty() && seats.is_sorted_by(|a, b| a.0 < b.0))?;
    Some(Seats { by_group: seats.into_iter().collect() })
}

/// Unit of a stored figure.
const MILLIONTH: f64 = 1e-6;

/// For each weight of [`imas_core::fleet_prior::WEIGHTS`] the strongest gain, if there is one.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StrongestGains([Option<StoredGain>; 3]);

/// A gain as a difference of logarithms.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
struct StoredGain {
    /// Gain in millionths.
    gain_ppm: i32,
    /// Standard error of the gain, in millionths.
    error_ppm: u32,
    /// Number of groups that it comes from.
    groups: u8,
}

impl StrongestGains {
    /// The gains of these figures.
    pub(super) fn of(figures: [Option<RobustFigure>; 3]) -> Self {
        Self(figures.map(|figure| figure.map(StoredGain::of)))
    }

    /// The gains as figures.
    pub(super) fn figures(self) -> [Option<RobustFigure>; 3] {
        self.0.map(|gain| gain.map(StoredGain::figure))
    }

    /// Whether a fold can have written them.
    pub(super) fn is_valid(self) -> bool {
        let is_gain = |gain: &StoredGain| {
            let figure = gain.figure();
            figure.value.abs() <= CLIP && gain.error_ppm > 0 && usize::from(gain.groups) <= GROUPS
        };
        self.0.iter().flatten().all(is_gain)
    }
}

impl StoredGain {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the clip bounds them")]
    fn of(figure: RobustFigure) -> Self {
        let whole = |value: f64| (value / MILLIONTH).round();
        Self {
            gain_ppm: whole(figure.value) as i32,
            error_ppm: whole(figure.error) as u32,
            groups: u8::try_from(figure.groups).unwrap_or(u8::MAX),
        }
    }

    fn figure(self) -> RobustFigure {
        RobustFigure {
            value: f64::from(self.gain_ppm) * MILLIONTH,
            error: f64::from(self.error_ppm) * MILLIONTH,
            groups: usize::from(self.groups),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(group: u8, rank: u32) -> Place {
        Place { group, rank }
    }

    #[test]
    fn the_host_with_the_lowest_rank_counts() {
        let mut seats = Seats::default();
        seats.add(place(3, 50), 2, 0.5, -0.25);
        for _ in 0..1000 {
            seats.add(place(3, 70), 8, 1.9, 1.9);
        }
        assert_eq!(seats.iter().collect::<Vec<_>>(), [Seat { count: 2, x: 0.5, y: -0.25 }]);
        seats.add(place(3, 50), 2, 0.1, -0.25);
        let seat = seats.iter().next().unwrap();
        assert!(seat.count == 4 && (seat.x - 0.3).abs() < 1e-9, "{seat:?}");
        seats.add(place(3, 7), 1, -0.1, 0.0);
        assert_eq!(seats.iter().map(|seat| seat.count).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn figures_and_weight_are_clipped() {
        let mut seats = Seats::default();
        for _ in 0..20 {
            seats.add(place(0, 1), u32::MAX, 1e300, -1e300);
        }
        seats.add(place(1, 1), 1, f64::NAN, 0.0);
        let all: Vec<Seat> = seats.iter().collect();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].count, MOST_OF_SEAT);
        assert!((all[0].x - CLIP).abs() < 1e-9 && (all[0].y + CLIP).abs() < 1e-9, "{all:?}");
    }

    proptest! {
        #[test]
        fn seats_read_back(adds in prop::collection::vec((0..128u8, 0..9u32, 0..12u32, -9.0..9.0f64), 0..300)) {
            let mut seats = Seats::default();
            for (group, rank, count, x) in adds {
                seats.add(place(group, rank), count, x, -x);
            }
            let text = serde_json::to_string(&seats).unwrap();
            prop_assert!(text.len() <= GROUPS * ENCODED * 4 / 3 + 4);
            prop_assert_eq!(serde_json::from_str::<Seats>(&text).unwrap(), seats);
        }

        #[test]
        fn any_text_is_refused_or_within_the_bounds(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let text = format!("\"{}\"", STANDARD_NO_PAD.encode(bytes));
            if let Ok(seats) = serde_json::from_str::<Seats>(&text) {
                prop_assert!(seats.iter().all(|seat| seat.x.abs() <= CLIP && seat.count <= MOST_OF_SEAT));
                prop_assert_eq!(serde_json::to_string(&seats).unwrap(), text);
            }
        }
    }

    #[test]
    fn they_are_stored_in_plain_words_and_read_back() {
        let figure = RobustFigure { value: 0.1234567, error: 0.0123, groups: 30 };
        let gains = StrongestGains::of([None, Some(figure), None]);
        let text = serde_json::to_string(&gains).unwrap();
        assert_eq!(text, r#"[null,{"gain_ppm":123457,"error_ppm":12300,"groups":30},null]"#);
        assert_eq!(serde_json::from_str::<StrongestGains>(&text).unwrap(), gains);
        assert_eq!(StrongestGains::of(gains.figures()), gains);
        assert!(gains.is_valid());
        for wrong in
            [r#"{"gain_ppm":2000001,"error_ppm":1,"groups":3}"#, r#"{"gain_ppm":1,"error_ppm":0,"groups":3}"#]
        {
            let read: StrongestGains = serde_json::from_str(&format!("[{wrong},null,null]")).unwrap();
            assert!(!read.is_valid(), "{wrong}");
        }
    }
}
