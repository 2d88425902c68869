// SPDX-License-Identifier: Apache-2.0
//! Rust files below a folder of crates.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::tests_of;

/// A file with its syntax tree.
pub(crate) struct SourceFile {
    /// Path of the file, from the folder.
    pub(crate) path: PathBuf,
    pub(crate) syntax: syn::File,
}

impl SourceFile {
    pub(crate) fn parse(path: PathBuf, text: &str) -> Result<Self> {
        let syntax = syn::parse_file(text).with_context(|| path.display().to_string())?;
        Ok(Self { path, syntax })
    }

    /// File and line, for a message.
    pub(crate) fn place(&self, span: proc_macro2::Span) -> String {
        format!("{}:{}", self.path.display(), span.start().line)
    }
}

/// Every Rust file, in the order of their paths.
pub(crate) fn all(folder: &Path) -> Result<Vec<SourceFile>> {
    let mut paths = vec![];
    collect(folder, &mut paths)?;
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        SourceFile::parse(path.strip_prefix(folder).unwrap_or(&path).to_owned(), &text)
    };
    paths.into_iter().map(read).collect()
}

/// Source files below the `src` folder of a crate, without modules that only tests have.
pub(crate) fn production(folder: &Path) -> Result<Vec<SourceFile>> {
    let mut files = all(folder)?;
    files.retain(|file| file.path.components().nth(1).is_some_and(|part| part.as_os_str() == "src"));
    let tests: Vec<PathBuf> = files.iter().flat_map(tests_of::modules).collect();
    files.retain(|file| !tests.iter().any(|test| file.path.with_extension("").starts_with(test)));
    Ok(files)
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn production_is_what_lies_in_src_without_modules_of_tests() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("a/src/lib.rs", "mod one; #[cfg(test)] mod made;"),
            ("a/src/made.rs", ""),
            ("a/src/made/inner.rs", ""),
            ("a/src/one.rs", "#[cfg(test)] mod made;"),
            ("a/src/one/made.rs", ""),
            ("a/src/one/made_by_hand.rs", ""),
            ("a/tests/t.rs", ""),
            ("a/build.rs", ""),
        ];
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let paths: Vec<_> = production(folder.path()).unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(paths, ["a/src/lib.rs", "a/src/one/made_by_hand.rs", "a/src/one.rs"].map(PathBuf::from));
        assert_eq!(all(folder.path()).unwrap().len(), files.len());
    }
}
