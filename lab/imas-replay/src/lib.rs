// SPDX-License-Identifier: Apache-2.0
//! One recorded run of a command, and its calls made again under candidates.
//!
//! [`trace`] has what needs no process: formats, and the arithmetic of predictions.

pub mod recording;
pub mod reliability;
pub mod replayed;
pub mod trace;
