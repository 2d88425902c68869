// SPDX-License-Identifier: Apache-2.0
//! The files that a process has mapped, and which libraries they are.
//!
//! A library is known by the name of its file ([`crate::mapping_text`]) where that tells something, else by the name
//! that it gives itself (its soname, in the memory of the process). A file that was replaced or removed since is still
//! what the process goes on with. All looks at processes ask here.
//!
//! Libraries of a process whose files were replaced or removed: their memory has what they are. Every byte of it is
//! untrusted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

use procfs::ProcResult;
use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use crate::environment::GUARD;
use crate::foreign_process::{self, Finding, MOST_OF_MAPPED_FILES as MOST_BYTES};
use crate::heap::{InMemory, ProcessMemory};
use crate::mapping_text::{self, CLibrary, file_name, former_path, is_replaced, of_task, release};

/// Most files of a process, and most bytes of their names: a database may have thousands.
const MOST_FILES: usize = 1 << 14;

/// The files that a process has mapped.
#[derive(Debug, Clone, Default)]
pub struct MappedFiles {
    /// The path of each when it was mapped. Where its name is none that we know, and the library has one that we
    /// know, the path has that.
    files: BTreeSet<PathBuf>,
    /// Files among them that were replaced or removed since, and whether each defines malloc, where that can be read.
    replaced: BTreeMap<PathBuf, Option<bool>>,
}

impl MappedFiles {
    /// Returns the files that a process has mapped.
    ///
    /// # Errors
    /// When there is no such process, it is not ours to look at, or it has more than 16,384 files, or a mebibyte of their
    /// names.
    pub fn of(pid: u32) -> ProcResult<Self> {
        Ok(Self::in_text(&foreign_process::find_out(pid, Finding::MappedFiles, text_of)?))
    }

    /// The files in the text of a helper; lines that are none are left out.
    fn in_text(text: &[u8]) -> Self {
        let mut found = Self::default();
        for (kind, path) in String::from_utf8_lossy(text).lines().filter_map(|line| line.split_once(' ')) {
            match kind {
                "-" => {}
                "?" => drop(found.replaced.insert(path.into(), None)),
                "0" | "1" => drop(found.replaced.insert(path.into(), Some(kind == "1"))),
                _ => continue,
            }
            found.files.insert(path.into());
        }
        found
    }

    /// Returns each file once.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Whether a file with that path is mapped, or was before it was replaced.
    #[must_use]
    pub fn contains(&self, file: &Path) -> bool {
        self.files.contains(file)
    }

    /// Returns the file of that name, in whatever folder.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Path> {
        self.iter().find(|file| file_name(file) == name)
    }

    /// Whether the file of that name was replaced or removed since it was mapped.
    #[must_use]
    pub fn is_replaced(&self, name: &str) -> bool {
        self.replaced.keys().any(|file| file_name(file) == name)
    }

    /// Whether a library was replaced or removed since the process loaded it.
    #[must_use]
    pub fn has_replaced_library(&self) -> bool {
        self.replaced.values().any(Option::is_some)
    }

    /// Whether a library that was replaced or removed defines malloc; `None` for a file that is as it was, and where its
    /// memory does not say.
    pub(crate) fn replaced_defines_malloc(&self, file: &Path) -> Option<bool> {
        self.replaced.get(file).copied().flatten()
    }

    /// Whether an earlier version of the library is mapped, whose file an upgrade has removed.
    pub(crate) fn has_earlier(&self, library: &Path) -> bool {
        let is_earlier =
            |file: &PathBuf| file.parent() == library.parent() && release(file) == release(library);
        release(library).is_some() && self.replaced.keys().any(is_earlier)
    }

    /// Returns the C library; `None` where none is mapped, as in a static program.
    #[must_use]
    pub fn c_library(&self) -> Option<CLibrary> {
        CLibrary::among(self.iter())
    }

    /// Returns the folder of the guard, where that is mapped.
    #[must_use]
    pub fn folder_of_guard(&self) -> Option<&Path> {
        self.named(GUARD)?.parent()
    }
}

/// The files that a process has mapped, a line each: what became of it, and its path. All is read in this very process.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let task = mapping_text::living_thread(pid);
    let files = distinct(of_task(task, "maps")?)?;
    let libraries = ReplacedLibraries::of(task, files.values().flatten().copied());
    let mut text = String::new();
    for (file, address) in &files {
        let library = address.and_then(|address| libraries.at(address));
        let path = library.map_or_else(|| former_path(file), |library| library.path(file));
        let kind = match (address, library) {
            (None, _) => "-",
            (Some(_), None) => "?",
            (Some(_), Some(library)) if library.defines_malloc => "1",
            (Some(_), Some(_)) => "0",
        };
        text += &format!("{kind} {}\n", path.display());
        if text.len() > MOST_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
    }
    Ok(text.into_bytes())
}

