// SPDX-License-Identifier: Apache-2.0
//! Calls that read files, list folders, start programs or wait for locks, in the crates that look at what others own; and
//! calls that look a path up, which may lead to a file system that never answers. docs/trust.md has a table for each kind:
//! whose data a call reads and what bounds it, whose name it looks up and where. A call that is not there is found.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use syn::visit::Visit;
use syn::{ExprMethodCall, Item};

use crate::file::SourceFile;
use crate::tests_of;

/// The daemon, the server, the pages, the fleet, and what these are made of.
const CRATES: [&str; 10] = [
    "imas-engine",
    "imas-exchange",
    "imas-fleet",
    "imas-fleet-agent",
    "imas-kube",
    "imas-linux",
    "imas-serve",
    "imas-store",
    "imas-top",
    "imasd",
];
/// Folders and modules of `imas` that look at everybody's processes.
const VERBS: [&str; 5] = ["apply/reached", "apply/of_runtime", "apply/trim", "apply/unit", "look/"];
/// Folders of `imas` where paths are looked up that others may have named.
const NAMING_VERBS: [&str; 3] = ["apply/", "look/", "stored"];

/// A kind of call, with its table in docs/trust.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads what others own.
    Read,
    /// Looks a path up.
    Name,
}

impl Kind {
    /// Heading of the table of names; the other table is before it.
    const NAMES: &str = "\n## Names\n";

    /// Functions of `std::fs`.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Self::Read => &["read", "read_dir", "read_to_string", "remove_dir_all"],
            Self::Name => &["canonicalize", "exists", "metadata", "open", "read_link", "symlink_metadata"],
        }
    }

    /// Functions of types, with the name that the table has for each.
    fn of_types(self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            Self::Read => &[("Command", "new", "Command"), ("Dir", "read_from", "read_dir")],
            Self::Name => &[
                ("ElfImage", "read", "open"),
                ("File", "open", "open"),
                ("OpenOptions", "new", "open"),
                ("ProgramFile", "open", "open"),
                ("ProgramFile", "open_executable", "open"),
                ("StampedPath", "now", "metadata"),
            ],
        }
    }

    fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Read => &["lock_shared", "read_to_end", "read_to_string", "try_lock", "try_lock_shared"],
            Self::Name => &[
                "canonicalize",
                "exists",
                "is_dir",
                "is_file",
                "is_symlink",
                "metadata",
                "read_link",
                "symlink_metadata",
                "try_exists",
            ],
        }
    }

    fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Read => &VERBS,
            Self::Name => &NAMING_VERBS,
        }
    }

    /// The part of the page that has the table, and the number of its cells.
    fn part(self, page: &str) -> (&str, usize) {
        let (reads, names) = page.split_once(Self::NAMES).unwrap_or((page, ""));
        match self {
            Self::Read => (reads, 5),
            Self::Name => (names, 4),
        }
    }
}

/// Calls of each file, as the table has them: `read_dir 1, Command 2`.
pub(crate) fn calls(kind: Kind, files: &[SourceFile]) -> BTreeMap<String, String> {
    let is_looked_at = |path: &str| {
        CRATES.iter().any(|one| path.starts_with(&format!("{one}/")))
            || kind.verbs().iter().any(|verb| path.starts_with(&format!("imas/src/{verb}")))
    };
    let files = files.iter().filter(|file| is_looked_at(&file.path.to_string_lossy()));
    let found = files.map(|file| {
        let mut calls = Calls { kind, counts: BTreeMap::new() };
        calls.visit_file(&file.syntax);
        let counts: Vec<_> = calls.counts.iter().map(|(call, count)| format!("{call} {count}")).collect();
        (file.path.to_string_lossy().into_owned(), counts.join(", "))
    });
    found.filter(|(_, calls)| !calls.is_empty()).collect()
}

/// Calls of each file in the rows of a page: `| file | calls | ...`. A row with an empty cell is an error.
pub(crate) fn table(kind: Kind, page: &str) -> Result<BTreeMap<String, String>> {
    let rows = rows(kind, page)?;
    Ok(rows
        .into_iter()
        .map(|cells| (cells[0].trim_end_matches('`').to_owned(), cells[1].to_owned()))
        .collect())
}

fn rows(kind: Kind, page: &str) -> Result<Vec<Vec<&str>>> {
    let (part, cells_of_row) = kind.part(page);
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let row = |row: &'_ str| {
        let cells: Vec<_> = row.split(" | ").map(str::trim).collect();
        let is_whole = cells.len() == cells_of_row && cells.iter().all(|cell| !cell.is_empty());
        is_whole.then_some(()).with_context(|| format!("not {cells_of_row} cells: {row}"))
    };
    let rows: Vec<&str> =
        rows.filter(|row| row.split('`').next().is_some_and(|file| file.ends_with(".rs"))).collect();
    rows.iter().try_for_each(|one| row(one))?;
    Ok(rows.into_iter().map(|row| row.split(" | ").map(str::trim).collect()).collect())
}

/// Files that look up what a foreign process has named, by where they do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ForeignNames {
    /// In the bounded helper.
    in_helper: usize,
    /// In a thread of imasd that may be given up.
    in_threads: usize,
    /// Anywhere else.
    outside: Vec<String>,
}

impl ForeignNames {
    /// Counts the rows of the page whose names are foreign.
    pub(crate) fn of(page: &str) -> Result<Self> {
        let mut found = Self::default();
        for row in rows(Kind::Name, page)? {
            let [file, _, whose, place] = row[..] else { continue };
            match () {
                () if !whose.contains("**foreign**") => {}
                () if place.starts_with("helper") => found.in_helper += 1,
                () if place.starts_with("imasd's thread") => found.in_threads += 1,
                () => found.outside.push(file.trim_end_matches('`').to_owned()),
            }
        }
        Ok(found)
    }

