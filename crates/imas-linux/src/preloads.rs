// SPDX-License-Identifier: Apache-2.0
//! Libraries that are preloaded: a user's own, the path by which children inherit one, and the loaders that resolve it.
//!
//! Libraries that a user preloads himself. One that defines a function of malloc's family is there for a reason: it
//! looks for mistakes (Electric Fence), it counts (libmemusage), or it is the allocator of his choice. A candidate
//! before it would switch it off.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use imas_abi::env::{ALONE, FOLLOW, JVM_FLAGS, JVM_YIELDS, PAD, PAGE, SETTINGS, TREE, UNSET, WAS};

use crate::elf;
use crate::variables::Variables;

const LD_PRELOAD: &str = "LD_PRELOAD";
const FOR_ALL: &str = "/etc/ld.so.preload";
/// Our libraries are named so.
const OURS: &[u8] = b"libimas";
/// Functions by which a library takes part in what malloc does. `hook/preloaded.c` has the same.
const FAMILY: [&str; 10] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
];
/// Most entries that are read.
const MOST: usize = 64;

/// Why a program that is started with these variables keeps its malloc, and what to do about it.
#[must_use]
pub fn own_malloc(variables: &Variables) -> Option<String> {
    let taken_by = |(place, path): (&'static str, PathBuf)| Some((place, takes(&path)?, path));
    let (place, function, library) = preloads(variables).find_map(taken_by)?;
    let library = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Some(format!(
        "{library} in {place} defines {function}, and a candidate would switch it off; without it there IMAS chooses"
    ))
}

/// The first function of the family that the library defines.
fn takes(library: &Path) -> Option<&'static str> {
    let defined = elf::defined_by(library).ok()?;
    FAMILY.into_iter().find(|function| defined.contains(*function))
}

/// The libraries that ld.so preloads for a program with these variables, without ours.
#[must_use]
pub fn libraries(variables: &Variables) -> Vec<PathBuf> {
    preloads(variables).map(|(_, path)| path).collect()
}

/// Libraries, each with the place that names it.
fn preloads(variables: &Variables) -> impl Iterator<Item = (&'static str, PathBuf)> {
    let by_user = named(variables).into_iter().map(|path| (LD_PRELOAD, path));
    by_user.chain(for_all().into_iter().map(|path| (FOR_ALL, path))).take(MOST)
}

/// Whether the first library of LD_PRELOAD is one of ours.
fn begins_with_ours(variables: &Variables) -> bool {
    variables.get(LD_PRELOAD).is_some_and(|list| entries(list.as_bytes()).next().is_some_and(is_our_library))
}

/// The libraries of LD_PRELOAD, without ours and the allocator that we put behind ours.
fn named(variables: &Variables) -> Vec<PathBuf> {
    let mut list = variables.get(LD_PRELOAD).map(|list| list.as_os_str());
    if begins_with_ours(variables) {
        let was = format!("{}{LD_PRELOAD}", imas_abi::env::WAS);
        list = variables.get(was).map(|list| list.as_os_str());
    }
    let list = list.unwrap_or_default().as_bytes();
    let mut is_behind_ours = false;
    let is_of_user = |entry: &&[u8]| {
        let is_candidate = is_behind_ours && !variables.contains_key(imas_abi::env::ALONE);
        is_behind_ours = is_our_library(entry);
        !is_behind_ours && !is_candidate
    };
    entries(list).filter(is_of_user).filter_map(|entry| find(entry, variables)).collect()
}

fn for_all() -> Vec<PathBuf> {
    let text = std::fs::read(FOR_ALL).unwrap_or_default();
    let lines = text.split(|&byte| byte == b'\n');
    let plain = lines.filter_map(|line| line.split(|&byte| byte == b'#').next());
    let none = Variables::new();
    plain
        .flat_map(entries)
        .filter(|entry| !is_our_library(entry))
        .filter_map(|entry| find(entry, &none))
        .collect()
}

fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| matches!(byte, b':' | b' ' | b'\t' | b'\r')).filter(|entry| !entry.is_empty())
}

fn is_our_library(entry: &[u8]) -> bool {
    Path::new(OsStr::from_bytes(entry)).file_name().is_some_and(|name| name.as_bytes().starts_with(OURS))
}

/// The file that the dynamic linker takes for an entry.
fn find(entry: &[u8], variables: &Variables) -> Option<PathBuf> {
    let entry = std::str::from_utf8(entry).ok()?;
    let entry = match entry.contains('$') {
        true => entry.replace("${LIB}", "$LIB").replace("$LIB", own_lib()?),
        false => entry.to_owned(),
    };
    if entry.contains('/') {
        return Some(entry.into());
    }
    let own = variables.get("LD_LIBRARY_PATH").cloned().unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&own).collect();
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(PathBuf::from));
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    folders.extend(["/lib", "/usr/lib"].map(|folder| Path::new(folder).join(&multiarch)));
    folders.into_iter().map(|folder| folder.join(&entry)).find(|path| path.is_file())
}

// Variables as they were before IMAS changed them: its own notes say what was there (`abi/imas_abi.h`).

/// The variables with what the notes say in place of ours, and without the notes.
#[must_use]
pub fn undone(changed: &Variables) -> Variables {
    let mut variables = changed.clone();
    let unset = changed.get(UNSET).cloned().unwrap_or_default();
    for name in unset.as_bytes().split(|&byte| byte == b':') {
        variables.remove(OsStr::from_bytes(name));
    }
    for name in changed.keys() {
        noted(name).into_iter().for_each(|name| variables.remove(name));
    }
    // A name may have had several entries.
    for (name, value) in changed.iter().filter_map(|(note, value)| Some((noted(note)?, value))) {
        variables.push(name.to_owned(), value.clone());
    }
    variables.retain(|name, _| !is_our_variable(name));
    variables
}

/// Name of the variable whose former value a note of that name has.
fn noted(name: &OsStr) -> Option<&OsStr> {
    name.as_bytes().strip_prefix(WAS.as_bytes()).map(OsStr::from_bytes)
}

/// The variables without those that a start above with `--follow` set for its children: its allocator would
/// serve behind our libraries, in a trial of another candidate too. An LD_PRELOAD that is set anew stays.
pub(super) fn unfollowed(inherited: &Variables) -> Cow<'_, Variables> {
    let is_followed = inherited.get(FOLLOW).is_some_and(|value| value == "1");
    match is_followed && begins_with_ours(inherited) {
        true => Cow::Owned(undone(inherited)),
        false => Cow::Borrowed(inherited),
    }
}

/// Whether it is a variable that launchers above us left for their own process.
pub(super) fn is_our_variable(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let exact = [PAGE, FOLLOW, ALONE, TREE, UNSET, PAD, SETTINGS, JVM_FLAGS, JVM_YIELDS];
    exact.iter().any(|ours| bytes == ours.as_bytes()) || bytes.starts_with(WAS.as_bytes())
}

// Libraries as LD_PRELOAD names them where children inherit it: by a path with `$LIB` in it
// (docs/decisions/0020).
//
// A child may be of another libc. musl's loader ends a program when it can open a preload but not use it; it
// ignores those it cannot open, and does not replace `$LIB`. A 32-bit child's dynamic linker puts another
// folder there than ours, in which it finds a library that does nothing. `packaging/link-preload` makes the
// folder, `preload` beside our libraries.

/// Name of the folder below the libraries' own.
pub const NAME: &str = "preload";
/// The dynamic linker silently ignores a longer entry.
const LONGEST: usize = 4095;
/// `$LIB` is replaced by at most this number of folders: `lib/x86_64-linux-gnu`, and one to spare.
const DEEPEST_LIB: usize = 3;