/// Each file once, with the address of its first bytes where it may be a library that was replaced or removed.
fn distinct(maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<BTreeMap<PathBuf, Option<u64>>> {
    let mut files = BTreeMap::new();
    let mut bytes = 0;
    for map in maps {
        let map = map?;
        let address = may_be_replaced(&map).then_some(map.address.0);
        let MMapPath::Path(path) = map.pathname else { continue };
        if let Some(known) = files.get_mut(&path) {
            *known = address.or(*known);
            continue;
        }
        bytes += path.as_os_str().len();
        if bytes > MOST_BYTES || files.len() >= MOST_FILES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        files.insert(path, address);
    }
    Ok(files)
}

impl<P: Into<PathBuf>> FromIterator<P> for MappedFiles {
    fn from_iter<T: IntoIterator<Item = P>>(files: T) -> Self {
        Self { files: files.into_iter().map(|file| former_path(&file.into())).collect(), ..Self::default() }
    }
}

/// Beginnings of the names of files that never had one on a disk.
const NAMELESS: [&str; 3] = ["/memfd:", "/SYSV", "/dev/"];
/// Begin of the name under which a server of files keeps what was removed.
const KEPT: &str = ".nfs";
/// Most of them in a process that are looked at.
const MOST_REPLACED: usize = 256;

/// A library whose file is gone, as it is in memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Library {
    pub(super) defines_malloc: bool,
    /// Empty where it gives itself none.
    pub(super) soname: String,
}

impl Library {
    fn of(memory: &InMemory<'_>) -> Self {
        let soname = memory.soname().filter(|name| !name.contains(char::is_whitespace)).unwrap_or_default();
        Self { defines_malloc: memory.symbol(b"malloc").is_some(), soname }
    }

    /// The path it had, with its own name where the file's tells nothing.
    pub(super) fn path(&self, mapped: &Path) -> PathBuf {
        let path = former_path(mapped);
        let tells_nothing = file_name(&path).starts_with(KEPT) || !file_name(&path).contains(".so");
        if tells_nothing && !self.soname.is_empty() { path.with_file_name(&self.soname) } else { path }
    }
}

/// Whether it begins the memory of a file that may be a library without its name.
fn may_be_replaced(map: &MemoryMap) -> bool {
    let MMapPath::Path(path) = &map.pathname else { return false };
    let is_gone = is_replaced(path) || file_name(path).starts_with(KEPT);
    let never_had_one = || NAMELESS.iter().any(|begin| path.to_string_lossy().starts_with(begin));
    is_gone && map.offset == 0 && map.perms.contains(MMPermissions::READ) && !never_had_one()
}

/// Libraries of a process whose files are gone, by the addresses of their first bytes.
#[derive(Debug, Default)]
pub(super) struct ReplacedLibraries(BTreeMap<u64, Library>);

impl ReplacedLibraries {
    /// Reads the memory of a task at these addresses, in this very process.
    pub(super) fn of(task: u32, addresses: impl Iterator<Item = u64>) -> Self {
        let mut addresses = addresses.take(MOST_REPLACED).peekable();
        let Some(memory) = addresses.peek().and_then(|_| ProcessMemory::open(task).ok()) else {
            return Self::default();
        };
        let library = |at| Some((at, Library::of(&InMemory::at(&memory, at)?)));
        Self(addresses.filter_map(library).collect())
    }

    /// The library there.
    pub(super) fn at(&self, address: u64) -> Option<&Library> {
        self.0.get(&address)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::mapping_text::{is_of_glibc, version_in_name};
    use crate::serving::chooser::{Choice, Chooser, WantedLibraries};
    use crate::serving::{Injected, RealCandidates};

    /// A program that loads libraries by their paths, and waits.
    const LOADS: &str = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)\n\
                     print('x', flush=True)\nsys.stdin.read()";

    /// Fate of a library while a process has it mapped.
    #[derive(Debug, Clone, Copy)]
    enum Fate {
        Stays,
        Replaced,
        Removed,
        /// It has another name, under which a server of files keeps what a client has open.
        KeptByServer,
        FolderMoved,
        /// Its name is a link, behind which another version lies now.
        Upgraded,
    }

    struct Loaded {
        child: std::process::Child,
        folder: tempfile::TempDir,
    }

