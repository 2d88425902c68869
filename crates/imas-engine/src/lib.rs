// SPDX-License-Identifier: Apache-2.0
//! The learning engine: what the command `imas` and the daemon `imasd` both know about a program.
//!
//! Both programs call this crate, so that the same trials lead to the same decision in either.

pub mod activity;
pub mod amounts;
pub mod candidates;
pub mod catalogue_files;
pub mod compared;
pub mod conditions;
pub mod config;
pub mod context;
pub mod daemon_status;
pub mod difference;
pub mod drop_in;
pub mod entry;
pub mod exclusions;
pub mod flags;
pub mod fleet_key;
pub mod fleet_turn;
pub mod folders;
pub mod harvest;
pub mod inline_candidate;
pub mod inspect;
pub mod lasting;
pub mod lasting_settings;
pub mod licences;
pub mod memory_kill;
pub mod musl;
pub mod of_runtime;
pub mod outside;
pub mod pending;
pub mod probe;
pub mod profile;
pub mod runtime_command;
pub mod seconds;
pub mod start_plan;
pub mod state;
pub mod store_damage;
pub mod store_place;
pub mod suggestion;
pub mod under_way;
pub mod unstartable;
pub mod wrapped;
