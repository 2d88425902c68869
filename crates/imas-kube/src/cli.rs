// SPDX-License-Identifier: Apache-2.0
//! What may be typed. No side effects.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use imas_engine::flags::{Places, with_negative_numbers, without_wrong_variables};

/// Candidates for the pods of a Kubernetes cluster.
///
/// A policy of the apiserver gives them; no process of IMAS runs in the cluster. Nothing is written to a
/// cluster without --write.
#[derive(Debug, Parser)]
#[command(
    name = "imas-kube",
    bin_name = "imas kube",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    after_help = "Examples:\n  imas kube policy --with jemalloc,glibc:lean-trim --image REGISTRY/imas:1 | kubectl apply -f -"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the admission policy and its binding: which candidates pods may get, and how
    Policy(PolicyArgs),
    /// Print shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write the man page into a folder
    #[command(hide = true)]
    Manpages { folder: PathBuf },
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Candidates that pods may get, separated by commas: no other is ever given
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// The image with the libraries, as 'imas bundle --oci' makes it
    #[arg(long, value_name = "REFERENCE", value_parser = image_reference)]
    pub(crate) image: String,
    /// Folder in the containers where the libraries are to be
    #[arg(long, value_name = "DIR", default_value = "/opt/imas", value_parser = folder)]
    pub(crate) at: PathBuf,
    /// For nodes without image volumes: an init container of the image copies the libraries into an emptyDir
    #[arg(long)]
    pub(crate) init_container: bool,
}

impl Cli {
    /// Reads the options from the words of the command line.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let command = without_wrong_variables(with_negative_numbers(Self::command()));
        let matches = command.try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        cli.places.store_named = matches.value_source("store") == Some(ValueSource::CommandLine);
        Ok(cli)
    }
}

fn image_reference(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b':' | b'@');
    match !text.is_empty() && text.bytes().all(good) {
        true => Ok(text.to_owned()),
        false => Err("not an image's reference".to_owned()),
    }
}

/// A folder that a container can mount and `LD_PRELOAD` can name.
fn folder(text: &str) -> Result<PathBuf, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    let path = PathBuf::from(text);
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    match path.is_absolute() && text.len() > 1 && text.bytes().all(good) && is_plain {
        true => Ok(path),
        false => Err("a whole path of letters, digits, '-', '_' and '.'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_folder_that_cannot_be_preloaded_is_refused() {
        assert!(folder("/opt/imas").is_ok());
        for bad in ["opt", "/", "/a:b", "/a b", "/a/../b", "/$x"] {
            assert!(folder(bad).is_err(), "{bad}");
        }
    }
}
