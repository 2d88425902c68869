// SPDX-License-Identifier: Apache-2.0
//! Which candidates a program may get, as the policy sees them, which version of one served a trial, and which one a
//! mistyped name means.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use imas_core::sample::PageKind;
use imas_core::{Candidate, TrialRecord};
use imas_linux::catalogue::{self, Catalogue};
use imas_linux::runtime::Runtime;
use imas_store::daemon::Disabled;

use crate::prices;

/// Rules by which this machine decides which candidates programs may get.
#[derive(Clone, Copy)]
pub struct CandidateRules<'a> {
    /// All candidates.
    pub catalogue: &'a Catalogue,
    /// The names that the configuration lists; `None` selects the catalogue's default set.
    pub configured: Option<&'a [String]>,
    /// Allocators that imasd has disabled for every program.
    pub disabled: &'a [Disabled],
    /// Whether a candidate can be used on this machine now.
    pub is_usable: &'a dyn Fn(&catalogue::CatalogueCandidate) -> bool,
}

impl CandidateRules<'_> {
    /// The candidates of a program that is pinned to one of them, or not, and has trials of this build under
    /// those that are named in `tried`. Services have a default set of their own; `runtime` adds the
    /// candidates that are its settings.
    #[must_use]
    pub fn of_program(
        &self,
        pinned: Option<&str>,
        tried: &BTreeSet<&str>,
        is_service: bool,
        runtime: Option<Runtime>,
    ) -> Vec<Candidate> {
        let Self { catalogue, configured, .. } = *self;
        let selection = Selection { catalogue, configured, pinned, tried, is_service, runtime };
        selection.of(|candidate| !is_disabled(self.disabled, candidate) && (self.is_usable)(candidate))
    }
}

impl std::fmt::Debug for CandidateRules<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("CandidateRules").field("configured", &self.configured).finish_non_exhaustive()
    }
}

/// Whether the candidate's allocator, in the version of the catalogue, is disabled for every program.
fn is_disabled(disabled: &[Disabled], candidate: &catalogue::CatalogueCandidate) -> bool {
    let version = version_for_policy(candidate);
    let is_it = |one: &Disabled| one.version == version || one.version.is_empty();
    disabled.iter().any(|one| one.allocator == candidate.allocator && is_it(one))
}

/// Which candidates of the catalogue a program gets.
#[derive(Debug, Clone, Copy)]
struct Selection<'a> {
    catalogue: &'a Catalogue,
    configured: Option<&'a [String]>,
    /// The candidate that the user pinned the program to.
    pinned: Option<&'a str>,
    /// The candidates with trials of this build of the program.
    tried: &'a BTreeSet<&'a str>,
    is_service: bool,
    /// The program's runtime.
    runtime: Option<Runtime>,
}

impl Selection<'_> {
    /// The candidates of this selection, in the order of the catalogue. `is_available` says whether one can
    /// be used on this machine now.
    fn of(&self, is_available: impl Fn(&catalogue::CatalogueCandidate) -> bool) -> Vec<Candidate> {
        let of_runtime = self.runtime.into_iter().flat_map(|runtime| self.catalogue.of_runtime(runtime));
        let all = self.catalogue.candidates().iter().chain(of_runtime).chain(self.catalogue.of_the_kernel());
        let selected: Vec<_> = all.filter(|candidate| self.includes(candidate)).collect();
        let for_program = |candidate: &catalogue::CatalogueCandidate| Candidate {
            tested: self.tests(candidate),
            available: is_available(candidate),
            place: self.place(candidate, &selected),
            ..for_policy(candidate)
        };
        selected.iter().map(|candidate| for_program(candidate)).collect()
    }

    /// Place in the first round of a service, as in a bench of a server: `system`, then the best expectation first.
    fn place(
        &self,
        candidate: &catalogue::CatalogueCandidate,
        all: &[&catalogue::CatalogueCandidate],
    ) -> u32 {
        if !self.is_service || candidate.is_system() {
            return 0;
        }
        let rank = |one: &catalogue::CatalogueCandidate| prices::rank(&one.name, self.runtime);
        let before = all.iter().filter(|one| !one.is_system() && rank(one) < rank(candidate));
        1 + u32::try_from(before.count()).unwrap_or(u32::MAX - 1)
    }

    fn includes(&self, candidate: &catalogue::CatalogueCandidate) -> bool {
        let name = candidate.name.as_str();
        // A tried candidate stays usable after the default set has changed. A configured list has no such
        // remainder: it is complete.
        let is_kept = self.configured.is_none() && self.tried.contains(name);
        self.tests(candidate) || is_kept || self.pinned == Some(name)
    }

    fn tests(&self, candidate: &catalogue::CatalogueCandidate) -> bool {
        match self.configured {
            None if self.is_service && candidate.runtime.is_none() => {
                self.catalogue.is_default(candidate, true)
            }
            configured => is_tested(configured, candidate),
        }
    }
}

