// SPDX-License-Identifier: Apache-2.0
//! Which parts of the study can be made here, and what is missing for the others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_suite::packages;

use crate::study_args::{MobilePartName, StudyArgs};
use imas_cli::message::{self, Hinted};
use imas_engine::context::Context;

/// The programs of benchmarks and sizes, in `study/` of the library folder.
const PROGRAMS: [&str; 4] = ["mobile-minimal", "mobile-chunks", "mobile-threads", "mobile-timed"];

/// Parts of the study that can be made.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    pub(super) size: bool,
    pub(super) benchmarks: bool,
    /// Programs of the use case that are there; None when it is not wanted or none is.
    pub(super) use_case: Option<Apps>,
}

/// The programs of the use case, where they are.
#[derive(Debug, Clone, Default)]
pub(super) struct Apps {
    pub(super) browser: Option<PathBuf>,
    pub(super) fetch: Option<PathBuf>,
    pub(super) gallery: Option<PathBuf>,
    pub(super) video: Option<PathBuf>,
}

/// A program of the use case: its command, its Debian package, and what is left out without it.
const APPS: [(&str, &str, &str); 4] = [
    ("chromium", "chromium", "the three pages"),
    ("curl", "curl", "the pages and the five pictures"),
    ("gm", "graphicsmagick", "the gallery"),
    ("ffmpeg", "ffmpeg", "the video"),
];

/// Checks the parts that are wanted, and installs what is missing if that was asked for.
pub(super) fn available(args: &StudyArgs, context: &Context) -> Result<Parts> {
    let wanted = |part| args.mobile.parts.is_empty() || args.mobile.parts.contains(&part);
    let parts = Parts {
        size: wanted(MobilePartName::Size),
        benchmarks: wanted(MobilePartName::Benchmarks),
        use_case: None,
    };
    if parts.size || parts.benchmarks {
        programs(&context.lib_dir)?;
    }
    if !wanted(MobilePartName::UseCase) {
        return Ok(parts);
    }
    let apps = apps(args.run.install)?;
    if apps.is_none() && !parts.size && !parts.benchmarks {
        return Err(Hinted::error(
            "no program of the use case is installed",
            "add --install, or install chromium, curl, graphicsmagick and ffmpeg",
        ));
    }
    Ok(Parts { use_case: apps, ..parts })
}

fn programs(lib_dir: &Path) -> Result<()> {
    for name in PROGRAMS {
        let path = lib_dir.join("study").join(name);
        if !path.is_file() {
            return Err(Hinted::error(
                format!("{}: not there: the programs of the mobile study are not built", path.display()),
                "build them with 'make workloads', or leave them out: --parts use-case",
            ));
        }
    }
    Ok(())
}

fn apps(install: bool) -> Result<Option<Apps>> {
    let missing = || APPS.iter().filter(|(command, ..)| find(command).is_none());
    let packages: BTreeSet<String> = missing().map(|(_, package, _)| (*package).to_owned()).collect();
    if install && !packages.is_empty() {
        let command = packages::apt_command(&packages, nix::unistd::geteuid().is_root());
        message::say(&format!("imas: {command}"));
        let status = std::process::Command::new("/bin/sh")
            .args(["-c", &command])
            .stdout(std::io::stderr())
            .status()?;
        if !status.success() {
            message::warning("the packages could not be installed; what needs them is left out");
        }
    }
    for (command, package, part) in missing() {
        message::warning(&format!(
            "{part} are left out of the use case: {command} is not installed\nhint: apt install {package}, or add --install"
        ));
    }
    // Without curl nothing can be asked of the browser.
    let fetch = find("curl");
    let browser = find("chromium").filter(|_| fetch.is_some());
    let apps = Apps { browser, fetch, gallery: find("gm"), video: find("ffmpeg") };
    let any = [&apps.browser, &apps.fetch, &apps.gallery, &apps.video].into_iter().any(Option::is_some);
    Ok(any.then_some(apps))
}

/// The program of that name in PATH.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
