// SPDX-License-Identifier: Apache-2.0
//! Definition of the command line. No side effects.

use std::path::PathBuf;

use clap::{Parser, ValueHint};
use imas_engine::flags::Places;

use crate::connections::Address;

/// Shows in a browser what IMAS knows, and gives it to Prometheus. Reads only.
///
/// It answers processes of its own user and of root; to all others it asks for a token. Other machines reach
/// it only with --token-file.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "imas-serve",
    bin_name = "imas serve",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  imas serve                                  then open http://127.0.0.1:4627/\n  imas serve --listen unix:/run/user/1000/imas.sock\n  imas serve --system --listen 0.0.0.0:4627 --token-file /etc/imas/serve.token"
)]
pub(crate) struct Options {
    /// Where to listen: ADDRESS:PORT, or unix:PATH
    #[arg(long, default_value = "127.0.0.1:4627", value_name = "WHERE")]
    pub(crate) listen: Address,
    /// File with the token that other users and other machines must send; for its owner alone to read
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// A name under which it is reached, besides localhost and its address: that of a reverse proxy
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,
    /// Folder of the daemon's state
    #[arg(long, default_value = imas_abi::RUN_FOLDER, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) run_dir: PathBuf,
    /// Raw runs of the suite, for the page of its results [default: those installed]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) places: Places,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }
}
