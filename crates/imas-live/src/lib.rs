// SPDX-License-Identifier: Apache-2.0
//! One typed snapshot of the running processes with what IMAS knows of each, for `imas top` and `imas serve`.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! # let places = imas_engine::flags::Places::default();
//! let mut observer = imas_live::ProcessObserver::new(&places)?;
//! loop {
//!     let look: imas_live::snapshot::LiveSnapshot = observer.look()?;
//!     println!("{}", serde_json::to_string(&look)?);
//!     std::thread::sleep(std::time::Duration::from_secs(2));
//! }
//! # }
//! ```
//!
//! A program that uses an [`ProcessObserver`] must begin with [`imas_engine::probe::answer`]: to find out whether a
//! candidate can be used here, the library may start the running executable once more.
//!
//! # What a look costs
//! - Of every process one file is read, `/proc/PID/stat`. Everything else of a process (program, service,
//!   mappings, environment) is read once, again when that file shows an exec, and every ten minutes.
//! - A store is read again when it has changed, and never for more than a third of a per cent of the time.
//!   A program is worked out anew when something about it was stored, and every five minutes.
//! - All this work is bounded by a share of the time since the last look (`budget`): what does not fit is done
//!   at one of the next looks. The first look does everything.
//!
//! # Modules
//! - [`observer`]: the loop's state
//! - [`snapshot`]: what a look shows
//! - [`memory_point`]: where the memory of one process is
//! - `reading`, `identity`, `tracked`: a process at a look, what does not change of it, and over several looks
//! - `program_source`, `program_facts`: a store with its programs, and what is decided of one
//! - `unfit_files`: executables that cannot be served
//! - [`machine`]: the machine's pressure
//! - [`restart`]: what a restart would change, by trials
//! - [`pending`], [`activity`]: pages that are not stored yet, and what was seen of their processes
//! - [`trial_page`]: the page of a running trial
//!
//! ```text
//! reading, identity -> tracked ------------+
//! restart -> program_facts -> program_source -> observer -> snapshot
//! pending ------------------------^        unfit_files, machine, memory_point --^
//! ```

pub mod activity;
mod budget;
mod identity;
pub mod machine;
pub mod memory_point;
pub mod observer;
pub mod pending;
mod program_facts;
mod program_source;
mod reading;
pub mod restart;
pub mod snapshot;
mod tracked;
pub mod trial_page;
mod unfit_files;

pub use observer::ProcessObserver;
