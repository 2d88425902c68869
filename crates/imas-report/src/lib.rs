// SPDX-License-Identifier: Apache-2.0
//! What IMAS found, as tables, JSON, CSV and Markdown. Bytes and text out; no files, no terminal.
//!
//! - [`bench`]: the result of `imas bench` in every format
//! - [`table`]: plain tables
//! - [`format`]: figures with their units

pub mod bench;
pub mod format;
pub mod table;
