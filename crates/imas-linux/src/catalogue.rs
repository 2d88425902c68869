// SPDX-License-Identifier: Apache-2.0
//! The catalogue: candidates as data.
//!
//! A catalogue is a TOML file of `[[candidate]]` tables (`allocators/catalogue.toml` in the source tree). Library
//! paths are relative to the folder of the file. Several files are read in order; a later one may add candidates but not redefine them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The name of the candidate that leaves the program untouched.
pub const SYSTEM: &str = "system";

/// One allocator with its settings, as the catalogue describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// `allocator` or `allocator:setting`; unique.
    pub name: String,
    /// The allocator without its setting.
    pub allocator: String,
    /// Absolute path of the library; `None` when the candidate needs none (`system`, settings of glibc).
    pub library: Option<PathBuf>,
    /// Version of the allocator; `None` for what the system brings (see [`crate::host::libc_version`]).
    pub version: Option<String>,
    /// Where it was taken from: a crate, a Debian source package, the system.
    pub origin: String,
    /// SPDX expression.
    pub licence: String,
    /// One sentence: what it is good at.
    pub summary: String,
    /// Whether it belongs to the set that is tested when the user names none.
    pub default: bool,
    /// Page size the library was built for, in bytes; `None` when it works with any.
    pub page_size: Option<u64>,
    /// Variables set at the start, without the preload.
    pub environment: BTreeMap<String, String>,
}

impl Candidate {
    /// Whether this is the program untouched.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.name == SYSTEM
    }
}

/// The candidates of this machine, in the order of listing and testing.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    candidates: Vec<Candidate>,
    problems: Vec<Problem>,
}

/// An entry or file that cannot be used; the rest of the catalogue stays usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file at fault.
    pub file: PathBuf,
    /// Line of the file, counted from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    #[serde(default)]
    candidate: Vec<toml::Spanned<toml::Table>>,
}

/// One `[[candidate]]` table as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    allocator: Option<String>,
    library: Option<PathBuf>,
    version: Option<String>,
    #[serde(default)]
    origin: String,
    #[serde(default)]
    licence: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    default: bool,
    page_size: Option<u64>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    // Read by the system-wide mode only; accepted here so that one file serves both.
    #[serde(rename = "dlopen")]
    _dlopen: Option<bool>,
    #[serde(rename = "dlopen_reason")]
    _dlopen_reason: Option<String>,
}

impl Catalogue {
    /// Reads the files in order. Never fails as a whole: what cannot be used stands in [`Catalogue::problems`].
    /// `system` is always there, even when no file can be read.
    #[must_use]
    pub fn read(files: &[PathBuf]) -> Self {
        let mut catalogue = Self::default();
        for file in files {
            catalogue.read_file(file);
        }
        if catalogue.find(SYSTEM).is_none() {
            catalogue.candidates.insert(0, untouched());
        }
        catalogue
    }

    /// All candidates, usable or not.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// What could not be read.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The candidate of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Candidate> {
        self.candidates.iter().find(|c| c.name == name)
    }

    fn read_file(&mut self, file: &Path) {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => return self.problem(file, None, format!("cannot be read: {error}")),
        };
        let parsed: File = match toml::from_str(&text) {
            Ok(parsed) => parsed,
            Err(error) => {
                let line = error.span().map(|span| line_of(&text, span.start));
                return self.problem(file, line, error.message().to_owned());
            }
        };
        if parsed.schema != 1 {
            let what = format!("schema {} is not known, only 1 is", parsed.schema);
            return self.problem(file, None, what);
        }
        for table in parsed.candidate {
            let line = line_of(&text, table.span().start);
            let entry = table.into_inner().try_into::<Entry>().map_err(|error| error.message().to_owned());
            match entry.and_then(|entry| self.checked(entry, file)) {
                Ok(candidate) => self.candidates.push(candidate),
                Err(what) => self.problem(file, Some(line), what),
            }
        }
    }

    fn problem(&mut self, file: &Path, line: Option<usize>, what: String) {
        self.problems.push(Problem { file: file.to_owned(), line, what });
    }

    fn checked(&self, entry: Entry, file: &Path) -> Result<Candidate, String> {
        let name = entry.name;
        if !is_candidate_name(&name) {
            return Err(format!("candidate name '{name}': use a-z, 0-9, '-', '_', '.' and one ':'"));
        }
        if self.find(&name).is_some() {
            return Err(format!("candidate '{name}' is defined already"));
        }
        if let Some(variable) =
            entry.environment.keys().find(|k| k.starts_with("LD_") || k.starts_with("IMAS_"))
        {
            return Err(format!("candidate '{name}': its environment may not set {variable}"));
        }
        let folder = file.parent().unwrap_or_else(|| Path::new("/"));
        let allocator = entry.allocator.unwrap_or_else(|| name.split(':').next().unwrap_or(&name).to_owned());
        Ok(Candidate {
            allocator,
            library: entry.library.map(|library| folder.join(library)),
            version: entry.version,
            origin: entry.origin,
            licence: entry.licence,
            summary: entry.summary,
            default: entry.default,
            page_size: entry.page_size,
            environment: entry.environment,
            name,
        })
    }
}

