// SPDX-License-Identifier: Apache-2.0
//! Where the C library of a process has what a trim from outside needs ([`imas_trim::TrimSite`]), read from the
//! process's memory alone.

use std::io::Result;
use std::path::PathBuf;

use imas_trim::TrimSite;
use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use super::arena;
use super::figures::NotReadable;
use super::in_memory::InMemory;
use super::libc::{CacheKey, Found, Library, Region};
use super::memory::{Memory, ProcessMemory};
use crate::mapping_text::CLibrary;

/// The instructions to which signal handlers return, and which the kernel and unwinders know as well: on x86-64 `mov
/// $15,%rax; syscall` of glibc (`__restore_rt`), on aarch64 `mov x8, #139; svc #0` of the vdso
/// (`__kernel_rt_sigreturn`).
#[cfg(target_arch = "x86_64")]
const SIGRETURN: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
#[cfg(target_arch = "aarch64")]
const SIGRETURN: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
/// Bytes of code that are compared again while the thread is stopped.
const CODE: usize = 16;
/// Most mappings of code.
const MOST_RANGES: usize = 64;
/// Most bytes of a library's code that are searched, and bytes that are read at once.
const MOST_TEXT: u64 = 4 << 20;
const PIECE: usize = 256 << 10;

/// The site in a process; or why there is none.
pub(crate) fn of_process(pid: u32) -> Result<std::result::Result<TrimSite, NotReadable>> {
    let memory = ProcessMemory::open(pid)?;
    let mut code = CodeOf::default();
    let maps = memory.maps().inspect(|map| {
        if let Ok(map) = map {
            code.add(map);
        }
    });
    let found = match Found::of(maps) {
        Ok(found) => found,
        Err(error) if error.raw_os_error().is_some() => return Err(error),
        Err(_) => return Ok(Err(NotReadable::because("its mappings make no sense"))),
    };
    let regions = found.regions();
    let site = regions.and_then(|regions| site_in(&memory, regions, &code));
    Ok(site.map_err(|reason| found.with_other_malloc(reason)))
}

fn site_in(
    memory: &dyn Memory,
    regions: &[Region],
    code: &CodeOf,
) -> std::result::Result<TrimSite, NotReadable> {
    let library = Library::of(memory, regions)?;
    if library.layout.cache_key != CacheKey::Random {
        let version = &library.version;
        return Err(NotReadable::because(format!("a trim from outside was never tried on glibc {version}")));
    }
    let first = arena::all(memory, &library)?.first().map(|arena| arena.address);
    code.is_one_library()?;
    let missing = |what: &str| NotReadable::because(format!("{what} was not found in its C library"));
    let base = InMemory::at(memory, code.base).ok_or_else(|| missing("a table of symbols"))?;
    let malloc_trim = base.symbol(b"malloc_trim").filter(|address| code.has(*address));
    let malloc_trim = malloc_trim.and_then(|address| code_at(memory, address));
    let sigreturn = code.of_sigreturn().iter().find_map(|range| sigreturn_in(memory, *range));
    Ok(TrimSite {
        malloc_trim: malloc_trim.ok_or_else(|| missing("malloc_trim"))?,
        sigreturn: sigreturn.ok_or_else(|| missing("the return of signal handlers"))?,
        first_arena: first.ok_or_else(|| missing("the first arena"))?,
        next: library.layout.next,
    })
}

/// The code of the C library. A program may map the file once more to read it; that is no library.
#[derive(Default)]
struct CodeOf {
    /// The mapping of the file's first byte that was seen last.
    begin: Option<(PathBuf, u64)>,
    /// Address of the first byte of the file whose code is mapped.
    base: u64,
    /// First address, and the one after the last, of each mapping that may be executed.
    ranges: Vec<(u64, u64)>,
    /// The kernel's code in the process.
    vdso: Option<(u64, u64)>,
    has_two: bool,
}

