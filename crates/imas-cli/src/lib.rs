// SPDX-License-Identifier: Apache-2.0
//! What every command line of IMAS needs, and the one way to standard output and standard error.

pub mod format;
#[cfg(feature = "manual")]
pub mod manual;
pub mod message;
pub mod output;
pub mod output_file;
pub mod table;
pub mod when;
