// SPDX-License-Identifier: Apache-2.0
//! Definition of the command line. No side effects.

use std::path::PathBuf;

use clap::{Parser, ValueHint};

/// Notices programs, ingests their trials and publishes what each is to start under.
///
/// Runs as the user `imas`, started by systemd. It listens to no network. Programs read what it publishes by
/// themselves, once, at their start; without it they keep the last decision.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "imasd",
    version,
    max_term_width = 100,
    after_help = "Signals:\n  HUP   read configuration, exclusions and catalogue again\n  TERM  finish and end with 0\n\n'imas status' shows what it does; 'imas show --system' what it knows."
)]
pub(crate) struct Options {
    /// Folder with the catalogue and the index
    #[arg(long, default_value = imas_abi::RUN_FOLDER, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) run_dir: PathBuf,
    /// The store
    #[arg(long, default_value = "/var/lib/imas/imas.db", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) store: PathBuf,
    /// Folder with catalogue.toml [default: that of libimas.so in the approved catalogue]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) lib_dir: Option<PathBuf>,
    /// Configuration file; it need not exist
    #[arg(long, default_value = "/etc/imas/imasd.toml", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Seconds between two tests of one candidate, in place of the configuration's
    #[arg(long, value_name = "SECONDS", value_parser = imas_engine::amounts::seconds)]
    pub(crate) retest: Option<f64>,
    /// Serve one user's own tree of processes, without root: everything below the run folder is that user's
    #[arg(long)]
    pub(crate) user: bool,
    /// Look for new processes every few seconds, even where the kernel would report them
    #[arg(long)]
    pub(crate) poll: bool,
    /// Ingest what is finished, publish, and end
    #[arg(long)]
    pub(crate) once: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn the_man_page_has_every_option_and_default() {
        let page = include_str!("../imasd.8").replace('\\', "");
        for argument in Options::command().get_arguments() {
            let long = argument.get_long().unwrap();
            assert!(page.contains(&format!("--{long}")), "--{long}");
            for default in argument.get_default_values() {
                assert!(page.contains(&*default.to_string_lossy()), "{default:?}");
            }
        }
    }
}
