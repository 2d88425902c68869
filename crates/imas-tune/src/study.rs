// SPDX-License-Identifier: Apache-2.0
//! The search within one allocator.

use std::collections::HashMap;

use optimizer::param::ParamValue;
use optimizer::parameter::{CategoricalParam, FloatParam, ParamId, Parameter as _};
use optimizer::sampler::{RandomSampler, TpeSampler};
use optimizer::{Direction, FanovaConfig, Study, Trial};

use crate::space::{Scale, SettingsPoint, Space, TunedSetting, TunedValues};

/// Points that are drawn at random before the estimator begins.
const AT_RANDOM: usize = 8;
/// With fewer points nothing is known of a setting's influence.
const LEAST_POINTS: usize = 12;

/// The points of one allocator.
pub(crate) struct AllocatorStudy {
    pub(crate) allocator: String,
    settings: Vec<(TunedSetting, Coordinate)>,
    study: Study<f64>,
    at_random: Study<f64>,
    seed: u64,
}

impl std::fmt::Debug for AllocatorStudy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllocatorStudy").field("allocator", &self.allocator).finish_non_exhaustive()
    }
}

/// A setting as the estimator sees it.
enum Coordinate {
    Number(FloatParam),
    Word(CategoricalParam<usize>),
}

impl AllocatorStudy {
    pub(crate) fn new(space: &Space, allocator: &str, seed: u64) -> Self {
        // The numbers are within what the sampler takes.
        let sampler =
            TpeSampler::builder().seed(seed).n_startup_trials(AT_RANDOM).build().unwrap_or_default();
        let settings =
            space.settings_of(allocator).map(|setting| (setting.clone(), Coordinate::of(setting))).collect();
        let study = Study::with_sampler(Direction::Minimize, sampler);
        let at_random = Study::with_sampler(Direction::Minimize, RandomSampler::with_seed(seed));
        Self { allocator: allocator.to_owned(), settings, study, at_random, seed }
    }

    /// The next point.
    pub(crate) fn ask(&self) -> (Trial, SettingsPoint) {
        self.point_of(self.study.ask())
    }

    /// A point that is drawn at random.
    pub(crate) fn ask_at_random(&self) -> (Trial, SettingsPoint) {
        let (_, point) = self.point_of(self.at_random.ask());
        self.enqueue(&point);
        self.ask()
    }

    fn point_of(&self, mut trial: Trial) -> (Trial, SettingsPoint) {
        let mut point = SettingsPoint::new();
        for (setting, coordinate) in &self.settings {
            if let Some(value) = coordinate.suggested(&mut trial, &setting.values) {
                point.insert(setting.name.clone(), value);
            }
        }
        (trial, point)
    }

    /// The score of a point; None: it failed.
    pub(crate) fn tell(&self, trial: Trial, score: Option<f64>) {
        self.study.tell(trial, score.ok_or("it failed"));
    }

    /// The next point is the one without settings.
    pub(crate) fn enqueue_default(&self) {
        self.enqueue(&SettingsPoint::new());
    }

    fn enqueue(&self, point: &SettingsPoint) {
        let at = |(setting, coordinate): &(TunedSetting, Coordinate)| {
            coordinate.at(&setting.values, point.get(&setting.name).map(String::as_str))
        };
        let known: HashMap<ParamId, ParamValue> = self.settings.iter().filter_map(at).collect();
        self.study.enqueue(known);
    }

    /// A point that was not asked for, such as one of an earlier session.
    pub(crate) fn tell_point(&self, point: &SettingsPoint, score: f64) {
        self.enqueue(point);
        let (trial, _) = self.ask();
        self.tell(trial, Some(score));
    }

    /// Each setting's share of what the score varies by (fANOVA: Hutter, Hoos, Leyton-Brown, 2014), the
    /// largest first. Empty with too few points.
    pub(crate) fn importance(&self) -> Vec<(String, f64)> {
        if self.study.n_trials() < LEAST_POINTS {
            return vec![];
        }
        let config = FanovaConfig { seed: Some(self.seed), ..FanovaConfig::default() };
        self.study.fanova_with_config(&config).map(|result| result.main_effects).unwrap_or_default()
    }
}

impl Coordinate {
    fn of(setting: &TunedSetting) -> Self {
        match &setting.values {
            TunedValues::Numbers { from, to, scale, .. } => {
                let param = FloatParam::new(coordinate(*from, *from, *scale), coordinate(*to, *from, *scale));
                Self::Number(param.name(&setting.name))
            }
            TunedValues::Words(words) => {
                Self::Word(CategoricalParam::new((0..words.len()).collect()).name(&setting.name))
            }
        }
    }

    /// The value that is suggested. None: the allocator's default.
    fn suggested(&self, trial: &mut Trial, values: &TunedValues) -> Option<String> {
        match (self, values) {
            (Self::Number(param), TunedValues::Numbers { from, to, scale, default }) => {
                let suggested = param.suggest(trial).ok()?;
                let value = number(suggested, *from, *scale).clamp(*from, *to);
                let nearest_to_default = number(coordinate(*default, *from, *scale), *from, *scale);
                (value != nearest_to_default).then(|| value.to_string())
            }
            (Self::Word(param), TunedValues::Words(words)) => {
                let at = param.suggest(trial).ok()?;
                (at > 0).then(|| words.get(at).cloned()).flatten()
            }
            _ => None,
        }
    }

