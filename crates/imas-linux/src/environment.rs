// SPDX-License-Identifier: Apache-2.0
//! The environment of a start under a candidate.
//!
//! The launcher changes a few variables; the guard or the hook undoes that inside the new process, in place
//! and without allocating, from what is written here: `IMAS_WAS_<NAME>=<value>` for a variable that had
//! another value, `IMAS_UNSET=A:B` for those that did not exist (see `abi/imas_abi.h`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::catalogue::CatalogueCandidate;
use crate::preloads::{self, is_our_variable, unfollowed};
use crate::runtime::{Delivery, RuntimeSettings, list_sign};
pub use crate::variables::Variables;

const LD_PRELOAD: &str = "LD_PRELOAD";
const GLIBC_TUNABLES: &str = "GLIBC_TUNABLES";
/// The library of a trial.
pub const HOOK: &str = "libimas.so";
/// The library of a production start.
pub const GUARD: &str = "libimas-guard.so";
/// The library beside either, for a candidate that sets variables of a language runtime.
pub const SETTINGS: &str = "libimas-settings.so";
/// The library that every program of an enabled machine preloads.
pub const STUB: &str = "libimas-preload.so";

/// Libraries of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Libraries {
    /// `libimas.so`: counts; trials only.
    pub hook: PathBuf,
    /// `libimas-guard.so`: restores the environment, strips RTLD_DEEPBIND; production.
    pub guard: PathBuf,
    /// `libimas-settings.so`: answers a runtime that asks for its settings.
    pub settings: PathBuf,
    /// Folder through which children are to find the libraries ([`crate::preloads`]). Without it they
    /// find them by their plain paths.
    pub preload_folder: Option<PathBuf>,
}

impl Libraries {
    /// Libraries of an installation, by their plain paths.
    #[must_use]
    pub fn plain(lib_dir: &Path) -> Self {
        Self {
            hook: lib_dir.join(HOOK),
            guard: lib_dir.join(GUARD),
            settings: lib_dir.join(SETTINGS),
            preload_folder: None,
        }
    }

    /// Libraries of an installation, with its folder for children.
    #[must_use]
    pub fn of(lib_dir: &Path) -> Self {
        Self { preload_folder: Some(lib_dir.join(preloads::NAME)), ..Self::plain(lib_dir) }
    }
}

/// Kind of injection: whether calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The candidate serves, nothing is counted.
    Production,
    /// The candidate serves and every call is counted into the page.
    Trial,
}

/// Whom the candidate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The program alone; its children start as they would without us.
    Program,
    /// The program and its children; only the program is counted.
    Children,
    /// The program and its children, each counted into a page of its own.
    Tree,
}

/// One start under one candidate.
#[derive(Debug, Clone, Copy)]
pub struct Injection<'a> {
    /// The candidate that is to serve.
    pub candidate: &'a CatalogueCandidate,
    /// Kind of the injection: whether calls are counted.
    pub mode: Mode,
    /// Reach of the injection: the program alone, or its children too.
    pub reach: Reach,
    /// Prepared page, if one could be made.
    pub page: Option<&'a Path>,
}

/// A path that LD_PRELOAD cannot express.
#[derive(Debug, thiserror::Error)]
#[error("{}: a path with a space, a colon or a dollar sign cannot be preloaded", .0.display())]
pub struct UnusablePath(pub PathBuf);

