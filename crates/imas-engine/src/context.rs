// SPDX-License-Identifier: Apache-2.0
//! Where everything of this installation is: libraries, catalogue, store, configuration.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_cli::message::{self, Hinted};
use imas_core::paper::Limits;
use imas_linux::catalogue::{Catalogue, CatalogueCandidate, SYSTEM};
use imas_linux::environment::{Injection, Libraries, Mode, Reach};
use imas_linux::host::now_unix_s;
use imas_linux::huge_pages::HugePages;
use imas_linux::page::{self, PageFileError};
use imas_linux::runtime::{Runtime, RuntimeSettings};
use imas_store::{Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::flags::Places;
use crate::folders;

/// The store of the whole machine, which imasd keeps.
const SYSTEM_STORE: &str = "/var/lib/imas/imas.db";

/// The installation as this command sees it.
#[derive(Debug)]
pub struct Context {
    /// The folder with the libraries and the catalogue.
    pub lib_dir: PathBuf,
    /// Libraries that are preloaded beside a candidate.
    pub libraries: Libraries,
    /// The candidates.
    pub catalogue: Catalogue,
    /// Settings in the configuration files.
    pub config: Config,
    /// How often and how many times a candidate is tested.
    pub limits: Limits,
    /// The store's file.
    pub store_path: PathBuf,
    /// The store is the one that imasd keeps: programs of everybody, and no pages of ours.
    pub of_the_system: bool,
    /// The arguments that name this store on the command line; empty for the user's own.
    store_arguments: String,
    /// The file was named there, perhaps by mistake.
    store_named: bool,
    own_obstacle: OnceLock<Option<String>>,
}

impl Context {
    /// Finds the parts and reads catalogue and configuration.
    ///
    /// # Errors
    /// When the library folder, the store's place or the configuration is not usable.
    pub fn new(places: &Places) -> Result<Self> {
        Self::beside(places, Path::new(imas_abi::RUN_FOLDER))
    }

    /// Finds the parts and reads catalogue and configuration, with the daemon of `run_dir`.
    ///
    /// # Errors
    /// When the library folder, the store's place or the configuration is not usable.
    pub fn beside(places: &Places, run_dir: &Path) -> Result<Self> {
        let lib_dir = lib_dir(places.lib_dir.as_deref())?;
        folders::added_catalogues().iter().try_for_each(|file| folders::check(file))?;
        let config = if places.system { Config::of_the_daemon(run_dir)? } else { Config::read()? };
        let store_path = match places.system {
            true => SYSTEM_STORE.into(),
            false => folders::store_path(places.store.as_deref())?,
        };
        let context = Self {
            libraries: Libraries::of(&lib_dir),
            catalogue: Catalogue::read(&folders::catalogues_of_user(&lib_dir)),
            limits: config.limits(places.retest),
            config,
            store_path,
            of_the_system: places.system,
            store_arguments: store_arguments(places),
            store_named: places.store_named,
            own_obstacle: OnceLock::new(),
            lib_dir,
        };
        context.check_owners(places)?;
        Ok(context)
    }

    /// Refuses an installation or a store that another user could change, unless this user named the store for this very
    /// command. The system's is imasd's. An installation without a name is beside this very program.
    fn check_owners(&self, places: &Places) -> Result<()> {
        if places.lib_dir.is_some() {
            let (ours, catalogue) = (&self.libraries, self.lib_dir.join("catalogue.toml"));
            let files = [&catalogue, &ours.hook, &ours.guard, &ours.settings];
            let built = self.catalogue.all().filter(|candidate| !candidate.added);
            let libraries = built.filter_map(|candidate| candidate.library.as_ref());
            let links = &ours.preload_folder;
            files.into_iter().chain(links).chain(libraries).try_for_each(|file| folders::check(file))?;
        }
        if self.is_by_name() {
            return Ok(());
        }
        folders::store_files(&self.store_path).iter().try_for_each(|file| folders::check(file))
    }

    /// Whether the user named the store, or asked for the system's. Its owner is not checked then.
    fn is_by_name(&self) -> bool {
        self.of_the_system || self.store_named
    }

    /// The installation as the whole machine uses it: no user's files are read, none is needed, and no typing
    /// error in a configuration keeps it from working.
    #[must_use]
    pub fn of_the_machine(lib_dir: &Path) -> Self {
        let config = Config::default();
        Self {
            libraries: Libraries::of(lib_dir),
            catalogue: Catalogue::read(&folders::catalogues_of_machine(lib_dir)),
            limits: config.limits(None),
            config,
            store_path: SYSTEM_STORE.into(),
            of_the_system: true,
            store_arguments: "--system".to_owned(),
            store_named: false,
            own_obstacle: OnceLock::new(),
            lib_dir: lib_dir.to_owned(),
        }
    }

    /// A command that begins with `imas`, on the store that this context is of: program numbers hold in one
    /// store alone.
    #[must_use]
    pub fn on_this_store(&self, command: &str) -> String {
        match (self.store_arguments.as_str(), command.strip_prefix("imas ")) {
            ("", _) | (_, None) => command.to_owned(),
            (arguments, Some(rest)) => format!("imas {arguments} {rest}"),
        }
    }

    /// The folder of the pages of starts that this store decides: a page belongs to its store.
    ///
    /// # Errors
    /// When it cannot be made, or is not this user's alone.
    pub fn page_folder(&self) -> Result<PathBuf, PageFileError> {
        page::folder_of_store(&folders::real_store(&self.store_path))
    }

    /// Where that folder is; nothing is made.
    #[must_use]
    pub fn page_place(&self) -> PathBuf {
        page::place_of_store(&folders::real_store(&self.store_path))
    }

    /// Copy of the store in memory, for commands that only read. Empty where there is none.
    ///
    /// # Errors
    /// When it cannot be read; the error has a hint.
    pub fn view_store(&self) -> Result<Store> {
        self.check_daemons_store()?;
        Store::view(&self.store_path).map_err(|error| store_error(&error))
    }

    /// Opens the store, telling the user when a damaged one was set aside.
    ///
    /// # Errors
    /// When it cannot be opened; the error has a hint.
    pub fn open_store(&self) -> Result<Store> {
        self.open_store_within(imas_store::BUSY)
    }

    /// Opens the store as [`Self::open_store`] does, and waits at most `timeout` for other processes.
    ///
    /// # Errors
    /// When it cannot be opened; the error has a hint.
    pub fn open_store_within(&self, timeout: Duration) -> Result<Store> {
        self.check_daemons_store()?;
        if !self.is_by_name() {
            folders::check_place(&self.store_path)?;
        }
        let open = if self.store_named { Store::open_as_it_is } else { Store::open_within };
        let store = open(&self.store_path, timeout).map_err(|error| store_error(&error))?;
        if let Some(aside) = store.set_aside() {
            message::warning(&format!(
                "the store was damaged; it was renamed to {} and a new one begun",
                aside.display()
            ));
        }
        Ok(store)
    }

    fn check_daemons_store(&self) -> Result<()> {
        match self.of_the_system && std::fs::metadata(&self.store_path).is_err() {
            false => Ok(()),
            true => Err(Hinted::error(
                format!("{} is not there, or not for you to read", self.store_path.display()),
                "it is made by imasd and read by root: 'imas system status' says whether imasd runs",
            )),
        }
    }

    /// Whether `imas run` tests it: the candidates of the configuration, else the catalogue's default set, and
    /// `system` always.
    #[must_use]
    pub fn is_tested(&self, candidate: &CatalogueCandidate) -> bool {
        crate::candidates::is_tested(self.config.candidates.as_deref(), candidate)
    }

    /// Whether the configuration names the candidate.
    #[must_use]
    pub fn names(&self, candidate: &CatalogueCandidate) -> bool {
        self.config.candidates.as_ref().is_some_and(|names| names.contains(&candidate.name))
    }

    /// The candidates that `imas run` tests.
    #[must_use]
    pub fn test_set(&self) -> Vec<&CatalogueCandidate> {
        self.catalogue.candidates().iter().filter(|candidate| self.is_tested(candidate)).collect()
    }

    /// The candidate of that name.
    ///
    /// # Errors
    /// When the catalogue has none; the error lists the names.
    pub fn candidate(&self, name: &str) -> Result<&CatalogueCandidate> {
        self.catalogue.find(name).ok_or_else(|| {
            if let Some(instead) = crate::candidates::in_place_of(name) {
                return Hinted::error(
                    format!("{name}: no longer a candidate: no command that was measured gained by it"),
                    format!("use {instead}; docs/runtimes.md has the figures"),
                );
            }
            let known: Vec<_> = self.catalogue.all().map(|c| c.name.as_str()).collect();
            let meant = crate::candidates::nearest(name, known.iter().copied());
            let meant = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
            let name = if name.is_empty() { "''" } else { name };
            Hinted::error(
                format!("{name}: no such candidate"),
                format!("{meant}there are {}", known.join(", ")),
            )
        })
    }

    /// Why a candidate cannot be used here. What takes a process to find out is remembered in the store until
    /// the file changes.
    #[must_use]
    pub fn obstacle(&self, candidate: &CatalogueCandidate, store: Option<&Store>) -> Option<String> {
        if candidate.is_system() {
            return None;
        }
        if let Some(why) = candidate.huge_pages.and_then(HugePages::obstacle) {
            return Some(why);
        }
        if candidate.is_huge_pages() {
            return None;
        }
        if let Some(ours) = self.own_obstacle(store) {
            return Some(ours.to_owned());
        }
        if let Some(why) = imas_linux::catalogue::withheld(candidate) {
            return Some(why);
        }
        if candidate.runtime.is_some()
            && let Some(why) = self.obstacle_of_ours(Mode::Production, &self.libraries.settings, store)
        {
            return Some(why);
        }
        let library = candidate.library.as_ref()?;
        // A library of the distribution may be replaced under our glue.
        let changes = candidate.needs.as_ref().unwrap_or(library);
        let page_bytes = imas_linux::host::page_bytes();
        remembered(store, changes, &kind_of(candidate, page_bytes), || {
            imas_linux::catalogue::obstacle(candidate, page_bytes)
                .or_else(|| self.probe(candidate, Mode::Production, library))
                .or_else(|| self.broken_contract(candidate))
        })
    }

    /// Breaches of malloc's contract by a library that we did not build; ours are proven where they are
    /// built.
    fn broken_contract(&self, candidate: &CatalogueCandidate) -> Option<String> {
        if !candidate.added && candidate.needs.is_none() {
            return None;
        }
        let injection = Injection { candidate, mode: Mode::Production, reach: Reach::Program, page: None };
        let checked =
            imas_linux::contract::check(&injection, &self.libraries, &self.lib_dir.join("contract"));
        checked.err().map(|why| format!("withheld: it breaks malloc's contract: {why}"))
    }

    /// Why nothing can be injected at all: one of our own two libraries is missing or does not load. A
    /// program that is started with a broken preload dies, so this is asked before every start.
    #[must_use]
    pub fn own_obstacle(&self, store: Option<&Store>) -> Option<&str> {
        self.own_obstacle.get_or_init(|| self.find_own_obstacle(store)).as_deref()
    }

    fn find_own_obstacle(&self, store: Option<&Store>) -> Option<String> {
        let check = |library, mode| self.obstacle_of_ours(mode, library, store);
        check(&self.libraries.hook, Mode::Trial).or_else(|| check(&self.libraries.guard, Mode::Production))
    }

    /// Why a library of ours does not come with a start.
    fn obstacle_of_ours(&self, mode: Mode, library: &Path, store: Option<&Store>) -> Option<String> {
        // A candidate of settings alone: nothing is injected but what is ours.
        let answers = library == self.libraries.settings;
        let settings = CatalogueCandidate {
            name: "settings".to_owned(),
            runtime: answers.then(|| RuntimeSettings::of(Runtime::Node)),
            environment: answers.then(|| ("NODE_OPTIONS".to_owned(), String::new())).into_iter().collect(),
            ..self.catalogue.find(SYSTEM)?.clone()
        };
        match library.is_file() {
            false => Some(format!("{} is missing (run 'make build')", library.display())),
            true => remembered(store, library, "loads", || {
                let why = self.probe(&settings, mode, library)?;
                Some(format!("{} does not load: {why}", library.display()))
            }),
        }
    }

    /// Why the library does not come with a start under the candidate.
    fn probe(&self, candidate: &CatalogueCandidate, mode: Mode, library: &Path) -> Option<String> {
        let injection = Injection { candidate, mode, reach: Reach::Program, page: None };
        imas_linux::process::probe(&injection, &self.libraries, library).err()
    }
}

fn store_error(error: &StoreError) -> anyhow::Error {
    let hint = match (error.is_damage(), error) {
        (true, _) | (_, StoreError::Foreign(_) | StoreError::OtherVersion { .. }) => {
            "it is left as it is; name another file with --store FILE, or move it away and a new store is begun"
        }
        _ => "name another place with --store FILE or IMAS_STORE",
    };
    Hinted::error(format!("store: {error}"), hint)
}

fn store_arguments(places: &Places) -> String {
    match &places.store {
        _ if places.system => "--system".to_owned(),
        Some(file) if places.store_named => {
            format!("--store {}", shell_words::quote(&file.to_string_lossy()))
        }
        _ => String::new(),
    }
}

/// The name under which it is remembered whether a candidate loads: its settings count, the glue where that
/// is not the file that is watched, and the kernel's pages where the library is for some sizes only.
fn kind_of(candidate: &CatalogueCandidate, page_bytes: u64) -> String {
    let mut kind = "loads".to_owned();
    if candidate.page_size.is_some() {
        kind.push_str(&format!(" on pages of {page_bytes}"));
    }
    for (name, value) in &candidate.environment {
        kind.push_str(&format!(" {name}={value}"));
    }
    for fact in &candidate.accept {
        kind.push_str(&format!(" accepting {fact}"));
    }
    if candidate.needs.is_some() {
        let glue = candidate.library.as_ref().and_then(|library| std::fs::metadata(library).ok());
        let made = glue.and_then(|about| about.modified().ok());
        kind.push_str(&format!(" behind {} of {made:?}", candidate.name));
    }
    kind
}

/// Text that is remembered of the file under that kind, else the one that is found out now, for the next
/// time.
pub(crate) fn remembered(
    store: Option<&Store>,
    file: &Path,
    kind: &str,
    find_out: impl FnOnce() -> Option<String>,
) -> Option<String> {
    let start = now_unix_s();
    if let Some(known) = recalled(store, file, kind) {
        return known;
    }
    let obstacle = find_out();
    if let Some(store) = store {
        let end = now_unix_s();
        let until_s = end + f64::max(LEAST_VALID_S, (end - start) * VALID_FACTOR);
        let _ = store.remember(file, kind, &Found { obstacle: obstacle.clone(), until_s }); // only costs finding out again
    }
    obstacle
}

/// Remembered answer about the file that still counts: that there is no obstacle, or which one.
#[expect(clippy::option_option, reason = "nothing known, and no obstacle")]
pub(crate) fn recalled(store: Option<&Store>, file: &Path, kind: &str) -> Option<Option<String>> {
    let known = store?.recall::<Found>(file, kind).ok()??;
    (known.obstacle.is_none() || now_unix_s() < known.until_s).then_some(known.obstacle)
}

/// Facts found out about a file.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    obstacle: Option<String>,
    /// An obstacle is looked at again from this Unix time on, in seconds: it may lie outside the file (a
    /// library that was not installed yet, a limit of the shell, a busy machine).
    until_s: f64,
}

