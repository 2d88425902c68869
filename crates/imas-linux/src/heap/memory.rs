// SPDX-License-Identifier: Apache-2.0
//! The memory of a process, as its heaps are read from it.

use std::io::Result;

/// Memory that can be read at addresses.
pub trait Memory {
    /// Bytes of a page.
    fn page_bytes(&self) -> u64;

    /// Reads what is at the address. The number of bytes that were read, fewer where the memory ends.
    ///
    /// # Errors
    /// When nothing can be read there.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<usize>;

    /// Says of each page from this one on whether it is resident.
    ///
    /// # Errors
    /// When the kernel does not say.
    fn resident(&self, first_page: u64, pages: &mut [bool]) -> Result<()>;
}
