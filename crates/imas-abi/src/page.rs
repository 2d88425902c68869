// SPDX-License-Identifier: Apache-2.0
//! The trial page, field by field as in the header. What each field means and who writes it is there
//! once; the words here are the short form.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First eight bytes of every page: A9 'A' 'S' 'P' 'A' 'G' 'E' '1'.
pub const PAGE_MAGIC: u64 = 0x3145_4741_5053_41A9;
/// Version of the layout.
pub const PAGE_VERSION: u32 = 1;

/// Area of the header; a flight page is the header alone.
pub const HEADER_BYTES: usize = 4096;
/// Area of the sampled figures.
pub const SAMPLED_BYTES: usize = 4096;
/// One slot of exact counts: a cache line.
pub const SLOT_BYTES: usize = 64;
/// Slots with one writer each.
pub const OWN_SLOTS: usize = 112;
/// Slots that the threads beyond share.
pub const SHARED_SLOTS: usize = 16;
/// All slots.
pub const SLOTS: usize = OWN_SLOTS + SHARED_SLOTS;
/// Size of a trial page's file.
pub const TRIAL_PAGE_BYTES: usize = HEADER_BYTES + SAMPLED_BYTES + SLOTS * SLOT_BYTES;

/// Room for [`PageHeader::candidate`], closing NUL included, as in all that follow.
pub const CANDIDATE_BYTES: usize = 64;
/// Room for [`PageHeader::served`].
pub const SERVED_BYTES: usize = 128;
/// Room for [`PageHeader::boot_id`].
pub const BOOT_ID_BYTES: usize = 40;
/// Room for [`PageHeader::trial_id`].
pub const TRIAL_ID_BYTES: usize = 40;
/// Room for [`PageHeader::program`].
pub const PROGRAM_BYTES: usize = 1024;
/// Room for [`PageHeader::detail`].
pub const DETAIL_BYTES: usize = 1024;
/// Room for [`PageHeader::build_id`].
pub const BUILD_ID_BYTES: usize = 72;

/// Operation classes, see [`crate::op`].
pub const OPS: usize = 4;
/// Bucket b: 2^b <= ticks < 2^(b+1), the empty pair already subtracted; bucket 0 holds 0 too.
pub const LATENCY_BUCKETS: usize = 48;
/// Bucket b: 2^b <= bytes requested < 2^(b+1); bucket 0 holds 0 too.
pub const SIZE_BUCKETS: usize = 64;
/// Weights are fixed point: a call sampled with probability p adds 256/p.
pub const WEIGHT_ONE: u64 = 256;

/// The first 4096 bytes of a page (`struct imas_page_header`). The launcher writes what is before
/// [`state`](Self::state), the process under trial the rest. Strings end with a NUL.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PageHeader {
    /// [`PAGE_MAGIC`].
    pub magic: u64,
    /// [`PAGE_VERSION`].
    pub version: u32,
    /// Size of the whole file: [`HEADER_BYTES`] or [`TRIAL_PAGE_BYTES`].
    pub page_bytes: u32,
    /// [`crate::page_kind`].
    pub kind: u32,
    /// The process the page is for.
    pub pid: u32,
    /// Real uid of that process.
    pub uid: u32,
    /// 1 once everything the launcher writes is in place.
    pub armed: u32,
    /// Field 22 of /proc/PID/stat: shows that a pid was reused; exec keeps it.
    pub process_start_ticks: u64,
    /// `CLOCK_REALTIME` when the page was made, ns.
    pub made_unix_ns: u64,
    /// The kernel's boot id.
    pub boot_id: [u8; BOOT_ID_BYTES],
    /// Unique per trial; pages of children repeat it.
    pub trial_id: [u8; TRIAL_ID_BYTES],
    /// Name in the catalogue.
    pub candidate: [u8; CANDIDATE_BYTES],
    /// Resolved path of the executable.
    pub program: [u8; PROGRAM_BYTES],
    /// Script, jar or main class of an interpreter; else empty.
    pub detail: [u8; DETAIL_BYTES],
    /// Build-id of the executable in hex; else empty.
    pub build_id: [u8; BUILD_ID_BYTES],

    /// [`crate::state`].
    pub state: u32,
    /// [`crate::pass_reason`].
    pub pass_reason: u32,
    /// 1: exit handlers ran, or `_exit` was called.
    pub clean_exit: u32,
    /// Valid with `clean_exit` when the status was seen (`_exit`), else -1.
    pub exit_status: i32,
    /// The signal that is ending the process; else 0.
    pub fatal_signal: u32,
    /// `si_code` of that signal.
    pub fatal_code: u32,
    /// Children made by fork, seen in the parent.
    pub forks: u32,
    /// Threads that ever allocated.
    pub threads: u32,
    /// The object whose malloc serves.
    pub served: [u8; SERVED_BYTES],

    /// Tick counter (rdtsc, cntvct) at the start.
    pub ticks_start: u64,
    /// `CLOCK_MONOTONIC_RAW` at the start, ns.
    pub ns_start: u64,
    /// Tick counter at the latest snapshot.
    pub ticks_last: u64,
    /// `CLOCK_MONOTONIC_RAW` at the latest snapshot, ns.
    pub ns_last: u64,
    /// Cost of two clock reads with nothing between, in 1/256 ticks.
    pub empty_pair_ticks_256: u64,

    /// Memory snapshots taken: every 5 s, at each doubling of the live bytes, and at exit.
    pub snapshots: u64,
    /// Sum over snapshots of rw-p anonymous and `[heap]` mappings, thread stacks left out.
    pub heap_bytes_sum: u64,
    /// Largest heap of a snapshot, bytes.
    pub heap_bytes_peak: u64,
    /// Sum over snapshots of the usable bytes in live blocks (estimate).
    pub live_bytes_sum: u64,
    /// Most live bytes at any moment, also between snapshots (estimate).
    pub live_bytes_peak: u64,
    /// Sum over snapshots of `Pss_Anon - LazyFree + SwapPss`.
    pub resident_bytes_sum: u64,
    /// Most resident bytes of a snapshot.
    pub resident_bytes_peak: u64,

    /// User time at exit, µs; this and what follows is zero when the process was killed.
    pub user_us: u64,
    /// System time at exit, µs.
    pub system_us: u64,
    /// Minor faults at exit.
    pub minor_faults: u64,
    /// Major faults at exit.
    pub major_faults: u64,
    /// `VmHWM` at exit.
    pub max_rss_bytes: u64,
    /// Voluntary context switches at exit.
    pub voluntary_switches: u64,
    /// Involuntary context switches at exit.
    pub involuntary_switches: u64,

    /// Integral of the resident bytes from start to the latest snapshot: KiB times units of 2^16 ns.
    pub resident_kib_time: u64,

    /// Moments at which it was looked where the resident bytes are.
    pub split_moments: u64,
    /// Moments at which the allocator reported `split_in_use_kib_time` and the figures that follow it.
    pub split_reported: u64,
    /// Time the moments stand for, in units of 2^16 ns; what follows is KiB times such units.
    pub split_time: u64,
    /// Resident bytes, as in `resident_bytes_sum`.
    pub split_resident_kib_time: u64,
    /// Usable bytes in live blocks (estimate).
    pub split_usable_kib_time: u64,
    /// Bytes that were asked for in live blocks (estimate).
    pub split_requested_kib_time: u64,
    /// Bytes in live blocks by the allocator's own account.
    pub split_in_use_kib_time: u64,
    /// Free blocks that the allocator keeps.
    pub split_cached_kib_time: u64,
    /// Pages that hold nothing live and were not given back.
    pub split_dirty_kib_time: u64,
    /// Bookkeeping of the allocator's own.
    pub split_own_kib_time: u64,

    /// 1 in the page of a child of fork, whose figures of live blocks begin with its parent's.
    pub forked: u64,

    /// Threads in system calls that the program would not make; not 0 where the process was ended in one.
    pub own_calls: u64,
}