    impl Loaded {
        fn with(libraries: &[(&str, &str)], fate: Fate) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let place = folder.path().join("lib");
            std::fs::create_dir(&place).unwrap();
            for (name, source) in libraries {
                let soname = format!("-Wl,-soname,{name}");
                let file = place.join(name);
                imas_testing::compiled(&place, name, source, &["-shared", "-fPIC", &soname]);
                if matches!(fate, Fate::Upgraded) && is_versioned(name) {
                    std::fs::rename(&file, version(&file, 0)).unwrap();
                    std::os::unix::fs::symlink(version(&file, 0), &file).unwrap();
                }
            }
            let mut command = Command::new("python3");
            command.args(["-c", LOADS]).args(libraries.iter().map(|(name, _)| place.join(name)));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            for (at, (name, _)) in libraries.iter().enumerate() {
                let file = place.join(name);
                match fate {
                    Fate::Stays | Fate::FolderMoved => {}
                    Fate::Replaced => {
                        std::fs::copy(&file, place.join("new")).unwrap();
                        std::fs::rename(place.join("new"), &file).unwrap();
                    }
                    Fate::Removed => std::fs::remove_file(&file).unwrap(),
                    Fate::Upgraded if !is_versioned(name) => {}
                    Fate::Upgraded => {
                        std::fs::copy(version(&file, 0), version(&file, 1)).unwrap();
                        std::fs::remove_file(version(&file, 0)).unwrap();
                        std::fs::remove_file(&file).unwrap();
                        std::os::unix::fs::symlink(version(&file, 1), &file).unwrap();
                    }
                    Fate::KeptByServer => {
                        std::fs::rename(&file, place.join(format!(".nfs0000{at}"))).unwrap()
                    }
                }
            }
            if matches!(fate, Fate::FolderMoved) {
                std::fs::rename(&place, folder.path().join("lib.old")).unwrap();
            }
            Self { child, folder }
        }

