// SPDX-License-Identifier: Apache-2.0
//! The catalogue: candidates as data.
//!
//! A catalogue is a TOML file of `[[candidate]]` tables (`allocators/catalogue.toml` in the source tree).
//! Several files are read in order; a later one may add candidates but not redefine them. The first is the
//! one that was built with this program: its libraries are beside it, so its paths are relative to its
//! folder; what is added names absolute paths.
//!
//! Why a candidate cannot be used here, judged from files alone.

mod entry;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::elf::{Class, ElfImage};
use crate::huge_pages::HugePages;
use crate::runtime::{Runtime, RuntimeSettings};
use crate::trust;
use entry::{Entry, File};

pub use entry::build_of;
pub(crate) use entry::find_installed;

/// The name of the candidate that leaves the program untouched.
pub const SYSTEM: &str = "system";

/// Version that the glue over a library of the distribution gives: it was built without one.
pub const INSTALLED: &str = "installed";

/// One allocator with its settings, as the catalogue describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueCandidate {
    /// `allocator` or `allocator:setting`; unique.
    pub name: String,
    /// The allocator without its setting.
    pub allocator: String,
    /// Absolute path of the library; `None` when the candidate needs none (`system`, settings of glibc).
    pub library: Option<PathBuf>,
    /// Version of the allocator; `None` for what the system brings (see [`crate::host::libc_version`]).
    pub version: Option<String>,
    /// Origin of the allocator: a crate, a Debian source package, the system.
    pub origin: String,
    /// SPDX expression.
    pub licence: String,
    /// One sentence: what it is good at.
    pub summary: String,
    /// Whether the candidate belongs to the set that is tested when the user names none.
    pub default: bool,
    /// Whether the candidate belongs to the set that is tested for services when the user names none.
    pub service_default: bool,
    /// Page size the library was built for, in bytes; `None` when it works with any.
    pub page_size: Option<u64>,
    /// Whether the program is trimmed from outside while it runs (`+trims` in its name).
    pub trims: bool,
    /// Huge pages of the program; None: as the machine is set.
    #[serde(default)]
    pub huge_pages: Option<HugePages>,
    /// Variables set at the start, without the preload.
    pub environment: BTreeMap<String, String>,
    /// Settings of a runtime; `None` when the candidate is for every program.
    pub runtime: Option<RuntimeSettings>,
    /// A library of the distribution, by its soname, for which `library` is only the glue; absolute path of
    /// what was found.
    pub needs: Option<PathBuf>,
    /// Reason why the candidate is not offered although it could be loaded.
    pub withheld: Option<String>,
    /// Facts of malloc's contract that it may break, as accepted in its catalogue entry.
    pub accept: Vec<String>,
    /// Added by the operator or a user: not built, and not put through the conformance kit, by us.
    pub added: bool,
    /// File and line (from 1) that define it; empty for a `system` that no file defines.
    pub defined: (PathBuf, usize),
}

impl CatalogueCandidate {
    /// Whether the candidate is the program untouched.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.name == SYSTEM
    }

    /// Whether it is huge pages alone: nothing is loaded, and no variable set.
    #[must_use]
    pub fn is_huge_pages(&self) -> bool {
        self.huge_pages.is_some()
            && self.library.is_none()
            && self.runtime.is_none()
            && self.environment.is_empty()
    }

    /// Whether nothing of ours is loaded for it.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.is_huge_pages() || self.runtime.as_ref().is_some_and(|settings| settings.is_bare)
    }
}

/// The candidates of this machine, in the order of listing and testing.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    candidates: Vec<CatalogueCandidate>,
    of_runtimes: Vec<CatalogueCandidate>,
    problems: Vec<Problem>,
}

/// An entry or file that cannot be used; the rest of the catalogue stays usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file that is wrong.
    pub file: PathBuf,
    /// Line of the file, counted from 1, where it is known.
    pub line: Option<usize>,
    /// Fault of the file or the entry.
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

impl Catalogue {
    /// Reads the files in order. Never fails as a whole: what cannot be used is in
    /// [`Catalogue::problems`]. `system` is always there, even when no file can be read.
    #[must_use]
    pub fn read(files: &[PathBuf]) -> Self {
        let mut catalogue = Self::default();
        for (at, file) in files.iter().enumerate() {
            catalogue.read_file(file, at > 0);
        }
        if catalogue.find(SYSTEM).is_none() {
            catalogue.candidates.insert(0, untouched());
        }
        catalogue
    }

    /// The candidates for every program, usable or not.
    #[must_use]
    pub fn candidates(&self) -> &[CatalogueCandidate] {
        &self.candidates
    }

    /// The candidates that are settings of the runtime, for its programs alone.
    pub fn of_runtime(&self, runtime: Runtime) -> impl Iterator<Item = &CatalogueCandidate> {
        let is_of =
            move |one: &&CatalogueCandidate| one.runtime.as_ref().is_some_and(|of| of.runtime == runtime);
        self.of_runtimes.iter().filter(is_of)
    }

