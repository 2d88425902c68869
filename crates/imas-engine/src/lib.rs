// SPDX-License-Identifier: Apache-2.0
//! The learning engine: what `imas`, `imasd` and the pages know about a program, and what they decide about it.
//!
//! Every program of ours calls this crate, so that the same trials lead to the same decision everywhere.
//!
//! ```text
//! inspect, state -> decide -> program_view -> picks, section
//! live: the running processes, with what is known of the program of each
//! memory_look: the verdict on the memory of a process, in words
//! ```

pub mod amounts;
pub mod candidates;
pub mod compared;
pub mod config;
pub mod context;
pub mod daemon_status;
pub mod decide;
pub mod drop_in;
pub mod entry;
pub mod flags;
pub mod fleet_key;
pub mod fleet_turn;
pub mod folders;
pub mod inline_candidate;
pub mod inspect;
pub mod lasting;
pub mod limit_note;
pub mod live;
pub mod lives;
pub mod memory_look;
pub mod outside;
pub mod pending;
pub mod picks;
pub mod prices;
pub mod program_view;
pub mod runtime_command;
pub mod section;
pub mod state;
