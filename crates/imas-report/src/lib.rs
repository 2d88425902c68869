// SPDX-License-Identifier: Apache-2.0
//! What IMAS found, as tables, JSON, CSV, Markdown and HTML, and the one way to standard output and standard error.
//!
//! - [`bench`]: the result of `imas bench` in every format
//! - [`html`]: one page for one program or for all
//! - [`split`]: where the resident memory is
//! - [`table`]: plain tables
//! - [`format`]: figures with their units
//! - [`output`]: standard output
//! - [`message`]: errors with their hints, warnings and notes on standard error

pub mod bench;
pub mod format;
pub mod html;
pub mod message;
pub mod output;
pub mod split;
pub mod table;
