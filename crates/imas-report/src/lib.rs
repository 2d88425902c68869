// SPDX-License-Identifier: Apache-2.0
//! Results as tables, JSON, CSV, Markdown and HTML.
//!
//! - [`mod@bench`]: the result of `imas bench` in every format
//! - [`chart`]: the charts of all pages, from plain series
//! - [`page`]: one page of results, made of charts, tables and text
//! - [`html`]: the page of `imas report --html`
//! - [`measure`]: figures with names, intervals and units, as rows of a table
//! - [`split`]: where the resident memory is
//!
//! ```text
//! look (colour and shape of an allocator) -> chart -> page -> html
//! imas_cli::{format, table} ------------> measure     ^
//!                                      -> split, bench
//! ```

pub mod bench;
pub mod chart;
pub mod html;
mod look;
pub mod measure;
pub mod page;
pub mod split;