/// An obstacle counts for at least this time, in seconds...
const LEAST_VALID_S: f64 = 60.0;
/// ...and for this multiple of the time that it took to find out, so that looking never costs more than a
/// thousandth of the time.
const VALID_FACTOR: f64 = 1000.0;

/// The library folder: `flag` where it is given. Else the folder as installed (`bin/imas`, `lib/imas/`) or as
/// built in the source tree (`target/release/imas`, `build/lib/imas/`).
///
/// # Errors
/// When no catalogue is found there.
pub fn lib_dir(flag: Option<&Path>) -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find out where imas itself is")?;
    let beside = |up: usize, down: &str| exe.ancestors().nth(up).map(|base| base.join(down));
    let places = match flag {
        Some(flag) => vec![std::path::absolute(flag).context("the library folder's path")?],
        None => [beside(2, "lib/imas"), beside(3, "build/lib/imas"), beside(4, "build/lib/imas")]
            .into_iter()
            .flatten()
            .collect(),
    };
    let found = places.iter().find(|place| place.join("catalogue.toml").is_file());
    found.cloned().ok_or_else(|| {
        let tried: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        Hinted::error(
            format!("no catalogue.toml in {}", tried.join(" or ")),
            "run 'make build', or name the folder with --lib-dir DIR or IMAS_LIB_DIR",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_check_is_remembered_and_a_failure_only_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("imas.db")).unwrap();
        let file = folder.path().join("lib.so");
        std::fs::write(&file, "x").unwrap();
        let look =
            |found: Option<&str>| remembered(Some(&store), &file, "loads", || found.map(str::to_owned));
        assert_eq!(look(Some("out of memory")).as_deref(), Some("out of memory"));
        assert_eq!(look(None).as_deref(), Some("out of memory"), "asked again at once");
        let passed = Found { obstacle: Some("out of memory".to_owned()), until_s: now_unix_s() - 1.0 };
        store.remember(&file, "loads", &passed).unwrap();
        assert_eq!(look(None), None, "the time has passed");
        assert_eq!(look(Some("not asked")), None, "what loads goes on loading until the file changes");
    }

    #[test]
    fn what_loads_under_one_kernel_is_asked_again_under_another_with_larger_pages() {
        let any = CatalogueCandidate::default();
        assert_eq!(kind_of(&any, 4096), kind_of(&any, 16384));
        let small = CatalogueCandidate { page_size: Some(4096), ..any };
        assert_ne!(kind_of(&small, 4096), kind_of(&small, 16384));
    }
}
