// SPDX-License-Identifier: Apache-2.0
//! Traces: every malloc call of a program, recorded once and replayed under any candidate.
//!
//! A raw file comes from the recorded process, and a trace may come from anywhere. Neither is trusted: every
//! byte is checked.

pub mod event;
pub mod file;
pub mod prediction;
pub mod program;
pub mod raw;
