// SPDX-License-Identifier: Apache-2.0
//! Debian packages and tools of language registries: which are installed, which are missing, and how to
//! install them.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::definition::SuiteProgram;
use crate::error::{SuiteError, SuiteResult};
use crate::place::{Place, Tool};
use crate::shell::Shell;

/// The installed Debian packages of this machine; empty without dpkg.
#[must_use]
pub fn installed() -> BTreeSet<String> {
    let output = Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status} ${Package}\n"]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let lines = String::from_utf8_lossy(&text).into_owned();
    lines.lines().filter_map(|line| line.strip_prefix("installed ")).map(str::to_owned).collect()
}

/// The registry tools that a program needs and that are not in the suite's folder yet.
#[must_use]
pub fn missing_tools(program: &SuiteProgram, place: &Place) -> Vec<Tool> {
    let lists = [("pip", &program.pip), ("npm", &program.npm), ("cargo", &program.cargo)];
    let all = lists
        .iter()
        .flat_map(|(registry, wanted)| wanted.iter().map(|wanted| Tool { registry, wanted: wanted.clone() }));
    all.filter(|tool| !place.tool_mark(tool).exists()).collect()
}

const LONGEST_INSTALL: Duration = Duration::from_secs(3600);

/// The command that installs these Debian packages. Where possible it keeps the services among them from
/// starting.
#[must_use]
pub fn apt_command(packages: &BTreeSet<String>, is_root: bool) -> String {
    let list: Vec<&str> = packages.iter().map(String::as_str).collect();
    // RUNLEVEL=1 keeps invoke-rc.d from starting a server that is installed only for its program.
    let apt = format!(
        "env LC_ALL=C RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=600 {}",
        list.join(" ")
    );
    if is_root { apt } else { format!("sudo {apt}") }
}

/// Runs a command of [`apt_command`].
///
/// # Errors
/// When it fails, with the last lines of its output.
pub fn install(command: &str, place: &Place) -> SuiteResult<()> {
    let variables = std::env::vars_os().collect();
    run(command, &Shell { folder: place.root(), variables: &variables })
}

/// Installs a program of a language registry into the suite's folder.
///
/// # Errors
/// When its client fails, with the last lines of its output.
pub fn install_tool(tool: &Tool, place: &Place) -> SuiteResult<()> {
    let folder = place.tools();
    std::fs::create_dir_all(&folder).map_err(SuiteError::file(&folder))?;
    let wanted = &tool.wanted;
    let command = match tool.registry {
        "pip" => format!(
            "[ -x pip/bin/pip ] || /usr/bin/python3 -m venv --system-site-packages pip; pip/bin/pip install -q '{wanted}'"
        ),
        // Packages that work beside another one are named in the suite, in a version that is known to work.
        "npm" => {
            format!("npm install --silent --no-audit --no-fund --legacy-peer-deps --prefix npm '{wanted}'")
        }
        _ => format!("cargo install --quiet --locked --root cargo '{wanted}'"),
    };
    let variables = std::env::vars_os().collect();
    run(&command, &Shell { folder: &folder, variables: &variables })?;
    let mark = place.tool_mark(tool);
    std::fs::write(&mark, "").map_err(SuiteError::file(&mark))
}

fn run(command: &str, shell: &Shell<'_>) -> SuiteResult<()> {
    let output = shell.run(command, LONGEST_INSTALL).map_err(SuiteError::file(shell.folder))?;
    if output.ok {
        return Ok(());
    }
    let lines: Vec<&str> = output.text.lines().rev().take(5).collect();
    let message = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
    Err(SuiteError::Install { command: command.chars().take(200).collect(), message })
}
