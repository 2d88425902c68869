// SPDX-License-Identifier: Apache-2.0
//! Whether a program calls functions of an allocator's own beside malloc: `free(mallocx(n, 0))` is right by
//! jemalloc's manual, and a crash where another malloc serves. `abi/imas_interface.h` lists these functions;
//! the hook asks the same of what is loaded (`hook/interface.c`), and so finds what a look at the files does
//! not show.
//!
//! Which of libc's functions a program defines itself, and which an allocator calls. Where a function is both, the
//! allocator reaches the program's definition; if that calls malloc, the allocator is entered a second time and the
//! program hangs (docs/decisions/0034). The hook asks the same of what is loaded (`hook/wrapped.c`).

use std::collections::BTreeSet;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::headers::Headers;
use super::symbols::{self, Kind};
use super::{ElfError, MOST_BYTES};
use crate::program_file::ProgramFile;

/// At most this number of a program's libraries is read; the hook finds calls of an allocator in others.
const MOST_LIBRARIES: usize = 64;
/// At most this number of the folders that a program names is searched.
const MOST_FOLDERS: usize = 32;

/// An allocator with an interface of its own.
struct Interface {
    /// Beginning of the names of its libraries.
    library: &'static str,
    /// Functions of the interface that give, take or ask about blocks; `*` stands for any ending.
    functions: LazyLock<Vec<&'static str>>,
    /// Further names that a program asks for by dlsym and that work with and without this allocator.
    asked: &'static [&'static str],
}

/// Beginning of the names of jemalloc's libraries.
pub const JEMALLOC: &str = "libjemalloc";

static INTERFACES: [Interface; 3] = [
    Interface {
        library: JEMALLOC,
        functions: LazyLock::new(|| functions("JEMALLOC")),
        asked: &["mallctl", "mallctlnametomib", "mallctlbymib", "malloc_stats_print"],
    },
    Interface {
        library: "libtcmalloc",
        functions: LazyLock::new(|| functions("TCMALLOC")),
        asked: &["MallocExtension_*"],
    },
    Interface {
        library: "libmimalloc",
        functions: LazyLock::new(|| functions("MIMALLOC")),
        asked: &["mi_process_info", "mi_stats_*"],
    },
];

/// The names in the texts of one definition of the header.
fn functions(allocator: &str) -> Vec<&'static str> {
    let header = include_str!("../../../../abi/imas_interface.h");
    let mut definitions = header.split("#define IMAS_INTERFACE_");
    let definition = definitions.find(|text| text.starts_with(allocator)).unwrap_or_default();
    definition.split('"').skip(1).step_by(2).flat_map(str::split_whitespace).collect()
}

impl Interface {
    fn is_asked(&self, name: &str) -> bool {
        self.has(name) || is_listed(self.asked, name)
    }

    fn has(&self, name: &str) -> bool {
        is_listed(&self.functions, name)
    }
}

fn is_listed(names: &[&str], name: &str) -> bool {
    names.iter().any(|listed| match listed.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *listed,
    })
}

/// Whether the program, or a library that it is linked with, calls an allocator's own functions, or asks for them by name, and that
/// allocator's malloc is the program's: its library is named before libc. Where libc's malloc comes first,
/// the other's blocks are a heap apart.
///
/// A file that cannot be read has no call: the hook looks again when the program starts.
pub(super) fn is_called(source: &mut (impl Read + Seek), program: &Headers, path: &Path) -> bool {
    // Hardly ever is there one; only then is more read.
    let Some(interface) = own_interface(&program.needed) else { return false };
    let mut left = MOST_BYTES;
    if calls(interface, source, program, &mut left) {
        return true;
    }
    let others =
        program.needed.iter().filter(|name| !name.starts_with(interface.library)).take(MOST_LIBRARIES);
    let mut files = others.filter_map(|name| find(name, path, &program.folders));
    files.any(|library| is_called_by(interface, &library, &mut left))
}

/// Libraries that are known to define `malloc` for the whole program: a preload takes their place. The dynamic linker
/// defines one until glibc 2.34, for its own start; on arm64 most programs are linked with it.
const ALLOCATORS: [&str; 11] = [
    "libc.so",
    "ld-linux",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libtbbmalloc",
    "libhoard",
    "libsnmalloc",
    "librpmalloc",
    "libscudo",
    "libmtmalloc",
];

