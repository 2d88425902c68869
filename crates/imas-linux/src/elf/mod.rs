// SPDX-License-Identifier: Apache-2.0
//! Facts about an executable, read from its ELF file without starting it. The file may be anything: of each
//! at most [`MOST_BYTES`] are read, nothing is mapped, and no memory is taken by a size that the file claims.

mod headers;
mod interface;
mod runtimes;
mod symbols;

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags};
use serde::{Deserialize, Serialize};

use self::headers::Headers;
pub use self::interface::{JEMALLOC, looks_for_jemalloc};
use crate::program_file::ProgramFile;
use crate::runtime::FoundRuntime;
use headers::{Bounded, Limited};
pub use interface::{called_by, defined_by};
pub use symbols::{asks_for_libstdcxx, glibc_asked};

/// Limit for the bytes that are read of one file: its headers, notes and dynamic symbols with their names.
pub const MOST_BYTES: u64 = 32 << 20;
/// Limit for the headers and notes of one file, which are kept in memory, in bytes.
const MOST_HEADER_BYTES: u64 = 2 << 20;
/// Size limit for a library that is read as a whole.
const MOST_LIBRARY_BYTES: u64 = 64 << 20;

/// Word size and machine of a file against this build's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// Same machine and word size as this build.
    Native,
    /// Anything else; a preload of ours would be refused by its loader.
    Foreign,
}

/// Facts of an ELF file that matter when something is to be preloaded into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElfImage {
    /// Machine and word size.
    pub class: Class,
    /// The loader that the file asks for (`PT_INTERP`); `None` for static programs and most libraries.
    pub interpreter: Option<PathBuf>,
    /// Build-id in hexadecimal, if it has one.
    pub build_id: Option<String>,
    /// Whether the file defines `malloc` for others to use: such a definition wins over any preload.
    pub defines_malloc: bool,
    /// A sanitizer runtime it carries or asks for.
    pub sanitizer: Option<String>,
    /// Whether the file, or a library that it is linked with, calls functions of its allocator's own beside
    /// malloc.
    pub calls_interface: bool,
    /// Whether a library that it is linked with, which is not known as an allocator, defines `malloc`.
    pub library_defines_malloc: bool,
    /// Functions of libc that it, or a library that it is linked with, defines.
    pub defines: Vec<String>,
    /// Language runtimes that it is, or has inside.
    pub runtimes: Vec<FoundRuntime>,
    /// Whether it replaces itself by another program without libc, as programs of Go do.
    pub execs_itself: bool,
}

/// Why a file could not be read as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file could not be opened or read.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The file is not ELF, or damaged.
    #[error("not a readable ELF file: {0}")]
    Format(#[from] object::Error),
    /// The file ends before a part that its headers name.
    #[error("not a readable ELF file: it is shorter than its headers say")]
    Truncated,
    /// More would have to be read than an ordinary program has.
    #[error("not looked at: its headers or its dynamic symbols have more than {} MiB", MOST_BYTES >> 20)]
    TooLarge,
}

impl ElfError {
    /// Whether the file is wrong, and not the reading of it: it is the same until the file
    /// changes.
    #[must_use]
    pub fn is_of_the_file(&self) -> bool {
        !matches!(self, Self::Read(_))
    }
}

/// Why a program cannot be started under another allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// 32-bit, or of another machine.
    Foreign,
    /// No dynamic loader: nothing can be preloaded.
    Static,
    /// A loader other than glibc's.
    OtherLibc,
    /// The program defines `malloc` itself.
    OwnMalloc,
    /// A library that it is linked with defines `malloc`, and may use that for itself whatever is preloaded.
    LibraryMalloc,
    /// The program calls functions of its allocator's own beside malloc. No other allocator can take back
    /// their blocks.
    AllocatorInterface,
    /// The program runs with a sanitizer, which must be the first library.
    Sanitizer,
    /// Set-user-ID, set-group-ID or with file capabilities: the loader drops LD_PRELOAD.
    Privileged,
}

