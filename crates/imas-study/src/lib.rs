// SPDX-License-Identifier: Apache-2.0
//! The published experiments on textbook allocators, run again on the allocators of `allocators/textbook`.
//!
//! Two studies: [`freelist`] (Öberg, "Malloc", KTH 2021) and [`fit`] (Ramos, "Implementation of Custom Malloc
//! and Its Performance Against System Malloc", UTA). Each runs the C programs that `allocators/textbook` builds
//! into `lib/imas/study`, over many seeds, and returns a [`Study`]: every printed finding beside our figure and
//! a verdict, the tables, and the figures as SVG. [`Study::write`] makes the page, the SVG and the CSV files.
//!
//! Nothing is printed here and no C code is linked.

mod band;
mod chart;
mod error;
mod fit;
mod freelist;
mod mean;
mod page;
mod program;
mod progress;
mod study;
mod table;
mod verdict;
mod wording;
mod write;

pub use error::{Result, StudyError};
pub use fit::{FitOptions, fit};
pub use freelist::{FreelistOptions, freelist};
pub use progress::Progress;
pub use study::{Figure, Study};
pub use table::Table;
pub use verdict::{Finding, Verdict};
