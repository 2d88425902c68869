// SPDX-License-Identifier: Apache-2.0
//! What IMAS asks of Linux, and nothing else of IMAS.
//!
//! - [`catalogue`]: the list of candidates, read from TOML, and whether each loads here
//! - [`elf`]: what an executable is, so that a preload is never given to one that cannot bear it
//! - [`program`]: from the words of a command line to the program they name
//! - [`conditions`]: the machine's CPU and memory pressure now
//! - [`environment`]: the environment of a start under a candidate, and how it is undone inside
//! - [`page`]: making trial pages and finding the finished ones
//! - [`measure`]: running a whole process tree and reading what it cost
//! - [`host`]: what machine this is

pub mod catalogue;
pub mod conditions;
pub mod counters;
pub mod elf;
pub mod environment;
pub mod host;
pub mod measure;
pub mod page;
pub mod process;
pub mod program;
pub mod sampler;
