// SPDX-License-Identifier: Apache-2.0
//! The folder that `imas bench` of a server was called from. The server and its lines run in a fresh one,
//! `$WORK`, so that each run begins alike and none touches the user's data.

use std::path::{Path, PathBuf};

/// The caller's folder, and the lines of the server whose words may name files of it.
pub(super) struct CallerFolder {
    path: PathBuf,
    lines: Vec<String>,
}

impl CallerFolder {
    /// None where there is none any more, as after `rmdir`.
    pub(super) fn now(lines: Vec<String>) -> Option<Self> {
        Some(Self { path: std::env::current_dir().ok()?, lines })
    }

    /// The words of the server's command with each file of this folder named in full, and which words changed.
    pub(super) fn in_full(&self, words: Vec<String>) -> (Vec<String>, Vec<String>) {
        let mut changed = vec![];
        let in_full = |(at, word): (usize, String)| match self.named_in_full(&word, at == 0) {
            Some(full) => {
                changed.push(word);
                full
            }
            None => word,
        };
        let words = words.into_iter().enumerate().map(in_full).collect();
        (words, changed)
    }

    /// The word with the path in full; None for one that names nothing here. The first word without a slash is
    /// looked up in PATH.
    fn named_in_full(&self, word: &str, is_first: bool) -> Option<String> {
        let (option, path) = match word.split_once('=') {
            Some((option, path)) if option.starts_with('-') => (Some(option), path),
            _ => (None, word),
        };
        let is_looked_up = is_first && !path.contains('/');
        let full = self.found(path).filter(|_| !is_looked_up)?.to_string_lossy().into_owned();
        Some(option.map_or_else(|| full.clone(), |option| format!("{option}={full}")))
    }

    /// The file that a relative path names here. A folder is named by a path with a slash, or by dots: any other word
    /// may be the name of a folder by chance.
    fn found(&self, path: &str) -> Option<PathBuf> {
        let is_relative = !path.is_empty() && !path.starts_with(['/', '-', '$', '~']);
        let full = self.path.join(path);
        let is_meant = full.is_file() || (path.contains('/') || path == "." || path == "..") && full.is_dir();
        (is_relative && is_meant).then_some(full)
    }

    /// Why a run failed, where that may be a path of this folder: a hint.
    pub(super) fn hint(&self, failure: &str) -> Option<String> {
        // A readiness test that never succeeds leaves no message of its own.
        let signs = ["No such file", "not found", "annot open", "can't open", "No module", "not ready after"];
        let is_missing = signs.iter().any(|sign| failure.contains(sign));
        let lost = self.lines.iter().flat_map(|line| shell_words::split(line).unwrap_or_default());
        let lost = lost.into_iter().find(|word| self.found(word).is_some());
        let advice = lost.map_or_else(
            || "name its files in full, as \"$PWD/FILE\"".to_owned(),
            |word| format!("\"$PWD/{word}\" names {word} in full"),
        );
        is_missing.then(|| self.says(&advice))
    }

    fn says(&self, advice: &str) -> String {
        let here = Path::display(&self.path);
        format!("hint: the server and its lines run in a fresh folder, $WORK, and not in {here}: {advice}")
    }
}

#[cfg(test)]
mod tests {

    #![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

    use super::*;

    fn folder() -> (tempfile::TempDir, CallerFolder) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("conf")).unwrap();
        for file in ["conf/a.conf", "server.py", "redis"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        let path = folder.path().to_owned();
        (folder, CallerFolder { path, lines: vec!["wrk -s server.py".to_owned()] })
    }

    fn full(caller: &CallerFolder, words: &[&str]) -> Vec<String> {
        let here = format!("{}/", caller.path.display());
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        caller.in_full(words).0.into_iter().map(|word| word.replace(&here, "HERE/")).collect()
    }

    #[test]
    fn words_that_name_files_here_are_in_full() {
        let (_folder, caller) = folder();
        assert_eq!(
            full(&caller, &["python3", "server.py", "--port", "$PORT"]),
            ["python3", "HERE/server.py", "--port", "$PORT"]
        );
        assert_eq!(
            full(&caller, &["redis", "conf/a.conf", "--at=conf/a.conf"]),
            ["redis", "HERE/conf/a.conf", "--at=HERE/conf/a.conf"]
        );
        assert_eq!(full(&caller, &["./redis", "conf", "./conf"]), ["HERE/./redis", "conf", "HERE/./conf"]);
        assert_eq!(
            full(&caller, &["sh", "-c", "", "/etc", "none.conf"]),
            ["sh", "-c", "", "/etc", "none.conf"]
        );
    }

    #[test]
    fn a_failure_by_a_lost_file_has_a_hint() {
        let (_folder, caller) = folder();
        assert_eq!(caller.hint("exit 1"), None);
        assert!(caller.hint("sh: server.py: not found").unwrap().contains("\"$PWD/server.py\""));
        let none = CallerFolder { path: caller.path.clone(), lines: vec!["wrk -n 5".to_owned()] };
        assert!(none.hint("x: No such file or directory").unwrap().contains("$PWD/FILE"));
    }
}
