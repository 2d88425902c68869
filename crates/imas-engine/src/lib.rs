// SPDX-License-Identifier: Apache-2.0
//! The learning engine: what the command `imas` and the daemon `imasd` both know about a program.
//!
//! - [`candidates`]: which candidates a program may get, and which version served a trial
//! - [`state`]: everything that a decision about one program rests on, from the store to the profile
//! - [`seconds`]: the range of a configured duration
//!
//! Both programs call this crate, so that the same trials lead to the same decision in either.

pub mod candidates;
pub mod seconds;
pub mod state;