impl Injection<'_> {
    /// The variables to start with, from those inherited.
    ///
    /// `system` in production changes nothing at all: the program is started as if IMAS did not exist. Where
    /// the whole machine is served, a mark says so to `libimas-preload.so`.
    ///
    /// # Errors
    /// When one of the libraries lies at a path that LD_PRELOAD cannot express.
    pub fn variables(&self, inherited: &Variables, libraries: &Libraries) -> Result<Variables, UnusablePath> {
        let mut own = unfollowed(inherited).into_owned();
        own.huge_pages = self.candidate.huge_pages;
        let inherited: &Variables = &own;
        if self.candidate.is_bare() && (self.mode == Mode::Production || !self.candidate.is_huge_pages()) {
            return Ok(self.with_plain(inherited));
        }
        let mut changes = BTreeMap::new();
        if self.mode == Mode::Trial || !self.candidate.is_system() {
            changes.insert(LD_PRELOAD.into(), Change::Before(self.preload(libraries)?));
        }
        for (name, value) in self.candidate.environment.iter().filter(|(name, _)| !self.leaves_open(name)) {
            changes.insert(name.into(), Change::of(name, value));
        }
        let hidden = self.hidden();
        if !hidden.is_empty() {
            changes.insert(imas_abi::env::SETTINGS.into(), Change::Instead(hidden.into()));
        }
        let left_open = self.with_open(inherited);
        Ok(self.with_undo(left_open.as_ref().unwrap_or(inherited), changes))
    }

    /// The variables of a program into which nothing of ours is loaded: the candidate's, and nobody takes
    /// them away again.
    fn with_plain(&self, inherited: &Variables) -> Variables {
        let mut variables = self.with_undo(inherited, BTreeMap::new());
        set_open(&mut variables, self.candidate.environment.iter());
        variables
    }

    /// The inherited variables with those that stay in the environment; `None` where there are none.
    fn with_open(&self, inherited: &Variables) -> Option<Variables> {
        let mut open =
            self.candidate.environment.iter().filter(|(name, _)| self.leaves_open(name)).peekable();
        open.peek()?;
        let mut variables = inherited.clone();
        set_open(&mut variables, open);
        Some(variables)
    }

    /// Whether the variable stays in the environment.
    fn leaves_open(&self, name: &str) -> bool {
        let is_open = |settings: &RuntimeSettings| settings.runtime.delivery() == Delivery::Open;
        self.candidate.runtime.as_ref().is_some_and(is_open) && is_of_a_runtime(name)
    }

    /// The variables that the runtime asks for after they were taken away again, as `libimas-settings.so` reads
    /// them.
    fn hidden(&self) -> String {
        let Some(settings) = &self.candidate.runtime else { return String::new() };
        let names =
            self.candidate.environment.keys().filter(|name| is_of_a_runtime(name) && !self.leaves_open(name));
        let mark = if settings.runtime.asks_again() {
            imas_abi::env::SETTINGS_LASTING.to_string()
        } else {
            String::new()
        };
        names.map(|name| format!("{mark}{name}")).collect::<Vec<_>>().join(":")
    }

    /// Our entries of LD_PRELOAD.
    fn preload(&self, libraries: &Libraries) -> Result<OsString, UnusablePath> {
        let ours = if self.mode == Mode::Trial { &libraries.hook } else { &libraries.guard };
        let mut list = OsString::new();
        let settings = (!self.hidden().is_empty()).then_some(&libraries.settings);
        // Order matters: the hook finds the allocator after it with RTLD_NEXT. Constructors run from the last to the first: what keeps settings runs
        // before the guard takes them away.
        let library = self.candidate.library.as_ref();
        for path in [Some(ours), library, settings].into_iter().flatten() {
            if !preloads::can_be_named(path.as_os_str()) {
                return Err(UnusablePath(path.clone()));
            }
            let entry = self.entry(path, libraries);
            list = if list.is_empty() { entry.into() } else { joined(&list, entry.as_os_str()) };
        }
        Ok(list)
    }

    /// The entry of one library. Where children inherit it, programs of another libc or width must be able to
    /// start with it.
    fn entry(&self, library: &Path, libraries: &Libraries) -> PathBuf {
        let folder = libraries.preload_folder.as_deref().filter(|_| self.reach != Reach::Program);
        let through = folder.and_then(|folder| preloads::preload_entry(folder, library));
        through.unwrap_or_else(|| library.to_owned())
    }

    fn with_undo(&self, inherited: &Variables, changes: BTreeMap<OsString, Change>) -> Variables {
        let mut variables = inherited.clone();
        variables.retain(|name, _| !is_our_variable(name));
        if changes.is_empty() {
            if stub_stands(inherited) {
                leave_alone(&mut variables, self.reach);
            }
            return variables;
        }
        let mut unset = OsString::new();
        for (name, change) in changes {
            let replaced = variables.replace_each(&name, |old| change.over(old));
            if replaced.is_empty() {
                unset = if unset.is_empty() { name.clone() } else { joined(&unset, &name) };
                variables.insert(name, change.over(OsStr::new("")));
                continue;
            }
            let mut was = OsString::from(imas_abi::env::WAS);
            was.push(&name);
            // One for each entry of that name, in their order: so they are put back.
            replaced.into_iter().for_each(|old| variables.push(was.clone(), old));
        }
        if !unset.is_empty() {
            variables.insert(imas_abi::env::UNSET.into(), unset);
        }
        if let Some(page) = self.page {
            variables.insert(imas_abi::env::PAGE.into(), page.into());
        }
        if self.reach != Reach::Program {
            variables.insert(imas_abi::env::FOLLOW.into(), "1".into());
            if self.candidate.library.is_none() {
                variables.insert(imas_abi::env::ALONE.into(), "1".into());
            }
        }
        if self.reach == Reach::Tree {
            variables.insert(imas_abi::env::TREE.into(), "1".into());
        }
        self.pad(inherited, &mut variables);
        variables
    }
}