/// A program that lives longer than this and has threads is a service.
const SERVICE_S: f64 = 60.0;

/// Whether the trials show a service: several threads that allocate, and a long life.
#[must_use]
pub fn is_service(records: &[TrialRecord], build_id: &str) -> bool {
    let shows = |record: &TrialRecord| {
        let sample = &record.sample;
        sample.kind == PageKind::Trial && sample.threads > 1 && sample.wall_s > SERVICE_S
    };
    records.iter().any(|record| record.is_of_build(build_id) && shows(record))
}

/// Whether programs are tested under the candidate: it is `system`, or in the configured list, or in the
/// default set where no list is configured.
#[must_use]
pub fn is_tested(configured: Option<&[String]>, candidate: &catalogue::CatalogueCandidate) -> bool {
    match configured {
        _ if candidate.is_system() => true,
        Some(names) => names.contains(&candidate.name),
        None => candidate.default,
    }
}

/// Every candidate of the catalogue, whether it can be used on this machine or not: for replaying stored
/// trials.
#[must_use]
pub fn all(catalogue: &Catalogue) -> Vec<Candidate> {
    catalogue.candidates().iter().map(for_policy).collect()
}

/// The version of the allocator that served a trial. `served` is the name that the trial page reports: our
/// own libraries report `name version`, others the base name of their file.
#[must_use]
pub fn version_served(catalogue: &Catalogue, candidate: &str, served: &str) -> String {
    let Some(candidate) = catalogue.find(candidate) else { return String::new() };
    let reported = served.strip_prefix(candidate.allocator.as_str()).and_then(|rest| rest.strip_prefix(' '));
    match reported {
        // Our glue around a library of the distribution is built without knowing which build it will find.
        Some(version) if candidate.needs.is_none() => version.to_owned(),
        _ => version_for_policy(candidate),
    }
}

/// Returns the version that a trial is stored with. A quarantine ends when the version changes. Settings of glibc have the
/// version of the machine's C library. Settings of a runtime have none: the runtime's version is part of the program's
/// build. The untouched program has none.
#[must_use]
pub fn version_for_policy(candidate: &catalogue::CatalogueCandidate) -> String {
    let is_of_glibc = candidate.library.is_none() && candidate.runtime.is_none();
    let is_of_glibc = is_of_glibc && !candidate.is_system() && !candidate.is_huge_pages();
    match &candidate.version {
        Some(version) => version.clone(),
        None if is_of_glibc => imas_linux::host::glibc_release(),
        None => String::new(),
    }
}

/// The version in the catalogue, or the running C library's for what comes with the system.
#[must_use]
pub fn version(candidate: &catalogue::CatalogueCandidate) -> String {
    match (&candidate.version, &candidate.library) {
        (Some(version), _) => version.clone(),
        // The runtime is the program's, and its version part of the program's build.
        (None, None) if candidate.runtime.is_some() || candidate.is_huge_pages() => String::new(),
        (None, None) => imas_linux::host::libc_version(),
        (None, Some(_)) => String::new(),
    }
}

/// The candidate as the policy sees it, available and tested.
fn for_policy(candidate: &catalogue::CatalogueCandidate) -> Candidate {
    let version = version_for_policy(candidate);
    let serves = names_when_serving(candidate, &version);
    let (name, of_runtime) = (candidate.name.clone(), candidate.runtime.is_some());
    Candidate { name, version, serves, available: true, tested: true, of_runtime, place: 0 }
}