/// Sampled figures of one operation class (`struct imas_sampled_op`).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SampledOp {
    /// Calls timed.
    pub sampled: u64,
    /// Sum of weights of those not taken for interrupted (`hook/plausible.h`): estimates calls * 256.
    pub weight: u64,
    /// Weighted clock ticks of these calls: sum of weight * ticks / 256. The clock's own cost is not yet
    /// subtracted.
    pub ticks: u64,
    /// Weights by log2 of ticks less the empty pair.
    pub histogram: [u64; LATENCY_BUCKETS],
}

/// All sampled figures (`struct imas_sampled`).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Sampled {
    /// Sampled figures of each operation class, see [`crate::op`].
    pub op: [SampledOp; OPS],
    /// Weights by log2 of bytes requested.
    pub size_histogram: [u64; SIZE_BUCKETS],
    /// Running estimate of usable bytes in live blocks.
    pub live_bytes: i64,
    /// Blocks tracked now.
    pub live_samples: u64,
    /// Samples lost because the table was full.
    pub live_dropped: u64,
    /// Current mean distance between samples, in bytes + 1/128 per call.
    pub sample_interval_bytes: u64,
    /// Sum of weight * usable size: estimates bytes handed out, in 1/256.
    pub usable_bytes_256: u64,
    /// Sum of weight * requested size over the same samples.
    pub requested_bytes_256: u64,
    /// Running estimate of the bytes asked for in live blocks.
    pub live_requested: i64,
}

/// Exact counts of one thread, or of several from [`OWN_SLOTS`] on (`struct imas_slot`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Slot {
    /// 0: free.
    pub tid: u32,
    /// Padding.
    pub unused: u32,
    /// Calls of each operation class, see [`crate::op`].
    pub calls: [u64; OPS],
    /// Sum over the malloc, realloc and memalign classes.
    pub bytes_requested: u64,
    /// Calls that returned NULL for a non-zero size.
    pub refused: u64,
    /// Padding to a cache line.
    pub reserved: u64,
}

/// A whole trial page (`struct imas_page`).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Page {
    /// Identity, state, clocks, memory.
    pub header: PageHeader,
    /// Fills the header's area.
    pub header_pad: [u8; HEADER_BYTES - size_of::<PageHeader>()],
    /// Sampled figures.
    pub sampled: Sampled,
    /// Fills the area of the sampled figures.
    pub sampled_pad: [u8; SAMPLED_BYTES - size_of::<Sampled>()],
    /// Exact counts.
    pub slot: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Page>() == TRIAL_PAGE_BYTES, "page size is part of the format");
const _: () = assert!(size_of::<Slot>() == SLOT_BYTES, "a slot is one cache line");