impl Injection<'_> {
    /// Makes the number of variables that the guard or the hook takes away an even one
    /// ([`imas_abi::env::PAD`]).
    fn pad(&self, inherited: &Variables, variables: &mut Variables) {
        let kept = inherited.keys().filter(|name| !is_our_variable(name)).count();
        let taken_away = match self.reach {
            Reach::Program => variables.iter().count() - kept,
            Reach::Children => usize::from(self.page.is_some()),
            Reach::Tree => 0,
        };
        if taken_away % 2 != 0 {
            variables.insert(imas_abi::env::PAD.into(), "".into());
        }
    }
}

/// Change of a variable's value.
enum Change {
    /// Our value is put before the variable's own.
    Before(OsString),
    /// Our value is put behind the variable's own, with that sign between them.
    Behind(OsString, char),
    /// Our value takes the place of the variable's own.
    Instead(OsString),
}

impl Change {
    /// The change that sets a candidate's variable. A list of options keeps those that are there.
    fn of(name: &str, value: &str) -> Self {
        match list_sign(name) {
            Some(sign) => Self::Behind(value.into(), sign),
            None => Self::Instead(value.into()),
        }
    }

    /// The new value; `old` is empty where there was none.
    fn over(&self, old: &OsStr) -> OsString {
        match self {
            Self::Before(ours) if !old.is_empty() => joined(ours, old),
            Self::Behind(ours, sign) if !old.is_empty() => with_sign(old, *sign, ours),
            Self::Before(ours) | Self::Behind(ours, _) | Self::Instead(ours) => ours.clone(),
        }
    }
}

/// Whether the stub is loaded into new processes. It would place a program that is to start untouched.
fn stub_stands(inherited: &Variables) -> bool {
    let names_it = |text: &[u8]| text.windows(STUB.len()).any(|part| part == STUB.as_bytes());
    inherited.values(OsStr::new(LD_PRELOAD)).any(|value| names_it(value.as_bytes()))
        || std::fs::read("/etc/ld.so.preload").is_ok_and(|text| names_it(&text))
}

/// The stub takes this away again before the program sees it; for a tree it stays.
fn leave_alone(variables: &mut Variables, reach: Reach) {
    variables.insert(imas_abi::env::PLACED.into(), crate::catalogue::SYSTEM.into());
    if reach == Reach::Program {
        variables.insert(imas_abi::env::PAD.into(), "".into());
    } else {
        variables.insert(imas_abi::env::FOLLOW.into(), "1".into());
    }
}

fn joined(left: &OsStr, right: &OsStr) -> OsString {
    with_sign(left, ':', right)
}

fn with_sign(left: &OsStr, sign: char, right: &OsStr) -> OsString {
    OsString::from_vec([left.as_bytes(), sign.to_string().as_bytes(), right.as_bytes()].concat())
}

/// Whether `libimas-settings.so` is loaded under the candidate.
#[must_use]
pub fn has_hidden_settings(candidate: &CatalogueCandidate) -> bool {
    !candidate.is_bare() && !hidden_settings(candidate).is_empty()
}

/// The value of `IMAS_SETTINGS` under the candidate; empty where no runtime asks for its variables.
pub(crate) fn hidden_settings(candidate: &CatalogueCandidate) -> String {
    Injection { candidate, mode: Mode::Production, reach: Reach::Program, page: None }.hidden()
}

