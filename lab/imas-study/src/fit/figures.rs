// SPDX-License-Identifier: Apache-2.0
//! One drawing for each test that has a size: median and band of the five allocators.

use imas_report::chart::{Axis, Distribution, DistributionRow};

use super::runs::Runs;
use super::runs::Subject;
use crate::band::Band;
use crate::study::StudyFigure;
use imas_cli::table::Table;

/// A drawn figure: test, the driver's name of it, and the factor to the drawn unit.
struct Drawn {
    test: usize,
    id: &'static str,
    title: &'static str,
    key: &'static str,
    unit: &'static str,
    factor: f64,
}

const PER_CENT_OF_PPM: f64 = 1e-4;
const KIB_OF_BYTES: f64 = 1.0 / 1024.0;

const DRAWN: [Drawn; 4] = [
    Drawn {
        test: 5,
        id: "fragmentation",
        title: "Fragmentation after a mixed load",
        key: "fragmentation_ppm",
        unit: "per cent of the heap",
        factor: PER_CENT_OF_PPM,
    },
    Drawn {
        test: 6,
        id: "growth",
        title: "Heap growth as sizes creep up",
        key: "growth_bytes",
        unit: "KiB",
        factor: KIB_OF_BYTES,
    },
    Drawn {
        test: 7,
        id: "max-heap",
        title: "Largest heap of a load with peaks of one MiB",
        key: "max_heap_bytes",
        unit: "KiB",
        factor: KIB_OF_BYTES,
    },
    Drawn {
        test: 8,
        id: "time",
        title: "Time of a long mixed load",
        key: "ns_per_operation",
        unit: "ns an operation",
        factor: 1.0,
    },
];

pub(crate) fn figures(runs: &Runs) -> Vec<StudyFigure> {
    DRAWN.iter().map(|drawn| figure(runs, drawn)).collect()
}

fn figure(runs: &Runs, drawn: &Drawn) -> StudyFigure {
    let band = |s: &Subject| runs.band(drawn.test, *s, drawn.key).map(|b| (s.name(), b.scaled(drawn.factor)));
    let bands: Vec<(&str, Band)> = Subject::ALL.iter().filter_map(band).collect();
    let columns = ["allocator", "median", "low", "high", "unit"];
    let mut data = Table::new(drawn.id, drawn.title, &columns);
    for (name, b) in &bands {
        let numbers = [b.median, b.low, b.high].map(|v| format!("{v:.3}"));
        data.push([vec![(*name).to_owned()], numbers.to_vec(), vec![drawn.unit.to_owned()]].concat());
    }
    let chart = Distribution {
        title: format!("{}, {}", drawn.title, drawn.unit),
        caption: format!("Test {}. {CAPTION}", drawn.test),
        axis: Axis::new(drawn.unit).from_zero(),
        rows: bands.iter().map(|(name, band)| row(name, *band)).collect(),
    };
    StudyFigure { caption: chart.caption.clone(), chart: chart.draw(), data }
}

const CAPTION: &str = "Mark: median over the seeds; box: quartiles; line: central nine tenths.";

fn row(name: &str, band: Band) -> DistributionRow {
    DistributionRow {
        group: String::new(),
        name: name.to_owned(),
        low: band.low,
        lower: band.lower_quartile,
        middle: band.median,
        upper: band.upper_quartile,
        high: band.high,
        text: if band.median < 100.0 { format!("{:.1}", band.median) } else { format!("{:.0}", band.median) },
    }
}
