// SPDX-License-Identifier: Apache-2.0
//! Results as tables, JSON, CSV, Markdown and HTML.
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
