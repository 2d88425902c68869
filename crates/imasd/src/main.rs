// SPDX-License-Identifier: Apache-2.0
//! `imasd`: the daemon.
//!
//! ```text
//! /proc, process events --process_watcher--> a program worth a trial ------------------v
//! state/u/UID/*.page -------pages (PageTracker)--> seen, ended, read --> learner: store, program table, decisions
//!                                                                                      v
//!                                                              publish, at most once a second: state/index
//! ```
//! Each part owns its state and returns events; `pipeline` passes them on (docs/decisions/0023). One thread
//! (a second one asks for accounts where files do not list them), a helper process that reads what others could make
//! endless ([`imas_linux::foreign_process`]), no network. It decides nothing that it
//! could not decide again from the store: kill -9 at any instant costs at most the work of that instant.

mod config;
mod daemon;
pub(crate) mod fleet;
mod folders;
mod harm;
mod kept_store;
mod kernel_events;
mod learner;
mod lives;
mod mailbox;
mod near_limits;
mod notify;
mod owners;
mod pages;
mod pipeline;
mod process_info;
mod process_watcher;
mod program_table;
mod publish;
mod trial_offer;
mod trims;
mod watched;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    if imas_linux::foreign_file::help_if_asked_with(process_info::answer_question) {
        return ExitCode::SUCCESS;
    }
    let options = match config::Options::try_parse() {
        Ok(options) => options,
        Err(usage) => {
            let _ = usage.print(); // there is no other place to report it
            return ExitCode::from(if usage.use_stderr() { 2 } else { 0 });
        }
    };
    notify::start_log();
    match daemon::Daemon::new(options).and_then(daemon::Daemon::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            let _ = writeln!(std::io::stderr(), "imasd: {error:#}"); // the journal has it already
            let _ = writeln!(std::io::stderr(), "hint: 'imasd --help' names the places it uses");
            ExitCode::from(2)
        }
    }
}