    /// The candidates that are huge pages alone, for any program, whatever can be loaded into it.
    pub fn of_the_kernel(&self) -> impl Iterator<Item = &CatalogueCandidate> {
        self.of_runtimes.iter().filter(|one| one.is_huge_pages())
    }

    /// The candidates for every program that an allocator can be loaded into, then the settings of runtimes and huge pages.
    pub fn all(&self) -> impl Iterator<Item = &CatalogueCandidate> {
        self.candidates.iter().chain(&self.of_runtimes)
    }

    /// Problems: what could not be read.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The candidate of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&CatalogueCandidate> {
        self.all().find(|c| c.name == name)
    }

    /// Whether the candidate is tested when the user names none. A catalogue without a set for services has
    /// the same set for them as for all programs.
    #[must_use]
    pub fn is_default(&self, candidate: &CatalogueCandidate, for_services: bool) -> bool {
        let has_set = || self.candidates.iter().any(|one| one.service_default && !one.is_system());
        if for_services && has_set() { candidate.service_default } else { candidate.default }
    }

    fn read_file(&mut self, file: &Path, added: bool) {
        if let Some(why) = trust::foreign(file).filter(|_| added) {
            return self.problem(
                file,
                None,
                format!("not read, because another user could change it: {why}"),
            );
        }
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => return self.problem(file, None, format!("cannot be read: {error}")),
        };
        let parsed: File = match toml::from_str(&text) {
            Ok(parsed) => parsed,
            Err(error) => {
                let line = error.span().map(|span| 1 + newlines(&text, 0, span.start));
                return self.problem(file, line, error.message().to_owned());
            }
        };
        if parsed.schema != 1 {
            let what = format!("schema {} is not known, only 1 is", parsed.schema);
            return self.problem(file, None, what);
        }
        let (mut line, mut at) = (1, 0);
        for table in parsed.candidate {
            // From the table before: counted from the beginning each time, this was a fifth of the start of
            // `imas`.
            let start = table.span().start;
            line += newlines(&text, at, start);
            at = start;
            let entry = table.into_inner().try_into::<Entry>().map_err(|error| error.message().to_owned());
            match entry.and_then(|entry| self.candidate_of(entry, file, line, added)) {
                Ok(Some(candidate)) if candidate.runtime.is_some() || candidate.is_huge_pages() => {
                    self.of_runtimes.push(candidate)
                }
                Ok(candidate) => self.candidates.extend(candidate),
                Err(what) => self.problem(file, Some(line), what),
            }
        }
    }

    fn problem(&mut self, file: &Path, line: Option<usize>, what: String) {
        self.problems.push(Problem { file: file.to_owned(), line, what });
    }

    /// The entry as a candidate; `None` when its library belongs to the distribution or to the laboratory, and this machine
    /// does not have it.
    fn candidate_of(
        &self,
        entry: Entry,
        file: &Path,
        line: usize,
        added: bool,
    ) -> Result<Option<CatalogueCandidate>, String> {
        entry.check(added)?;
        if let Some(first) = self.find(&entry.name) {
            let (file, line) = &first.defined;
            return Err(format!("candidate '{}' is defined already: {}:{line}", entry.name, file.display()));
        }
        Ok(entry.into_candidate(file, line, added))
    }
}

/// The definition of `system` if no catalogue has one.
fn untouched() -> CatalogueCandidate {
    CatalogueCandidate {
        name: SYSTEM.to_owned(),
        allocator: SYSTEM.to_owned(),
        origin: "the system".to_owned(),
        summary: "the program untouched".to_owned(),
        default: true,
        service_default: true,
        ..CatalogueCandidate::default()
    }
}

fn newlines(text: &str, from: usize, to: usize) -> usize {
    text.as_bytes().get(from..to).unwrap_or_default().iter().filter(|&&byte| byte == b'\n').count()
}

/// Why the candidate is not offered although it may load: the catalogue's word, the conformance kit's, or that another
/// user could change a library that was added.
/// Changes without the library changing, so it is asked each time.
#[must_use]
pub fn withheld(candidate: &CatalogueCandidate) -> Option<String> {
    let stated = candidate.withheld.as_ref().map(|reason| format!("withheld: {reason}"));
    let library = candidate.library.as_ref();
    let foreign = || {
        let why = trust::foreign(library.filter(|_| candidate.added)?)?;
        Some(format!("withheld: another user could change it: {why}"))
    };
    stated.or_else(foreign).or_else(|| failed_conformance(&candidate.name, library?))
}

