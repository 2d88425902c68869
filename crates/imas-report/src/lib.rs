// SPDX-License-Identifier: Apache-2.0
//! Results as tables, JSON, CSV, Markdown and HTML.
//!
//! ```text
//! look (colour and shape of an allocator) -> chart -> page -> html
//! imas_cli::{format, table} ------------> measure     ^
//! judgement (a judgement in words) ------> split, bench, service
//! ```

pub mod bench;
pub mod chart;
pub mod html;
pub mod judgement;
mod look;
pub mod measure;
pub mod page;
pub mod service;