/// Whether a library that the program is linked with, other than an allocator, defines `malloc`. Such a
/// library is often linked so that it uses its own malloc whatever comes before it, and what it returns is
/// then freed by another: rspamd crashes so. Whether it is linked so is not written in the file.
pub(super) fn library_defines_malloc(program: &Headers, path: &Path) -> bool {
    let others = program.needed.iter().filter(|name| !ALLOCATORS.iter().any(|known| name.starts_with(known)));
    let mut files = others.take(MOST_LIBRARIES).filter_map(|name| find(name, path, &program.folders));
    files.any(|library| defines_malloc(&library).unwrap_or(false))
}

fn defines_malloc(library: &Path) -> Result<bool, super::ElfError> {
    let opened = ProgramFile::open(library)?;
    let (headers, mut source, left) = super::headers(opened.file())?;
    Ok(symbols::read(&mut source, headers.table, left)?.malloc)
}

/// The interface of the first allocator whose library is named before libc.
fn own_interface(needed: &[String]) -> Option<&'static Interface> {
    let mut before_libc = needed.iter().take_while(|name| !name.starts_with("libc.so"));
    before_libc.find_map(|name| INTERFACES.iter().find(|one| name.starts_with(one.library)))
}

fn is_called_by(interface: &Interface, library: &Path, left: &mut u64) -> bool {
    let Ok(opened) = ProgramFile::open(library) else { return false };
    let Ok((headers, mut source, _)) = super::headers(opened.file()) else { return false };
    calls(interface, &mut source, &headers, left)
}

/// Whether the file looks for functions that jemalloc has beside malloc and that others do without, such as `mallctl`: it
/// refers to one, or has its name as a text and calls dlsym. What cannot be read looks for nothing.
#[must_use]
pub fn looks_for_jemalloc(library: &Path) -> bool {
    let Some(jemalloc) = INTERFACES.iter().find(|one| one.library == JEMALLOC) else { return false };
    let Ok(opened) = ProgramFile::open(library) else { return false };
    let Ok((headers, mut source, mut left)) = super::headers(opened.file()) else { return false };
    let (mut finds_by_name, mut referred) = (false, BTreeSet::new());
    let mut look = |name: &str| {
        finds_by_name |= name == "dlsym" || name == "dlvsym";
        if is_listed(jemalloc.asked, name) {
            referred.insert(name.to_owned());
        }
    };
    let looked = symbols::names_of(&mut source, headers.table, left, Kind::Undefined, &mut look);
    looked.is_ok()
        && (!referred.is_empty()
            || (finds_by_name && asks(jemalloc, &mut source, &headers, &referred, &mut left)))
}

/// Looks through one file; what is read of it is taken off `left`, the bytes that may be read of all.
fn calls(interface: &Interface, source: &mut (impl Read + Seek), file: &Headers, left: &mut u64) -> bool {
    let bytes = file.table.map_or(0, |table| table.symbols.bytes.saturating_add(table.names.bytes));
    let (mut is_called, mut finds_by_name, mut referred) = (false, false, BTreeSet::new());
    let mut look = |name: &str| {
        is_called |= interface.has(name);
        finds_by_name |= name == "dlsym" || name == "dlvsym";
        if interface.is_asked(name) {
            referred.insert(name.to_owned());
        }
    };
    let looked = symbols::names_of(source, file.table, *left, Kind::Undefined, &mut look);
    *left = left.saturating_sub(bytes);
    looked.is_ok() && (is_called || (finds_by_name && asks(interface, source, file, &referred, left)))
}

/// Whether the file has the name of one of the functions as a text, for dlsym. The names of its own symbols do not count,
/// nor does a function that it calls anyway (redis calls mallctl).
fn asks(
    interface: &Interface,
    source: &mut (impl Read + Seek),
    file: &Headers,
    referred: &BTreeSet<String>,
    left: &mut u64,
) -> bool {
    let names = file.table.map_or(0..0, |table| table.names.offset..table.names.offset + table.names.bytes);
    let is_asked =
        |at: u64, text: &str| !names.contains(&at) && interface.is_asked(text) && !referred.contains(text);
    symbols::any_text(source, left, is_asked).unwrap_or(false)
}

