// SPDX-License-Identifier: Apache-2.0
//! The files that imas writes for systemd: the drop-in of `imas apply`, the timer of `imas trim`. A mark and a check sum
//! identify it, so that only an unedited file of imas is ever removed.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use anyhow::Result;
use imas_cli::message::{self, Hinted};
use imas_linux::huge_pages::HugePages;
use similar::ChangeTag;
use similar::algorithms::{Capture, Replace, lcs};
use similar::udiff::UnifiedHunkHeader;

/// Name of the file in `UNIT.d`.
pub const NAME: &str = "50-imas.conf";
/// First systemd that has `MemoryTHP=`.
pub const LEAST_SYSTEMD: u32 = 260;
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

/// The file's whole text. `replaced` has the values that the unit sets itself and that no variable notes. Huge pages need
/// [`LEAST_SYSTEMD`].
#[must_use]
pub fn text(
    unit: &str,
    candidate: &str,
    variables: &[(String, String)],
    replaced: &[(String, String)],
    huge_pages: Option<HugePages>,
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
    if let Some(huge_pages) = huge_pages {
        let _ = writeln!(body, "MemoryTHP={}", huge_pages.of_systemd()); // a string takes everything
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
    imas_linux::c_bytes::fnv64(text.as_bytes())
}

// How a file changes.

/// Unchanged lines around a change.
const DIFFERENCE_CONTEXT: usize = 3;

/// The difference of two texts as `diff -u` prints it, with this name; an empty text is `/dev/null`.
///
/// `similar::TextDiff` does the same, but has all algorithms compiled for all its wrappers: 0.6 MB in `imas`.
#[must_use]
pub fn unified(name: &str, old: &str, new: &str) -> String {
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<&str>>();
    let (old, new) = (lines(old), lines(new));
    let shown = |lines: &[&str]| if lines.is_empty() { "/dev/null".to_owned() } else { name.to_owned() };
    let mut text = format!("--- {}\n+++ {}\n", shown(&old), shown(&new));
    let mut capture = Replace::new(Capture::new());
    // The capture accepts all that it is given.
    let _ = lcs::diff_deadline_raw(&mut capture, &old[..], 0..old.len(), &new[..], 0..new.len(), None);
    for hunk in similar::group_diff_ops(capture.into_inner().into_ops(), DIFFERENCE_CONTEXT) {
        let _ = writeln!(text, "{}", UnifiedHunkHeader::new(&hunk)); // a string takes all
        for change in hunk.iter().flat_map(|op| op.iter_changes(&old[..], &new[..])) {
            text.push(match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            });
            text.push_str(change.value());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_file_an_edited_one_and_none_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let file = path(folder.path(), "x.service");
        assert_eq!(find(&file).unwrap(), Found::Nothing);
        let ours = text("x.service", "hoard", &[("A".into(), "b".into())], &[], Some(HugePages::Off));
        assert!(ours.ends_with("\nEnvironment=\"A=b\"\nMemoryTHP=disable\n"), "{ours}");
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

    #[test]
    fn what_is_new_has_no_old_file() {
        assert_eq!(unified("a", "", "x\n"), "--- /dev/null\n+++ a\n@@ -0,0 +1 @@\n+x\n");
        assert_eq!(unified("a", "x\n", ""), "--- a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
        assert_eq!(unified("a", "x\n", "y\n"), "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n");
    }

    #[test]
    fn three_lines_around_a_change_are_shown() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = old.replace("5\n", "five\nfive and a half\n");
        let wanted = "--- a\n+++ a\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+five and a half\n 6\n 7\n 8\n";
        assert_eq!(unified("a", old, &new), wanted);
    }
}