    /// A line for each file that looks a foreign name up where nothing bounds it.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        self.outside.iter().map(|file| format!("{file} looks up foreign names outside of the helper"))
    }
}

impl std::fmt::Display for ForeignNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { in_helper, in_threads, outside } = self;
        write!(
            f,
            "readers of foreign names: {in_helper} files in the helper, {in_threads} in threads of imasd that may be given \
             up; outside of them: {}",
            outside.len()
        )
    }
}

/// A line for each difference between the code and the table.
pub(crate) fn unlisted(calls: &BTreeMap<String, String>, table: &BTreeMap<String, String>) -> Vec<String> {
    let missing = calls.iter().filter(|(file, calls)| table.get(*file) != Some(calls));
    let says = |file: &String| table.get(file).map_or("no row", String::as_str);
    let missing = missing.map(|(file, calls)| {
        format!("{file} has {calls}; docs/trust.md has {}: whose is it, and what bounds it?", says(file))
    });
    let gone = table.keys().filter(|file| !calls.contains_key(*file));
    missing
        .chain(gone.map(|file| format!("docs/trust.md has a row for {file}, which reads nothing")))
        .collect()
}

struct Calls {
    kind: Kind,
    counts: BTreeMap<String, usize>,
}

impl Calls {
    fn note(&mut self, call: &str) {
        *self.counts.entry(call.to_owned()).or_default() += 1;
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
            [.., "fs", call] if self.kind.functions().contains(&call) => self.note(call),
            [.., "flock"] if self.kind == Kind::Read => self.note("flock"),
            [.., "executable_at"] if self.kind == Kind::Name => self.note("metadata"),
            [.., of, call] => {
                let one = self.kind.of_types().iter().find(|one| (one.0, one.1) == (of, call));
                one.into_iter().for_each(|one| self.note(one.2));
            }
            _ => {}
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        if self.kind.methods().contains(&name.as_str()) {
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
        calls(Kind::Read, &[file]).remove("imasd/src/x.rs").unwrap_or_default()
    }

    #[test]
    fn lookups_of_paths_are_seen_and_no_reads() {
        let file = |path: &str, text| SourceFile::parse(path.into(), text).unwrap();
        let text = "fn f() { fs::canonicalize(a); std::fs::metadata(b); p.exists(); fs::read(c); p.read_link(); \
                    File::open(d); ElfImage::read(e); executable_at(g); p.try_exists(); q.symlink_metadata(); }";
        let found = calls(Kind::Name, &[file("imas/src/stored/x.rs", text)]);
        let expected =
            "canonicalize 1, exists 1, metadata 2, open 2, read_link 1, symlink_metadata 1, try_exists 1";
        assert_eq!(found["imas/src/stored/x.rs"], expected);
        assert_eq!(
            calls(Kind::Read, &[file("imas/src/apply/trim.rs", text)])["imas/src/apply/trim.rs"],
            "read 1"
        );
        assert!(calls(Kind::Read, &[file("imas/src/stored/x.rs", text)]).is_empty());
    }

    #[test]
    fn a_foreign_name_outside_of_the_helper_is_a_fault() {
        let row =
            |file: &str, whose: &str, place: &str| format!("| `{file}` | metadata 1 | {whose} | {place} |\n");
        let page =
            |rows: &[String]| format!("| `a/r.rs` | read 1 | x | y | z |\n\n## Names\n\n{}", rows.concat());
        let fine = [
            row("a/b.rs", "**foreign**: what it runs", "helper"),
            row("a/c.rs", "**foreign**", "imasd's thread that may be given up"),
            row("a/d.rs", "root's", "verbs"),
        ];
        let found = ForeignNames::of(&page(&fine)).unwrap();
        assert_eq!((found.in_helper, found.in_threads, found.faults().count()), (1, 1, 0));
        let bad = ForeignNames::of(&page(&[row("a/e.rs", "own, or **foreign**", "verbs")])).unwrap();
        assert_eq!(bad.faults().collect::<Vec<_>>(), ["a/e.rs looks up foreign names outside of the helper"]);
        assert_eq!(table(Kind::Name, &page(&fine)).unwrap().len(), 3);
        assert_eq!(table(Kind::Read, &page(&fine)).unwrap().len(), 1);
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
        assert!(calls(Kind::Read, &[elsewhere]).is_empty());
    }

    #[test]
    fn what_the_table_has_not_is_found() {
        let of =
            |rows: &[(&str, &str)]| rows.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let page = "text\n| file | calls | whose | bound | where |\n| `a/src/x.rs` | read 1 | root's | 1 MiB | loop |\n";
        let listed = table(Kind::Read, page).unwrap();
        assert_eq!(listed, of(&[("a/src/x.rs", "read 1")]));
        assert!(unlisted(&of(&[("a/src/x.rs", "read 1")]), &listed).is_empty());
        assert_eq!(unlisted(&of(&[("a/src/x.rs", "read 2")]), &listed).len(), 1);
        assert_eq!(unlisted(&of(&[("a/src/x.rs", "read 1"), ("a/src/y.rs", "flock 1")]), &listed).len(), 1);
        assert_eq!(unlisted(&BTreeMap::new(), &listed).len(), 1);
        assert!(table(Kind::Read, "| `a/src/x.rs` | read 1 | root's |  | loop |\n").is_err());
    }
}
