// SPDX-License-Identifier: Apache-2.0
//! The memory of a process while one of its threads stands still.

use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::FileExt as _;

/// Memory that can be read and written at addresses.
#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    /// The memory that the thread has now. Its program cannot become another one while the thread stands still.
    pub(crate) fn of_thread(tid: i32) -> Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(format!("/proc/{tid}/mem"))?))
    }

    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        self.0.read_exact_at(into, address).ok()
    }

    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).map(|()| u64::from_ne_bytes(bytes))
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_all_at(bytes, address)
    }
}