impl Unfit {
    /// Reason as one sentence for people.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Foreign => "it is built for another architecture",
            Self::Static => "it is statically linked, so nothing can be preloaded",
            Self::OtherLibc => "its C library is not glibc",
            Self::OwnMalloc => "it defines a malloc of its own",
            Self::LibraryMalloc => {
                "a library that it is linked with defines a malloc of its own and may be bound to it, and no other allocator can \
                 free what that returns"
            }
            Self::AllocatorInterface => {
                "it calls its allocator's own functions (such as mallocx, tc_malloc or mi_malloc), and no other allocator can free \
                 what they return"
            }
            Self::Sanitizer => "it is built with a sanitizer, which brings its own malloc",
            Self::Privileged => "it runs with raised privileges, for which the loader ignores preloads",
        }
    }

    /// Identifier for machines, as stored and exported.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Foreign => "foreign-architecture",
            Self::Static => "static",
            Self::OtherLibc => "other-libc",
            Self::OwnMalloc => "own-malloc",
            Self::LibraryMalloc => "library-malloc",
            Self::AllocatorInterface => "allocator-interface",
            Self::Sanitizer => "sanitizer",
            Self::Privileged => "privileged",
        }
    }
}

/// The build-id in hexadecimal, if the file has one. Its symbols are not looked at: of a library that is
/// thousands.
///
/// # Errors
/// When the file cannot be opened or is not a readable ELF file.
pub fn build_id(path: &Path) -> Result<Option<String>, ElfError> {
    let opened = ProgramFile::open(path)?;
    let (headers, ..) = headers(opened.file())?;
    Ok(headers.build_id.as_deref().map(hex))
}

/// The small parts of a file, the file, and how much more of it may be read.
fn headers<R: Read + Seek>(source: R) -> Result<(Headers, R, u64), ElfError> {
    let data = Bounded::new(source, MOST_HEADER_BYTES);
    let read = headers::read(&data);
    if data.is_exceeded() {
        return Err(ElfError::TooLarge);
    }
    let headers = read?;
    let (source, left) = data.into_inner();
    Ok((headers, source, MOST_BYTES - (MOST_HEADER_BYTES - left)))
}

impl ElfImage {
    /// Reads the headers, dynamic symbols and notes of the file at `path`; a large file is not read whole.
    ///
    /// # Errors
    /// When it cannot be opened, is no regular file or is not a readable ELF file.
    pub fn read(path: &Path) -> Result<Self, ElfError> {
        Self::of(ProgramFile::open(path)?.file(), path)
    }

    /// Reads the headers, dynamic symbols and notes of the open file that was found at `path`. The libraries
    /// of the file are looked for from there.
    ///
    /// # Errors
    /// When it cannot be read or is not a readable ELF file.
    pub fn of<R: Read + Seek>(source: R, path: &Path) -> Result<Self, ElfError> {
        let (headers, source, left) = headers(source)?;
        let mut source = Limited::new(source, left);
        let symbols = symbols::read(&mut source, headers.table, left)?;
        let is_program = headers.interpreter.is_some() && headers.class == Class::Native;
        let library_defines_malloc = is_program && interface::library_defines_malloc(&headers, path);
        let defines = if is_program { interface::wrapped_by(&mut source, &headers, path) } else { vec![] };
        let calls_interface = interface::is_called(&mut source, &headers, path);
        // The last, as it takes what the others leave: no safety depends on it.
        let left = source.left();
        let runtimes = runtimes::of(&mut source, &headers, left, path);
        let left = source.left();
        let execs_itself = is_program && runtimes::execs_itself(&mut source, &headers, left).unwrap_or(false);
        Ok(Self {
            class: headers.class,
            interpreter: headers.interpreter,
            build_id: headers.build_id.as_deref().map(hex),
            defines_malloc: symbols.malloc,
            sanitizer: symbols.sanitizer,
            calls_interface,
            library_defines_malloc,
            defines,
            runtimes,
            execs_itself,
        })
    }

