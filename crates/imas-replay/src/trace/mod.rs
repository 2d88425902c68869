// SPDX-License-Identifier: Apache-2.0
//! Traces: every malloc call of a program, recorded once and replayed under any candidate.
//!
//! - [`raw`]: the words that `libimas-record.so` wrote (`abi/imas_record.h`)
//! - [`numbering`]: replaces addresses by block numbers, because a trace must not contain addresses
//! - [`event`]: one event of a trace, and its bytes
//! - [`mod@file`]: the trace file (`docs/trace-format.md`)
//! - [`program`]: the input of `imas-replayer`
//! - [`result`]: the output of `imas-replayer`
//! - [`touching`]: how much of its large blocks a program writes
//! - [`prediction`]: the figures that the program would have under a candidate
//!
//! A raw file comes from the recorded process, and a trace may come from anywhere. Neither is trusted: every
//! byte is checked.

pub mod event;
pub mod file;
pub mod numbering;
pub mod prediction;
pub mod program;
pub mod raw;
pub mod result;
pub mod touching;
