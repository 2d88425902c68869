// SPDX-License-Identifier: Apache-2.0
//! What may be typed after `advise`, `apply`, `unapply` and `env`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The service, as systemctl names it
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    /// This candidate [default: what was learned about the unit's program]
    #[arg(long, value_name = "NAME")]
    pub(crate) candidate: Option<String>,
    /// What the service starts in turn runs under it too
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) how: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UnapplyArgs {
    /// The service, as systemctl names it
    #[arg(value_name = "UNIT", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) unit: Option<String>,
    /// Every service that `imas apply` changed
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) how: WriteArgs,
}

/// How far to go.
#[derive(Debug, Clone, Args)]
pub(crate) struct WriteArgs {
    /// Do it; without this only what would be done is shown
    #[arg(long)]
    pub(crate) write: bool,
    /// Restart the service as well, if it runs
    #[arg(long, requires = "write", conflicts_with = "root")]
    pub(crate) now: bool,
    /// Work on the system below this folder, an image for example; nothing is reloaded
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,
}

/// In whose words the environment is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For `eval "$(imas env ...)"` in a POSIX shell
    Sh,
    /// A drop-in for a unit file
    Systemd,
    /// Lines for a Dockerfile
    Dockerfile,
    /// A service of a compose file
    Compose,
    /// A patch for a Deployment
    Kubernetes,
}

#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// What was learned about this program: a path, a name found in PATH, or the number that `imas show` prints
    #[arg(value_name = "PROGRAM", required_unless_present = "candidate", conflicts_with = "candidate")]
    pub(crate) program: Option<OsString>,
    /// This candidate
    #[arg(long, value_name = "NAME")]
    pub(crate) candidate: Option<String>,
    /// In whose words
    #[arg(long, value_enum, default_value_t = Format::Sh)]
    pub(crate) format: Format,
    /// Name of the compose service or of the container in the pod
    #[arg(long, default_value = "app", value_name = "NAME", value_parser = container_name)]
    pub(crate) name: String,
    /// For Kubernetes: an image that holds the libraries at its root, in place of the node's own folder
    #[arg(long, value_name = "REFERENCE", value_parser = image_reference)]
    pub(crate) image: Option<String>,
    /// What the program starts in turn runs under it too
    #[arg(long)]
    pub(crate) follow: bool,
}

/// A name that is plain in YAML.
fn container_name(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let fits = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(good);
    if fits { Ok(text.to_owned()) } else { Err("use letters, digits, '-', '_' and '.'".to_owned()) }
}

fn image_reference(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b':' | b'@');
    if !text.is_empty() && text.bytes().all(good) {
        Ok(text.to_owned())
    } else {
        Err("not an image's reference".to_owned())
    }
}