        fn running(&self) -> crate::running::Running {
            crate::running::one(self.child.id()).unwrap()
        }
    }

    fn is_versioned(name: &str) -> bool {
        name.contains(".so.")
    }

    /// The file of that version behind the link.
    fn version(link: &Path, number: u8) -> PathBuf {
        PathBuf::from(format!("{}.{number}", link.display()))
    }

    impl Drop for Loaded {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    const MALLOC: &str =
        "void *malloc(unsigned long n) { return (void *)n; } void free(void *p) { (void)p; }";
    const FATES: [Fate; 5] =
        [Fate::Stays, Fate::Replaced, Fate::Removed, Fate::KeptByServer, Fate::FolderMoved];

    /// The candidate, the allocator and who chose it are the same whatever becomes of the files.
    #[test]
    fn what_serves_is_known_whatever_becomes_of_its_files() {
        for fate in FATES {
            let libraries = [("libimas-guard.so", "int of_guard;"), ("libjemalloc.so", MALLOC)];
            let loaded = Loaded::with(&libraries, fate);
            let library = loaded.folder.path().canonicalize().unwrap().join("lib/libjemalloc.so");
            let candidate = crate::catalogue::CatalogueCandidate {
                name: "jemalloc".into(),
                allocator: "jemalloc".into(),
                library: Some(library),
                ..Default::default()
            };
            let candidates = RealCandidates::of([&candidate]);
            let running = loaded.running();
            assert_eq!(running.injected(), Injected::Guard, "{fate:?}");
            assert_eq!(running.name_of_candidate(&candidates), Some("jemalloc"), "{fate:?}");
            assert_eq!(running.allocator(&candidates), "jemalloc", "{fate:?}");
            assert_eq!(Choice::of(&running).by, Chooser::Guard, "{fate:?}");
            let is_gone = matches!(fate, Fate::Replaced | Fate::Removed | Fate::KeptByServer);
            assert_eq!(running.files().is_replaced("libjemalloc.so"), is_gone, "{fate:?}");
            assert_eq!(running.files().has_replaced_library(), is_gone, "{fate:?}");
            let wanted = |list| WantedLibraries::of_preload(list).unwrap().is_in(running.files());
            assert!(wanted("/i/libimas-guard.so:/l/libjemalloc.so"), "{fate:?}");
            assert!(!wanted("/i/libimas-guard.so:/l/libhoard.so"), "{fate:?}");
        }
    }

    /// A library of the distribution has its version in its name: an upgrade puts another file behind the link.
    #[test]
    fn what_serves_is_known_after_an_upgrade_of_the_distribution() {
        let loaded =
            Loaded::with(&[("libimas-guard.so", "int of_guard;"), ("libx.so.2", MALLOC)], Fate::Upgraded);
        let link = loaded.folder.path().canonicalize().unwrap().join("lib/libx.so.2");
        let named = |name: &str, library: PathBuf| crate::catalogue::CatalogueCandidate {
            name: name.into(),
            allocator: name.into(),
            library: Some(library),
            ..Default::default()
        };
        let candidates = [named("distro-x", link.clone()), named("other", link.with_file_name("libx.so.20"))];
        let candidates = RealCandidates::of(&candidates);
        let running = loaded.running();
        assert!(running.mapped().all(|file| file_name(file) != "libx.so.2.1"), "the new one is not loaded");
        assert_eq!(running.name_of_candidate(&candidates), Some("distro-x"));
        assert_eq!(running.allocator(&candidates), "distro-x");
        assert!(
            WantedLibraries::of_preload(&format!("/i/libimas-guard.so:{}", link.display()))
                .unwrap()
                .is_in(running.files())
        );
        assert!(running.files().has_replaced_library());
    }

    /// A library with a malloc whose file nobody knows by its name.
    #[test]
    fn a_malloc_of_the_program_is_known_whatever_becomes_of_its_file() {
        for fate in FATES {
            let loaded = Loaded::with(&[("libmine.so", MALLOC), ("libother.so", "int of_other;")], fate);
            let choice = Choice::of(&loaded.running());
            let file = choice.file.as_deref().map(file_name);
            assert_eq!((choice.by, file), (Chooser::Program, Some("libmine.so")), "{fate:?}");
            let plain = Loaded::with(&[("libother.so", "int of_other;")], fate);
            assert_eq!(Choice::of(&plain.running()).by, Chooser::CLibrary, "{fate:?}");
        }
    }

    #[test]
    fn a_c_library_is_known_by_each_of_its_names() {
        for (file, library) in [
            ("/lib/x86_64-linux-gnu/libc.so.6", Some(CLibrary::Glibc)),
            ("/lib/libc.so.6 (deleted)", Some(CLibrary::Glibc)),
            ("/lib/libc-2.31.so", Some(CLibrary::Glibc)),
            ("/lib/libc-2.28.so (deleted)", Some(CLibrary::Glibc)),
            ("/lib/ld-musl-x86_64.so.1", Some(CLibrary::Musl)),
            ("/usr/lib/x86_64-linux-musl/libc.so (deleted)", Some(CLibrary::Musl)),
            ("/lib/libc-client.so", None),
            ("/lib/libc-2.31.so.1", None),
            ("/lib/libcap.so.2", None),
            ("/x/libc-2.\u{1b}.so", None),
        ] {
            assert_eq!(CLibrary::of_file(Path::new(file)), library, "{file}");
        }
        for (file, is_of) in [
            ("/lib64/ld-linux-x86-64.so.2 (deleted)", true),
            ("/lib/ld-2.31.so", true),
            ("/lib/libm-2.31.so", false),
        ] {
            assert_eq!(is_of_glibc(Path::new(file)), is_of, "{file}");
        }
        assert_eq!(version_in_name(Path::new("/l/libc-2.31.so (deleted)")), Some("2.31"));
    }

    /// A process writes into the memory of its libraries whatever it likes.
    #[test]
    fn the_text_of_a_helper_is_read_line_by_line() {
        let read = MappedFiles::in_text(b"1 /a/libx.so\n? /b c\n0 /z\n- /d\nx /e\n\xff\n7f02\n");
        assert_eq!(read.files, ["/a/libx.so", "/b c", "/z", "/d"].map(PathBuf::from).into());
        let replaced = [("/a/libx.so", Some(true)), ("/b c", None), ("/z", Some(false))];
        assert_eq!(read.replaced, replaced.map(|(file, is)| (PathBuf::from(file), is)).into());
    }

    #[test]
    fn a_process_with_more_files_than_anybody_needs_is_not_looked_at() {
        let text = |count: usize, bytes: usize| {
            let line = |at: usize| format!("{at:x}000-{at:x}fff r--p 00000000 08:01 7 /{at:0>bytes$}\n");
            (1..=count).map(line).collect::<String>()
        };
        let files =
            |text: &str| distinct(crate::mapping_text::mappings(text.as_bytes())).map(|files| files.len());
        assert_eq!(files(&text(MOST_FILES, 50)).unwrap(), MOST_FILES);
        for (count, bytes) in [(MOST_FILES + 1, 8), (MOST_BYTES / 4000 + 1, 4000)] {
            assert_eq!(files(&text(count, bytes)).unwrap_err().kind(), ErrorKind::FileTooLarge, "{count}");
        }
    }

    #[test]
    fn a_name_that_tells_nothing_gives_way_to_the_librarys_own() {
        let library = Library { defines_malloc: true, soname: "libx.so".into() };
        assert_eq!(library.path(Path::new("/a/.nfs01")), Path::new("/a/libx.so"));
        assert_eq!(library.path(Path::new("/a/liby.so (deleted)")), Path::new("/a/liby.so"));
    }
}
