// SPDX-License-Identifier: Apache-2.0
//! The catalogue table: the candidates that `libimas-preload.so` may choose among (`abi/imas_index.h`).
//!
//! The index names candidates by id. Only this table says what an id is, and only root writes it. So no
//! library gets in that another user could replace: root owns each one and the folders above it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use imas_abi::{
    CANDIDATE_HAS_SETTINGS, CATALOGUE_ENTRY_BYTES, CatalogueEntry, CatalogueHeader, FileIdentity,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::trust::{approve, identity};
use crate::c_bytes::{fnv32, fnv64, put, text};
use crate::catalogue::CatalogueCandidate;
use crate::environment::{Libraries, hidden_settings};
use crate::files::{self, replace};
use crate::runtime;
use crate::runtime_start::words_of_user;
use crate::trust::StickyFolder;

/// Bytes of a table.
const MOST_BYTES: usize = 16 << 20;

/// Name of the table in the run folder.
pub const FILE_NAME: &str = "catalogue";

/// Users that are trusted besides root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owners {
    /// User that may own libraries and the folders above them, besides root: the user, in a user's own tree.
    pub trusted: u32,
    /// User that may own the state folder and the index, besides the table's own owner.
    pub daemon: u32,
}

/// A candidate that did not get in, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the candidate.
    pub candidate: String,
    /// Reason, one clause for people.
    pub why: String,
}

/// A table that was written.
#[derive(Debug, Clone)]
pub struct Written {
    /// The table, as readers see it.
    pub table: CatalogueTable,
    /// Candidates that were left out.
    pub refused: Vec<Refusal>,
}

/// Why no table could be written, or one is not sound.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum TableError {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: {why}", .path.display())]
    Library { path: PathBuf, why: String },
    #[error("{0} candidates; a table holds {max}", max = imas_abi::CATALOGUE_MAX)]
    TooMany(usize),
    #[error("not a sound catalogue table: {0}")]
    Unsound(&'static str),
}

/// Flags that an entry may have.
const KNOWN_FLAGS: u32 = CANDIDATE_HAS_SETTINGS;

/// A runtime asks again for a longer value, and is answered once (Node.js).
const MOST_OF_A_SETTING: usize = 255;

/// Whether `libimas-preload.so` can start a program under the candidate: it makes the environment alone, the same
/// for every program.
#[must_use]
pub fn can_be_placed(candidate: &CatalogueCandidate) -> bool {
    let Some(settings) = &candidate.runtime else { return candidate.huge_pages.is_none() };
    let is_fixed = |value: &String| !runtime::names_limit(value) && value.len() <= MOST_OF_A_SETTING;
    settings.runtime.is_placed()
        && settings.arguments.is_empty()
        && candidate.environment.values().all(is_fixed)
}

/// Writes the table of all usable candidates to `path`, by rename. `system` has id 1, the others follow in
/// their order. Those that cannot be placed are no part of it.
///
/// # Errors
/// When another user could replace the hook or the guard, or the file system refuses. A candidate that cannot
/// be trusted or used is no error: it is left out and listed in [`Written::refused`].
pub fn write_catalogue_table(
    path: &Path,
    candidates: &[CatalogueCandidate],
    libraries: &Libraries,
    owners: Owners,
) -> Result<Written, TableError> {
    let mut entries = vec![system_entry()];
    let mut refused = Vec::new();
    for candidate in candidates.iter().filter(|one| !one.is_system() && can_be_placed(one)) {
        match entry(candidate, libraries, owners.trusted) {
            Ok(entry) => entries.push(entry),
            Err(why) => refused.push(Refusal { candidate: candidate.name.clone(), why }),
        }
    }
    let table = CatalogueTable::assemble(entries, libraries, owners)?;
    replace(path, &table.bytes()).map_err(|error| TableError::Io { path: path.to_owned(), error })?;
    Ok(Written { table, refused })
}

