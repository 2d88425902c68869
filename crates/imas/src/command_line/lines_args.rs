// SPDX-License-Identifier: Apache-2.0
//! Arguments for the shell lines around the runs of a command or a server.

use clap::Args;

/// Shell lines around the runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lines around the runs")]
pub(crate) struct LinesArgs {
    /// A shell line before all runs; $SETUP is a folder for a server's files that stays until the end
    #[arg(long, value_name = "LINE")]
    pub(crate) setup: Option<String>,
    /// A shell line before each run; of a server $WORK is a fresh folder, and what the line leaves running
    /// helps the load and is not measured
    #[arg(long, value_name = "LINE")]
    pub(crate) prepare: Option<String>,
    /// A shell line after each run
    #[arg(long, value_name = "LINE")]
    pub(crate) conclude: Option<String>,
    /// A shell line after all runs; of a server after each run
    #[arg(long, value_name = "LINE")]
    pub(crate) cleanup: Option<String>,
}
