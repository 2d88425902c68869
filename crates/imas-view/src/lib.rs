// SPDX-License-Identifier: Apache-2.0
//! What is known of a program now, and one typed snapshot of the running processes with what is known of each.
//!
//! # A program
//! ```text
//! program_view -> words -> section
//!      picks ------^
//! ```
//!
//! # The running processes
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! # let places = imas_engine::flags::Places::default();
//! let mut observer = imas_view::ProcessObserver::new(&places)?;
//! loop {
//!     let look: imas_view::snapshot::LiveSnapshot = observer.look()?;
//!     println!("{}", serde_json::to_string(&look)?);
//!     std::thread::sleep(std::time::Duration::from_secs(2));
//! }
//! # }
//! ```
//!
//! A program that uses a [`ProcessObserver`] must begin with [`imas_engine::probe::answer`]: to find out whether a
//! candidate can be used here, the library may start the running executable once more.
//!
//! ```text
//! reading, identity -> tracked ------------+
//! restart -> program_facts -> program_source -> observer -> snapshot
//! followed_store, program_cache --^         unfit_files, lost, machine, memory_point --^
//! ```
//!
//! # What a look costs
//! - Of every process one file is read, `/proc/PID/stat`. Everything else of a process (program, service,
//!   mappings, environment) is read once, again when that file shows an exec, and every ten minutes.
//! - A store is read again when it has changed, and never for more than a third of a per cent of the time.
//!   A program is worked out anew when something about it was stored, and every five minutes.
//! - The heaps of a process of 16 MiB and more are read once a minute at most, and one that took long less often:
//!   all looks at heaps together have a third of a per cent of the time.
//! - Every ten seconds the drop-ins of `imas apply` are read, and of each service that has one the files of the process
//!   that holds the most memory.
//! - All this work is bounded by a share of the time since the last look (`budget`): what does not fit is done
//!   at one of the next looks. The first look does everything.

mod budget;
pub mod followed_store;
mod identity;
pub mod keeps_away;
mod latency;
pub mod lives;
pub mod lost;
pub mod machine;
pub mod memory_point;
pub mod observer;
pub mod picks;
pub mod program_cache;
mod program_facts;
mod program_source;
pub mod program_view;
pub mod published;
mod reading;
pub mod restart;
pub mod runs;
pub mod section;
pub mod settled;
pub mod sharing;
pub mod snapshot;
mod tracked;
pub mod trial_page;
mod unfit_files;
pub mod words;

pub use latency::added_up;
pub use observer::ProcessObserver;