/// Why a candidate cannot be used here, found without starting anything.
///
/// A finding of `None` means that no obstacle was found, not that it loads: see [`crate::process::probe`].
#[must_use]
pub fn obstacle(candidate: &CatalogueCandidate, page_size: u64) -> Option<String> {
    if candidate.page_size.is_some_and(|built_for| built_for < page_size) {
        return Some(format!("built for smaller pages than this machine's {page_size} bytes"));
    }
    let library = candidate.library.as_ref()?;
    match ElfImage::read(library) {
        Ok(elf) if elf.class != Class::Native => Some("built for another architecture".to_owned()),
        Ok(_) => None,
        Err(_) if !library.exists() => Some(why_missing(candidate, library)),
        Err(error) => Some(error.to_string()),
    }
}

/// The build leaves the reason of a failed recipe beside where the library should be (`NAME.failed`).
fn why_missing(candidate: &CatalogueCandidate, library: &Path) -> String {
    if candidate.added {
        return format!("its library {} is missing", library.display());
    }
    let stem = library.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let note = library.with_file_name(format!("{}.failed", stem.trim_start_matches("lib")));
    match std::fs::read_to_string(note) {
        Ok(reason) => format!("not built: {}", reason.trim()),
        Err(_) => "its library is missing (run 'make build')".to_owned(),
    }
}

