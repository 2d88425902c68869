// SPDX-License-Identifier: Apache-2.0
//! What every command line of IMAS needs, and the one way to standard output and standard error.
//!
//! - [`message`]: errors with their hints, warnings and notes on standard error
//! - [`output`]: standard output
//! - [`output_file`]: files that a user named
//! - [`table`]: tables on a terminal, as CSV and Markdown
//! - [`mod@format`]: figures with their units
//! - [`when`]: times in words
//! - [`manual`]: man pages and completions of a command line

pub mod format;
#[cfg(feature = "manual")]
pub mod manual;
pub mod message;
pub mod output;
pub mod output_file;
pub mod table;
pub mod when;
