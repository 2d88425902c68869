// SPDX-License-Identifier: Apache-2.0
//! The strongest figures that a fleet has had for a candidate, as they are stored: whole numbers, as all
//! figures are.

use imas_core::fleet_prior::RobustFigure;
use serde::{Deserialize, Serialize};

use crate::group::GROUPS;
use crate::seats::CLIP;

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
    pub(crate) fn of(figures: [Option<RobustFigure>; 3]) -> Self {
        Self(figures.map(|figure| figure.map(StoredGain::of)))
    }

    /// The gains as figures.
    pub(crate) fn figures(self) -> [Option<RobustFigure>; 3] {
        self.0.map(|gain| gain.map(StoredGain::figure))
    }

    /// Whether a fold can have written them.
    pub(crate) fn is_valid(self) -> bool {
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
    use super::*;

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