/// The library's file where ld.so would look first: in the folders that the program names, then in the usual
/// ones. What is elsewhere, the hook finds.
pub(super) fn find(name: &str, program: &Path, named: &[String]) -> Option<PathBuf> {
    let origin = program.parent().unwrap_or_else(|| Path::new("/")).to_string_lossy().into_owned();
    let named =
        named.iter().flat_map(|list| list.split(':')).filter(|folder| !folder.is_empty()).take(MOST_FOLDERS);
    let named = named.map(|folder| folder.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin));
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let usual = ["/lib/", "/usr/lib/"].map(|folder| format!("{folder}{multiarch}"));
    let others = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(str::to_owned);
    let mut files = named.chain(usual).chain(others).map(|folder| Path::new(&folder).join(name));
    files.find(|file| file.is_file())
}

/// Most names that are kept. A program that defines more of libc's functions brings a libc of its own.
const MOST_NAMES: usize = 64;

/// Parts of glibc, the compiler's runtime, and allocators whose place a candidate takes.
const HARMLESS: [&str; 11] = [
    "libpthread.so",
    "libdl.so",
    "libm.so",
    "librt.so",
    "ld-linux",
    "libgcc_s.so",
    "libstdc++.so",
    "libtcmalloc",
    "libjemalloc",
    "libmimalloc",
    "libtbbmalloc",
];

/// gperftools defines these and calls them by their names: a definition that comes before its own is reached.
const INTERPOSED: [&str; 5] = ["sbrk", "mmap", "mmap64", "munmap", "mremap"];

/// Names that the compiler's start files refer to; a program may define them.
fn is_of_compiler(name: &str) -> bool {
    name == "__gmon_start__" || name == "__cxa_finalize" || name.starts_with("_ITM_")
}

/// The functions of libc that the program, or a library that it is linked with and that comes before libc, defines.
/// A file that cannot be read counts as defining nothing: the hook looks again when the program starts.
pub(super) fn wrapped_by(
    source: &mut (impl std::io::Read + std::io::Seek),
    program: &Headers,
    path: &Path,
) -> Vec<String> {
    let before_libc = || program.needed.iter().take_while(|name| !name.starts_with("libc.so"));
    let libc = find("libc.so.6", path, &program.folders);
    let Some(of_libc) = libc.and_then(|libc| names(&libc, Kind::Defined, &mut MOST_BYTES.clone()).ok())
    else {
        return vec![];
    };
    let mut left = MOST_BYTES;
    let mut defined = BTreeSet::new();
    let mut keep = |name: &str| {
        if of_libc.contains(name) && !is_of_compiler(name) && defined.len() < MOST_NAMES {
            defined.insert(name.to_owned());
        }
    };
    let _ = symbols::names_of(source, program.table, left, Kind::Defined, &mut keep); // nothing is found in it
    let suspects = before_libc().filter(|name| !HARMLESS.iter().any(|known| name.starts_with(known)));
    for file in suspects.take(MOST_LIBRARIES).filter_map(|name| find(name, path, &program.folders)) {
        names(&file, Kind::Defined, &mut left).unwrap_or_default().iter().for_each(|name| keep(name));
    }
    defined.into_iter().collect()
}

/// The functions that a library defines.
///
/// # Errors
/// When the file cannot be read or is not a readable ELF file.
pub fn defined_by(library: &Path) -> Result<BTreeSet<String>, ElfError> {
    names(library, Kind::Defined, &mut MOST_BYTES.clone())
}

/// The functions of others that a library calls.
///
/// # Errors
/// When the file cannot be read or is not a readable ELF file.
pub fn called_by(library: &Path) -> Result<BTreeSet<String>, ElfError> {
    let mut called = names(library, Kind::Undefined, &mut MOST_BYTES.clone())?;
    called.retain(|name| !name.is_empty() && !is_of_compiler(name));
    let defined = names(library, Kind::Defined, &mut MOST_BYTES.clone())?;
    called.extend(INTERPOSED.iter().filter(|name| defined.contains(**name)).map(|name| (*name).to_owned()));
    Ok(called)
}

