// SPDX-License-Identifier: Apache-2.0

use std::io::Read as _;
use std::process::{Command, Stdio};

use super::*;
use crate::library_name::{is_of_glibc, version_in_name};
use crate::serving::candidate::RealCandidates;
use crate::serving::chooser::{Choice, Chooser};
use crate::serving::injected::Injected;
use crate::serving::wanted::WantedLibraries;

/// A program that loads libraries by their paths, and waits.
const LOADS: &str = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)\n\
                     print('x', flush=True)\nsys.stdin.read()";

/// What becomes of a library while a process has it mapped.
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
                Fate::KeptByServer => std::fs::rename(&file, place.join(format!(".nfs0000{at}"))).unwrap(),
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

const MALLOC: &str = "void *malloc(unsigned long n) { return (void *)n; } void free(void *p) { (void)p; }";
const FATES: [Fate; 5] = [Fate::Stays, Fate::Replaced, Fate::Removed, Fate::KeptByServer, Fate::FolderMoved];

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
