// SPDX-License-Identifier: Apache-2.0
//! The memory of a process, as its heaps are read from it.

use std::io::Result;

/// The state of a page: in memory, shared since a fork, or neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PageState {
    /// Not in memory.
    #[default]
    Absent,
    /// In memory, of this process alone.
    Own,
    /// In memory, of other processes too since a fork.
    Shared,
}

/// Memory that can be read at addresses.
pub trait Memory {
    /// Bytes of a page.
    fn page_bytes(&self) -> u64;

    /// Reads what is at the address. The number of bytes that were read, fewer where the memory ends.
    ///
    /// # Errors
    /// When nothing can be read there.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<usize>;

    /// Says where each page from this one on is.
    ///
    /// # Errors
    /// When the kernel does not say.
    fn pages(&self, first: u64, pages: &mut [PageState]) -> Result<()>;
}
