// SPDX-License-Identifier: Apache-2.0
//! Starts programs under a candidate, and finds which allocator serves them.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf::ElfImage;
use imas_linux::environment::{Injection, Mode, Reach, Variables};
use imas_linux::{process, sampler};

use imas_engine::context::Context;

/// The environment of a start: what the paper's machine had for every process, here for a program and its
/// children.
pub(super) fn variables(context: &Context, candidate: &CatalogueCandidate) -> Result<Variables> {
    let mut inherited = Variables::inherited();
    // Another allocator's settings or preload would be measured with it.
    inherited.retain(|name, _| name != "LD_PRELOAD" && name != "GLIBC_TUNABLES");
    let injection = Injection { candidate, mode: Mode::Production, reach: Reach::Children, page: None };
    Ok(injection.variables(&inherited, &context.libraries)?)
}

/// A command of the use case: silent, in a folder of its own.
pub(super) fn command(file: &Path, variables: &Variables, folder: &Path) -> Command {
    let mut command = Command::new(file);
    command
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter())
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Memory of a program's processes, and the allocator of the largest of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) resident_bytes: u64,
    pub(super) processes: u32,
    pub(super) served: String,
}

/// Looks at a process and all its descendants.
pub(super) fn seen(pid: u32, candidate: &CatalogueCandidate) -> Result<Seen> {
    let sizes: Vec<(u32, u64)> =
        sampler::tree(pid).into_iter().filter_map(|pid| Some((pid, sampler::resident_bytes(pid)?))).collect();
    let largest = sizes.iter().max_by_key(|(_, bytes)| *bytes).context("it has ended already")?;
    Ok(Seen {
        resident_bytes: sizes.iter().map(|(_, bytes)| bytes).sum(),
        processes: u32::try_from(sizes.len()).unwrap_or(u32::MAX),
        served: served(largest.0, candidate),
    })
}

/// A malloc of the executable's own wins over every preload; else the library must really be mapped.
fn served(pid: u32, candidate: &CatalogueCandidate) -> String {
    let (executable, mapped) = match process::mapped_files(pid) {
        Ok(found) => found,
        Err(why) => return format!("unknown: {why}"),
    };
    if ElfImage::read(&executable).is_ok_and(|file| file.defines_malloc) {
        return "its own malloc".to_owned();
    }
    match &candidate.library {
        None => "glibc".to_owned(),
        Some(library) => {
            let real = std::fs::canonicalize(library).unwrap_or_else(|_| library.clone());
            if mapped.contains(&real) {
                candidate.name.clone()
            } else {
                "glibc: the library is not loaded".to_owned()
            }
        }
    }
}
