// SPDX-License-Identifier: Apache-2.0
//! Results as tables, JSON, CSV, Markdown and HTML, and the one way to standard output and standard error.
//!
//! - [`mod@bench`]: the result of `imas bench` in every format
//! - [`chart`]: the charts of all pages, from plain series
//! - [`page`]: one page of results, made of charts, tables and text
//! - [`html`]: the page of `imas report --html`
//! - [`measure`]: figures with names, intervals and units, as rows of a table
//! - [`split`]: where the resident memory is
//! - [`table`]: tables on a terminal, as CSV and Markdown
//! - [`mod@format`]: figures with their units
//! - [`output`]: standard output
//! - [`output_file`]: files that a user named
//! - [`message`]: errors with their hints, warnings and notes on standard error
//!
//! ```text
//! look (colour and shape of an allocator) -> chart -> page -> html
//! format, table ------------------------> measure     ^
//!                                      -> split, bench
//! ```

pub mod bench;
pub mod chart;
pub mod format;
pub mod html;
mod look;
pub mod measure;
pub mod message;
pub mod output;
pub mod output_file;
pub mod page;
pub mod split;
pub mod table;
