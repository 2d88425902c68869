// SPDX-License-Identifier: Apache-2.0
//! Candidates as dots: CPU to the right, memory upwards, both as ratios to `system` on logarithmic axes; left and down is better.

use imas_core::bench::{CandidateResult, Comparison};
use imas_core::stats::Interval;
use serde::Serialize;

use super::scale::{Scale, Tick, round};

pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 340.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// Changes that may stand at an axis, per cent; the first ones are kept when there is no room for all.
const CHANGES: [f64; 19] = [
    0.0, -10.0, 10.0, -50.0, 100.0, -20.0, 20.0, 50.0, 200.0, 400.0, -5.0, 5.0, -30.0, 900.0, -75.0, -2.0,
    2.0, -1.0, 1.0,
];

/// The drawing, in pixels.
#[derive(Serialize)]
pub(super) struct Plane {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// Where `system` is.
    home: (f64, f64),
    dots: Vec<Dot>,
    /// Path of the Pareto front, and who is on it.
    front: String,
    on_front: Vec<String>,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
}

#[derive(Serialize)]
struct Dot {
    name: String,
    colour: usize,
    x: f64,
    y: f64,
    x_from: f64,
    x_to: f64,
    y_from: f64,
    y_to: f64,
    label_x: f64,
    label_y: f64,
    anchor: &'static str,
    on_front: bool,
    says: String,
}

/// Logarithms of the ratios of one that may be picked.
struct Place<'a> {
    index: usize,
    result: &'a CandidateResult,
    cpu: Interval,
    memory: Interval,
}

impl Plane {
    /// None when no candidate but `system` has both figures.
    pub(super) fn of(comparison: &Comparison) -> Option<Self> {
        let places: Vec<Place<'_>> = comparison.candidates.iter().enumerate().filter_map(Place::of).collect();
        if places.len() < 2 {
            return None;
        }
        let x = Scale::new(range(places.iter().map(|p| p.cpu)), (LEFT, WIDTH - RIGHT));
        let y = Scale::new(range(places.iter().map(|p| p.memory)), (HEIGHT - BOTTOM, TOP));
        let front = front(&places);
        let on_front = |place: &Place<'_>| front.iter().any(|one| one.index == place.index);
        let mut dots: Vec<Dot> = places.iter().map(|p| p.dot(&x, &y, on_front(p))).collect();
        place_labels(&mut dots);
        let ticks = CHANGES.map(|change| ((change / 100.0).ln_1p(), format!("{change:+.0} %")));
        Some(Self {
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            right: WIDTH - RIGHT,
            top: TOP,
            bottom: HEIGHT - BOTTOM,
            home: (x.place(0.0), y.place(0.0)),
            dots,
            on_front: front.iter().map(|one| one.result.name.clone()).collect(),
            front: path(&front, &x, &y),
            x_ticks: x.ticks(&ticks, 44.0),
            y_ticks: y.ticks(&ticks, 24.0),
        })
    }
}

impl<'a> Place<'a> {
    fn of((index, result): (usize, &'a CandidateResult)) -> Option<Self> {
        let ln = |i: Interval| Interval { lo: i.lo.ln(), mid: i.mid.ln(), hi: i.hi.ln() };
        let usable = result.ineligible.is_none();
        let is_figure = |i: &Interval| i.lo.is_finite() && i.hi.is_finite();
        let (cpu, memory) = (ln(result.ratio.cpu?), ln(result.ratio.memory?));
        (usable && is_figure(&cpu) && is_figure(&memory)).then_some(Self { index, result, cpu, memory })
    }

    fn dot(&self, x: &Scale, y: &Scale, on_front: bool) -> Dot {
        let (at_x, at_y) = (x.place(self.cpu.mid), y.place(self.memory.mid));
        let change = |i: &Option<Interval>| i.as_ref().map_or_else(String::new, crate::format::change);
        Dot {
            name: self.result.name.clone(),
            colour: self.index,
            x: at_x,
            y: at_y,
            x_from: x.place(self.cpu.lo),
            x_to: x.place(self.cpu.hi),
            y_from: y.place(self.memory.lo),
            y_to: y.place(self.memory.hi),
            label_x: at_x,
            label_y: at_y,
            anchor: START,
            on_front,
            says: format!(
                "{}: CPU {}, memory {}",
                self.result.name,
                change(&self.result.ratio.cpu),
                change(&self.result.ratio.memory)
            ),
        }
    }
}

/// All dots with room around; the ends of intervals as far as they are not far out.
fn range(intervals: impl Iterator<Item = Interval> + Clone) -> (f64, f64) {
    let low = intervals.clone().map(|i| i.mid).fold(0.0, f64::min);
    let high = intervals.clone().map(|i| i.mid).fold(0.0, f64::max);
    let room = (high - low).max(0.04) * 0.4;
    let from = intervals.clone().map(|i| i.lo).fold(low - room * 0.3, f64::min).max(low - room);
    let to = intervals.map(|i| i.hi).fold(high + room * 0.3, f64::max).min(high + room);
    (from, to)
}

/// Those that no other beats on both axes, by CPU.
fn front<'a, 'b>(places: &'b [Place<'a>]) -> Vec<&'b Place<'a>> {
    let mut by_cpu: Vec<&Place<'_>> = places.iter().collect();
    by_cpu.sort_by(|a, b| a.cpu.mid.total_cmp(&b.cpu.mid).then(a.memory.mid.total_cmp(&b.memory.mid)));
    let mut least = f64::INFINITY;
    by_cpu.retain(|place| {
        let is_new = place.memory.mid < least;
        least = least.min(place.memory.mid);
        is_new
    });
    by_cpu
}