fn system_entry() -> CatalogueEntry {
    let mut entry = CatalogueEntry::new_zeroed();
    let name = crate::catalogue::SYSTEM.as_bytes();
    entry.name[..name.len()].copy_from_slice(name);
    entry
}

fn entry(
    candidate: &CatalogueCandidate,
    libraries: &Libraries,
    trusted: u32,
) -> Result<CatalogueEntry, String> {
    if let Some(obstacle) = crate::catalogue::obstacle(candidate, crate::host::page_bytes()) {
        return Err(obstacle);
    }
    let mut entry = CatalogueEntry::new_zeroed();
    put(&mut entry.name, candidate.name.as_bytes()).ok_or("its name is too long")?;
    if let Some(library) = &candidate.library {
        let (resolved, identity) = approve(library, trusted, StickyFolder::Safe)?;
        put(&mut entry.library, resolved.as_os_str().as_bytes()).ok_or("its library's path is too long")?;
        entry.identity = identity;
    }
    if let Some(library) = &candidate.needs {
        // The dynamic linker finds it by its name, and compares no identity.
        approve(library, trusted, StickyFolder::Writable)?;
    }
    let mut variables = environment(candidate)?;
    let settings = hidden_settings(candidate);
    if !settings.is_empty() {
        approve(&libraries.settings, trusted, StickyFolder::Safe)?;
        entry.flags |= CANDIDATE_HAS_SETTINGS;
        variables.extend(format!("{}={settings}\0", imas_abi::env::SETTINGS).into_bytes());
    }
    put(&mut entry.environment, &variables).ok_or("its environment is too long")?;
    put(&mut entry.yields_to, &yields_to(candidate)?).ok_or("what it yields to is too long")?;
    Ok(entry)
}

/// The words, each ended by NUL.
fn yields_to(candidate: &CatalogueCandidate) -> Result<Vec<u8>, String> {
    let words = words_of_user(candidate);
    match words.iter().find(|word| word.is_empty() || word.contains('\0')) {
        Some(word) => Err(format!("it yields to '{}', which nobody can give", word.escape_debug())),
        None => Ok(words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect()),
    }
}

/// `NAME=VALUE`, each ended by NUL; the zeros after it end the list.
fn environment(candidate: &CatalogueCandidate) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for (name, value) in &candidate.environment {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("its environment has an impossible variable '{name}'"));
        }
        if name.starts_with("LD_") || name.starts_with("IMAS_") {
            return Err(format!("its environment may not set {name}"));
        }
        bytes.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
    }
    Ok(bytes)
}

/// A catalogue table, sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueTable {
    header: CatalogueHeader,
    entries: Vec<CatalogueEntry>,
}

impl CatalogueTable {
    fn assemble(
        entries: Vec<CatalogueEntry>,
        libraries: &Libraries,
        owners: Owners,
    ) -> Result<Self, TableError> {
        let too_many = || TableError::TooMany(entries.len());
        let count = u32::try_from(entries.len()).map_err(|_| too_many())?;
        if count > imas_abi::CATALOGUE_MAX {
            return Err(too_many());
        }
        let mut header = CatalogueHeader::new_zeroed();
        header.magic = imas_abi::CATALOGUE_MAGIC;
        header.version = imas_abi::CATALOGUE_VERSION;
        header.file_bytes = (u64::from(count) + 1) * CATALOGUE_ENTRY_BYTES as u64;
        header.count = count;
        header.daemon_uid = owners.daemon;
        header.guard_identity = library(&mut header.guard, &libraries.guard, owners.trusted)?;
        header.hook_identity = library(&mut header.hook, &libraries.hook, owners.trusted)?;
        if entries.iter().any(|entry| entry.flags & CANDIDATE_HAS_SETTINGS != 0) {
            header.settings_identity = library(&mut header.settings, &libraries.settings, owners.trusted)?;
        }
        let mut table = Self { header, entries };
        for (entry, id) in table.entries.iter_mut().zip(1..) {
            entry.id = id;
            entry.check = fnv32(entry.as_bytes());
        }
        table.header.catalogue_id = fnv64(&table.bytes());
        table.header.check = fnv32(table.header.as_bytes());
        Ok(table)
    }

