// SPDX-License-Identifier: Apache-2.0
//! What help, man pages and shells have beyond the definition of the command line: files, variables, exit statuses and the
//! settings of `imas.toml` in man pages; an example or two for each verb, at the end of its help and of its man page; and
//! proposals for a shell to complete, names of candidates and of programs that are known (any trouble means no proposals).

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::engine::CompletionCandidate;
use imas_engine::context::Context;
use imas_engine::flags::{self, Places};
use imas_linux::interpreter_target::name_of_detail;
use imas_store::Store;
use imas_store::samples::StoredProgram;

/// The sample of the settings, which names each with its default; a test of the configuration reads it.
const SETTINGS: &str = include_str!("../../../../packaging/etc/imas.toml");

const FILES: &[(&str, &str)] = &[
    ("~/.local/share/imas/imas.db", "what was learned of your programs (the store)"),
    (
        "$XDG_RUNTIME_DIR/imas, else /dev/shm/imas-UID",
        "pages of running programs and settled decisions, in memory",
    ),
    ("/etc/imas/imas.toml, ~/.config/imas/imas.toml", "settings, see imas.toml(5); the user's win"),
    ("/etc/imas/catalogue.d/*.toml, ~/.config/imas/catalogue.d/*.toml", "allocators of your own"),
    ("/var/lib/imas, /run/imas", "the daemon's store; its decisions and pages"),
    ("/etc/systemd/system/UNIT.d/50-imas.conf", "what 'imas apply' wrote"),
    (
        "/var/lib/imas-watch, /etc/systemd/system/imas-watch-UNIT",
        "figures and watchers of 'imas apply --watch'",
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("IMAS_DISABLE", "1: programs start untouched"),
    ("IMAS_STORE", "the store's file, as --store"),
    ("IMAS_LIB_DIR", "the folder of the libraries, as --lib-dir"),
    (
        "IMAS_RETEST",
        "seconds between two tests of one candidate, as --retest; a wrong value is ignored with a warning",
    ),
    ("IMAS_POLICY", "adaptive or paper, as --policy; a wrong value is ignored with a warning"),
    (
        "XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_RUNTIME_DIR",
        "where store, settings and pages are; files that another user could change are not used (sudo -E)",
    ),
    ("NO_COLOR", "no colours"),
];

const EXIT_STATUS: &[(&str, &str)] = &[
    (
        "imas run",
        "the program's own; 125: imas failed; 126: the program cannot be executed; 127: it was not found",
    ),
    ("0", "of every other command: done"),
    ("1", "done, and the answer is no"),
    ("2", "could not be done"),
];

/// Adds the sections to the page of `imas` in the folder, and writes the page of the settings.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let page = folder.join("imas.1");
    let mut text = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    for (title, entries) in [("FILES", FILES), ("ENVIRONMENT", ENVIRONMENT), ("EXIT STATUS", EXIT_STATUS)] {
        text.push_str(&section(title, entries));
    }
    text.push_str(".SH \"SEE ALSO\"\nimas.toml(5)\n");
    std::fs::write(&page, text).with_context(|| page.display().to_string())?;
    let settings = folder.join("imas.toml.5");
    std::fs::write(&settings, settings_page()).with_context(|| settings.display().to_string())
}

fn section(title: &str, entries: &[(&str, &str)]) -> String {
    let entry = |(name, what): &(&str, &str)| format!(".TP\n\\fB{}\\fR\n{}\n", escaped(name), escaped(what));
    format!(".SH \"{title}\"\n{}", entries.iter().map(entry).collect::<String>())
}