/// Whether a runtime reads the variable, and not the C library or an allocator, at its start.
fn is_of_a_runtime(name: &str) -> bool {
    !matches!(name, GLIBC_TUNABLES | "MALLOC_CONF")
        && !name.starts_with("MIMALLOC_")
        && !name.starts_with("TCMALLOC_")
}

/// Sets variables that stay.
fn set_open<'a>(variables: &mut Variables, open: impl Iterator<Item = (&'a String, &'a String)>) {
    for (name, value) in open {
        let change = Change::of(name, value);
        if variables.replace_each(OsStr::new(name), |old| change.over(old)).is_empty() {
            variables.push(name.into(), value.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Runtime, VersionRange};

    fn candidate(name: &str, library: Option<&str>, environment: &[(&str, &str)]) -> CatalogueCandidate {
        CatalogueCandidate {
            name: name.into(),
            allocator: name.into(),
            library: library.map(PathBuf::from),
            default: true,
            environment: environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            ..CatalogueCandidate::default()
        }
    }

    fn libraries() -> Libraries {
        Libraries {
            hook: "/l/hook.so".into(),
            guard: "/l/guard.so".into(),
            settings: "/l/settings.so".into(),
            preload_folder: None,
        }
    }

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    fn start(candidate: &CatalogueCandidate, mode: Mode, reach: Reach, inherited: &Variables) -> Variables {
        Injection { candidate, mode, reach, page: None }.variables(inherited, &libraries()).unwrap()
    }

    #[test]
    fn system_in_production_changes_nothing() {
        let inherited = variables(&[("HOME", "/h"), ("LD_PRELOAD", "/x.so")]);
        let system = candidate("system", None, &[]);
        assert_eq!(start(&system, Mode::Production, Reach::Program, &inherited), inherited);
    }

    #[test]
    fn an_allocator_comes_after_the_guard_and_before_foreign_preloads() {
        let je = candidate("je", Some("/l/je.so"), &[("CONF", "a")]);
        let got = start(
            &je,
            Mode::Production,
            Reach::Program,
            &variables(&[("LD_PRELOAD", "/x.so"), ("HOME", "/h")]),
        );
        let want = variables(&[
            ("LD_PRELOAD", "/l/guard.so:/l/je.so:/x.so"),
            ("HOME", "/h"),
            ("CONF", "a"),
            ("IMAS_WAS_LD_PRELOAD", "/x.so"),
            ("IMAS_UNSET", "CONF"),
            ("IMAS_PAD", ""),
        ]);
        assert_eq!(got, want);
    }

    #[test]
    fn entries_keep_their_order_and_every_one_of_a_name_is_changed() {
        let mut inherited = variables(&[("Z", "1"), ("LD_PRELOAD", "/x.so"), ("A", "2")]);
        inherited.push("LD_PRELOAD".into(), "/y.so".into());
        let je = candidate("je", Some("/l/je.so"), &[]);
        let got = start(&je, Mode::Production, Reach::Program, &inherited);
        let got: Vec<String> =
            got.array().unwrap().into_iter().map(|text| text.into_string().unwrap()).collect();
        let want = [
            "Z=1",
            "LD_PRELOAD=/l/guard.so:/l/je.so:/x.so",
            "A=2",
            "LD_PRELOAD=/l/guard.so:/l/je.so:/y.so",
            "IMAS_WAS_LD_PRELOAD=/x.so",
            "IMAS_WAS_LD_PRELOAD=/y.so",
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn a_trial_of_system_preloads_the_hook_alone() {
        let got = start(&candidate("system", None, &[]), Mode::Trial, Reach::Tree, &Variables::new());
        let want = variables(&[
            ("LD_PRELOAD", "/l/hook.so"),
            ("IMAS_UNSET", "LD_PRELOAD"),
            ("IMAS_FOLLOW", "1"),
            ("IMAS_ALONE", "1"),
            ("IMAS_TREE", "1"),
        ]);
        assert_eq!(got, want);
    }

    #[test]
    fn tunables_are_added_to_those_of_the_user() {
        let arena = candidate("glibc:arena1", None, &[("GLIBC_TUNABLES", "a=1")]);
        let got = start(&arena, Mode::Production, Reach::Children, &variables(&[("GLIBC_TUNABLES", "b=2")]));
        assert_eq!(got[OsStr::new("GLIBC_TUNABLES")], "b=2:a=1");
        assert_eq!(got[OsStr::new("IMAS_WAS_GLIBC_TUNABLES")], "b=2");
        assert_eq!(got[OsStr::new("LD_PRELOAD")], "/l/guard.so");
    }

    #[test]
    fn tunables_are_there_only_where_the_candidate_or_the_user_sets_some() {
        let tunables = OsStr::new("GLIBC_TUNABLES");
        let je = candidate("je", Some("/l/je.so"), &[]);
        let arena = candidate("glibc:arena1", None, &[("GLIBC_TUNABLES", "a=1")]);
        for mode in [Mode::Production, Mode::Trial] {
            let got = start(&je, mode, Reach::Tree, &Variables::new());
            assert!(!got.contains_key(tunables) && !got.contains_key(OsStr::new("IMAS_WAS_GLIBC_TUNABLES")));
            let got = start(&arena, mode, Reach::Program, &Variables::new());
            assert_eq!(
                got[OsStr::new("IMAS_UNSET")],
                "GLIBC_TUNABLES:LD_PRELOAD",
                "removed again, not set empty"
            );
            let got = start(&arena, mode, Reach::Tree, &variables(&[("GLIBC_TUNABLES", "")]));
            assert_eq!(got[tunables], "a=1");
            assert_eq!(got[OsStr::new("IMAS_WAS_GLIBC_TUNABLES")], "");
        }
    }

    #[test]
    fn an_even_number_of_variables_is_removed_again() {
        let page = Path::new("/p");
        let settings: [&[(&str, &str)]; 3] = [&[], &[("A", "1")], &[("A", "1"), ("B", "2")]];
        for (setting, reach) in settings.iter().flat_map(|s| [(s, Reach::Program), (s, Reach::Children)]) {
            for inherited in [&[][..], &[("LD_PRELOAD", "/x.so")], &[("A", "0"), ("HOME", "/h")]] {
                let candidate = candidate("x", Some("/l/x.so"), setting);
                let injection =
                    Injection { candidate: &candidate, mode: Mode::Production, reach, page: Some(page) };
                let inherited = variables(inherited);
                let got = injection.variables(&inherited, &libraries()).unwrap();
                let padded = got.contains_key(OsStr::new("IMAS_PAD"));
                let taken = if reach == Reach::Program {
                    got.len() - inherited.len()
                } else {
                    1 + usize::from(padded)
                };
                assert_eq!(taken % 2, 0, "{got:?}");
            }
        }
    }

    #[test]
    fn only_a_preload_that_children_inherit_goes_through_the_folder_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let guard = folder.path().join("libimas-guard.so");
        std::fs::write(&guard, "").unwrap();
        let own_lib = folder.path().join("preload").join(crate::preloads::own_lib().unwrap());
        std::fs::create_dir_all(&own_lib).unwrap();
        std::os::unix::fs::symlink(&guard, own_lib.join("libimas-guard.so")).unwrap();
        let arena = candidate("glibc:arena1", None, &[("GLIBC_TUNABLES", "a=1")]);
        let preload = |reach, libraries: &Libraries| {
            let injection = Injection { candidate: &arena, mode: Mode::Production, reach, page: None };
            let variables = injection.variables(&Variables::new(), libraries).unwrap();
            PathBuf::from(&variables[OsStr::new("LD_PRELOAD")])
        };
        let through = folder.path().join("preload/$LIB/libimas-guard.so");
        let (ours, plain) = (Libraries::of(folder.path()), Libraries::plain(folder.path()));
        assert_eq!(preload(Reach::Program, &ours), guard);
        assert_eq!(preload(Reach::Children, &ours), through);
        assert_eq!(preload(Reach::Tree, &ours), through);
        assert_eq!(preload(Reach::Tree, &plain), guard);
    }

    #[test]
    fn variables_of_a_launcher_above_are_dropped() {
        let left = variables(&[("IMAS_PAGE", "/p"), ("IMAS_WAS_X", "1"), ("IMAS_LIB_DIR", "/keep")]);
        let got = start(&candidate("system", None, &[]), Mode::Production, Reach::Program, &left);
        assert_eq!(got, variables(&[("IMAS_LIB_DIR", "/keep")]));
    }

    #[test]
    fn the_stub_leaves_an_untouched_start_alone() {
        let system = candidate("system", None, &[]);
        let inherited = variables(&[("LD_PRELOAD", "/l/libimas-preload.so")]);
        let got = start(&system, Mode::Production, Reach::Program, &inherited);
        assert_eq!(got[OsStr::new("IMAS_PLACED")], "system");
        assert!(!got.contains_key(OsStr::new("IMAS_FOLLOW")));
        let tree = start(&system, Mode::Production, Reach::Tree, &inherited);
        assert_eq!(tree[OsStr::new("IMAS_FOLLOW")], "1");
    }

    fn of_runtime(runtime: Runtime, environment: &[(&str, &str)], is_bare: bool) -> CatalogueCandidate {
        let settings = RuntimeSettings {
            runtime,
            versions: VersionRange::default(),
            arguments: vec![],
            yields_to: vec![],
            is_bare,
        };
        CatalogueCandidate { runtime: Some(settings), ..candidate("x", None, environment) }
    }

    #[test]
    fn what_a_runtime_asks_for_is_answered_by_a_library_behind_the_guard() {
        let node = of_runtime(Runtime::Node, &[("NODE_OPTIONS", "--max-semi-space-size=1")], false);
        let inherited = variables(&[("NODE_OPTIONS", "--enable-source-maps")]);
        let got = start(&node, Mode::Production, Reach::Program, &inherited);
        assert_eq!(got[OsStr::new("NODE_OPTIONS")], "--enable-source-maps --max-semi-space-size=1");
        assert_eq!(got[OsStr::new("IMAS_WAS_NODE_OPTIONS")], "--enable-source-maps");
        assert_eq!(got[OsStr::new("IMAS_SETTINGS")], "NODE_OPTIONS");
        assert_eq!(got[OsStr::new("LD_PRELOAD")], "/l/guard.so:/l/settings.so");
        assert_eq!(got[OsStr::new("IMAS_UNSET")], "IMAS_SETTINGS:LD_PRELOAD");
        let again = start(&candidate("system", None, &[]), Mode::Production, Reach::Program, &got);
        assert!(!again.contains_key("IMAS_SETTINGS"), "of a launcher above");
    }

    #[test]
    fn an_allocator_beside_settings_reads_its_own_from_the_environment() {
        let settings = [("PYTHONMALLOC", "malloc"), ("MALLOC_CONF", "a"), ("GLIBC_TUNABLES", "b=1")];
        let python = CatalogueCandidate {
            library: Some("/l/je.so".into()),
            ..of_runtime(Runtime::Cpython, &settings, false)
        };
        let got = start(&python, Mode::Trial, Reach::Program, &Variables::new());
        assert_eq!(got[OsStr::new("IMAS_SETTINGS")], "+PYTHONMALLOC");
        assert_eq!(got[OsStr::new("LD_PRELOAD")], "/l/hook.so:/l/je.so:/l/settings.so");
    }

    #[test]
    fn a_variable_of_a_bare_start_stays_and_nothing_else_is_added() {
        let go = of_runtime(Runtime::Go, &[("GOGC", "200"), ("GODEBUG", "a=1")], true);
        let inherited = variables(&[("GODEBUG", "b=1"), ("LD_PRELOAD", "/x.so")]);
        for (mode, reach) in [(Mode::Production, Reach::Program), (Mode::Trial, Reach::Tree)] {
            let got = start(&go, mode, reach, &inherited);
            assert_eq!(got, variables(&[("GODEBUG", "b=1,a=1"), ("LD_PRELOAD", "/x.so"), ("GOGC", "200")]));
        }
        let dotnet = of_runtime(Runtime::Dotnet, &[("DOTNET_GCConserveMemory", "5")], false);
        let got = start(&dotnet, Mode::Production, Reach::Program, &Variables::new());
        assert_eq!(got[OsStr::new("LD_PRELOAD")], "/l/guard.so");
        assert_eq!(got[OsStr::new("IMAS_UNSET")], "LD_PRELOAD", "it is not taken away again");
    }

    #[test]
    fn a_path_that_cannot_be_preloaded_is_refused() {
        let odd = candidate("odd", Some("/my dir/x.so"), &[]);
        let injection = Injection { candidate: &odd, mode: Mode::Trial, reach: Reach::Program, page: None };
        assert!(injection.variables(&Variables::new(), &libraries()).is_err());
    }
}
