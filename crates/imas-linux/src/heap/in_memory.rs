// SPDX-License-Identifier: Apache-2.0
//! A library, read from the memory of the process that has it mapped: its file may have been replaced or
//! removed since. Every byte is untrusted.

use object::elf::{self, Dyn64, FileHeader64, GnuHashHeader, ProgramHeader64, Sym64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, Sym as _};
use object::{Endianness, Pod, pod};

use super::memory::Memory;

/// Program headers, and entries of the dynamic section, beyond these numbers are not looked at.
const MOST_HEADERS: u16 = 64;
const MOST_ENTRIES: usize = 256;
/// Symbols of one chain of the hash table beyond this number are not looked at.
const MOST_IN_CHAIN: usize = 1024;
/// Longest name of a library or symbol that is read, with the 0 at its end.
const NAME_BYTES: usize = 128;

/// A library in memory.
pub(crate) struct InMemory<'m> {
    memory: &'m dyn Memory,
    /// Offset that is added to the file's addresses.
    bias: u64,
    endian: Endianness,
    strings: u64,
    symbols: u64,
    hash: Option<u64>,
    soname: Option<u64>,
}

impl<'m> InMemory<'m> {
    /// Returns the library whose first bytes are mapped at `base`; `None` where no library of 64 bits is there.
    pub(crate) fn at(memory: &'m dyn Memory, base: u64) -> Option<Self> {
        let header: FileHeader64<Endianness> = value(memory, base)?;
        let endian = header.endian().ok().filter(|_| header.is_supported())?;
        let first = base.checked_add(header.e_phoff(endian))?;
        let most = header.e_phnum(endian).min(MOST_HEADERS).into();
        let headers: Vec<ProgramHeader64<Endianness>> = table(memory, first).take(most).collect();
        let begin = headers.iter().find(|one| one.p_type(endian) == elf::PT_LOAD)?.p_vaddr(endian);
        let bias = base.wrapping_sub(begin & !(memory.page_bytes() - 1));
        let dynamic = headers.iter().find(|one| one.p_type(endian) == elf::PT_DYNAMIC)?;
        let dynamic = bias.wrapping_add(dynamic.p_vaddr(endian));
        let entries = table::<Dyn64<Endianness>>(memory, dynamic).take(MOST_ENTRIES);
        let entries: Vec<_> = entries.take_while(|entry| entry.tag(endian) != elf::DT_NULL).collect();
        let found = |tag| entries.iter().find(|entry| entry.tag(endian) == tag).map(|one| one.val(endian));
        // The loader of glibc adds the bias to the addresses where the section can be written, others never do.
        let address = |tag| found(tag).map(|at| if at < base { bias.wrapping_add(at) } else { at });
        Some(Self {
            memory,
            bias,
            endian,
            strings: address(elf::DT_STRTAB)?,
            symbols: address(elf::DT_SYMTAB)?,
            hash: address(elf::DT_GNU_HASH),
            soname: found(elf::DT_SONAME),
        })
    }

    /// Returns the name that the library gives itself.
    pub(crate) fn soname(&self) -> Option<String> {
        let name = self.text(self.soname?)?;
        String::from_utf8(name).ok().filter(|name| !name.is_empty() && !name.contains('/'))
    }

    /// Returns the address of a symbol that the library defines for others.
    pub(crate) fn symbol(&self, wanted: &[u8]) -> Option<u64> {
        let table = self.hash?;
        let header: GnuHashHeader<Endianness> = value(self.memory, table)?;
        let number = |field: object::U32<Endianness>| u64::from(field.get(self.endian));
        let (buckets, first) = (number(header.bucket_count), number(header.symbol_base));
        let filter = size_of::<GnuHashHeader<Endianness>>() as u64 + 8 * number(header.bloom_count);
        let bucket_table = table.checked_add(filter)?;
        let hash = elf::gnu_hash(wanted);
        let bucket = u64::from(hash).checked_rem(buckets)?;
        let begin = u64::from(value::<u32>(self.memory, bucket_table.checked_add(4 * bucket)?)?);
        let chains = bucket_table.checked_add(4 * buckets)?;
        for index in (begin..).take(MOST_IN_CHAIN) {
            let place = chains.checked_add(4 * index.checked_sub(first)?)?;
            let entry: u32 = value(self.memory, place)?;
            if entry | 1 == hash | 1
                && let Some(found) = self.defined(index, wanted)
            {
                return Some(found);
            }
            if entry & 1 == 1 {
                return None;
            }
        }
        None
    }

