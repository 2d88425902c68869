// SPDX-License-Identifier: Apache-2.0
//! The memory of one process at one moment: a point of its curve, and what its trial page counts.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use imas_core::split::AllocatorReport;
use imas_linux::host::now_unix_s;
use imas_linux::ingest::{ExpectedPage, ParsedPage};
use imas_linux::resident::ResidentMemory;
use imas_linux::running::Running;
use imas_linux::{foreign_file, process};
use serde::Serialize;

/// Resident bytes by use; the parts add up to `resident`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryPoint {
    /// When, Unix time in seconds.
    pub at_unix_s: f64,
    /// All resident memory, bytes.
    pub resident: u64,
    /// In live blocks, by the hook's estimate. Outside of a trial it is not known, and all of the heap is in
    /// `heap`.
    pub in_use: Option<u64>,
    /// Free blocks, and pages with live blocks; None where the allocator does not report.
    pub free_blocks: Option<u64>,
    /// Pages that hold nothing live; None where the allocator does not report.
    pub free_pages: Option<u64>,
    /// The rest of the heap: what is in none of the three.
    pub heap: u64,
    /// Everything that is not the heap: files, stacks, shared memory.
    pub other: u64,
}

impl MemoryPoint {
    /// Reads the point of a process, whose trial page is `page`. None when it has ended or is not ours to
    /// look at.
    #[must_use]
    pub fn read(pid: u32, start_ticks: u64, page: Option<&Path>) -> Option<Self> {
        let resident = ResidentMemory::of(pid)?;
        let page = page.and_then(|page| read_page(page, pid, start_ticks));
        let live = page.as_ref().map(|page| page.live_bytes_now()).filter(|bytes| *bytes > 0);
        let report = page.and_then(|page| page.memory.split?.reported);
        Some(Self::of(&resident, live, report.as_ref()))
    }

    /// The free part of the heap is known as a whole. How it divides is taken from the allocator's own means
    /// over the trial.
    fn of(resident: &ResidentMemory, live: Option<u64>, report: Option<&AllocatorReport>) -> Self {
        let heap = resident.heap_bytes();
        let in_use = live.map(|live| live.min(heap));
        let free = heap - in_use.unwrap_or(0);
        let all = report.map(|report| report.cached + report.dirty + report.own).filter(|all| *all > 0);
        let part = |bytes: u64| Some(mul_div(free, bytes, all?)).filter(|_| in_use.is_some());
        let free_blocks = report.and_then(|report| part(report.cached));
        let free_pages = report.and_then(|report| part(report.dirty));
        Self {
            at_unix_s: now_unix_s(),
            resident: resident.total(),
            in_use,
            free_blocks,
            free_pages,
            heap: free - free_blocks.unwrap_or(0) - free_pages.unwrap_or(0),
            other: resident.total() - heap,
        }
    }
}

/// `a * b / c`, without an overflow.
fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

// The trial page of a running process: what the hook has counted so far.
//
// The page is found by the process's mappings. Its bytes are the process's, so nothing in them is believed
// that the kernel does not confirm.

/// The page that the process has mapped; None for one that is in no trial.
#[must_use]
pub fn mapped_page(running: &Running) -> Option<PathBuf> {
    let is_page = |path: &&Path| path.extension().is_some_and(|extension| extension == "page");
    running.mapped().find(is_page).map(Path::to_owned)
}

/// Reads the page of a process, if it really is that process's. A helper looks at what the process has mapped.
#[must_use]
pub fn read_page(path: &Path, pid: u32, start_ticks: u64) -> Option<ParsedPage> {
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let page = foreign_file::page(path, &ExpectedPage { uid, now_unix_s: now_unix_s() }).ok()?;
    (page.pid == pid && page.process_start_ticks == start_ticks).then_some(page)
}

/// Bytes in live blocks of a process in a trial, as its hook estimates them at this moment.
#[must_use]
pub fn live_bytes(running: &Running) -> Option<u64> {
    let start_ticks = process::start_ticks(running.pid).ok()?;
    let page = read_page(&mapped_page(running)?, running.pid, start_ticks)?;
    Some(page.live_bytes_now()).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_whatever_is_known() {
        let resident = ResidentMemory { heap: 1000, arenas: 500, files: 300, ..ResidentMemory::default() };
        let report = AllocatorReport { in_use: 9, cached: 10, dirty: 20, own: 10 };
        for live in [None, Some(700), Some(u64::MAX)] {
            for report in [None, Some(&report), Some(&AllocatorReport::default())] {
                let point = MemoryPoint::of(&resident, live, report);
                let parts =
                    [point.in_use, point.free_blocks, point.free_pages].map(Option::unwrap_or_default);
                assert_eq!(parts.iter().sum::<u64>() + point.heap + point.other, 1800, "{point:?}");
            }
        }
        let point = MemoryPoint::of(&resident, Some(700), Some(&report));
        assert_eq!((point.free_blocks, point.free_pages, point.heap), (Some(200), Some(400), 200));
    }
}