    /// Reads and checks the table at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or a single bit of it is wrong.
    pub fn read(path: &Path) -> Result<Self, TableError> {
        let bytes = files::read_plain(path, MOST_BYTES)
            .map_err(|error| TableError::Io { path: path.to_owned(), error })?;
        Self::decode(&bytes)
    }

    /// Checks the bytes of a table.
    ///
    /// # Errors
    /// The fault of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        let (header, rest) =
            CatalogueHeader::read_from_prefix(bytes).map_err(|_| TableError::Unsound("it is too short"))?;
        check_header(&header, bytes.len())?;
        let mut entries = Vec::new();
        for (record, id) in rest.chunks_exact(CATALOGUE_ENTRY_BYTES).zip(1..) {
            let entry =
                CatalogueEntry::read_from_bytes(record).map_err(|_| TableError::Unsound("an entry"))?;
            let zeroed = CatalogueEntry { check: 0, ..entry.clone() };
            if fnv32(zeroed.as_bytes()) != entry.check || entry.id != id {
                return Err(TableError::Unsound("an entry's check sum or id"));
            }
            entries.push(entry);
        }
        Ok(Self { header, entries })
    }

    /// Hash of the content: an index that names another one is not used with this table.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.header.catalogue_id
    }

    /// User that may own the state folder and the index, besides the table's own owner.
    #[must_use]
    pub fn daemon_uid(&self) -> u32 {
        self.header.daemon_uid
    }

    /// Hook and guard.
    #[must_use]
    pub fn libraries(&self) -> Libraries {
        Libraries {
            hook: text(&self.header.hook).into(),
            guard: text(&self.header.guard).into(),
            settings: text(&self.header.settings).into(),
            preload_folder: None,
        }
    }

    /// Names of the candidates with their ids, in the order of ids.
    pub fn names(&self) -> impl Iterator<Item = (u16, String)> {
        let candidates = self.entries.iter().filter(|entry| entry.flags & !KNOWN_FLAGS == 0);
        candidates.filter_map(|entry| Some((u16::try_from(entry.id).ok()?, text(&entry.name))))
    }

    /// The id of the candidate of that name.
    #[must_use]
    pub fn id_of(&self, name: &str) -> Option<u16> {
        self.names().find(|(_, theirs)| theirs == name).map(|(id, _)| id)
    }

    /// The candidate of that id.
    #[must_use]
    pub fn entry(&self, id: u16) -> Option<&CatalogueEntry> {
        self.entries.get(usize::from(id).checked_sub(1)?)
    }

    /// Libraries that are no longer as they were approved, hook and guard among them: with these nothing is
    /// placed.
    #[must_use]
    pub fn changed_libraries(&self) -> Vec<PathBuf> {
        let ours = [
            (&self.header.guard, &self.header.guard_identity),
            (&self.header.hook, &self.header.hook_identity),
            (&self.header.settings, &self.header.settings_identity),
        ];
        let theirs = self.entries.iter().map(|entry| (&entry.library, &entry.identity));
        let all = ours.into_iter().chain(theirs).filter(|(path, _)| path[0] != 0);
        let changed = |(path, approved): (&[u8; imas_abi::CATALOGUE_LIBRARY_BYTES], &FileIdentity)| {
            let path = PathBuf::from(text(path));
            let same = std::fs::metadata(&path).is_ok_and(|about| identity(&about) == *approved);
            (!same).then_some(path)
        };
        all.filter_map(changed).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        [self.header.as_bytes(), self.entries.as_bytes()].concat()
    }
}

