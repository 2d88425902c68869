// SPDX-License-Identifier: Apache-2.0
//! Installation of what is missing, after asking.

use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal};

use anyhow::Result;
use imas_suite::{Place, Suite, SuiteProgram, packages};

use imas_cli::message;

/// Installs what these programs lack; what cannot be installed is reported, and its programs are left out
/// later.
pub(crate) fn missing(suite: &Suite, programs: &[&SuiteProgram], place: &Place, unasked: bool) -> Result<()> {
    // A program that is listed with a reason not to run it need not be there.
    let programs: Vec<&SuiteProgram> =
        programs.iter().copied().filter(|program| program.excluded.is_none()).collect();
    let wanted: BTreeSet<String> = programs.iter().flat_map(|program| suite.packages(program)).collect();
    let debian: BTreeSet<String> = wanted.difference(&packages::installed()).cloned().collect();
    let tools: BTreeSet<_> =
        programs.iter().flat_map(|program| packages::missing_tools(program, place)).collect();
    if debian.is_empty() && tools.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> =
        debian.iter().map(String::as_str).chain(tools.iter().map(|tool| tool.wanted.as_str())).collect();
    if !unasked && !agreed(&names)? {
        message::warning(&format!(
            "{} packages are missing; the programs that need them are left out\nhint: add --install to have them installed",
            names.len()
        ));
        return Ok(());
    }
    if !debian.is_empty() {
        message::say(&format!("imas: installing {} Debian packages", debian.len()));
        install_debian(&debian, place);
    }
    for tool in &tools {
        message::say(&format!("imas: installing {} ({})", tool.wanted, tool.registry));
        if let Err(error) = packages::install_tool(tool, place) {
            message::error(&super::hinted(error));
        }
    }
    Ok(())
}

/// Installs Debian packages, all at once. Where one of the names fails them all (this release does not have
/// it), each is installed for itself.
fn install_debian(debian: &BTreeSet<String>, place: &Place) {
    let is_root = nix::unistd::geteuid().is_root();
    let install = |names: &BTreeSet<String>| packages::install(&packages::apt_command(names, is_root), place);
    let Err(error) = install(debian) else { return };
    let message = error.to_string();
    message::error(&super::hinted(error));
    let is_a_name = ["Unable to locate package", "has no installation candidate"];
    if debian.len() < 2 || !is_a_name.iter().any(|words| message.contains(words)) {
        return;
    }
    message::say("imas: installing them one by one");
    for name in debian {
        if let Err(error) = install(&BTreeSet::from([name.clone()])) {
            message::error(&super::hinted(error));
        }
    }
}

/// Asks whether to install packages. It asks on a terminal only; elsewhere the answer is no.
fn agreed(names: &[&str]) -> Result<bool> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Ok(false);
    }
    message::say(&format!(
        "imas: these packages are missing: {}\nSome bring services that your system may start. Install them? [y/N]",
        names.join(" ")
    ));
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}
