// SPDX-License-Identifier: Apache-2.0
//! Records of threads that have ended, as the kernel sends them to those who listen: taskstats over generic netlink
//! (linux/taskstats.h). Here is what the bytes mean; imasd has the socket (docs/decisions/0044).

use imas_core::sample::{Ended, MemoryFigures, Usage, is_crash_signal};
use serde::{Deserialize, Serialize};

/// `GENL_ID_CTRL` of linux/genetlink.h: answers which number a family has.
pub const CONTROL: u16 = 16;
/// `CTRL_CMD_GETFAMILY`.
pub const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_NAME`.
pub const FAMILY_NAME: u16 = 2;
/// `TASKSTATS_CMD_GET`.
pub const GET: u8 = 1;
/// `TASKSTATS_CMD_ATTR_REGISTER_CPUMASK`: records of threads that end on these CPUs are wanted.
pub const REGISTER_CPUS: u16 = 3;
/// `TASKSTATS_CMD_ATTR_DEREGISTER_CPUMASK`: they are not wanted any more.
pub const DEREGISTER_CPUS: u16 = 4;

/// `CTRL_ATTR_FAMILY_ID`.
const FAMILY_ID: u16 = 1;
/// `TASKSTATS_TYPE_STATS`.
const STATS: u16 = 3;
/// `TASKSTATS_TYPE_AGGR_PID`: record of one thread.
const OF_THREAD: u16 = 4;
/// `NLMSG_ERROR`, which an acknowledgement is too.
const ANSWER: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST: u16 = 5;
/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// `struct genlmsghdr`.
const GENERIC_BYTES: usize = 4;
/// Type of an attribute without the bits for nesting and byte order.
const KIND: u16 = 0x3FFF;

/// First version of `struct taskstats` that names the process of a thread.
const LEAST_VERSION: u16 = 12;
/// `AGROUP` of linux/acct.h: no thread of the process is left.
const LAST: u8 = 0x20;

/// CPU time in which enough ticks fall for a mean, microseconds: some 25.
const LEAST_US: u64 = 100_000;

/// Most memory believed, bytes, as of a page.
const MOST_BYTES: u64 = 1 << 57;

/// A message of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Answer to a request: 0, or the number of an error, negative.
    Answer(i32),
    /// Number of the family that was asked for.
    Family(u16),
    /// Record of a thread that has ended.
    Ended(ExitRecord),
}

/// Record of a thread that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitRecord {
    /// Process of the thread.
    pub process: u32,
    /// The thread; the first one has the number of the process.
    pub thread: u32,
    /// Real uid of the thread.
    pub uid: u32,
    /// No thread of the process is left.
    pub is_last: bool,
    /// Account of the thread.
    pub account: Account,
}

/// The kernel's account of a process, or of one of its threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// How it ended, as `wait` says it.
    pub wait_status: u32,
    /// CPU time, exact.
    pub cpu_ns: u64,
    /// The part of the CPU time that the ticks of the clock have seen.
    pub ticked_us: u64,
    /// Resident memory over that part, MiB times microseconds.
    pub resident_mib_us: u64,
    /// Peak of the resident memory, KiB.
    pub peak_kib: u64,
    /// Time from the start of the process to its end.
    pub wall_us: u64,
}

/// Bytes of a request with one attribute.
#[must_use]
pub fn request(family: u16, command: u8, attribute: u16, value: &str) -> Vec<u8> {
    let value = [value.as_bytes(), &[0]].concat();
    let attribute_bytes = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let padded = usize::from(attribute_bytes).next_multiple_of(4);
    let length = u32::try_from(HEADER_BYTES + GENERIC_BYTES + padded).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(family.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend([0; 8]); // number of the request, and ours: the kernel fills in the latter
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(attribute_bytes.to_ne_bytes());
    bytes.extend(attribute.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(HEADER_BYTES + GENERIC_BYTES + padded, 0);
    bytes
}

/// The message in these bytes; `None` for one of another kind, and for what is cut short. `family` is the number of
/// taskstats, 0 where it is not known yet.
#[must_use]
pub fn message(bytes: &[u8], family: u16) -> Option<Message> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let payload = bytes.get(HEADER_BYTES..length)?;
    match u16_at(bytes, 4)? {
        ANSWER => Some(Message::Answer(u32_at(payload, 0)?.cast_signed())),
        CONTROL => u16_at(attribute(payload.get(GENERIC_BYTES..)?, FAMILY_ID)?, 0).map(Message::Family),
        kind if kind == family => {
            let of_thread = attribute(payload.get(GENERIC_BYTES..)?, OF_THREAD)?;
            record(attribute(of_thread, STATS)?).map(Message::Ended)
        }
        _ => None,
    }
}

/// Value of the first attribute of that kind.
fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = bytes;
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(4..length)?;
        if u16_at(rest, 2)? & KIND == wanted {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// `struct taskstats`: later versions are longer, and have the same fields at the same places.
fn record(stats: &[u8]) -> Option<ExitRecord> {
    if u16_at(stats, 0)? < LEAST_VERSION {
        return None;
    }
    let account = Account {
        wait_status: u32_at(stats, 4)?,
        cpu_ns: u64_at(stats, 72)?,
        ticked_us: u64_at(stats, 152)?.saturating_add(u64_at(stats, 160)?),
        resident_mib_us: u64_at(stats, 184)?,
        peak_kib: u64_at(stats, 200)?,
        wall_us: u64_at(stats, 376)?,
    };
    Some(ExitRecord {
        process: u32_at(stats, 368)?,
        thread: u32_at(stats, 128)?,
        uid: u32_at(stats, 120)?,
        is_last: stats.get(8)? & LAST != 0,
        account,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|chunk| u16::from_ne_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_ne_bytes(*chunk))
}

impl Account {
    /// Adds the account of a thread to its process's.
    pub fn add(&mut self, ended: &ExitRecord) {
        let thread = &ended.account;
        // A thread that ends by itself has a status that nobody waits for. The status of the process is in
        // the record of the first thread, or where all were ended together, of the last.
        if thread.wait_status != 0 && (ended.is_last || ended.thread == ended.process) {
            self.wait_status = thread.wait_status;
        }
        self.cpu_ns = self.cpu_ns.saturating_add(thread.cpu_ns);
        self.ticked_us = self.ticked_us.saturating_add(thread.ticked_us);
        self.resident_mib_us = self.resident_mib_us.saturating_add(thread.resident_mib_us);
        self.peak_kib = self.peak_kib.max(thread.peak_kib);
        self.wall_us = self.wall_us.max(thread.wall_us);
    }

    /// How the process ended. Who sent a fatal signal is not known: it counts as the program's own.
    #[must_use]
    pub fn ended(&self) -> Ended {
        match self.wait_status & 0x7F {
            0 => Ended::Clean { status: i32::try_from((self.wait_status >> 8) & 0xFF).ok() },
            signal if is_crash_signal(signal) => Ended::Signal { signal },
            _ => Ended::Unknown,
        }
    }

    /// CPU time of the process beyond its first `before_s` seconds of that, and its peak of memory.
    #[must_use]
    pub fn usage(&self, before_s: f64) -> Usage {
        let cpu_s = self.cpu_ns as f64 / 1e9;
        Usage { user_s: (cpu_s - before_s).max(0.0), max_rss_bytes: self.peak_bytes(), ..Usage::default() }
    }

    /// Resident memory, with files: its mean over the CPU time, and its peak.
    #[must_use]
    pub fn memory(&self) -> MemoryFigures {
        MemoryFigures {
            snapshots: 1,
            resident_over_time: self.resident_bytes(),
            resident_peak: self.peak_bytes(),
            ..MemoryFigures::default()
        }
    }

    fn peak_bytes(&self) -> u64 {
        self.peak_kib.saturating_mul(1024).min(MOST_BYTES)
    }

    /// Few ticks fall into a short process, and they say little. The time that they have missed counts with the peak.
    fn resident_bytes(&self) -> u64 {
        let whole_us = (self.cpu_ns / 1000).max(LEAST_US);
        let missed_us = u128::from(whole_us.saturating_sub(self.ticked_us));
        let peak = self.peak_bytes();
        let over_time = (u128::from(self.resident_mib_us) << 20) + missed_us * u128::from(peak);
        let mean = over_time / (u128::from(self.ticked_us) + missed_us).max(1);
        u64::try_from(mean).unwrap_or(peak).min(peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(thread: u32, is_last: bool, wait_status: u32, cpu_ns: u64) -> ExitRecord {
        let account = Account { wait_status, cpu_ns, peak_kib: u64::from(thread), ..Account::default() };
        ExitRecord { process: 7, thread, uid: 0, is_last, account }
    }

    fn sum(records: &[ExitRecord]) -> Account {
        records.iter().fold(Account::default(), |mut sum, record| {
            sum.add(record);
            sum
        })
    }

    #[test]
    fn threads_add_up_and_the_process_has_one_status() {
        let all = sum(&[ended(9, false, 0, 5), ended(7, false, 0, 6), ended(8, true, 3 << 8, 7)]);
        assert_eq!((all.cpu_ns, all.peak_kib, all.ended()), (18, 9, Ended::Clean { status: Some(3) }));
        let first = sum(&[ended(7, false, 5 << 8, 0), ended(8, true, 0, 0)]);
        assert_eq!(first.ended(), Ended::Clean { status: Some(5) }, "its first thread ended before the last");
        let of_a_thread = sum(&[ended(9, false, 4 << 8, 0), ended(7, true, 0, 0)]);
        assert_eq!(of_a_thread.ended(), Ended::Clean { status: Some(0) });
        assert_eq!(sum(&[ended(7, true, 11 | 0x80, 0)]).ended(), Ended::Signal { signal: 11 });
        assert_eq!(sum(&[ended(7, true, 15, 0)]).ended(), Ended::Unknown, "it was asked to end");
        let most = ended(7, true, u32::MAX, u64::MAX);
        assert_eq!(sum(&[most, most]).cpu_ns, u64::MAX);
    }

    #[test]
    fn memory_is_weighted_with_the_cpu_time() {
        let of = |cpu_ms: u64, ticked_ms: u64, mean_mib: u64| {
            let account = Account {
                cpu_ns: cpu_ms * 1_000_000,
                ticked_us: ticked_ms * 1000,
                resident_mib_us: mean_mib * ticked_ms * 1000,
                peak_kib: 100 << 10,
                ..Account::default()
            };
            account.memory().resident() >> 20
        };
        assert_eq!(of(1000, 1000, 40), 40);
        assert_eq!(of(1000, 1200, 40), 40, "ticks may see more than there was");
        assert_eq!(of(250, 200, 40), 52, "50 of 250 ms at the peak");
        assert_eq!(of(10, 4, 40), 97, "as 96 of 100 ms");
        assert_eq!(of(3, 0, 0), 100, "no tick fell into it");
        assert_eq!(of(1000, 1000, 4000), 100, "never above the peak");
        let most = Account {
            cpu_ns: u64::MAX,
            ticked_us: u64::MAX,
            resident_mib_us: u64::MAX,
            ..Account::default()
        };
        assert_eq!(most.memory().resident(), 0);
        assert_eq!(Account::default().memory().resident(), 0);
        assert_eq!(most.usage(1e9).user_s, u64::MAX as f64 / 1e9 - 1e9);
        assert_eq!(Account::default().usage(1.0).user_s, 0.0);
    }

    #[test]
    fn requests_are_whole() {
        let bytes = request(CONTROL, GET_FAMILY, FAMILY_NAME, "TASKSTATS");
        assert_eq!((bytes.len(), u32_at(&bytes, 0)), (36, Some(36)), "padded to a multiple of four");
        assert_eq!(attribute(&bytes[20..], FAMILY_NAME), Some(&b"TASKSTATS\0"[..]));
        assert_eq!(message(&bytes, 0), None, "it names no number");
    }
}