/// Steps from dot to dot: what lies right and above of it is beaten.
fn path(front: &[&Place<'_>], x: &Scale, y: &Scale) -> String {
    let mut path = String::new();
    let mut from: Option<f64> = None;
    for place in front {
        let (to_x, to_y) = (x.place(place.cpu.mid), y.place(place.memory.mid));
        path.push_str(&match from {
            None => format!("M{to_x} {TOP}V{to_y}"),
            Some(_) => format!("H{to_x}V{to_y}"),
        });
        from = Some(to_y);
    }
    path + &format!("H{}", WIDTH - RIGHT)
}

/// Where a label may stand beside its dot: across, down, and which end of it is there; those named first are preferred.
const BESIDE: [(f64, f64, &str); 8] = [
    (9.0, -6.0, START),
    (9.0, 15.0, START),
    (-9.0, -6.0, END),
    (-9.0, 15.0, END),
    (9.0, -20.0, START),
    (-9.0, -20.0, END),
    (9.0, 29.0, START),
    (-9.0, 29.0, END),
];
const START: &str = "start";
const END: &str = "end";
/// Of a character of a label, in pixels; labels are 12 pixels high.
const CHARACTER: f64 = 6.8;

/// A rectangle: left, top, right, bottom.
#[derive(Clone, Copy)]
struct Area(f64, f64, f64, f64);

impl Area {
    fn of_label(dot: &Dot, (across, down, end): (f64, f64, &str)) -> Self {
        let width = dot.name.chars().fold(0.0, |width, _| width + CHARACTER);
        let left = dot.x + across - if end == END { width } else { 0.0 };
        Self(left, dot.y + down - 10.0, left + width, dot.y + down + 3.0)
    }

    fn of_dot(dot: &Dot) -> Self {
        Self(dot.x - 6.0, dot.y - 6.0, dot.x + 6.0, dot.y + 6.0)
    }

    fn is_within_the_drawing(&self) -> bool {
        self.0 >= LEFT && self.1 >= 0.0 && self.2 <= WIDTH && self.3 <= HEIGHT - BOTTOM
    }

    fn touches(&self, other: &Self) -> bool {
        self.0 < other.2 && other.0 < self.2 && self.1 < other.3 && other.1 < self.3
    }
}

/// Gives each label the place beside its dot where it hides least: those of the front first.
fn place_labels(dots: &mut [Dot]) {
    let circles: Vec<Area> = dots.iter().map(Area::of_dot).collect();
    let whiskers: Vec<Area> =
        dots.iter().map(|dot| Area(dot.x_from, dot.y - 1.0, dot.x_to, dot.y + 1.0)).collect();
    let mut order: Vec<usize> = (0..dots.len()).collect();
    order.sort_by_key(|&i| !dots[i].on_front);
    let mut labels: Vec<Area> = vec![];
    for i in order {
        let hidden = |place: &(f64, f64, &str)| {
            let area = Area::of_label(&dots[i], *place);
            let touched = |others: &[Area]| others.iter().filter(|other| area.touches(other)).count();
            let outside = usize::from(!area.is_within_the_drawing());
            1000 * outside + 100 * touched(&labels) + 30 * touched(&circles) + touched(&whiskers)
        };
        let Some(place) = BESIDE.into_iter().min_by_key(hidden) else { continue };
        labels.push(Area::of_label(&dots[i], place));
        let dot = &mut dots[i];
        (dot.label_x, dot.label_y, dot.anchor) = (round(dot.x + place.0), round(dot.y + place.1), place.2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::bench::{CandidateRuns, Options, Run, compare};

    #[test]
    fn the_front_is_whom_no_other_beats() {
        let one = |name: &str, cpu: f64, bytes: u64| CandidateRuns {
            name: name.to_owned(),
            runs: (0..6)
                .map(|round| Run { round, user_s: cpu, mean_bytes: bytes, ..Run::default() })
                .collect(),
        };
        let runs = [
            one("system", 1.0, 1000),
            one("fast", 0.5, 2000),
            one("lean", 1.5, 500),
            one("beaten", 1.2, 1500),
        ];
        let plane = Plane::of(&compare(&runs, &Options { resamples: 50, ..Options::default() })).unwrap();
        assert_eq!(plane.on_front, ["fast", "system", "lean"]);
        let dot = |name: &str| plane.dots.iter().find(|d| d.name == name).unwrap();
        assert!(dot("fast").x < dot("system").x && dot("lean").y > dot("system").y);
        assert!(!dot("beaten").on_front);
    }

    #[test]
    fn labels_stand_beside_each_other() {
        let dot = |name: &str, x: f64, y: f64| Dot {
            name: name.to_owned(),
            colour: 0,
            x,
            y,
            x_from: x - 5.0,
            x_to: x + 5.0,
            y_from: y,
            y_to: y,
            label_x: x,
            label_y: y,
            anchor: START,
            on_front: false,
            says: String::new(),
        };
        let mut dots = [
            dot("jemalloc:small", 300.0, 100.0),
            dot("jemalloc", 310.0, 104.0),
            dot("snmalloc", 306.0, 96.0),
            dot("system", 550.0, 98.0),
        ];
        place_labels(&mut dots);
        let area = |dot: &Dot| Area::of_label(dot, (dot.label_x - dot.x, dot.label_y - dot.y, dot.anchor));
        for (i, one) in dots.iter().enumerate() {
            assert!(area(one).is_within_the_drawing(), "{}", one.name);
            for other in &dots[i + 1..] {
                assert!(!area(one).touches(&area(other)), "{} on {}", one.name, other.name);
                assert!(
                    !area(one).touches(&Area::of_dot(other)),
                    "{} on the dot of {}",
                    one.name,
                    other.name
                );
            }
        }
    }
}
