// SPDX-License-Identifier: Apache-2.0
//! One typed snapshot of the running processes, with what is known of each.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! # let places = imas_engine::flags::Places::default();
//! let mut observer = imas_engine::live::ProcessObserver::new(&places)?;
//! loop {
//!     let look: imas_engine::live::snapshot::LiveSnapshot = observer.look()?;
//!     println!("{}", serde_json::to_string(&look)?);
//!     std::thread::sleep(std::time::Duration::from_secs(2));
//! }
//! # }
//! ```
//!
//! A program that uses a [`ProcessObserver`] must begin with [`crate::entry::probe_answer`]: to find out whether a
//! candidate can be used here, the library may start the running executable once more.
//!
//! ```text
//! tracked: a process -------------------------------+
//! program_source: its store and program --------> observer -> snapshot
//!                               lost, memory_point ---^
//! ```
//!
//! # What a look costs
//! - Of every process one file is read, `/proc/PID/stat`. Everything else of a process (program, service,
//!   mappings, environment) is read once, again when that file shows an exec, and every ten minutes.
//! - A store is read again when it has changed, and never for more than a third of a per cent of the time.
//!   A program is worked out anew when something about it was stored, and every five minutes.
//! - The memory of a process of 16 MiB and more is looked into once a minute at most, and where it took long less often:
//!   all these looks together have a third of a per cent of the time.
//! - Every ten seconds the drop-ins of `imas apply` are read, and of each service that has one the files of the process
//!   that holds the most memory.
//! - All this work is bounded by a share of the time since the last look (`budget`): what does not fit is done
//!   at one of the next looks. The first look does everything.

pub mod lost;
pub mod memory_point;
pub mod observer;
pub mod program_source;
pub mod snapshot;
mod tracked;

pub use observer::ProcessObserver;
pub use program_source::process_state;
pub use tracked::MEMORY_FROM;
