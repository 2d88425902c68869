// SPDX-License-Identifier: Apache-2.0
//! The published experiments, run again.
//!
//! Two studies measure the allocators of `lab/textbook`: [`freelist()`] (Öberg, "Malloc", KTH 2021)
//! and [`fit()`] (Ramos, "Implementation of Custom Malloc and Its Performance Against System Malloc", UTA).
//! Each runs the C programs that `lab/textbook` builds into `lib/imas/study`, over many seeds. Each
//! returns a [`Study`]: every printed finding beside our figure and a verdict, the tables, and the charts. A
//! third study, [`selector()`] (Ülgen and Avci, 2015), judges IMAS itself on stored raw runs. A fourth,
//! [`mobile()`] (allocators for a phone), judges samples of the catalogue's allocators, which `imas-lab study
//! mobile` measured. A fifth, [`ReplayJudgement`], compares predictions of replays with live runs. [`services`] judges
//! picks and predictions for servers.
//! [`Study::write`] makes the page, the SVG and the CSV files.
//!
//! Nothing is printed here and no C code is linked. Charts and pages are from `imas-report`.

mod band;
mod error;
mod fit;
mod freelist;
mod mobile;
mod page;
pub mod predictions;
mod program;
mod replay;
mod selector;
pub mod services;
mod study;
mod verdict;

pub use error::{StudyError, StudyResult};
pub use fit::{FitOptions, fit};
pub use freelist::{FreelistOptions, freelist};
pub use imas_cli::table::Table;
pub use mobile::{MOBILE, MobileKey, MobileOptions, MobilePart, MobileSample, mobile, mobile_samples};
pub use program::Progress;
pub use replay::ReplayJudgement;
pub use selector::{SelectorOptions, selector};
pub use study::without_empty_columns;
pub use study::{Study, StudyFigure};
pub use verdict::{Finding, Reproduction};
