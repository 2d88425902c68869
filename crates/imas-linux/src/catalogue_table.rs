// SPDX-License-Identifier: Apache-2.0
//! The catalogue table: the candidates that `libimas-preload.so` may choose among (`abi/imas_index.h`).
//!
//! Whoever writes the index names ids; only this table, which root alone writes, says what an id is. So nothing gets in that
//! somebody else could replace: neither a library nor a folder above it may be in other hands than root's.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use imas_abi::{CATALOGUE_ENTRY_BYTES, CatalogueEntry, CatalogueHeader, FileIdentity};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::catalogue::Candidate;
use crate::environment::Libraries;
use crate::file_time::mtime_ns;
use crate::fnv::{fnv32, fnv64};

/// Name of the table in the run folder.
pub const FILE_NAME: &str = "catalogue";

/// In whose hands things may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owners {
    /// Who may own libraries and the folders above them, besides root: the user, in a user's own tree.
    pub trusted: u32,
    /// Who may own the state folder and the index, besides the table's own owner.
    pub daemon: u32,
}

/// A candidate that did not get in, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its name.
    pub candidate: String,
    /// One clause for people.
    pub why: String,
}

/// What was written.
#[derive(Debug, Clone)]
pub struct Written {
    /// The table, as readers see it.
    pub table: CatalogueTable,
    /// What was left out.
    pub refused: Vec<Refusal>,
}

/// Why no table could be written, or one is not sound.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file system refused.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// Hook or guard cannot be trusted.
    #[error("{}: {why}", .path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// One clause for people.
        why: String,
    },
    /// More candidates than a table holds.
    #[error("{0} candidates; a table holds {max}", max = imas_abi::CATALOGUE_MAX)]
    TooMany(usize),
    /// What is read is not a sound table.
    #[error("not a sound catalogue table: {0}")]
    Unsound(&'static str),
}

