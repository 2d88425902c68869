// SPDX-License-Identifier: Apache-2.0
//! The learning engine: what the command `imas` and the daemon `imasd` both know about a program.
//!
//! - [`candidates`]: which candidates a program may get, and which version served a trial
//! - [`state`]: everything that a decision about one program rests on, from the store to the profile
//! - [`seconds`]: the range of a configured duration
//! - [`context`]: the installation: libraries, catalogue, store and configuration
//! - [`config`]: the configuration files
//! - [`flags`]: the flags that several commands share
//! - [`manual`]: man pages and completions of a command line
//! - [`probe`]: how a binary answers when it is started to see whether a library loads
//! - [`folders`]: the user's folders
//! - [`daemon_status`]: what imasd reports about itself
//!
//! Both programs call this crate, so that the same trials lead to the same decision in either.

pub mod candidates;
pub mod config;
pub mod context;
pub mod daemon_status;
pub mod flags;
pub mod folders;
pub mod manual;
pub mod probe;
pub mod seconds;
pub mod state;