    /// Why nothing may be preloaded into this program; `None` when it may.
    #[must_use]
    pub fn unfit(&self) -> Option<Unfit> {
        let loader = self.interpreter.as_ref().and_then(|path| path.file_name());
        match loader.and_then(|name| name.to_str()) {
            _ if self.class == Class::Foreign => Some(Unfit::Foreign),
            None => Some(Unfit::Static),
            // ld-linux-x86-64.so.2, ld-linux-aarch64.so.1; musl's are named ld-musl-*.
            Some(name) if !name.starts_with("ld-linux") => Some(Unfit::OtherLibc),
            _ if self.sanitizer.is_some() => Some(Unfit::Sanitizer),
            _ if self.defines_malloc => Some(Unfit::OwnMalloc),
            _ if self.library_defines_malloc => Some(Unfit::LibraryMalloc),
            _ if self.calls_interface => Some(Unfit::AllocatorInterface),
            _ => None,
        }
    }

    /// Whether musl's loader starts the program, and nothing keeps an allocator that is built for musl out of it.
    #[must_use]
    pub fn fits_musl(&self) -> bool {
        let loader = self.interpreter.as_ref().and_then(|path| path.file_name()?.to_str());
        let has_own = self.defines_malloc || self.library_defines_malloc || self.calls_interface;
        loader.is_some_and(|name| name.starts_with("ld-musl-"))
            && self.class == Class::Native
            && self.sanitizer.is_none()
            && !has_own
    }
}

/// Sizes of a library, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The file, symbols and debug information included.
    pub file: u64,
    /// The sections that the loader maps: what is left of the file when it is stripped. Memory that is zero
    /// at the start (`.bss`) is in no file.
    pub loaded: u64,
    /// The mapped sections that are executable.
    pub code: u64,
}

impl Sizes {
    /// Reads the sizes from the section headers.
    ///
    /// # Errors
    /// When the file cannot be opened or is not a readable ELF file.
    pub fn read(path: &Path) -> Result<Self, ElfError> {
        let opened = ProgramFile::open(path)?;
        let length = opened.about().len();
        let data = Bounded::new(opened.file(), MOST_BYTES);
        let file = object::File::parse(&data)?;
        let mut sizes = Self { file: length, loaded: 0, code: 0 };
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            // `.bss` has nothing in the file.
            let bytes = section.file_range().map_or(0, |(_, length)| length);
            if sh_flags.0 & object::elf::SHF_ALLOC.0 != 0 {
                sizes.loaded += bytes;
            }
            if sh_flags.0 & object::elf::SHF_EXECINSTR.0 != 0 {
                sizes.code += bytes;
            }
        }
        Ok(sizes)
    }
}

/// Checks a library that every program of a machine is to load: it must be whole (a truncated one kills each
/// program with SIGBUS), need no other library, no symbol and no symbol version (each would keep programs
/// from starting), and have no thread-local storage.
///
/// # Errors
/// The fault of the library, one clause for people.
pub fn preload_fault(path: &Path) -> Result<(), String> {
    let bytes = library_bytes(path).map_err(|error| format!("cannot be read: {error}"))?;
    let file = object::File::parse(&*bytes).map_err(|error| format!("not a readable ELF file: {error}"))?;
    match &file {
        object::File::Elf32(elf) => loads_alone(elf),
        object::File::Elf64(elf) => loads_alone(elf),
        _ => Err("not a readable ELF file".to_owned()),
    }?;
    // Index 0 is the empty symbol of every table.
    let undefined = file.dynamic_symbols().find(|symbol| symbol.is_undefined() && symbol.index().0 != 0);
    match undefined {
        Some(symbol) => Err(format!("it has an undefined symbol: {}", symbol.name().unwrap_or("?"))),
        None => Ok(()),
    }
}

fn library_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let opened = ProgramFile::open(path)?;
    let mut bytes = Vec::new();
    opened.file().take(MOST_LIBRARY_BYTES).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == MOST_LIBRARY_BYTES {
        return Err(std::io::Error::other("it is too large"));
    }
    Ok(bytes)
}

