// SPDX-License-Identifier: Apache-2.0
//! What is read of every process at every look: one file, `/proc/PID/stat`.

use std::collections::HashSet;
use std::io::Read;

use procfs::FromRead;
use procfs::process::Stat;

/// `PF_KTHREAD` of linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// Longer than any `stat`: 52 numbers and a name.
const BUFFER: usize = 2048;

/// One process at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) start_ticks: u64,
    pub(crate) threads: u64,
    /// User and system time, seconds.
    pub(crate) cpu_s: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) image: Image,
}

/// What changes when a process executes another program: the kernel puts code and stack of each exec somewhere
/// else, and names the process anew. Addresses of other users' processes are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    name: String,
    code: u64,
    stack: u64,
}

/// Reads every process. Kernel threads, which are many, are read at some looks only.
#[derive(Debug, Default)]
pub(crate) struct ProcessReader {
    buffer: Vec<u8>,
    kernel_threads: HashSet<u32>,
    looks: u32,
}

/// After this number of looks a pid that was a kernel thread's is read again: it may be a process's by now.
const KERNEL_LOOKS: u32 = 15;

impl ProcessReader {
    /// Every process but kernel threads and zombies.
    pub(crate) fn all(&mut self) -> Vec<Reading> {
        self.looks += 1;
        if self.looks.is_multiple_of(KERNEL_LOOKS) {
            self.kernel_threads.clear();
        }
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid| self.read(pid)).collect()
    }

    /// Reads one process by three system calls. None for kernel threads and processes that have ended.
    fn read(&mut self, pid: u32) -> Option<Reading> {
        if self.kernel_threads.contains(&pid) {
            return None;
        }
        self.buffer.resize(BUFFER, 0);
        let mut file = std::fs::File::open(format!("/proc/{pid}/stat")).ok()?;
        let len = file.read(&mut self.buffer).ok()?;
        let stat = Stat::from_read(&self.buffer[..len]).ok()?;
        if stat.flags & KERNEL_THREAD != 0 {
            self.kernel_threads.insert(pid);
            return None;
        }
        match (stat.state, stat.num_threads) {
            ('Z' | 'X', ..=1) => None,
            ('Z' | 'X', _) => in_other_thread(stat),
            _ => Some(reading(stat)),
        }
    }
}

/// A process that goes on without its first thread: what it has is shown by another one.
fn in_other_thread(stat: Stat) -> Option<Reading> {
    let own = reading(stat);
    let other = reading(imas_linux::process::stat(imas_linux::living_thread::of(own.pid))?);
    Some(Reading { resident_bytes: other.resident_bytes, image: other.image, ..own })
}

fn reading(stat: Stat) -> Reading {
    Reading {
        pid: u32::try_from(stat.pid).unwrap_or(0),
        parent: u32::try_from(stat.ppid).unwrap_or(0),
        start_ticks: stat.starttime,
        threads: u64::try_from(stat.num_threads).unwrap_or(0),
        cpu_s: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
        resident_bytes: stat.rss * procfs::page_size(),
        image: Image { name: stat.comm, code: stat.startcode, stack: stat.startstack },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read_and_kernel_threads_are_not() {
        let mut reader = ProcessReader::default();
        for _ in 0..2 {
            let all = reader.all();
            let own = all.iter().find(|reading| reading.pid == std::process::id()).unwrap();
            assert!(own.resident_bytes > 100_000 && own.threads >= 1 && own.start_ticks > 0, "{own:?}");
            assert!(all.iter().all(|reading| !reader.kernel_threads.contains(&reading.pid)));
        }
    }
}