/// The entry of LD_PRELOAD for a library. `None`: it cannot be named so here, its plain path has to do.
#[must_use]
pub fn preload_entry(preload_folder: &Path, library: &Path) -> Option<PathBuf> {
    let beside = preload_folder.parent()?;
    if !library.is_absolute() || !preload_folder.is_dir() {
        return None;
    }
    let rest = match library.strip_prefix(beside) {
        Ok(below) => below.as_os_str().to_owned(),
        Err(_) => from_the_root(preload_folder, library)?,
    };
    let through = |lib: &str| [preload_folder, Path::new(lib), Path::new(&rest)].iter().collect::<PathBuf>();
    let leads_there = through(own_lib()?);
    let entry = through("$LIB");
    (leads_there.as_os_str().len().max(entry.as_os_str().len()) <= LONGEST
        && is_same_file(&leads_there, library))
    .then_some(entry)
}

/// A library elsewhere: up from whatever folder `$LIB` stands for. At the root, `..` is the root.
fn from_the_root(preload_folder: &Path, library: &Path) -> Option<OsString> {
    let real = std::fs::canonicalize(preload_folder).ok()?;
    let mut path: PathBuf =
        vec![Component::ParentDir; real.components().count() + DEEPEST_LIB].iter().collect();
    path.push(library.strip_prefix("/").ok()?);
    Some(path.into_os_string())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|about| (about.dev(), about.ino())).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// Whether LD_PRELOAD can name the path at all: a space or a colon would end it, and a dollar sign may be
/// replaced.
#[must_use]
pub fn can_be_named(path: &OsStr) -> bool {
    !path.as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'$'))
}

// The machine's dynamic linkers, and what each puts for `$LIB`. They are asked: it depends on how the
// distribution built them.

/// Places where a dynamic linker can be: its path, whether it is for programs of this build's kind, and the
/// folder with our library for its programs below the library folder.
#[cfg(target_arch = "x86_64")]
const KNOWN: &[(&str, bool, &str)] =
    &[("/lib64/ld-linux-x86-64.so.2", true, ""), ("/lib/ld-linux.so.2", false, "i386")];
#[cfg(target_arch = "aarch64")]
const KNOWN: &[(&str, bool, &str)] =
    &[("/lib/ld-linux-aarch64.so.1", true, ""), ("/lib/ld-linux-armhf.so.3", false, "armhf")];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const KNOWN: &[(&str, bool, &str)] = &[];

/// One dynamic linker.
#[derive(Debug, Clone)]
pub struct Loader {
    /// The file itself.
    pub path: PathBuf,
    /// Whether the dynamic linker is the one of programs like this.
    pub native: bool,
    /// Folder of our library for its programs, below the library folder.
    pub folder: &'static str,
    /// Text that the dynamic linker puts for `$LIB`, like `lib/x86_64-linux-gnu`.
    pub lib: String,
}

/// Dynamic linkers that are here and answer, this command's own first.
#[must_use]
pub fn loaders() -> Vec<Loader> {
    let asked = KNOWN.iter().filter_map(|&(path, native, folder)| {
        let path = PathBuf::from(path);
        let lib = ask(&path)?;
        Some(Loader { path, native, folder, lib })
    });
    asked.collect()
}

/// Text that the dynamic linker of programs like this puts for `$LIB`. It is asked once a process, which
/// takes about a millisecond.
#[must_use]
pub fn own_lib() -> Option<&'static str> {
    static LIB: OnceLock<Option<String>> = OnceLock::new();
    let ask_native =
        || KNOWN.iter().find(|(_, native, _)| *native).and_then(|(path, ..)| ask(Path::new(path)));
    LIB.get_or_init(ask_native).as_deref()
}

/// `ld.so --list-diagnostics` (glibc 2.33 and later) prints `dl_dst_lib="lib/x86_64-linux-gnu"`.
fn ask(loader: &Path) -> Option<String> {
    let mut command = Command::new(loader);
    command.arg("--list-diagnostics").env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    let answer = command.output().ok()?.stdout;
    lib_of(&String::from_utf8_lossy(&answer))
}

