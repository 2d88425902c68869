// SPDX-License-Identifier: Apache-2.0
//! What is known of a program now, as every command that shows it needs it.
//!
//! - [`program_view`]: profile and present decision of one program
//! - [`profile`]: state and profile of a program under the installation's settings
//! - [`conditions`]: the state of the machine, on which decisions depend
//! - [`under_way`]: a trial that another start makes at this moment
//! - [`picks`]: the picks by the stored trials, and what they are expected to gain
//! - [`words`]: where the candidates stand, in words and rows
//! - [`settled`]: whether the candidate of a program is settled
//! - [`sharing`]: how a fleet shares out a program's trials, in words
//! - [`forecast`]: what replays of a recorded run predicted
//! - [`lives`]: how the processes of a service lived on
//! - [`section`]: a program as a part of a page
//! - [`runs`]: a program of a file of raw runs as a part of a page
//! - [`published`]: what imasd has published, and why it may have no effect
//! - [`when`]: times in words
//!
//! ```text
//! when -> under_way -> program_view -> words -> section
//! conditions, profile -----^    picks ---^
//! ```

pub mod conditions;
pub mod forecast;
mod latency;
pub mod lives;
pub mod picks;
pub mod profile;
pub mod program_view;
pub mod published;
pub mod runs;
pub mod section;
pub mod settled;
pub mod sharing;
pub mod under_way;
pub mod when;
pub mod words;

pub use latency::added_up;
