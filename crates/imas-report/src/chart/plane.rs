// SPDX-License-Identifier: Apache-2.0
//! Candidates as dots: CPU to the right, memory upwards, both as ratios to `system` on logarithmic axes; left
//! and down is better.

use imas_core::stats::Interval;
use maud::{Markup, html};

use super::{Chart, Frame, Scale, round, text_width};
use crate::look::Look;

const WIDTH: f64 = super::WIDTH;
const HEIGHT: f64 = 350.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
const FRAME: Frame = Frame { left: LEFT, right: WIDTH - RIGHT, top: TOP, bottom: HEIGHT - BOTTOM };

/// Changes that may be marked at an axis, per cent; the first ones are kept when there is no room for all.
const CHANGES: [f64; 19] = [
    0.0, -10.0, 10.0, -50.0, 100.0, -20.0, 20.0, 50.0, 200.0, 400.0, -5.0, 5.0, -30.0, 900.0, -75.0, -2.0,
    2.0, -1.0, 1.0,
];

/// CPU time and memory of each allocator, and the Pareto front: those that no other one beats on both.
#[derive(Debug, Clone, Default)]
pub struct Plane {
    /// Title: the quantities that are drawn.
    pub title: String,
    /// How to read the chart; the names of the Pareto front are added.
    pub caption: String,
    /// Points of `system` and at least one other allocator.
    pub points: Vec<PlanePoint>,
}

/// One allocator.
#[derive(Debug, Clone)]
pub struct PlanePoint {
    /// Name of the allocator, which gives colour and shape.
    pub name: String,
    /// CPU time as a ratio to `system`'s.
    pub cpu: Interval,
    /// Memory as a ratio to `system`'s.
    pub memory: Interval,
    /// CPU time and memory in words, shown when the pointer is over the point.
    pub text: String,
}

/// A point in pixels.
struct Dot {
    name: String,
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
    text: String,
}

/// Logarithms of the ratios.
struct Place<'a> {
    index: usize,
    point: &'a PlanePoint,
    cpu: Interval,
    memory: Interval,
}

impl Plane {
    /// The chart; None with fewer than two points that have finite figures.
    #[must_use]
    pub fn draw(&self) -> Option<Chart> {
        let places: Vec<Place<'_>> = self.points.iter().enumerate().filter_map(Place::of).collect();
        if places.len() < 2 {
            return None;
        }
        let x = Scale::new(range(places.iter().map(|p| p.cpu)), (LEFT, WIDTH - RIGHT));
        let y = Scale::new(range(places.iter().map(|p| p.memory)), (HEIGHT - BOTTOM, TOP));
        let front = front(&places);
        let on_front = |place: &Place<'_>| front.iter().any(|one| one.index == place.index);
        let mut dots: Vec<Dot> = places.iter().map(|p| p.dot(&x, &y, on_front(p))).collect();
        place_labels(&mut dots);
        let names: Vec<&str> = front.iter().map(|one| one.point.name.as_str()).collect();
        let body = html! {
            (axes(&x, &y))
            path.front d=(path(&front, &x, &y)) { title { "Pareto front" } }
            @for dot in &dots { (dot.draw()) }
        };
        let caption = format!("{} Dashed green, the Pareto front: {}.", self.caption, names.join(", "));
        Some(Chart::new(&self.title, &caption, (WIDTH, HEIGHT), body))
    }
}

/// The grid, and the lines through `system`.
fn axes(x: &Scale, y: &Scale) -> Markup {
    let ticks = CHANGES.map(|change| {
        ((change / 100.0).ln_1p(), if change == 0.0 { "0 %".to_owned() } else { format!("{change:+.0} %") })
    });
    let (home_x, home_y) = (x.place(0.0), y.place(0.0));
    html! {
        @for tick in x.ticks(&ticks, 44.0) { (FRAME.column(tick.at, &tick.text)) }
        @for tick in y.ticks(&ticks, 24.0) { (FRAME.row(tick.at, &tick.text)) }
        (FRAME.below("CPU time against system; left is faster"))
        (FRAME.beside("memory; down is leaner"))
        line.home x1=(home_x) x2=(home_x) y1=(FRAME.top) y2=(FRAME.bottom) {}
        line.home x1=(FRAME.left) x2=(FRAME.right) y1=(home_y) y2=(home_y) {}
    }
}

impl Dot {
    fn draw(&self) -> Markup {
        let look = Look::of(&self.name);
        html! {
            g class={"dot " (look.class())} tabindex="0" role="button" data-candidate=(self.name) data-text=(self.text)
                aria-label=(self.text) {
                title { (self.text) }
                line x1=(self.x_from) x2=(self.x_to) y1=(self.y) y2=(self.y) {}
                line x1=(self.x) x2=(self.x) y1=(self.y_from) y2=(self.y_to) {}
                path.beaten[!self.on_front] transform=(format!("translate({},{})", self.x, self.y)) d=(look.dot()) {}
                text.halo x=(self.label_x) y=(self.label_y) text-anchor=(self.anchor) { (self.name) }
            }
        }
    }
}

impl<'a> Place<'a> {
    fn of((index, point): (usize, &'a PlanePoint)) -> Option<Self> {
        let ln = |i: Interval| Interval { lo: i.lo.ln(), mid: i.mid.ln(), hi: i.hi.ln() };
        let is_figure = |i: &Interval| i.lo.is_finite() && i.hi.is_finite();
        let (cpu, memory) = (ln(point.cpu), ln(point.memory));
        (is_figure(&cpu) && is_figure(&memory)).then_some(Self { index, point, cpu, memory })
    }

    fn dot(&self, x: &Scale, y: &Scale, on_front: bool) -> Dot {
        let (at_x, at_y) = (x.place(self.cpu.mid), y.place(self.memory.mid));
        Dot {
            name: self.point.name.clone(),
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
            text: self.point.text.clone(),
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

/// The places that no other place beats on both axes, sorted by CPU.
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

/// Where a label may be beside its dot: across, down, and which end of it is there; those named first are
/// preferred.
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
/// A rectangle: left, top, right, bottom.
#[derive(Clone, Copy)]
struct Area(f64, f64, f64, f64);

impl Area {
    fn of_label(dot: &Dot, (across, down, end): (f64, f64, &str)) -> Self {
        let width = text_width(&dot.name);
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

/// Gives each label the place beside its dot where it hides least: dots of the front first.
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

    #[test]
    fn the_front_is_what_no_other_beats() {
        let exact = |mid: f64| Interval { lo: mid, mid, hi: mid };
        let point = |name: &str, cpu: f64, memory: f64| PlanePoint {
            name: name.to_owned(),
            cpu: exact(cpu),
            memory: exact(memory),
            text: format!("<{name}>"),
        };
        let points = vec![
            point("system", 1.0, 1.0),
            point("fast", 0.5, 2.0),
            point("lean", 1.5, 0.5),
            point("beaten", 1.2, 1.5),
        ];
        let plane = Plane { title: "t".into(), caption: "c".into(), points };
        let chart = plane.draw().unwrap();
        assert!(chart.caption().ends_with("fast, system, lean."), "{}", chart.caption());
        let svg = chart.document();
        assert_eq!(svg.matches("class=\"beaten\"").count(), 1);
        assert!(!svg.contains("<beaten>"));
        assert!(Plane { points: vec![point("system", 1.0, 1.0)], ..plane }.draw().is_none());
    }

    #[test]
    fn labels_stand_beside_each_other() {
        let dot = |name: &str, x: f64, y: f64| Dot {
            name: name.to_owned(),
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
            text: String::new(),
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