/// The names under which the allocator reports itself in a trial page when it serves.
fn names_when_serving(candidate: &catalogue::CatalogueCandidate, version: &str) -> Vec<String> {
    match &candidate.library {
        _ if candidate.is_system() || candidate.is_huge_pages() => vec![],
        // Settings of glibc: glibc itself has to serve.
        None => vec!["libc.so.6".to_owned()],
        Some(library) => names_of_library(candidate, library, version),
    }
}

fn names_of_library(candidate: &catalogue::CatalogueCandidate, library: &Path, version: &str) -> Vec<String> {
    let file = library.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
    let reported = if candidate.needs.is_some() { catalogue::INSTALLED } else { version };
    // One allocator may be built as several libraries, and each reports its own name: libmimalloc2.so.
    let own = file.trim_start_matches("lib").trim_end_matches(".so");
    vec![format!("{own} {reported}"), format!("{} {reported}", candidate.allocator), file]
}

// Candidates that may be meant by a name that the catalogue does not have.

/// How alike two names have to be, from 0 to 1: one letter wrong, missing or swapped.
const ALIKE: f64 = 0.8;

/// Candidates of earlier catalogues, each with what is used in its place: no command that was measured gained by them.
const GONE: [(&str, &str); 3] =
    [("cpython:jemalloc", "jemalloc"), ("cpython:lean", "glibc:lean"), ("php:mimalloc", "php:lean")];

/// The candidate that is used in place of one that an earlier catalogue had.
#[must_use]
pub fn in_place_of(gone: &str) -> Option<&'static str> {
    GONE.iter().find(|(name, _)| *name == gone).map(|(_, instead)| *instead)
}

