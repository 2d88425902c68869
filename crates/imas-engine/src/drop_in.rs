// SPDX-License-Identifier: Apache-2.0
//! The files that imas writes for systemd: the drop-in of `imas apply`, the timer of `imas trim`. A mark and a check sum
//! identify it, so that only an unedited file of imas is ever removed.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_cli::message::{self, Hinted};

/// Name of the file in `UNIT.d`.
pub const NAME: &str = "50-imas.conf";
/// Beginning of a line that says what the unit itself sets.
pub const WAS: &str = "# was ";
const MARK: &str = "# Made by imas, check sum ";

/// File at a drop-in's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No file.
    Nothing,
    /// Text that we wrote, unchanged.
    Ours(String),
    /// A file of imas that was edited, or a file of another origin.
    Edited,
}

/// Path of the unit's drop-in below the root.
#[must_use]
pub fn path(root: &Path, unit: &str) -> PathBuf {
    root.join("etc/systemd/system").join(format!("{unit}.d")).join(NAME)
}

/// The file's whole text. `replaced` has the values that the unit sets itself and that no variable notes.
#[must_use]
pub fn text(
    unit: &str,
    candidate: &str,
    variables: &[(String, String)],
    replaced: &[(String, String)],
) -> String {
    let mut body =
        format!("# {candidate} for {unit}; to take it away: imas unapply {unit} --write\n[Service]\n");
    for (name, value) in replaced {
        body.push_str(WAS);
        body.push_str(&line(name, value));
    }
    for (name, value) in variables {
        body.push_str(&line(name, value));
    }
    marked(&body)
}

/// The text with the mark and the check sum in front, by which [`find`] knows it.
#[must_use]
pub fn marked(body: &str) -> String {
    format!("{MARK}{:016x}\n{body}", check_sum(body))
}

/// The candidate in a text of ours.
#[must_use]
pub fn candidate(text: &str) -> Option<&str> {
    let line = text.lines().nth(1)?.strip_prefix("# ")?;
    line.split_once(" for ").map(|(candidate, _)| candidate)
}

/// The preloaded libraries in a text of ours.
#[must_use]
pub fn preload(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("Environment=\"LD_PRELOAD=")?.strip_suffix('"'))
}

/// One `Environment=` line. Quoted as systemd.syntax(7) has it; `%` begins a specifier.
#[must_use]
pub fn line(name: &str, value: &str) -> String {
    let mut quoted = String::new();
    for sign in value.chars() {
        match sign {
            '"' | '\\' => quoted.extend(['\\', sign]),
            '%' => quoted.push_str("%%"),
            '\n' => quoted.push_str("\\n"),
            _ => quoted.push(sign),
        }
    }
    format!("Environment=\"{name}={quoted}\"\n")
}

/// Looks at the file.
///
/// # Errors
/// When the file cannot be read.
pub fn find(file: &Path) -> Result<Found> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Ok(Found::Edited),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    let body = text.strip_prefix(MARK).and_then(|rest| rest.split_once('\n'));
    match body {
        Some((sum, body)) if sum == format!("{:016x}", check_sum(body)) => Ok(Found::Ours(text)),
        _ => Ok(Found::Edited),
    }
}

/// Refuses a file that a link leads out of the root: the link of an image is meant for the image.
///
/// # Errors
/// For such a file.
pub fn check_below(root: &Path, file: &Path) -> Result<()> {
    let Ok(root) = std::fs::canonicalize(root) else { return Ok(()) }; // nothing is below it
    let folder = file.ancestors().skip(1).find_map(|folder| std::fs::canonicalize(folder).ok());
    match folder {
        Some(folder) if !folder.starts_with(&root) => Err(Hinted::error(
            format!("{}: a link leads out of {}, to {}", file.display(), root.display(), folder.display()),
            "make it a relative link, which leads to the same place in the image and outside",
        )),
        _ => Ok(()),
    }
}

/// Writes it in one step: a file beside it, then a rename. The manager reads such files at any time.
///
/// # Errors
/// When its folder or the file cannot be written.
pub fn write(file: &Path, text: &str) -> Result<()> {
    let shown = || file.display().to_string();
    let folder = file.parent().with_context(shown)?;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut new = tempfile::Builder::new().prefix(".imas-").tempfile_in(folder).with_context(shown)?;
    new.write_all(text.as_bytes()).with_context(shown)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    new.as_file().set_permissions(readable).with_context(shown)?;
    new.as_file().sync_all().with_context(shown)?;
    new.persist(file).with_context(shown)?;
    Ok(())
}

/// Removes it, and its folder when that is empty then.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(file: &Path) -> Result<()> {
    std::fs::remove_file(file).with_context(|| file.display().to_string())?;
    if let Some(folder) = file.parent() {
        let _ = std::fs::remove_dir(folder); // other drop-ins keep it there
    }
    Ok(())
}

/// The error, with the way out where that is root's right.
#[must_use]
pub fn advised(error: anyhow::Error) -> anyhow::Error {
    match message::is_denied(&error) {
        true => Hinted::error(format!("{error:#}"), "root may change services: the same with sudo"),
        false => error,
    }
}

/// FNV-1a, 64 bits: against editing, not against forgery.
fn check_sum(text: &str) -> u64 {
    imas_linux::fnv::fnv64(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_file_an_edited_one_and_none_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let file = path(folder.path(), "x.service");
        assert_eq!(find(&file).unwrap(), Found::Nothing);
        let ours = text("x.service", "hoard", &[("A".into(), "b".into())], &[]);
        write(&file, &ours).unwrap();
        assert_eq!(find(&file).unwrap(), Found::Ours(ours.clone()));
        assert_eq!(candidate(&ours), Some("hoard"));
        std::fs::write(&file, ours.replace("A=b", "A=c")).unwrap();
        assert_eq!(find(&file).unwrap(), Found::Edited);
        std::fs::write(&file, "[Service]\n").unwrap();
        assert_eq!(find(&file).unwrap(), Found::Edited);
        remove(&file).unwrap();
        assert!(!file.parent().unwrap().exists());
    }

    #[test]
    fn values_are_quoted_for_systemd() {
        assert_eq!(line("A", r#"a "b" \ 50% $HOME"#), "Environment=\"A=a \\\"b\\\" \\\\ 50%% $HOME\"\n");
    }
}
