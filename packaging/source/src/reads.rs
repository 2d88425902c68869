// SPDX-License-Identifier: Apache-2.0
//! Calls that read files, list folders, start programs or wait for locks, in the crates that look at what others own.
//! docs/trust.md says of each whose data it reads and what bounds it; a call that is not there is found.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use syn::visit::Visit;
use syn::{ExprMethodCall, Item};

use crate::file::SourceFile;
use crate::tests_of;

/// The daemon, the server, the pages, the fleet, and what these are made of.
const CRATES: [&str; 11] = [
    "imas-engine",
    "imas-exchange",
    "imas-fleet",
    "imas-fleet-agent",
    "imas-kube",
    "imas-linux",
    "imas-serve",
    "imas-store",
    "imas-top",
    "imas-view",
    "imasd",
];
/// Folders and modules of `imas` that look at everybody's processes.
const VERBS: [&str; 2] = ["apply/unit", "look/"];

/// Calls of `std::fs`.
const OF_FS: [&str; 4] = ["read", "read_dir", "read_to_string", "remove_dir_all"];
/// Methods.
const METHODS: [&str; 5] = ["lock_shared", "read_to_end", "read_to_string", "try_lock", "try_lock_shared"];

/// Calls of each file, as the table has them: `read_dir 1, Command 2`.
pub(crate) fn calls(files: &[SourceFile]) -> BTreeMap<String, String> {
    let is_looked_at = |path: &str| {
        CRATES.iter().any(|one| path.starts_with(&format!("{one}/")))
            || VERBS.iter().any(|verb| path.starts_with(&format!("imas/src/{verb}")))
    };
    let files = files.iter().filter(|file| is_looked_at(&file.path.to_string_lossy()));
    let found = files.map(|file| {
        let mut calls = Calls::default();
        calls.visit_file(&file.syntax);
        let counts: Vec<_> = calls.0.iter().map(|(call, count)| format!("{call} {count}")).collect();
        (file.path.to_string_lossy().into_owned(), counts.join(", "))
    });
    found.filter(|(_, calls)| !calls.is_empty()).collect()
}

/// Calls of each file in the rows of a page: `| file | calls | ...`. A row with an empty cell is an error.
pub(crate) fn table(page: &str) -> Result<BTreeMap<String, String>> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let row = |row: &str| {
        let cells: Vec<_> = row.split(" | ").map(str::trim).collect();
        let is_whole = cells.len() == 5 && cells.iter().all(|cell| !cell.is_empty());
        let file = cells[0].trim_end_matches('`').to_owned();
        is_whole.then(|| (file, cells[1].to_owned())).with_context(|| format!("not five cells: {row}"))
    };
    rows.filter(|row| row.split('`').next().is_some_and(|file| file.ends_with(".rs"))).map(row).collect()
}

/// A line for each difference between the code and the table.
pub(crate) fn unlisted(calls: &BTreeMap<String, String>, table: &BTreeMap<String, String>) -> Vec<String> {
    let missing = calls.iter().filter(|(file, calls)| table.get(*file) != Some(calls));
    let says = |file: &String| table.get(file).map_or("no row", String::as_str);
    let missing = missing.map(|(file, calls)| {
        format!("{file} has {calls}; docs/trust.md has {}: whose data, and what bounds it?", says(file))
    });
    let gone = table.keys().filter(|file| !calls.contains_key(*file));
    missing
        .chain(gone.map(|file| format!("docs/trust.md has a row for {file}, which reads nothing")))
        .collect()
}

#[derive(Default)]
struct Calls(BTreeMap<String, usize>);

impl Calls {
    fn note(&mut self, call: &str) {
        *self.0.entry(call.to_owned()).or_default() += 1;
    }
}

impl<'ast> Visit<'ast> for Calls {
    fn visit_item(&mut self, item: &'ast Item) {
        if !tests_of::is_test(tests_of::attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    /// Names alone too: `.and_then(fs::read)`.
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let segments: Vec<_> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        match segments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [.., "fs", call] if OF_FS.contains(&call) => self.note(call),
            [.., "Command", "new"] => self.note("Command"),
            [.., "flock"] => self.note("flock"),
            [.., "Dir", "read_from"] => self.note("read_dir"),
            _ => {}
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        if METHODS.contains(&name.as_str()) {
            self.note(&name);
        }
        syn::visit::visit_expr_method_call(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls_of(text: &str) -> String {
        let file = SourceFile::parse("imasd/src/x.rs".into(), text).unwrap();
        calls(&[file]).remove("imasd/src/x.rs").unwrap_or_default()
    }

    #[test]
    fn calls_are_counted_outside_of_tests() {
        let text =
            "fn f() { std::fs::read(a); fs::read_dir(b); c.and_then(std::fs::read); Command::new(d); }";
        assert_eq!(calls_of(text), "Command 1, read 2, read_dir 1");
        assert_eq!(
            calls_of("fn f() { file.take(9).read_to_end(&mut a); lock.try_lock(); }"),
            "read_to_end 1, try_lock 1"
        );
        assert_eq!(
            calls_of(
                "#[cfg(test)] mod tests { fn f() { std::fs::read(a); } } fn g() { fs::write(a); read(b); }"
            ),
            ""
        );
        let elsewhere = SourceFile::parse("imas/src/bench.rs".into(), "fn f() { fs::read(a); }").unwrap();
        assert!(calls(&[elsewhere]).is_empty());
    }

    #[test]
    fn what_the_table_has_not_is_found() {
        let of =
            |rows: &[(&str, &str)]| rows.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let page = "text\n| file | calls | whose | bound | where |\n| `a/src/x.rs` | read 1 | root's | 1 MiB | loop |\n";
        let listed = table(page).unwrap();
        assert_eq!(listed, of(&[("a/src/x.rs", "read 1")]));
        assert!(unlisted(&of(&[("a/src/x.rs", "read 1")]), &listed).is_empty());
        assert_eq!(unlisted(&of(&[("a/src/x.rs", "read 2")]), &listed).len(), 1);
        assert_eq!(unlisted(&of(&[("a/src/x.rs", "read 1"), ("a/src/y.rs", "flock 1")]), &listed).len(), 1);
        assert_eq!(unlisted(&BTreeMap::new(), &listed).len(), 1);
        assert!(table("| `a/src/x.rs` | read 1 | root's |  | loop |\n").is_err());
    }
}