/// The name that is most like the word; None when none is much like it.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |name: &'a str| (strsim::jaro_winkler(word, name), name);
    let alike = names.into_iter().map(likeness).filter(|(alike, _)| *alike > ALIKE);
    alike.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> (tempfile::TempDir, Catalogue) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("catalogue.toml");
        let entry = |name: &str, more: &str| {
            format!("[[candidate]]\nname = '{name}'\norigin = 'x'\nlicence = 'MIT'\nsummary = 'x'\n{more}\n")
        };
        let entries = [
            entry("jemalloc", "library = 'libjemalloc.so'\nversion = '5.3'\ndefault = true"),
            entry("mimalloc", "library = 'libmimalloc.so'\nversion = '3.1'"),
            entry("glibc:lean", "[candidate.environment]\nMALLOC_ARENA_MAX = '1'"),
        ];
        std::fs::write(&file, format!("schema = 1\n{}", entries.concat())).unwrap();
        let catalogue = Catalogue::read(&[file]);
        assert_eq!(catalogue.problems(), []);
        (folder, catalogue)
    }

    /// A candidate that is glue around a library of the distribution, whose version is that library's build.
    fn distro() -> catalogue::CatalogueCandidate {
        catalogue::CatalogueCandidate {
            name: "distro-jemalloc".into(),
            allocator: "distro-jemalloc".into(),
            library: Some("/lib/libdistro-jemalloc.so".into()),
            version: Some("build 0123456789ab".into()),
            needs: Some("/usr/lib/libjemalloc.so.2".into()),
            ..catalogue::CatalogueCandidate::default()
        }
    }

    fn names(selection: &Selection<'_>) -> Vec<(String, bool)> {
        selection.of(|_| true).into_iter().map(|c| (c.name, c.tested)).collect()
    }

    #[test]
    fn the_default_set_keeps_what_was_tried_and_what_is_pinned() {
        let (_folder, catalogue) = catalogue();
        let (none, tried) = (BTreeSet::new(), BTreeSet::from(["mimalloc"]));
        let plain = Selection {
            catalogue: &catalogue,
            configured: None,
            pinned: None,
            tried: &none,
            is_service: false,
            runtime: None,
        };
        let tested = |name: &str| (name.to_owned(), true);
        let kept = |name: &str| (name.to_owned(), false);
        assert_eq!(names(&plain), [tested("system"), tested("jemalloc")]);
        let with_trials = Selection { tried: &tried, ..plain };
        assert_eq!(names(&with_trials), [tested("system"), tested("jemalloc"), kept("mimalloc")]);
        let pinned = Selection { pinned: Some("glibc:lean"), ..plain };
        assert_eq!(names(&pinned), [tested("system"), tested("jemalloc"), kept("glibc:lean")]);
    }

    #[test]
    fn services_have_a_default_set_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("catalogue.toml");
        let entry = |name: &str, more: &str| {
            format!("[[candidate]]\nname = '{name}'\norigin = 'x'\nlicence = 'MIT'\nsummary = 'x'\n{more}\n")
        };
        let entries = [entry("mimalloc", "default = true"), entry("glibc:arena2", "service_default = true")];
        std::fs::write(&file, format!("schema = 1\n{}", entries.concat())).unwrap();
        let catalogue = Catalogue::read(&[file]);
        let is_usable = |_: &catalogue::CatalogueCandidate| true;
        let names = |catalogue: &Catalogue, configured: Option<&[String]>, is_service| {
            let rules = CandidateRules { catalogue, configured, disabled: &[], is_usable: &is_usable };
            let found = rules.of_program(None, &BTreeSet::from(["mimalloc"]), is_service, None).into_iter();
            found.map(|one| (one.name, one.tested)).collect::<Vec<_>>()
        };
        let set = |pairs: &[(&str, bool)]| {
            pairs.iter().map(|(name, tested)| ((*name).to_owned(), *tested)).collect::<Vec<_>>()
        };
        assert_eq!(names(&catalogue, None, false), set(&[("system", true), ("mimalloc", true)]));
        let of_service = set(&[("system", true), ("mimalloc", false), ("glibc:arena2", true)]);
        assert_eq!(names(&catalogue, None, true), of_service, "what was tried before stays usable");
        let listed = ["mimalloc".to_owned()];
        assert_eq!(names(&catalogue, Some(&listed), true), set(&[("system", true), ("mimalloc", true)]));
        let arenas = ["glibc:lean", "glibc:arena1"].map(|name| entry(name, "service_default = true"));
        std::fs::write(folder.path().join("catalogue.toml"), format!("schema = 1\n{}", arenas.concat()))
            .unwrap();
        let arenas = Catalogue::read(&[folder.path().join("catalogue.toml")]);
        let places = |is_service, runtime| {
            let rules =
                CandidateRules { catalogue: &arenas, configured: None, disabled: &[], is_usable: &is_usable };
            let found = rules.of_program(None, &BTreeSet::new(), is_service, runtime).into_iter();
            found.map(|one| (one.name, one.place)).collect::<Vec<_>>()
        };
        let of = |lean, arena1| {
            [("system", 0), ("glibc:lean", lean), ("glibc:arena1", arena1)]
                .map(|(name, at)| (name.into(), at))
        };
        assert_eq!(places(true, None), of(2, 1), "compiled services: the best expectation first");
        assert_eq!(places(true, Some(Runtime::Ruby)), of(1, 2));
        assert!(places(false, None).iter().all(|(_, place)| *place == 0), "other programs: random order");
        let (_folder, without) = self::catalogue();
        let usual = names(&without, None, true);
        assert!(usual.contains(&("jemalloc".to_owned(), true)), "a catalogue without such a set: {usual:?}");
    }

    #[test]
    fn threads_and_a_long_life_make_a_service() {
        let record = |threads, wall_s| {
            let mut record = TrialRecord { build_id: "b".into(), ..TrialRecord::default() };
            (record.sample.threads, record.sample.wall_s) = (threads, wall_s);
            record
        };
        assert!(is_service(&[record(1, 9.0), record(8, 600.0)], "b"));
        assert!(!is_service(&[record(8, 600.0)], "another build"));
        assert!(!is_service(&[record(8, 9.0), record(1, 600.0)], "b"));
    }

    #[test]
    fn a_disabled_allocator_is_available_to_no_program() {
        let (_folder, catalogue) = catalogue();
        let is_available = |version: &str| {
            let disabled = [Disabled {
                allocator: "jemalloc".into(),
                version: version.into(),
                at_s: 1.0,
                why: "x".into(),
            }];
            let is_usable = |_: &catalogue::CatalogueCandidate| true;
            let rules = CandidateRules {
                catalogue: &catalogue,
                configured: None,
                disabled: &disabled,
                is_usable: &is_usable,
            };
            let found = rules.of_program(None, &BTreeSet::new(), false, None);
            found.into_iter().find(|candidate| candidate.name == "jemalloc").unwrap().available
        };
        assert!(!is_available("5.3"));
        assert!(is_available("5.2"), "another version is given a chance");
    }

    #[test]
    fn a_configured_list_is_complete() {
        let (_folder, catalogue) = catalogue();
        let (list, tried) = (["glibc:lean".to_owned()], BTreeSet::from(["mimalloc", "jemalloc"]));
        let selection = Selection {
            catalogue: &catalogue,
            configured: Some(&list),
            pinned: None,
            tried: &tried,
            is_service: false,
            runtime: None,
        };
        let expected = ["system", "glibc:lean"].map(|name| (name.to_owned(), true));
        assert_eq!(names(&selection), expected);
    }

    #[test]
    fn each_kind_of_candidate_names_itself_when_it_serves() {
        let (_folder, catalogue) = catalogue();
        let serves = |name: &str| for_policy(catalogue.find(name).unwrap()).serves;
        assert!(serves("system").is_empty());
        assert_eq!(serves("glibc:lean"), ["libc.so.6"]);
        assert_eq!(serves("jemalloc"), ["jemalloc 5.3", "jemalloc 5.3", "libjemalloc.so"]);
        assert!(for_policy(&distro()).serves.contains(&"distro-jemalloc installed".to_owned()));
        assert_eq!(for_policy(&distro()).version, "build 0123456789ab");
    }

    #[test]
    fn a_new_c_library_ends_what_was_held_against_its_settings() {
        let (_folder, catalogue) = catalogue();
        let lean = for_policy(catalogue.find("glibc:lean").unwrap());
        assert!(lean.version.starts_with("2."), "{}", lean.version);
        let under =
            |version: &str| TrialRecord { allocator_version: version.into(), ..TrialRecord::default() };
        assert!(
            under(&lean.version).is_of_version(&lean.version) && !under("2.1").is_of_version(&lean.version)
        );
        assert!(under("").is_of_version(&lean.version), "of an IMAS that did not know it");
        let is_disabled_for = |version: &str| {
            let disabled = Disabled {
                allocator: "glibc".into(),
                version: version.into(),
                at_s: 0.0,
                why: String::new(),
            };
            is_disabled(&[disabled], catalogue.find("glibc:lean").unwrap())
        };
        assert!(is_disabled_for(&lean.version) && is_disabled_for("") && !is_disabled_for("2.1"));
    }

    #[test]
    fn the_version_that_served_is_the_reported_one_or_the_catalogues() {
        let (_folder, catalogue) = catalogue();
        let version = |candidate, served| version_served(&catalogue, candidate, served);
        assert_eq!(version("jemalloc", "jemalloc 5.2"), "5.2", "of the library that was loaded");
        assert_eq!(version("jemalloc", "libjemalloc.so"), "5.3");
        assert_eq!(version("glibc:lean", "libc.so.6"), imas_linux::host::glibc_release());
        assert_eq!(version("system", "libc.so.6"), "");
        assert_eq!(version("unknown", "x 1"), "");
    }

    #[test]
    fn the_most_alike_name_is_meant_if_any() {
        let names = ["jemalloc", "mimalloc", "tcmalloc", "glibc:lean"];
        assert_eq!(nearest("jmalloc", names), Some("jemalloc"));
        assert_eq!(nearest("mimaloc", names), Some("mimalloc"));
        assert_eq!(nearest("glibc-lean", names), Some("glibc:lean"));
        assert_eq!(nearest("firefox", names), None);
    }
}