fn loads_alone<Elf: object::read::elf::FileHeader>(
    file: &object::read::elf::ElfFile<'_, Elf>,
) -> Result<(), String> {
    use object::elf::{DT_NEEDED, DT_NULL, DT_VERNEED, DynamicTag, ET_DYN, PT_LOAD, PT_TLS};
    use object::read::elf::{Dyn, ProgramHeader};
    let (endian, data) = (file.endian(), file.data());
    let damaged = |error: object::Error| format!("damaged: {error}");
    if file.elf_header().e_type(endian) != ET_DYN {
        return Err("not a shared library".to_owned());
    }
    let mut loaded = false;
    for segment in file.elf_program_headers() {
        match segment.p_type(endian) {
            PT_LOAD if segment.data(endian, data).is_err() => return Err("it is truncated".to_owned()),
            PT_LOAD => loaded = true,
            PT_TLS => return Err("it has thread-local storage".to_owned()),
            _ => {}
        }
        for entry in segment.dynamic(endian, data).map_err(damaged)?.into_iter().flatten() {
            match entry.tag32(endian).map(|tag| DynamicTag(tag.into())) {
                Some(DT_NULL) => break,
                Some(DT_NEEDED) => return Err("it needs another library".to_owned()),
                Some(DT_VERNEED) => return Err("it needs symbol versions of another library".to_owned()),
                _ => {}
            }
        }
    }
    if loaded { Ok(()) } else { Err("nothing in it can be loaded".to_owned()) }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use imas_testing::compiled;

    use super::*;
    use crate::runtime::{Runtime, RuntimeEntry};

    #[test]
    fn sizes_are_parts_of_the_file() {
        let sizes = Sizes::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(0 < sizes.code && sizes.code < sizes.loaded && sizes.loaded < sizes.file, "{sizes:?}");
        assert!(Sizes::read(Path::new("/proc/self/status")).is_err());
    }

    fn compile(source: &str, flags: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let output = compiled(folder.path(), "t", source, flags);
        (folder, output)
    }

    /// It can be linked with the libraries that were made before in that folder.
    pub(super) fn linked(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let here = format!("-L{}", folder.display());
        let first = ["-fno-builtin", "-Wl,-rpath,$ORIGIN", &here, "-Wl,--no-as-needed"];
        compiled(folder, name, source, &[&first[..], flags].concat())
    }

    #[test]
    fn an_ordinary_program_is_fit_and_has_a_build_id() {
        let (_folder, path) = compile("int main(void){return 0;}", &["-Wl,--build-id"]);
        let elf = ElfImage::read(&path).unwrap();
        assert_eq!(elf.unfit(), None);
        assert_eq!(build_id(&path).unwrap(), elf.build_id);
        assert_eq!(elf.build_id.unwrap().len(), 40);
    }

    #[test]
    fn static_own_malloc_and_sanitized_programs_are_ineligible() {
        let (_a, statically) = compile("int main(void){return 0;}", &["-static"]);
        assert_eq!(ElfImage::read(&statically).unwrap().unfit(), Some(Unfit::Static));
        let own =
            "#include <stddef.h>\nvoid *malloc(size_t n){(void)n;return NULL;} int main(void){return 0;}";
        let (_b, own) = compile(own, &["-rdynamic"]);
        assert_eq!(ElfImage::read(&own).unwrap().unfit(), Some(Unfit::OwnMalloc));
        let (_c, asan) = compile("int main(void){return 0;}", &["-fsanitize=address"]);
        assert_eq!(ElfImage::read(&asan).unwrap().unfit(), Some(Unfit::Sanitizer));
    }

    #[test]
    fn another_libc_is_recognised_by_its_loader() {
        let musl = ElfImage {
            class: Class::Native,
            interpreter: Some("/lib/ld-musl-x86_64.so.1".into()),
            build_id: None,
            defines_malloc: false,
            sanitizer: None,
            calls_interface: false,
            library_defines_malloc: false,
            defines: vec![],
            runtimes: vec![],
            execs_itself: false,
        };
        assert_eq!(musl.unfit(), Some(Unfit::OtherLibc));
        assert!(musl.fits_musl());
        assert!(!ElfImage { calls_interface: true, ..musl.clone() }.fits_musl());
        let other = Some("/lib64/ld-linux-x86-64.so.2".into());
        assert!(!ElfImage { interpreter: other, ..musl.clone() }.fits_musl());
        let foreign = ElfImage { class: Class::Foreign, ..musl };
        assert_eq!(foreign.unfit(), Some(Unfit::Foreign));
        assert!(!foreign.fits_musl());
    }

    #[test]
    fn a_library_that_is_not_fit_for_every_program_is_refused() {
        const ALONE: &[&str] = &["-shared", "-fPIC", "-nostdlib"];
        let fault = |source, flags: &[&str]| preload_fault(&compile(source, flags).1).unwrap_err();
        let (folder, whole) = compile("int f(void){return 0;}", ALONE);
        assert_eq!(preload_fault(&whole), Ok(()));
        assert!(fault("int g(void); int f(void){return g();}", ALONE).contains("undefined symbol: g"));
        assert!(
            fault("int f(void){return 0;}", &["-shared", "-fPIC", "-Wl,--no-as-needed"]).contains("needs")
        );
        assert!(
            fault("__thread int t; int *f(void){return &t;}", &["-shared", "-fPIC", "-nostdlib"])
                .contains("thread")
        );
        let mut bytes = std::fs::read(&whole).unwrap();
        for length in [0, 10, 64, 600, bytes.len() / 2] {
            bytes.truncate(bytes.len().min(bytes.len() / 2).max(length));
            let cut = folder.path().join("cut");
            std::fs::write(&cut, &bytes[..length.min(bytes.len())]).unwrap();
            assert!(preload_fault(&cut).is_err(), "{length} bytes");
        }
        std::fs::write(folder.path().join("text"), "not ELF").unwrap();
        assert!(preload_fault(&folder.path().join("text")).unwrap_err().contains("ELF"));
    }

    #[test]
    fn the_oldest_version_that_node_may_have_shows() {
        let version = |source: &str, flags: &[&str]| {
            let (_folder, file) = compile(source, flags);
            let found = ElfImage::read(&file).unwrap().runtimes;
            assert!(matches!(found.as_slice(), [one] if one.runtime == Runtime::Node), "{found:?}");
            found[0].version.clone()
        };
        let old = "int _ZN4node5StartEiPPc(void){return 0;} int main(void){return 0;}";
        let new = format!("{old} int node_api_create_external_string_latin1(void){{return 0;}}");
        assert_eq!(version(old, &["-rdynamic"]), None);
        assert_eq!(version(&new, &["-rdynamic"]).as_deref(), Some("18.18+"));
        for (name, expected) in [("libnode.so.108", None), ("libnode.so.115", Some("20+"))] {
            let name = format!("-Wl,-soname,{name}");
            let (_folder, library) =
                compile("int _ZN4node5StartEiPPc(void){return 0;}", &["-shared", "-fPIC", &name]);
            let launcher = "int _ZN4node5StartEiPPc(void); int main(void){return _ZN4node5StartEiPPc();}";
            let flags = ["-Wl,--no-as-needed", library.to_str().unwrap()];
            assert_eq!(version(launcher, &flags).as_deref(), expected);
        }
    }

    #[test]
    fn an_app_host_of_net_has_the_runtime_inside_where_an_application_is_behind_it() {
        let source = "#include <stdio.h>\nint main(void){return puts(\"hostfxr_main_startupinfo\");}";
        let (_folder, file) = compile(source, &[]);
        let mut bytes = std::fs::read(&file).unwrap();
        for application in [0, 100, 2 << 20] {
            bytes.resize(bytes.len() + application, b'x');
            std::fs::write(&file, &bytes).unwrap();
            let found = ElfImage::read(&file).unwrap().runtimes;
            let entry = if application == 0 { RuntimeEntry::Own } else { RuntimeEntry::Inside };
            let is_it = |one: &FoundRuntime| (one.runtime, one.entry) == (Runtime::Dotnet, entry);
            assert!(matches!(found.as_slice(), [one] if is_it(one)), "{application}: {found:?}");
        }
    }

    #[test]
    fn text_is_not_elf() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(matches!(ElfImage::read(&path), Err(ElfError::Format(_))));
    }
}