    /// Where a value lies; None for one that the space does not have.
    fn at(&self, values: &TunedValues, value: Option<&str>) -> Option<(ParamId, ParamValue)> {
        match (self, values) {
            (Self::Number(param), TunedValues::Numbers { from, to, scale, default }) => {
                let value = value.map_or(Some(*default), |text| text.parse().ok())?.clamp(*from, *to);
                Some((param.id(), ParamValue::Float(coordinate(value, *from, *scale))))
            }
            (Self::Word(param), TunedValues::Words(words)) => {
                let at = value.map_or(Some(0), |value| words.iter().position(|word| word == value))?;
                Some((param.id(), ParamValue::Categorical(at)))
            }
            _ => None,
        }
    }
}

fn coordinate(value: i64, from: i64, scale: Scale) -> f64 {
    match scale {
        Scale::Linear => value as f64,
        Scale::Log => ((value - from) as f64).ln_1p(),
    }
}

fn number(coordinate: f64, from: i64, scale: Scale) -> i64 {
    let above = match scale {
        Scale::Linear => coordinate - from as f64,
        Scale::Log => plain_number(coordinate.exp_m1()),
    };
    // The ranges of settings are far below 2^53.
    #[expect(clippy::cast_possible_truncation, reason = "rounded, and within the range of the setting")]
    let above = above.round() as i64;
    from + above
}

/// The nearest of 1, 2, 3, 4, 6, 8, 12, 16, ...: points that differ by less would be measured for nothing.
fn plain_number(number: f64) -> f64 {
    if number < 3.5 {
        return number.round();
    }
    let power = number.log2().floor().exp2();
    let all = [power, 1.5 * power, 2.0 * power];
    all.into_iter().min_by(|a, b| (a - number).abs().total_cmp(&(b - number).abs())).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: &str = "schema = 1
        [[setting]]
        allocator = 'a'
        name = 'delay'
        from = -1
        to = 60000
        scale = 'log'
        default = 10000
        [[setting]]
        allocator = 'a'
        name = 'mode'
        words = ['off', 'on', 'auto']
        [[setting]]
        allocator = 'a'
        name = 'count'
        from = 0
        to = 10
        default = 6";

    fn study() -> AllocatorStudy {
        AllocatorStudy::new(&Space::read(SPACE, 2).unwrap(), "a", 1)
    }

    #[test]
    fn numbers_come_back_from_their_coordinates() {
        for value in [-1, 0, 1, 7, 999, 10_000, 60_000] {
            assert_eq!(number(coordinate(value, -1, Scale::Linear), -1, Scale::Linear), value);
        }
        for value in [0, 1, 2, 3, 4, 6, 8, 12, 1024, 1536, 33_554_432] {
            assert_eq!(number(coordinate(value, 0, Scale::Log), 0, Scale::Log), value);
        }
        assert_eq!(number(coordinate(10_000, 0, Scale::Log), 0, Scale::Log), 8192, "the nearest");
    }

    #[test]
    fn points_lie_within_the_space_and_leave_defaults_out() {
        let study = study();
        for _ in 0..200 {
            let (trial, point) = study.ask();
            for (name, value) in &point {
                let inside = match name.as_str() {
                    "delay" => (-1..=60_000).contains(&value.parse().unwrap()) && value != "8191",
                    "count" => (0..=10).contains(&value.parse().unwrap()) && value != "6",
                    "mode" => ["on", "auto"].contains(&value.as_str()),
                    _ => false,
                };
                assert!(inside, "{name}:{value}");
            }
            study.tell(trial, Some(0.0));
        }
    }

    #[test]
    fn the_estimator_finds_what_matters() {
        let study = study();
        // Off is worst, a delay of 0 best; the count does nothing.
        let score = |point: &SettingsPoint| {
            let delay: f64 = point.get("delay").map_or(10_000.0, |text| text.parse().unwrap());
            let mode = if point.contains_key("mode") { 0.0 } else { 1.0 };
            mode + (delay + 1.0).ln_1p() / 10.0
        };
        for _ in 0..120 {
            let (trial, point) = study.ask();
            study.tell(trial, Some(score(&point)));
        }
        let importance = study.importance();
        let last = &importance.last().unwrap();
        assert_eq!((importance.len(), last.0.as_str()), (3, "count"), "{importance:?}");
        assert!(last.1 < 0.1, "{importance:?}");
        let (_, next) = study.ask();
        assert!(score(&next) < 1.0, "{next:?}");
    }

    #[test]
    fn points_of_an_earlier_session_are_given_to_the_search() {
        let (study, other) = (study(), study());
        let point = SettingsPoint::from([("mode".to_owned(), "on".to_owned())]);
        study.tell_point(&point, 1.0);
        assert_eq!(study.study.n_trials(), 1);
        other.tell_point(&SettingsPoint::from([("mode".to_owned(), "no such word".to_owned())]), 1.0);
        assert_eq!(other.study.n_trials(), 1, "what the space lacks is drawn anew");
    }
}