/// The sample's comments as text and its keys as they are written.
fn settings_page() -> String {
    let mut text = format!(
        ".TH imas.toml 5 \"\" \"imas {}\"\n.SH NAME\nimas.toml \\- settings of imas\n.SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut is_key = false;
    for line in SETTINGS.lines() {
        let words = line.strip_prefix("# ");
        let starts_keys = words.is_none() && !line.is_empty();
        if starts_keys != is_key {
            text.push_str(if starts_keys { ".RS\n.nf\n" } else { ".fi\n.RE\n" });
            is_key = starts_keys;
        }
        match words {
            Some(words) => text.push_str(&format!("{}\n", escaped(words))),
            None if line.is_empty() => text.push_str(".PP\n"),
            None => text.push_str(&format!("{}\n", escaped(line.trim_start_matches('#')))),
        }
    }
    if is_key {
        text.push_str(".fi\n.RE\n");
    }
    text + ".SH FILES\n/etc/imas/imas.toml, ~/.config/imas/imas.toml\n.SH \"SEE ALSO\"\nimas(1)\n"
}

/// Plain text for roff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// An example in each line: its verb, a command, and what that does, with tabs between them.
const EXAMPLES: &str = include_str!("examples.txt");

/// The command line with examples at the end of each verb's help.
pub(crate) fn add(command: Command) -> Command {
    let lines: Vec<(&str, &str)> = EXAMPLES.lines().filter_map(|line| line.split_once('\t')).collect();
    lines.chunk_by(|one, next| one.0 == next.0).fold(command, |command, lines| {
        let examples: Vec<_> = lines.iter().filter_map(|(_, example)| example.split_once('\t')).collect();
        command.mut_subcommand(lines[0].0, |verb| {
            let long = verb.get_after_long_help().map(|text| format!("\n\n{text}")).unwrap_or_default();
            let text = text(&examples);
            below(verb, &examples).after_long_help(format!("{text}{long}")).after_help(text)
        })
    })
}

/// The verb whose own verbs (`exclude add`) have the examples that are theirs.
fn below(verb: Command, examples: &[(&str, &str)]) -> Command {
    let name = verb.get_name().to_owned();
    let below: Vec<String> = verb.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    below.into_iter().fold(verb, |verb, one| {
        let whole = format!("imas {name} {one}");
        let own: Vec<_> = examples.iter().filter(|(command, _)| command.contains(&whole)).copied().collect();
        if own.is_empty() { verb } else { verb.mut_subcommand(one, |one| one.after_help(text(&own))) }
    })
}

fn text(examples: &[(&str, &str)]) -> String {
    let lines = examples.iter().map(|(command, what)| format!("  {command}\n      {what}"));
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

fn context() -> Option<Context> {
    let named = |name: &str| flags::variable(name).map(Into::into);
    let places = Places {
        lib_dir: named("IMAS_LIB_DIR"),
        system: false,
        store: named("IMAS_STORE"),
        store_named: false,
        retest: None,
    };
    Context::new(&places).ok()
}

/// The candidates of the catalogue, each with what it is good at.
pub(crate) fn candidates(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(context) = context() else { return vec![] };
    let begins = |name: &str| begun.to_str().is_some_and(|begun| name.starts_with(begun));
    let of = context.catalogue.all().filter(|candidate| begins(&candidate.name));
    of.map(|candidate| CompletionCandidate::new(&candidate.name).help(Some(candidate.summary.clone().into())))
        .collect()
}

/// The programs of the store, by name.
pub(crate) fn programs(begun: &OsStr) -> Vec<CompletionCandidate> {
    let store = context().and_then(|context| Store::open_read_only(&context.store_path).ok());
    let known = store.and_then(|store| store.programs().ok()).unwrap_or_default();
    let mut names: Vec<_> = known.iter().flat_map(program_names).collect();
    names.sort();
    names.dedup();
    names.retain(|name| begun.to_str().is_some_and(|begun| name.starts_with(begun)));
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The file name of its executable, or of its script; the name by which it is started, where that
/// counts.
pub(crate) fn program_names(program: &StoredProgram) -> Vec<String> {
    if let Some(name) = name_of_detail(&program.detail) {
        return vec![name.to_owned()];
    }
    let script = Some(program.detail.as_str()).filter(|detail| detail.starts_with('/'));
    let paths = [Some(program.path.as_str()), script].into_iter().flatten();
    paths.filter_map(|path| Some(Path::new(path).file_name()?.to_string_lossy().into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_on_its_page() {
        let page = settings_page();
        for key in [
            "policy",
            "retest_s",
            "max_tests",
            "candidates",
            "objective",
            "max_memory_mib",
            "max_cpu",
            "max_memory",
            "cpu_margin",
            "memory_margin",
        ] {
            assert!(page.contains(&format!("\n{key} = ")), "{key}: {page}");
        }
    }

    #[test]
    fn every_line_has_three_parts() {
        assert!(EXAMPLES.lines().all(|line| line.split('\t').count() == 3));
    }
}