/// What `system` is when no catalogue says so.
fn untouched() -> Candidate {
    Candidate {
        name: SYSTEM.to_owned(),
        allocator: SYSTEM.to_owned(),
        library: None,
        version: None,
        origin: "the system".to_owned(),
        licence: String::new(),
        summary: "the program untouched".to_owned(),
        default: true,
        page_size: None,
        environment: BTreeMap::new(),
    }
}

fn is_candidate_name(name: &str) -> bool {
    let plain = |s: &str| {
        !s.is_empty()
            && s.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'))
    };
    let mut parts = name.splitn(2, ':');
    name.len() < imas_abi::CANDIDATE_BYTES
        && parts.next().is_some_and(plain)
        && parts.next().is_none_or(plain)
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&b| b == b'\n').count() + 1
}

/// Why a candidate cannot be used here, found without starting anything.
///
/// A finding of `None` says that nothing speaks against it, not that it loads: see [`crate::process::probe`].
#[must_use]
pub fn obstacle(candidate: &Candidate, page_size: u64) -> Option<String> {
    if candidate.page_size.is_some_and(|built_for| built_for < page_size) {
        return Some(format!("built for smaller pages than this machine's {page_size} bytes"));
    }
    let library = candidate.library.as_ref()?;
    match crate::elf::Executable::read(library) {
        Ok(elf) if elf.class != crate::elf::Class::Native => {
            Some("built for another architecture".to_owned())
        }
        Ok(_) => None,
        Err(_) if !library.exists() => Some(why_missing(library)),
        Err(error) => Some(error.to_string()),
    }
}

/// The build leaves the reason of a failed recipe beside where the library should be (`NAME.failed`).
fn why_missing(library: &Path) -> String {
    let stem = library.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let note = library.with_file_name(format!("{}.failed", stem.trim_start_matches("lib")));
    match std::fs::read_to_string(note) {
        Ok(reason) => format!("not built: {}", reason.trim()),
        Err(_) => "its library is missing (run 'make build')".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Catalogue {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("catalogue.toml");
        std::fs::write(&file, text).unwrap();
        Catalogue::read(&[file])
    }

    #[test]
    fn entries_keep_their_order_and_libraries_are_made_absolute() {
        let catalogue = read(
            "schema = 1\n[[candidate]]\nname = \"system\"\n[[candidate]]\nname = \"je:mem\"\nlibrary = \"a/libje.so\"\nenvironment = { X = \"1\" }\n",
        );
        assert!(catalogue.problems().is_empty());
        let names: Vec<_> = catalogue.candidates().iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["system", "je:mem"]);
        let je = catalogue.find("je:mem").unwrap();
        assert_eq!(je.allocator, "je");
        assert!(je.library.as_ref().unwrap().is_absolute());
    }

    #[test]
    fn a_bad_entry_is_named_with_its_line_and_the_rest_stays() {
        let catalogue = read(
            "schema = 1\n[[candidate]]\nname = \"a\"\nwhat = 1\n[[candidate]]\nname = \"b\"\n[[candidate]]\nname = \"b\"\n[[candidate]]\nname = \"c\"\nenvironment = { LD_PRELOAD = \"x\" }\n",
        );
        let names: Vec<_> = catalogue.candidates().iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["system", "b"]);
        let lines: Vec<_> = catalogue.problems().iter().map(|p| p.line).collect();
        assert_eq!(lines, [Some(2), Some(7), Some(9)]);
        assert!(catalogue.problems()[0].what.contains("what"), "{}", catalogue.problems()[0]);
        assert!(catalogue.problems()[2].what.contains("LD_PRELOAD"));
    }

    #[test]
    fn an_unreadable_or_garbled_file_leaves_system() {
        assert!(Catalogue::read(&[PathBuf::from("/nonexistent/c.toml")]).find(SYSTEM).is_some());
        let garbled = read("schema = 1\n[[candidate\n");
        assert_eq!(garbled.candidates().len(), 1);
        assert_eq!(garbled.problems()[0].line, Some(2));
    }

    #[test]
    fn names_are_words_with_at_most_one_setting() {
        for good in ["a", "glibc:arena1", "a-b_c.d:e"] {
            assert!(is_candidate_name(good), "{good}");
        }
        for bad in ["", ":", "a:", "A", "a b", "a/b", "a:b:c"] {
            assert!(!is_candidate_name(bad), "{bad}");
        }
    }
}