impl CodeOf {
    fn add(&mut self, map: &MemoryMap) {
        if map.pathname == MMapPath::Vdso {
            self.vdso = Some(map.address);
        }
        let MMapPath::Path(file) = &map.pathname else { return };
        if CLibrary::of_file(file) != Some(CLibrary::Glibc) {
            return;
        }
        if map.offset == 0 {
            self.begin = Some((file.clone(), map.address.0));
        }
        let Some((of, base)) = &self.begin else { return };
        if of != file || !map.perms.contains(MMPermissions::EXECUTE) || self.ranges.len() >= MOST_RANGES {
            return;
        }
        self.has_two |= !self.ranges.is_empty() && self.base != *base;
        self.base = *base;
        self.ranges.push(map.address);
    }

    fn is_one_library(&self) -> std::result::Result<(), NotReadable> {
        match (self.ranges.is_empty(), self.has_two) {
            (true, _) => Err(NotReadable::because("its C library has no code")),
            (_, true) => Err(NotReadable::because("it has two C libraries")),
            _ => Ok(()),
        }
    }

    /// Mappings that may have the return of signal handlers.
    fn of_sigreturn(&self) -> &[(u64, u64)] {
        if cfg!(target_arch = "aarch64") { self.vdso.as_slice() } else { &self.ranges }
    }

    fn has(&self, address: u64) -> bool {
        self.ranges.iter().any(|(begin, end)| (*begin..*end).contains(&address))
    }
}

fn code_at(memory: &dyn Memory, address: u64) -> Option<(u64, [u8; CODE])> {
    let mut bytes = [0; CODE];
    let got = memory.read(address, &mut bytes).ok()?;
    (got == CODE).then_some((address, bytes))
}

fn sigreturn_in(memory: &dyn Memory, (begin, end): (u64, u64)) -> Option<(u64, [u8; CODE])> {
    let end = end.min(begin.checked_add(MOST_TEXT)?);
    let mut bytes = vec![0; PIECE + SIGRETURN.len()];
    for at in (begin..end).step_by(PIECE) {
        let room = usize::try_from(end - at).ok()?.min(bytes.len());
        let got = memory.read(at, bytes.get_mut(..room)?).unwrap_or(0);
        let place = bytes.get(..got)?.windows(SIGRETURN.len()).position(|code| code == SIGRETURN);
        if let Some(place) = place {
            return code_at(memory, at + place as u64);
        }
    }
    None
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;
    use crate::mapping_text::mappings;

    #[test]
    fn the_site_of_this_process_is_where_its_linker_says() {
        // Without an arena in use there is no site.
        std::hint::black_box(vec![1u8; 100]);
        let site = of_process(std::process::id()).unwrap().unwrap();
        assert_eq!(site.malloc_trim.0, nix::libc::malloc_trim as *const () as u64);
        assert_eq!(&site.sigreturn.1[..SIGRETURN.len()], SIGRETURN);
        assert!(site.first_arena.is_multiple_of(8) && site.next > 0x800, "{site:?}");
    }

    #[test]
    fn a_copy_of_the_file_is_no_library_and_two_libraries_are_one_too_many() {
        let text = "\
            1000-2000 r--p 00000000 08:01 5 /lib/libc.so.6\n\
            7000-8000 r--p 00000000 08:01 5 /lib/libc.so.6\n\
            8000-9000 r-xp 00001000 08:01 5 /lib/libc.so.6\n";
        let of = |text: &str| {
            let mut code = CodeOf::default();
            mappings(text.as_bytes()).for_each(|map| code.add(&map.unwrap()));
            code
        };
        let code = of(text);
        assert_eq!((code.base, code.ranges.as_slice()), (0x7000, &[(0x8000, 0x9000)][..]));
        assert!(code.has(0x8000) && !code.has(0x9000) && !code.has(0x7000) && code.is_one_library().is_ok());
        let second = "a000-b000 r--p 00000000 08:01 6 /other/libc.so.6\n\
                      b000-c000 r-xp 00001000 08:01 6 /other/libc.so.6\n";
        let refused = of(&format!("{text}{second}")).is_one_library();
        assert_eq!(refused, Err(NotReadable::because("it has two C libraries")));
        assert!(of("1000-2000 r--p 00000000 08:01 5 /lib/libc.so.6\n").is_one_library().is_err());
    }
}
