// SPDX-License-Identifier: Apache-2.0
//! One recorded run of a command, and its calls made again under candidates.
//!
//! - [`recording`]: the folder of raw files, and the trace that is made of them
//! - [`process`]: which process of a trace stands for the program
//! - [`replayer`]: runs `imas-replayer` under a candidate
//! - [`range`]: predicted figures with the intervals
//! - [`replayed`]: the replays under every candidate, and what they predict
//!
//! [`trace`] has what needs no process: formats, and the arithmetic of predictions.

pub mod process;
pub mod range;
pub mod recording;
pub mod replayed;
pub mod replayer;
pub mod trace;