fn lib_of(diagnostics: &str) -> Option<String> {
    let line = diagnostics.lines().find_map(|line| line.strip_prefix("dl_dst_lib=\""))?;
    let lib = line.strip_suffix('"')?;
    // It becomes a folder below ours.
    let plain = !lib.is_empty()
        && !lib.starts_with('/')
        && lib.split('/').all(|part| !matches!(part, "" | "." | ".."));
    plain.then(|| lib.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with a library of that name that has this source.
    fn library(name: &str, source: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        imas_testing::compiled(folder.path(), name, source, &["-shared", "-fPIC"]);
        folder
    }

    fn with(pairs: &[(&str, String)]) -> Option<String> {
        own_malloc(&pairs.iter().map(|(name, value)| ((*name).into(), value.into())).collect())
    }

    const CHECKER: &str = "void *malloc(unsigned long n) { return (void *)n; }";

    #[test]
    fn a_library_with_a_malloc_is_found_by_path_and_by_name() {
        let folder = library("checker.so", CHECKER);
        let (path, folder) = (folder.path().join("checker.so").display().to_string(), folder.path());
        let why = with(&[(LD_PRELOAD, format!("libc.so.6.none {path}"))]).unwrap();
        assert!(why.starts_with("checker.so in LD_PRELOAD defines malloc"), "{why}");
        let folder = folder.display().to_string();
        assert!(with(&[(LD_PRELOAD, "checker.so".into()), ("LD_LIBRARY_PATH", folder)]).is_some());
        assert_eq!(with(&[(LD_PRELOAD, "checker.so".into())]), None, "it is nowhere");
    }

    #[test]
    fn a_library_without_one_and_those_of_a_start_by_us_are_no_reason() {
        let (clock, checker) = (library("clock.so", "int clock_of_mine;"), library("checker.so", CHECKER));
        let path = |folder: &tempfile::TempDir, name: &str| folder.path().join(name).display().to_string();
        assert_eq!(with(&[(LD_PRELOAD, path(&clock, "clock.so"))]), None);
        let checker = path(&checker, "checker.so");
        let ours = format!("/l/libimas-guard.so:{checker}");
        assert_eq!(with(&[(LD_PRELOAD, ours.clone())]), None, "the allocator behind our guard");
        assert!(with(&[(LD_PRELOAD, ours), ("IMAS_WAS_LD_PRELOAD", checker.clone())]).is_some());
        let between = format!("{}:/l/libimas.so:{checker}", path(&clock, "clock.so"));
        assert_eq!(with(&[(LD_PRELOAD, between.clone())]), None, "the allocator behind our hook");
        assert!(with(&[(LD_PRELOAD, between), ("IMAS_ALONE", "1".into())]).is_some());
    }

    #[test]
    fn a_rare_function_of_the_family_counts() {
        let rare = library("rare.so", "void *valloc(unsigned long n) { return (void *)n; }");
        let why = with(&[(LD_PRELOAD, rare.path().join("rare.so").display().to_string())]).unwrap();
        assert!(why.starts_with("rare.so in LD_PRELOAD defines valloc"), "{why}");
    }

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        let mut variables = Variables::new();
        pairs.iter().for_each(|(name, value)| variables.push(name.into(), value.into()));
        variables
    }

    #[test]
    fn what_a_start_above_set_for_its_children_is_undone() {
        let above = variables(&[
            ("LD_PRELOAD", "/l/libimas-guard.so:/l/je.so:/x.so"),
            ("CONF", "a"),
            ("HOME", "/h"),
            ("IMAS_WAS_LD_PRELOAD", "/x.so"),
            ("IMAS_UNSET", "CONF"),
            ("IMAS_FOLLOW", "1"),
        ]);
        assert_eq!(*unfollowed(&above), variables(&[("HOME", "/h"), ("LD_PRELOAD", "/x.so")]));
        let anew = variables(&[("LD_PRELOAD", "/y.so"), ("IMAS_UNSET", "LD_PRELOAD"), ("IMAS_FOLLOW", "1")]);
        assert_eq!(*unfollowed(&anew), anew);
    }

    /// A folder of libraries with links for this machine's `$LIB`, and a library elsewhere.
    struct Installed(tempfile::TempDir);

    impl Installed {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let of_own_lib = folder.path().join("imas/preload").join(own_lib().unwrap());
            std::fs::create_dir_all(&of_own_lib).unwrap();
            for file in ["imas/guard.so", "elsewhere.so"] {
                std::fs::write(folder.path().join(file), "").unwrap();
            }
            symlink(folder.path().join("imas/guard.so"), of_own_lib.join("guard.so")).unwrap();
            Self(folder)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn entry(&self, library: &str) -> Option<PathBuf> {
            preload_entry(&self.path("imas/preload"), &self.path(library))
        }
    }

    /// Path that the dynamic linker makes of `entry` where `$LIB` is `lib`.
    fn replaced(entry: &Path, lib: &str) -> PathBuf {
        entry.to_str().unwrap().replace("$LIB", lib).into()
    }

    #[test]
    fn a_library_of_ours_goes_through_its_link() {
        let here = Installed::new();
        assert_eq!(here.entry("imas/guard.so"), Some(here.path("imas/preload/$LIB/guard.so")));
    }

    #[test]
    fn a_library_elsewhere_is_found_whatever_stands_for_lib() {
        let here = Installed::new();
        let entry = here.entry("elsewhere.so").unwrap();
        for lib in [own_lib().unwrap(), "lib", "lib64"] {
            std::fs::create_dir_all(here.path("imas/preload").join(lib)).unwrap();
            assert!(is_same_file(&replaced(&entry, lib), &here.path("elsewhere.so")), "{lib}");
        }
        assert!(!entry.exists(), "musl must not be able to open {}", entry.display());
    }

    #[test]
    fn without_the_folder_or_the_link_the_plain_path_is_used() {
        let here = Installed::new();
        assert_eq!(preload_entry(&here.path("none"), &here.path("imas/guard.so")), None);
        std::fs::write(here.path("imas/new.so"), "").unwrap();
        assert_eq!(here.entry("imas/new.so"), None, "no link to it");
        assert_eq!(here.entry("imas/missing.so"), None);
        let link = here.path("imas/preload").join(own_lib().unwrap()).join("new.so");
        symlink(here.path("elsewhere.so"), link).unwrap();
        assert_eq!(here.entry("imas/new.so"), None, "its link leads elsewhere");
    }

    #[test]
    fn an_entry_that_the_dynamic_linker_would_ignore_is_not_made() {
        let here = Installed::new();
        let long = PathBuf::from(format!("/{}", "x/".repeat(2040)));
        assert_eq!(preload_entry(&here.path("imas/preload"), &long), None);
    }

    #[test]
    fn a_path_that_cannot_be_preloaded_is_refused() {
        assert!(can_be_named(OsStr::new("/a/b.so")));
        for odd in ["/a b.so", "/a:b.so", "/$LIB/b.so"] {
            assert!(!can_be_named(OsStr::new(odd)), "{odd}");
        }
    }

    #[test]
    fn the_answer_is_a_relative_folder() {
        assert_eq!(
            lib_of("a=\"b\"\ndl_dst_lib=\"lib/x86_64-linux-gnu\"\n").as_deref(),
            Some("lib/x86_64-linux-gnu")
        );
        for bad in
            ["", "dl_dst_lib=\"\"", "dl_dst_lib=\"../x\"", "dl_dst_lib=\"/lib\"", "dl_dst_lib=\"a//b\""]
        {
            assert_eq!(lib_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn this_machines_linker_answers() {
        assert!(loaders().first().is_some_and(|loader| loader.native && loader.lib.starts_with("lib")));
        assert_eq!(own_lib(), loaders().first().map(|loader| loader.lib.as_str()));
    }
}
