// SPDX-License-Identifier: Apache-2.0
//! The services that are measured, and the Debian packages that they need.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueHint};
use imas_cli::message::{self, Hinted};
use imas_cli::{output, table};
use imas_engine::context::Context;
use imas_runs::service::Service;
use imas_suite::packages;

#[derive(Debug, Args)]
pub(super) struct RecipeArgs {
    /// Folder with the services' files [default: those of the installation]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    recipes: Option<PathBuf>,
    /// Names of services [default: all]
    #[arg(value_name = "SERVICE")]
    names: Vec<String>,
}

/// The services of the folder that were named; all when none was.
pub(super) fn recipes(args: &RecipeArgs, context: &Context) -> Result<Vec<Service>> {
    let folder = args.recipes.clone().unwrap_or_else(|| context.lib_dir.join("workloads/services"));
    let entries = std::fs::read_dir(&folder).map_err(|error| {
        Hinted::error(
            format!("{}: {error}", folder.display()),
            "name the folder with --recipes DIR; the source tree has lab/workloads/services",
        )
    })?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut services = files.iter().map(|file| Service::read(file)).collect::<Result<Vec<_>, _>>()?;
    if let Some(unknown) =
        args.names.iter().find(|name| !services.iter().any(|service| service.name == **name))
    {
        return Err(Hinted::error(
            format!("{unknown} is no service of {}", folder.display()),
            "'imas-lab services list' shows them",
        ));
    }
    services.retain(|service| args.names.is_empty() || args.names.contains(&service.name));
    Ok(services)
}

/// Packages that are not installed.
fn missing(service: &Service, installed: &BTreeSet<String>) -> Vec<String> {
    service.packages.iter().filter(|name| !installed.contains(*name)).cloned().collect()
}

/// Prints the services, and whether their packages are installed.
pub(super) fn list(args: &RecipeArgs, context: &Context) -> Result<ExitCode> {
    let installed = packages::installed();
    let rows = recipes(args, context)?.into_iter().map(|service| {
        let missing = missing(&service, &installed);
        let state = if missing.is_empty() {
            "installed".to_owned()
        } else {
            format!("missing: {}", missing.join(" "))
        };
        vec![service.name, service.threads.to_string(), service.about, state]
    });
    output::text(&table::plain(&["service", "threads", "what", "packages"], rows))?;
    Ok(ExitCode::SUCCESS)
}

/// Services that lack a package are named and left out.
pub(super) fn retain_installed(services: &mut Vec<Service>) {
    let installed = packages::installed();
    services.retain(|service| {
        let missing = missing(service, &installed);
        if !missing.is_empty() {
            message::say(&format!("imas: {}: not run: apt-get install {}", service.name, missing.join(" ")));
        }
        missing.is_empty()
    });
}

/// Installs the services' packages, without starting the servers among them.
pub(super) fn install(services: &[Service]) -> Result<()> {
    let wanted: BTreeSet<String> = services.iter().flat_map(|service| service.packages.clone()).collect();
    let lacking: BTreeSet<String> = wanted.difference(&packages::installed()).cloned().collect();
    if lacking.is_empty() {
        return Ok(());
    }
    message::say(&format!("imas: installing {} Debian packages", lacking.len()));
    let command = packages::apt_command(&lacking, nix::unistd::geteuid().is_root());
    let status = std::process::Command::new("sh").args(["-c", &command]).status()?;
    if !status.success() {
        message::warning("not all packages could be installed; services that lack one are not run");
    }
    Ok(())
}