/// Writes the table of all usable candidates to `path`, by rename. `system` has id 1, the others follow in their order.
///
/// # Errors
/// When hook or guard are not in trusted hands, or the file system refuses. A candidate that cannot be trusted or used is no
/// error: it is left out and stands in [`Written::refused`].
pub fn write_catalogue_table(
    path: &Path,
    candidates: &[Candidate],
    libraries: &Libraries,
    owners: Owners,
) -> Result<Written, TableError> {
    let mut entries = vec![system_entry()];
    let mut refused = Vec::new();
    for candidate in candidates.iter().filter(|candidate| !candidate.is_system()) {
        match entry(candidate, owners.trusted) {
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

fn entry(candidate: &Candidate, trusted: u32) -> Result<CatalogueEntry, String> {
    if let Some(obstacle) = crate::catalogue::obstacle(candidate, crate::host::page_bytes()) {
        return Err(obstacle);
    }
    let mut entry = CatalogueEntry::new_zeroed();
    put(&mut entry.name, candidate.name.as_bytes()).ok_or("its name is too long")?;
    if let Some(library) = &candidate.library {
        let (resolved, identity) = approve(library, trusted)?;
        put(&mut entry.library, resolved.as_os_str().as_bytes()).ok_or("its library's path is too long")?;
        entry.identity = identity;
    }
    if let Some(library) = &candidate.needs {
        approve(library, trusted)?;
    }
    put(&mut entry.environment, &environment(candidate)?).ok_or("its environment is too long")?;
    Ok(entry)
}

/// `NAME=VALUE`, each ended by NUL; the zeros behind end the list.
fn environment(candidate: &Candidate) -> Result<Vec<u8>, String> {
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

/// Copies the text and leaves at least one zero byte behind it.
fn put(field: &mut [u8], text: &[u8]) -> Option<()> {
    let room = field.len() - 1;
    field.get_mut(..text.len()).filter(|_| text.len() <= room)?.copy_from_slice(text);
    Some(())
}

/// The text of a field that is ended by NUL.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).into_owned()
}

/// Follows links, then asks that the library and all folders above it are in trusted hands.
fn approve(library: &Path, trusted: u32) -> Result<(PathBuf, FileIdentity), String> {
    if !library.is_absolute() {
        return Err(format!("{}: not an absolute path", library.display()));
    }
    let resolved =
        std::fs::canonicalize(library).map_err(|error| format!("{}: {error}", library.display()))?;
    if resolved.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'$' | b'\n' | b'\t')) {
        return Err(format!(
            "{}: a path with a space, a colon or a dollar sign cannot be preloaded",
            resolved.display()
        ));
    }
    let about = look(&resolved)?;
    if !about.is_file() {
        return Err(format!("{}: not a regular file", resolved.display()));
    }
    in_trusted_hands(&resolved, &about, trusted)?;
    for folder in resolved.ancestors().skip(1) {
        in_trusted_hands(folder, &look(folder)?, trusted)?;
    }
    let identity = identity(&about);
    Ok((resolved, identity))
}

fn look(path: &Path) -> Result<Metadata, String> {
    std::fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// A folder that everybody may write to will do if it is sticky: there nobody can replace what is another's.
fn in_trusted_hands(path: &Path, about: &Metadata, trusted: u32) -> Result<(), String> {
    let shown = path.display();
    if about.uid() != 0 && about.uid() != trusted {
        return Err(format!("{shown} belongs to user {}, not to root", about.uid()));
    }
    let sticky = about.is_dir() && about.mode() & 0o1000 != 0;
    if about.mode() & 0o022 != 0 && !sticky {
        return Err(format!("{shown} can be written to by others than its owner"));
    }
    Ok(())
}

fn identity(about: &Metadata) -> FileIdentity {
    FileIdentity { dev: about.dev(), ino: about.ino(), bytes: about.len(), mtime_ns: mtime_ns(about) }
}

/// Writes `bytes` beside `path` and renames: readers see the old file or the new one. Readable by everybody.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let _ = std::fs::remove_file(&beside); // left by a killed process of the same pid
    let written = write_new(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside); // the reason to report is the first error
    }
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))?; // whatever the umask
    file.write_all(bytes)
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
        let bytes = std::fs::read(path).map_err(|error| TableError::Io { path: path.to_owned(), error })?;
        Self::decode(&bytes)
    }

    /// Checks the bytes of a table.
    ///
    /// # Errors
    /// What is wrong with them.
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

    /// Who may own the state folder and the index, besides the table's own owner.
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
            preload_folder: None,
        }
    }

    /// Names of the candidates with their ids, in the order of ids.
    pub fn names(&self) -> impl Iterator<Item = (u16, String)> {
        self.entries.iter().filter_map(|entry| Some((u16::try_from(entry.id).ok()?, text(&entry.name))))
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

    /// Libraries that are no longer as they were approved, hook and guard among them: with these nothing is placed.
    #[must_use]
    pub fn changed_libraries(&self) -> Vec<PathBuf> {
        let ours = [
            (&self.header.guard, &self.header.guard_identity),
            (&self.header.hook, &self.header.hook_identity),
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
    let (resolved, identity) = approve(path, trusted).map_err(refused)?;
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

    use super::*;

    struct Place {
        folder: tempfile::TempDir,
        owners: Owners,
    }

    impl Place {
        fn new() -> Self {
            let me = rustix::process::getuid().as_raw();
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

        fn write(&self, candidates: &[Candidate]) -> Result<Written, TableError> {
            let libraries = Libraries {
                hook: self.library("hook.so"),
                guard: self.library("guard.so"),
                preload_folder: None,
            };
            write_catalogue_table(&self.path(FILE_NAME), candidates, &libraries, self.owners)
        }
    }

    fn candidate(name: &str, library: Option<PathBuf>, environment: &[(&str, &str)]) -> Candidate {
        Candidate {
            name: name.into(),
            allocator: name.into(),
            library,
            environment: environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            ..Candidate::default()
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
    fn what_others_could_replace_is_left_out() {
        let place = Place::new();
        let open = place.library("open.so");
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        std::fs::create_dir(place.path("shared")).unwrap();
        std::fs::set_permissions(place.path("shared"), std::fs::Permissions::from_mode(0o775)).unwrap();
        let inside = place.library("shared/in.so");
        let long = place.path(&"x".repeat(250));
        std::fs::rename(place.library("l.so"), &long).unwrap();
        let reasons = |candidates: &[Candidate]| -> Vec<String> {
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
            ["written to", "written to", "missing", "too long", "may not set LD_AUDIT", "too long"];
        assert_eq!(why.len(), expected.len(), "{why:?}");
        for (why, expected) in why.iter().zip(expected) {
            assert!(why.contains(expected), "{why} / {expected}");
        }
    }

    #[test]
    fn a_hook_in_other_hands_makes_no_table() {
        let place = Place::new();
        let hook = place.library("odd hook.so");
        let libraries = Libraries { guard: place.library("guard.so"), hook, preload_folder: None };
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
