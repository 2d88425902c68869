// SPDX-License-Identifier: Apache-2.0
//! Parts of the man pages that the definition of the command line lacks: files, variables, exit statuses, and
//! the settings of `imas.toml`.

use std::path::Path;

use anyhow::{Context as _, Result};

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
}