    fn defined(&self, index: u64, wanted: &[u8]) -> Option<u64> {
        let place = index.checked_mul(size_of::<Sym64<Endianness>>() as u64)?;
        let symbol: Sym64<Endianness> = value(self.memory, self.symbols.checked_add(place)?)?;
        let is_defined = symbol.st_shndx(self.endian) != elf::SHN_UNDEF;
        let is_it = is_defined && self.text(symbol.st_name(self.endian).into())? == wanted;
        is_it.then(|| self.bias.wrapping_add(symbol.st_value(self.endian)))
    }

    fn text(&self, offset: u64) -> Option<Vec<u8>> {
        let mut name = vec![0; NAME_BYTES];
        let got = self.memory.read(self.strings.checked_add(offset)?, &mut name).ok()?;
        let end = name[..got].iter().position(|byte| *byte == 0)?;
        name.truncate(end);
        Some(name)
    }
}

/// The values from an address of the process on, as far as they can be read.
fn table<T: Pod + Copy>(memory: &dyn Memory, begin: u64) -> impl Iterator<Item = T> {
    (0u64..).map_while(move |index| value(memory, begin.checked_add(index * size_of::<T>() as u64)?))
}

/// The value at an address of the process.
fn value<T: Pod + Copy>(memory: &dyn Memory, address: u64) -> Option<T> {
    let mut bytes = vec![0; size_of::<T>()];
    let got = memory.read(address, &mut bytes).ok()?;
    let (value, _) = pod::from_bytes::<T>(bytes.get(..got)?).ok()?;
    Some(*value)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{ErrorKind, Result};

    use super::*;
    use crate::heap::ProcessMemory;
    use crate::heap::memory::PageState;
    use crate::mapping_text::CLibrary;

    /// The memory of this process, with other bytes in some of the reads.
    struct Spoilt {
        real: ProcessMemory,
        reads: Cell<u64>,
        seed: u64,
    }

    impl Memory for Spoilt {
        fn page_bytes(&self) -> u64 {
            self.real.page_bytes()
        }

        fn read(&self, address: u64, into: &mut [u8]) -> Result<usize> {
            let reads = self.reads.get() + 1;
            self.reads.set(reads);
            let got = self.real.read(address, into)?;
            let noise = (reads ^ self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            if self.seed > 0 && noise.is_multiple_of(3) && reads > 1 {
                let step = 1 + usize::try_from(noise % 7).unwrap();
                into.iter_mut()
                    .step_by(step)
                    .for_each(|byte| *byte = if noise.is_multiple_of(2) { 0xff } else { 0x80 });
            }
            Ok(got)
        }

        fn pages(&self, _: u64, _: &mut [PageState]) -> Result<()> {
            Err(ErrorKind::Unsupported.into())
        }
    }

    fn libc() -> u64 {
        let mut maps = crate::mapping_text::of_task(std::process::id(), "maps").unwrap().map(Result::unwrap);
        let is_libc = |map: &procfs::process::MemoryMap| match &map.pathname {
            procfs::process::MMapPath::Path(file) => CLibrary::of_file(file).is_some(),
            _ => false,
        };
        maps.find(is_libc).unwrap().address.0
    }

    #[test]
    fn the_c_library_of_this_process_says_what_it_is() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let library = InMemory::at(&memory, libc()).unwrap();
        assert_eq!(library.soname().as_deref(), Some("libc.so.6"));
        assert_eq!(library.symbol(b"getppid"), Some(nix::libc::getppid as *const () as u64));
        assert_eq!(library.symbol(b"no_such_function"), None);
        assert!(InMemory::at(&memory, libc() + 8).is_none() && InMemory::at(&memory, 0).is_none());
    }

    #[test]
    fn spoilt_memory_is_read_to_an_end() {
        for seed in 0..3000 {
            let real = ProcessMemory::open(std::process::id()).unwrap();
            let memory = Spoilt { real, reads: Cell::new(0), seed };
            if let Some(library) = InMemory::at(&memory, libc()) {
                let _ = (library.soname(), library.symbol(b"malloc")); // anything but a panic
            }
            assert!(memory.reads.get() < 5000, "{seed}: {}", memory.reads.get());
        }
    }
}
