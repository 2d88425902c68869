// SPDX-License-Identifier: Apache-2.0
//! What IMAS found, as tables, JSON, CSV, Markdown and HTML. Bytes and text out; no files, no terminal.
//!
//! - [`bench`]: the result of `imas bench` in every format
//! - [`html`]: one page for one program or for all
//! - [`split`]: where the resident memory is
//! - [`table`]: plain tables
//! - [`format`]: figures with their units

pub mod bench;
pub mod format;
pub mod html;
pub mod split;
pub mod table;
