// SPDX-License-Identifier: Apache-2.0
//! The learning engine: what the command `imas` and the daemon `imasd` both know about a program.
//!
//! - [`candidates`]: which candidates a program may get, and which version served a trial
//! - [`inspect`]: what an executable is, and whether anything may be preloaded into it
//! - [`harvest`]: from the trial page of a process to the record that is stored
//! - [`state`]: everything that a decision about one program depends on, from the store to the profile
//! - [`profile`]: state and profile of a program under the installation's settings
//! - [`conditions`]: the state of the machine, on which decisions depend
//! - [`under_way`]: a trial that another start makes at this moment
//! - [`pending`], [`activity`]: pages that are not stored yet, and what was seen of their processes
//! - [`start_plan`]: from the profile to the decision: what the next starts are to be
//! - [`config`]: the settings that decisions depend on, and their files
//! - [`fleet_key`]: what a program and this machine are to a fleet
//! - [`fleet_turn`]: which trials are this host's, where a fleet shares them out
//! - [`replay_knowledge`]: what replays predicted of a program, with the shipped reliability
//! - [`runtime_command`]: a command whose program has a runtime that takes settings
//! - [`seconds`]: the range of a configured duration
//! - [`difference`]: how a file changes, as `diff -u` prints it
//! - [`exclusions`]: programs that nobody is to change unasked
//! - [`daemon_status`]: what imasd reports about itself
//! - [`context`]: the installation as `imas` uses it: libraries, catalogue, store and configuration
//! - [`catalogue_files`]: the files of the catalogue
//! - [`compared`]: the candidates of a comparison
//! - [`lasting`]: a candidate for something that lasts
//! - [`lasting_settings`]: the same where the candidate is settings of a language runtime
//! - [`licences`]: licences that come along with a candidate
//! - [`musl`]: candidates of programs of musl
//! - [`inline_candidate`]: an allocator with settings of the command line
//! - [`flags`]: the flags that several commands share
//! - [`probe`]: how a binary answers when it is started to see whether a library loads
//! - [`store_damage`]: the hint for a store that is damaged
//! - [`store_place`]: where a user's store is
//! - [`suggestion`]: which name a mistyped one may mean
//! - [`folders`]: the user's folders
//!
//! Both programs call this crate, so that the same trials lead to the same decision in either.

pub mod activity;
pub mod candidates;
pub mod catalogue_files;
pub mod compared;
pub mod conditions;
pub mod config;
pub mod context;
pub mod daemon_status;
pub mod difference;
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
pub mod musl;
pub mod pending;
pub mod probe;
pub mod profile;
pub mod replay_knowledge;
pub mod runtime_command;
pub mod seconds;
pub mod start_plan;
pub mod state;
pub mod store_damage;
pub mod store_place;
pub mod suggestion;
pub mod under_way;
pub mod wrapped;