fn library(
    field: &mut [u8; imas_abi::CATALOGUE_LIBRARY_BYTES],
    path: &Path,
    trusted: u32,
) -> Result<FileIdentity, TableError> {
    let refused = |why: String| TableError::Library { path: path.to_owned(), why };
    let (resolved, identity) = approve(path, trusted, StickyFolder::Safe).map_err(refused)?;
    let name = resolved.as_os_str();
    put(field, OsStr::as_bytes(name)).ok_or_else(|| refused("its path is too long".to_owned()))?;
    Ok(identity)
}

fn check_header(header: &CatalogueHeader, bytes: usize) -> Result<(), TableError> {
    let zeroed = CatalogueHeader { check: 0, ..header.clone() };
    if header.magic != imas_abi::CATALOGUE_MAGIC || header.version != imas_abi::CATALOGUE_VERSION {
        return Err(TableError::Unsound("magic or version"));
    }
    if fnv32(zeroed.as_bytes()) != header.check {
        return Err(TableError::Unsound("check sum of the header"));
    }
    let expected = (u64::from(header.count) + 1) * CATALOGUE_ENTRY_BYTES as u64;
    if header.count > imas_abi::CATALOGUE_MAX || expected != header.file_bytes || expected != bytes as u64 {
        return Err(TableError::Unsound("its size"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::runtime::{Runtime, RuntimeSettings};

    struct Place {
        folder: tempfile::TempDir,
        owners: Owners,
    }

    impl Place {
        fn new() -> Self {
            let me = nix::unistd::getuid().as_raw();
            Self { folder: tempfile::tempdir().unwrap(), owners: Owners { trusted: me, daemon: 4711 } }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// A library that really is one: a copy of this test's own executable.
        fn library(&self, name: &str) -> PathBuf {
            let path = self.path(name);
            std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        fn libraries(&self) -> Libraries {
            Libraries {
                hook: self.library("hook.so"),
                guard: self.library("guard.so"),
                settings: self.library("settings.so"),
                preload_folder: None,
            }
        }

        fn write(&self, candidates: &[CatalogueCandidate]) -> Result<Written, TableError> {
            write_catalogue_table(&self.path(FILE_NAME), candidates, &self.libraries(), self.owners)
        }
    }

    fn candidate(name: &str, library: Option<PathBuf>, environment: &[(&str, &str)]) -> CatalogueCandidate {
        CatalogueCandidate {
            name: name.into(),
            allocator: name.into(),
            library,
            environment: environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            ..CatalogueCandidate::default()
        }
    }

    #[test]
    fn system_is_number_one_and_the_rest_follows_in_order() {
        let place = Place::new();
        let je = candidate("je", Some(place.library("je.so")), &[("A", "1"), ("B", "")]);
        let settings = candidate("glibc:arena1", None, &[("GLIBC_TUNABLES", "x=1")]);
        let written = place.write(&[je, candidate("system", None, &[]), settings]).unwrap();
        assert_eq!(written.refused, []);
        let read = CatalogueTable::read(&place.path(FILE_NAME)).unwrap();
        assert_eq!(read, written.table);
        let names: BTreeMap<_, _> = read.names().collect();
        assert_eq!(names, [(1, "system".into()), (2, "je".into()), (3, "glibc:arena1".into())].into());
        assert_eq!((read.id_of("je"), read.id_of("no")), (Some(2), None));
        assert!(read.entry(2).unwrap().environment.starts_with(b"A=1\0B=\0\0"));
        assert_eq!(read.daemon_uid(), 4711);
    }

    #[test]
    fn an_entry_with_flags_of_another_version_is_no_candidate() {
        let place = Place::new();
        let mut table = place.write(&[candidate("s", None, &[("X", "y")])]).unwrap().table;
        table.entries[1].flags = KNOWN_FLAGS + 1;
        assert_eq!(table.names().map(|(_, name)| name).collect::<Vec<_>>(), ["system"]);
    }

    #[test]
    fn the_library_of_settings_is_approved_where_a_candidate_needs_it() {
        let place = Place::new();
        let node = Some(RuntimeSettings::of(Runtime::Node));
        let set = candidate("n", None, &[("NODE_OPTIONS", "--max-semi-space-size=1")]);
        let set = [CatalogueCandidate { runtime: node, ..set }];
        let plain = place.write(&[candidate("s", None, &[])]).unwrap().table;
        assert_eq!(plain.libraries().settings, PathBuf::new());
        let table = place.write(&set).unwrap().table;
        assert_eq!(table.libraries().settings, place.path("settings.so"));
        assert_eq!((table.entry(2).unwrap().flags, table.id_of("n")), (CANDIDATE_HAS_SETTINGS, Some(2)));
        std::fs::write(place.path("settings.so"), "another").unwrap();
        assert_eq!(table.changed_libraries(), [place.path("settings.so")]);
        let missing = Libraries { settings: place.path("none.so"), ..place.libraries() };
        let written = write_catalogue_table(&place.path(FILE_NAME), &set, &missing, place.owners).unwrap();
        assert_eq!((written.refused.len(), written.table.id_of("n")), (1, None), "and the table is there");
    }

    #[test]
    fn settings_of_runtimes_come_with_what_they_yield_to() {
        let place = Place::new();
        let of = |name: &str, runtime, variable: (&str, &str), yields_to: &[&str]| {
            let yields_to = yields_to.iter().map(|&word| word.into()).collect();
            let settings = RuntimeSettings { yields_to, ..RuntimeSettings::of(runtime) };
            CatalogueCandidate { runtime: Some(settings), ..candidate(name, None, &[variable]) }
        };
        let node = ("NODE_OPTIONS", "--max-semi-space-size=1");
        let python = of("python", Runtime::Cpython, ("PYTHONMALLOC", "malloc"), &["-E", "PYTHONDEVMODE"]);
        let written = place.write(&[
            of("node", Runtime::Node, node, &["--env-file"]),
            CatalogueCandidate { library: Some(place.library("je.so")), ..python },
            of("go", Runtime::Go, ("GOGC", "50"), &[]),
            of("limit", Runtime::Node, ("NODE_OPTIONS", "--max-old-space-size={memory_limit_mib 75%}"), &[]),
            of("long", Runtime::Node, ("NODE_OPTIONS", &"-".repeat(256)), &[]),
            of("empty", Runtime::Node, node, &[""]),
        ]);
        let Written { table, refused } = written.unwrap();
        let names: Vec<_> = table.names().map(|(_, name)| name).collect();
        assert_eq!(names, ["system", "node", "python"], "{refused:?}");
        assert!(
            matches!(refused.as_slice(), [Refusal { candidate, .. }] if candidate == "empty"),
            "{refused:?}"
        );
        assert_eq!(table.libraries().settings, place.path("settings.so"));
        let [node, python] = [2, 3].map(|id| table.entry(id).unwrap());
        assert_eq!((node.flags, python.flags), (CANDIDATE_HAS_SETTINGS, CANDIDATE_HAS_SETTINGS));
        assert!(
            node.environment
                .starts_with(b"NODE_OPTIONS=--max-semi-space-size=1\0IMAS_SETTINGS=NODE_OPTIONS\0\0")
        );
        assert!(node.yields_to.starts_with(b"--max-semi-space-size\0--env-file\0--snapshot-blob\0"));
        assert!(python.environment.starts_with(b"PYTHONMALLOC=malloc\0IMAS_SETTINGS=+PYTHONMALLOC\0\0"));
        assert!(python.yields_to.starts_with(b"-E\0PYTHONDEVMODE\0\0"));
        std::fs::write(place.path("settings.so"), "another").unwrap();
        assert_eq!(table.changed_libraries(), [place.path("settings.so")]);
    }

    #[test]
    fn a_table_of_another_version_is_refused() {
        let place = Place::new();
        let mut table = place.write(&[]).unwrap().table;
        table.header.version = 1;
        table.header.check = 0;
        table.header.check = fnv32(table.header.as_bytes());
        assert!(matches!(
            CatalogueTable::decode(&table.bytes()),
            Err(TableError::Unsound("magic or version"))
        ));
    }

    #[test]
    fn the_id_changes_with_the_content() {
        let place = Place::new();
        let library = place.library("je.so");
        let je = candidate("je", Some(library.clone()), &[]);
        let first = place.write(std::slice::from_ref(&je)).unwrap().table;
        assert!(first.changed_libraries().is_empty());
        std::fs::OpenOptions::new().append(true).open(&library).unwrap().write_all(b"x").unwrap();
        assert_eq!(first.changed_libraries(), std::slice::from_ref(&library));
        let second = place.write(&[je]).unwrap().table;
        assert_ne!(first.id(), second.id());
    }

    #[test]
    fn a_library_that_others_could_replace_is_left_out() {
        let place = Place::new();
        let open = place.library("open.so");
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        std::fs::create_dir(place.path("shared")).unwrap();
        std::fs::set_permissions(place.path("shared"), std::fs::Permissions::from_mode(0o775)).unwrap();
        let inside = place.library("shared/in.so");
        let long = place.path(&"x".repeat(250));
        std::fs::rename(place.library("l.so"), &long).unwrap();
        let reasons = |candidates: &[CatalogueCandidate]| -> Vec<String> {
            place.write(candidates).unwrap().refused.into_iter().map(|refusal| refusal.why).collect()
        };
        let je = place.library("je.so");
        let why = reasons(&[
            candidate("a", Some(open), &[]),
            candidate("b", Some(inside), &[]),
            candidate("c", Some(place.path("missing.so")), &[]),
            candidate("d", Some(long), &[]),
            candidate("e", Some(je.clone()), &[("LD_AUDIT", "x")]),
            candidate("f", Some(je.clone()), &[("X", &"y".repeat(700))]),
            candidate("g", Some(je), &[]),
        ]);
        let expected =
            ["written by", "written by", "missing", "too long", "may not set LD_AUDIT", "too long"];
        assert_eq!(why.len(), expected.len(), "{why:?}");
        for (why, expected) in why.iter().zip(expected) {
            assert!(why.contains(expected), "{why} / {expected}");
        }
    }

    /// The temporary folder is sticky. A candidate's own library is used by its identity, one of the
    /// distribution by its name.
    #[test]
    fn a_library_of_the_distribution_may_not_be_below_a_sticky_folder() {
        let place = Place::new();
        let sticky = place.path("sticky");
        std::fs::create_dir(&sticky).unwrap();
        std::fs::set_permissions(&sticky, std::fs::Permissions::from_mode(0o1777)).unwrap();
        let library = place.library("sticky/l.so");
        let own = candidate("own", Some(library.clone()), &[]);
        let glue =
            CatalogueCandidate { needs: Some(library.clone()), ..candidate("glue", Some(library), &[]) };
        let refused = place.write(&[own, glue]).unwrap().refused;
        let [Refusal { candidate, why }] = refused.as_slice() else { panic!("{refused:?}") };
        assert!(candidate == "glue" && why.contains("sticky: may be written by"), "{candidate}: {why}");
    }

    #[test]
    fn a_hook_in_other_hands_makes_no_table() {
        let place = Place::new();
        let hook = place.library("odd hook.so");
        let libraries = Libraries { hook, ..place.libraries() };
        let written = write_catalogue_table(&place.path(FILE_NAME), &[], &libraries, place.owners);
        assert!(matches!(written, Err(TableError::Library { .. })), "{written:?}");
        assert!(!place.path(FILE_NAME).exists());
    }

    #[test]
    fn no_wrong_bit_is_overlooked() {
        let place = Place::new();
        place.write(&[candidate("s", None, &[("X", "y")])]).unwrap();
        let bytes = std::fs::read(place.path(FILE_NAME)).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(CatalogueTable::decode(&damaged).is_err(), "byte {at}");
        }
        assert!(CatalogueTable::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