/// The conformance kit leaves what was failed beside the library (`libNAME.so.withheld`, a line
/// `CANDIDATE<tab>REASON` each, for settings share libraries); a new build takes the note away.
fn failed_conformance(name: &str, library: &Path) -> Option<String> {
    let mut note = library.as_os_str().to_owned();
    note.push(".withheld");
    let note = std::fs::read_to_string(note).ok()?;
    let mut lines = note.lines().filter_map(|line| line.split_once('\t'));
    let (_, reason) = lines.find(|(candidate, _)| *candidate == name)?;
    Some(format!("withheld: it failed conformance: {reason}"))
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
    fn an_added_entry_names_absolute_paths_and_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["built.toml", "added.toml"].map(|name| folder.path().join(name));
        let entry = |name: &str, library: &str| {
            format!("schema = 1\n\n[[candidate]]\nname = \"{name}\"\nlibrary = \"{library}\"\n")
        };
        std::fs::write(&files[0], entry("a", "liba.so")).unwrap();
        std::fs::write(&files[1], entry("a", "/l/liba.so") + &entry("b", "libb.so")[12..]).unwrap();
        let catalogue = Catalogue::read(&files);
        assert_eq!(catalogue.find("a").unwrap().library, Some(folder.path().join("liba.so")));
        assert_eq!(catalogue.find("a").unwrap().defined, (files[0].clone(), 3));
        assert!(!catalogue.find("a").unwrap().added);
        let problems: Vec<_> = catalogue.problems().iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].contains("added.toml:3") && problems[0].contains("built.toml:3"),
            "{}",
            problems[0]
        );
        assert!(problems[1].contains("added.toml:6") && problems[1].contains("relative"), "{}", problems[1]);
    }

    #[test]
    fn settings_of_a_runtime_stand_apart() {
        let entry = |name: &str, more: &str| format!("[[candidate]]\nname = \"{name}\"\n{more}\n");
        let catalogue = read(&format!(
            "schema = 1\n{}{}{}",
            entry("go:a", "runtime = 'go'\nenvironment = { GOGC = '200' }"),
            entry("jvm:a", "runtime = 'jvm'\narguments = ['-x']\nversions = '>=17'\nyields_to = ['-y']"),
            entry("je", "library = 'libje.so'"),
        ));
        assert_eq!(catalogue.problems(), []);
        let names = |list: &mut dyn Iterator<Item = &CatalogueCandidate>| {
            list.map(|one| one.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&mut catalogue.candidates().iter()), ["system", "je"]);
        assert_eq!(names(&mut catalogue.of_runtime(Runtime::Jvm)), ["jvm:a"]);
        assert_eq!(names(&mut catalogue.all()), ["system", "je", "go:a", "jvm:a"]);
        assert!(catalogue.find("go:a").is_some());
        for (fault, why) in [
            ("runtime = 'lisp'\nenvironment = { A = '1' }", "lisp"),
            ("runtime = 'go'", "sets nothing"),
            ("runtime = 'go'\nenvironment = { A = '1' }\nlibrary = 'l.so'", "nothing can be loaded"),
            ("runtime = 'node'\narguments = ['-x']", "for the JVM"),
            ("runtime = 'jvm'\narguments = ['-x']\nversions = '17'", "range of versions"),
            ("runtime = 'go'\nenvironment = { A = '{memory_limit 900%}' }", "memory limit"),
            ("versions = '>=17'", "need a 'runtime'"),
            ("arguments = ['-x']", "need a 'runtime'"),
        ] {
            let bad = read(&format!("schema = 1\n{}", entry("x", fault)));
            assert!(bad.find("x").is_none(), "{fault}");
            assert!(bad.problems()[0].what.contains(why), "{fault}: {}", bad.problems()[0]);
        }
    }

    #[test]
    fn the_catalogue_of_this_tree_has_settings_of_each_runtime() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../allocators/catalogue.toml");
        let catalogue = Catalogue::read(&[file]);
        assert_eq!(catalogue.problems(), []);
        for runtime in Runtime::ALL {
            let names: Vec<&str> = catalogue.of_runtime(runtime).map(|one| one.name.as_str()).collect();
            let are_named = names.iter().all(|name| Runtime::of_candidate(name) == Some(runtime));
            assert!(are_named && !names.is_empty(), "{runtime}: {names:?}");
        }
        let of_net = catalogue.of_runtime(Runtime::Dotnet).filter(|one| one.default);
        assert_eq!(of_net.map(|one| one.name.as_str()).collect::<Vec<_>>(), ["dotnet:workstation"]);
        let of_the_kernel = catalogue.of_the_kernel().map(|one| (one.name.as_str(), one.huge_pages));
        let both = [("thp:off", Some(HugePages::Off)), ("thp:advised", Some(HugePages::Advised))];
        assert_eq!(of_the_kernel.collect::<Vec<_>>(), both);
        let allocators = catalogue.candidates().iter().map(|one| Runtime::of_candidate(&one.name));
        assert!(allocators.flatten().next().is_none());
    }

    #[test]
    fn a_library_of_the_distribution_that_is_not_there_is_no_candidate() {
        let entry = |soname: &str| {
            format!("schema = 1\n[[candidate]]\nname = \"d\"\nlibrary = \"libd.so\"\nneeds = \"{soname}\"\n")
        };
        let absent = read(&entry("libnosuchthing.so.77"));
        assert!(absent.find("d").is_none() && absent.problems().is_empty(), "{:?}", absent.problems());
        let there = read(&entry("libc.so.6"));
        let found = there.find("d").unwrap();
        assert!(found.needs.as_ref().unwrap().is_absolute());
        assert!(found.version.as_ref().unwrap().starts_with("build "), "{:?}", found.version);
    }

    #[test]
    fn a_candidate_of_the_laboratory_is_there_with_its_library() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("catalogue.toml");
        let entry = "schema = 1\n[[candidate]]\nname = \"fit\"\nlibrary = \"libfit.so\"\nlaboratory = true\n";
        std::fs::write(&file, entry).unwrap();
        let is_there = || {
            let catalogue = Catalogue::read(std::slice::from_ref(&file));
            assert!(catalogue.problems().is_empty(), "{:?}", catalogue.problems());
            catalogue.find("fit").is_some()
        };
        assert!(!is_there());
        std::fs::write(folder.path().join("libfit.so"), "").unwrap();
        assert!(is_there());
    }

    fn of(library: &Path) -> CatalogueCandidate {
        CatalogueCandidate {
            name: "x".into(),
            library: Some(library.to_owned()),
            ..CatalogueCandidate::default()
        }
    }

    #[test]
    fn each_obstacle_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libx.so");
        let why = |candidate: &CatalogueCandidate| obstacle(candidate, 4096);
        assert_eq!(why(&of(&library)).unwrap(), "its library is missing (run 'make build')");
        std::fs::write(folder.path().join("x.failed"), "no compiler\n").unwrap();
        assert_eq!(why(&of(&library)).unwrap(), "not built: no compiler");
        std::fs::write(&library, "text").unwrap();
        assert!(why(&of(&library)).unwrap().contains("ELF"));
        // Its own header, with the machine of an IBM S/390 and of a 32-bit Intel.
        let mut elf = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        elf[18] = 22;
        std::fs::write(&library, &elf).unwrap();
        assert_eq!(why(&of(&library)).unwrap(), "built for another architecture");
        std::fs::copy(std::env::current_exe().unwrap(), &library).unwrap();
        assert_eq!(why(&of(&library)), None);
    }

    #[test]
    fn a_withheld_candidate_has_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libx.so");
        std::fs::copy(std::env::current_exe().unwrap(), &library).unwrap();
        std::fs::write(folder.path().join("libx.so.withheld"), "x:small\tother\nx\tforks: child-works\n")
            .unwrap();
        let why = withheld(&of(&library)).unwrap();
        assert_eq!(why, "withheld: it failed conformance: forks: child-works");
        let stated = CatalogueCandidate { withheld: Some("eats data".into()), ..of(&library) };
        assert_eq!(withheld(&stated).unwrap(), "withheld: eats data");
        assert_eq!(withheld(&CatalogueCandidate { name: "x:other".into(), ..of(&library) }), None);
        let small = CatalogueCandidate { page_size: Some(4096), ..of(&library) };
        assert!(obstacle(&small, 65536).unwrap().contains("65536"));
    }
}
