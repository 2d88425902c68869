// SPDX-License-Identifier: Apache-2.0
//! The published experiments, run again.
//!
//! Two studies on the allocators of `allocators/textbook`: [`freelist`] (Öberg, "Malloc", KTH 2021) and [`fit`] (Ramos, "Implementation of Custom Malloc
//! and Its Performance Against System Malloc", UTA). Each runs the C programs that `allocators/textbook` builds
//! into `lib/imas/study`, over many seeds, and returns a [`Study`]: every printed finding beside our figure and
//! a verdict, the tables, and the figures as SVG. A third, [`selector`] (Ülgen and Avci, 2015), judges IMAS itself on raw runs
//! that were made before. A fourth, [`mobile`] (allocators for a phone), judges samples that `imas-lab study mobile` made of the allocators
//! of the catalogue. [`Study::write`] makes the page, the SVG and the CSV files.
//!
//! Nothing is printed here and no C code is linked.

mod band;
mod bars;
mod chart;
mod error;
mod fit;
mod freelist;
mod mean;
mod mobile;
mod page;
mod program;
mod progress;
mod selector;
mod study;
mod table;
mod verdict;
mod wording;
mod write;

pub use error::{Result, StudyError};
pub use fit::{FitOptions, fit};
pub use freelist::{FreelistOptions, freelist};
pub use mobile::{MobileHeader, MobileKey, MobileOptions, MobilePart, MobileRecord, MobileSample, mobile};
pub use progress::Progress;
pub use selector::{SelectorOptions, selector};
pub use study::{Figure, Study};
pub use table::Table;
pub use verdict::{Finding, Verdict};
