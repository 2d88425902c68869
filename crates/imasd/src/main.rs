// SPDX-License-Identifier: Apache-2.0
//! `imasd`: the daemon.
//!
//! ```text
//! /proc, process events --census--> a program worth a trial --programs--> Known, in the book
//!                                                                  |  judge (imas-core)
//! state/u/UID/*.page --pages--> witnessed, ended, ingested --> store, then judged anew
//!                                                                  |
//!                                                                  v  publish, at most once a second
//!                                                            state/index
//! ```
//! One thread (a second one asks for accounts where files do not list them), no network. It decides nothing that it could not decide again from the store: kill -9 at any instant costs at most the
//! work of that instant.

mod accounts;
mod backlog;
mod behind;
mod book;
mod census;
mod cli;
mod config;
mod connector;
mod counters;
mod daemon;
mod departed;
mod doubt;
mod drop;
mod emergency;
mod ended;
mod exclusions;
mod folders;
mod harm;
mod harvest;
mod ineligible;
mod inspect;
mod installation;
mod judge;
mod log;
mod long_name;
mod moment;
mod name_service;
mod news;
mod notify;
mod owners;
mod pages;
mod programs;
mod publish;
mod share;
mod sight;
mod span;
mod standing;
mod trouble;
mod wakeup;
mod watched;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let options = match cli::Options::try_parse() {
        Ok(options) => options,
        Err(usage) => {
            let _ = usage.print(); // nothing is left to be told if this fails
            return ExitCode::from(if usage.use_stderr() { 2 } else { 0 });
        }
    };
    log::start();
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