/// Names of the file's symbols; what is read for them is taken off `left`.
fn names(file: &Path, kind: Kind, left: &mut u64) -> Result<BTreeSet<String>, ElfError> {
    let opened = ProgramFile::open(file)?;
    let (headers, mut source, _) = super::headers(opened.file())?;
    let mut found = BTreeSet::new();
    let mut keep = |name: &str| {
        found.insert(name.to_owned());
    };
    symbols::names_of(&mut source, headers.table, *left, kind, &mut keep)?;
    let read = headers.table.map_or(0, |table| table.symbols.bytes.saturating_add(table.names.bytes));
    *left = left.saturating_sub(read);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::linked;
    use crate::elf::{ElfImage, Unfit};

    #[test]
    fn controls_are_no_calls() {
        let [jemalloc, tcmalloc, mimalloc] = &INTERFACES;
        assert_eq!([jemalloc, tcmalloc, mimalloc].map(|one| one.functions.len()), [6, 17, 40]);
        for harmless in ["malloc", "free", "mallctl", "nallocx", "malloc_usable_size", "malloc_stats_print"] {
            assert!(!jemalloc.has(harmless), "{harmless}");
        }
        for harmless in ["tc_malloc_stats", "tc_mallinfo", "tc_version", "MallocExtension_ReleaseFreeMemory"]
        {
            assert!(!tcmalloc.has(harmless), "{harmless}");
        }
        for harmless in ["mi_malloc_good_size", "mi_collect", "mi_option_set", "mi_heap_new", "mi_open"] {
            assert!(!mimalloc.has(harmless), "{harmless}");
        }
        assert!(tcmalloc.has("tc_newarray_nothrow") && mimalloc.has("mi_free_size"));
    }

    /// Stand-ins for an allocator's library suffice: nothing here is started.
    struct Made(tempfile::TempDir);

    impl Made {
        fn new() -> Self {
            let made = Self(tempfile::tempdir().unwrap());
            let all = "void *mallocx(unsigned long n, int f){(void)n;(void)f;return 0;} int mallctl(void){return 0;}";
            made.compile("libjemalloc.so.2", all, &["-shared", "-fPIC", "-Wl,-soname,libjemalloc.so.2"]);
            made
        }

        fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
            linked(self.0.path(), name, source, flags)
        }

        fn unfit(&self, source: &str, flags: &[&str]) -> Option<Unfit> {
            ElfImage::read(&self.compile("t", source, flags)).unwrap().unfit()
        }
    }

    const CALLS: &str = "void *mallocx(unsigned long, int); int main(void){return mallocx(1, 0) != 0;}";
    const JE: &str = "-l:libjemalloc.so.2";

    #[test]
    fn a_caller_of_an_allocators_own_functions_is_ineligible() {
        let made = Made::new();
        assert_eq!(made.unfit(CALLS, &[JE]), Some(Unfit::AllocatorInterface));
        let asks = "int mallctl(void); int main(void){return mallctl();}";
        assert_eq!(made.unfit(asks, &[JE]), None, "as redis-server does");
        let may = CALLS
            .replace("int);", "int) __attribute__((weak));")
            .replace("mallocx(1, 0) != 0", "mallocx ? mallocx(1, 0) != 0 : 0");
        assert_eq!(made.unfit(&may, &[]), None, "it would call it where it is");
        assert_eq!(made.unfit(&may, &[JE]), Some(Unfit::AllocatorInterface), "and it is");
        assert_eq!(made.unfit(CALLS, &["-lc", JE]), None, "libc's malloc is the program's: a heap apart");
    }

    /// The case of SWI-Prolog's libswipl.so.9.
    #[test]
    fn a_program_that_asks_its_allocator_by_name_is_ineligible() {
        let made = Made::new();
        let asks = |name: &str| {
            format!("void *dlsym(void *, const char *); int main(void){{return dlsym(0, \"{name}\") == 0;}}")
        };
        assert_eq!(made.unfit(&asks("mallctl"), &[JE]), Some(Unfit::AllocatorInterface));
        assert_eq!(made.unfit(&asks("mallctl"), &[]), None, "it asks for what it does not have");
        assert_eq!(made.unfit(&asks("mi_malloc"), &[JE]), None, "it asks for another one");
        assert_eq!(made.unfit(&asks("a mallctl"), &[JE]), None, "a message");
        let both = asks("dlopen")
            .replace("int main", "int mallctl(void); int main")
            .replace("== 0;", "== 0 && mallctl();");
        assert_eq!(made.unfit(&both, &[JE]), None, "as redis-server does");
    }

    /// An image library sets its threads by whether it finds the function.
    #[test]
    fn a_library_that_does_otherwise_beside_jemalloc_looks_for_it() {
        let made = Made::new();
        let looks =
            |source: &str| looks_for_jemalloc(&made.compile("libimage.so", source, &["-shared", "-fPIC"]));
        assert!(looks("int mallctl(void) __attribute__((weak)); int has(void){return mallctl != 0;}"));
        assert!(looks(
            "void *dlsym(void *, const char *); int has(void){return dlsym(0, \"mallctl\") != 0;}"
        ));
        assert!(
            !looks("const char *text = \"mallctl\"; int has(void){return text != 0;}"),
            "it finds nothing"
        );
        assert!(!looks("int has(void){return 0;}"));
        assert!(!looks_for_jemalloc(Path::new("/no/such/file")));
    }

    #[test]
    fn a_library_of_the_program_is_looked_at() {
        let made = Made::new();
        let library = CALLS.replace("main(void)", "mixed(void)");
        made.compile("libmixed.so", &library, &["-shared", "-fPIC", JE]);
        let program = "int mixed(void); int main(void){return mixed();}";
        assert_eq!(made.unfit(program, &["-l:libmixed.so", JE]), Some(Unfit::AllocatorInterface));
        assert_eq!(made.unfit(program, &["-l:libmixed.so"]), None, "libc's malloc is the program's");
    }

    /// A case like rspamd's librspamd-server.so.
    #[test]
    fn a_library_with_its_own_malloc_makes_its_program_ineligible() {
        let made = Made::new();
        let server = "void *malloc(unsigned long n){(void)n;return 0;} void serve(void){malloc(1);}";
        made.compile("libserver.so", server, &["-shared", "-fPIC", "-Wl,-Bsymbolic"]);
        let program = "void serve(void); int main(void){serve(); return 0;}";
        assert_eq!(made.unfit(program, &["-l:libserver.so"]), Some(Unfit::LibraryMalloc));
        made.compile("libjemalloc.so.2", server, &["-shared", "-fPIC", "-Wl,-soname,libjemalloc.so.2"]);
        assert_eq!(made.unfit(program, &[JE]), None, "an allocator for the whole program");
        made.compile("ld-linux-made.so.1", server, &["-shared", "-fPIC", "-Wl,-soname,ld-linux-made.so.1"]);
        assert_eq!(made.unfit(program, &["-l:ld-linux-made.so.1"]), None, "the dynamic linker");
    }

    #[test]
    fn redis_stays_a_program_that_can_be_tried() {
        match ElfImage::read(Path::new("/usr/bin/redis-server")) {
            Ok(redis) => assert_eq!(redis.unfit(), None),
            Err(error) => imas_testing::skipped(&format!("redis-server: {error}")),
        }
    }

    const WRAPS: &str = "int munmap(void *a, unsigned long n){return a && n;} int mine(void){return 1;}";

    #[test]
    fn what_the_program_and_its_libraries_define_of_libc_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let main = "int munmap(void *, unsigned long); int main(void){return munmap(0, 0);}";
        let defines = |file: &Path| ElfImage::read(file).unwrap().defines;
        let plain = linked(folder.path(), "plain", main, &[]);
        assert_eq!(defines(&plain), Vec::<String>::new(), "a reference is no definition");
        let own = linked(folder.path(), "own", &WRAPS.replace("mine", "main"), &["-rdynamic"]);
        assert_eq!(defines(&own), ["munmap"]);
        linked(folder.path(), "libwraps.so", WRAPS, &["-shared", "-fPIC"]);
        let used = linked(folder.path(), "used", main, &["-lwraps"]);
        assert_eq!(defines(&used), ["munmap"]);
        let behind = linked(folder.path(), "behind", main, &["-lc", "-lwraps"]);
        assert_eq!(defines(&behind), Vec::<String>::new(), "libc comes first");
    }

    #[test]
    fn calls_and_definitions_of_a_library_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let source = "int munmap(void *, unsigned long); int mine(void){return munmap(0, 0);}";
        let library = linked(folder.path(), "libcalls.so", source, &["-shared", "-fPIC"]);
        assert_eq!(called_by(&library).unwrap().into_iter().collect::<Vec<_>>(), ["munmap"]);
        assert!(defined_by(&library).unwrap().contains("mine"));
        std::fs::write(folder.path().join("text"), "no ELF").unwrap();
        assert!(called_by(&folder.path().join("text")).is_err());
    }
}
