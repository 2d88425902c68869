// SPDX-License-Identifier: Apache-2.0
//! Parts that every command line of IMAS needs: the one way to standard output and standard error, and the limits of a
//! server's connections.

pub mod connection_places;
pub mod format;
#[cfg(feature = "manual")]
pub mod manual;
pub mod message;
pub mod output;
pub mod output_file;
pub mod table;
