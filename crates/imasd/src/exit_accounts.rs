// SPDX-License-Identifier: Apache-2.0
//! The kernel's records of threads that have ended (taskstats): what a process has used in which nothing of ours is.
//! Needs CAP_NET_ADMIN, the first user and pid namespaces, and a kernel of 5.19 or later with taskstats.

use std::io::{Error, ErrorKind, Result};

use imas_linux::taskstats::{
    CONTROL, DEREGISTER_CPUS, ExitRecord, FAMILY_NAME, GET, GET_FAMILY, Message, REGISTER_CPUS, message,
    request,
};
use rustix::io::Errno;

use crate::kernel_socket::KernelSocket;

/// `NETLINK_GENERIC` of linux/netlink.h.
const NETLINK_GENERIC: u32 = 16;
/// Name of the family.
const TASKSTATS: &str = "TASKSTATS";
/// Every CPU that there may be, as the kernel lists them.
const CPUS: &str = "/sys/devices/system/cpu/possible";
/// Records read at once: a flood of ending threads does not delay everything else.
const MOST_AT_ONCE: usize = 16_384;

/// A subscription that can be made.
#[derive(Debug)]
pub(crate) struct ExitAccounts {
    socket: KernelSocket,
    /// Number of the family; 0 as long as it is not known.
    family: u16,
    /// All CPUs.
    cpus: String,
}

/// Records of one reading.
#[derive(Debug, Default)]
pub(crate) struct EndedThreads {
    /// Records in the order of the ends.
    pub(crate) records: Vec<ExitRecord>,
    /// Records were lost: the buffer was full.
    pub(crate) lost: bool,
}

impl ExitAccounts {
    /// Finds out whether the kernel sends records. It sends none yet: one for each thread that ends on the machine is too
    /// dear where nobody asks.
    pub(crate) fn open() -> Result<Self> {
        let socket = KernelSocket::open(NETLINK_GENERIC, 0)?;
        let cpus = std::fs::read_to_string(CPUS)?.trim().to_owned();
        let mut accounts = Self { socket, family: 0, cpus };
        let family = accounts.ask(&request(CONTROL, GET_FAMILY, FAMILY_NAME, TASKSTATS));
        accounts.family = match family {
            Ok(Some(family)) => family,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => return Err(Error::other("the kernel has no taskstats")),
        };
        accounts.subscribe()?;
        accounts.ask(&request(accounts.family, GET, DEREGISTER_CPUS, &accounts.cpus))?;
        Ok(accounts)
    }

    /// Has the kernel send the records of all CPUs from now on.
    pub(crate) fn subscribe(&mut self) -> Result<()> {
        self.ask(&request(self.family, GET, REGISTER_CPUS, &self.cpus)).map(drop)
    }

    /// Sends a request. Returns the number of the family, where that was asked for. The kernel has answered when the
    /// sending has returned.
    fn ask(&mut self, request: &[u8]) -> Result<Option<u16>> {
        self.socket.send(request)?;
        let mut family = None;
        loop {
            match self.receive()? {
                Some(Message::Family(number)) => family = Some(number),
                Some(Message::Answer(0)) => return Ok(family),
                Some(Message::Answer(error)) => return Err(Error::from_raw_os_error(error.saturating_neg())),
                Some(Message::Ended(_)) | None => {}
            }
        }
    }

    /// The records that are there; of very many, a part.
    pub(crate) fn read(&mut self) -> EndedThreads {
        let mut ended = EndedThreads::default();
        for _ in 0..MOST_AT_ONCE {
            match self.receive() {
                Ok(Some(Message::Ended(record))) => ended.records.push(record),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => ended.lost = true,
                Err(_) => break,
            }
        }
        ended
    }

    /// The next message, if it is one of the kernel's that we know.
    fn receive(&mut self) -> rustix::io::Result<Option<Message>> {
        Ok(message(self.socket.receive()?, self.family))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::sample::Ended;
    use imas_linux::taskstats::Account;
    use imas_testing::skipped;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// Account of the process, once its last thread has ended.
    fn account(accounts: &mut ExitAccounts, process: u32) -> Option<Account> {
        let mut sum = Account::default();
        for _ in 0..6000 {
            for record in accounts.read().records.iter().filter(|record| record.process == process) {
                sum.add(record);
                if record.is_last {
                    return Some(sum);
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    /// Works longer where the start of Python does, because that has less memory.
    const WORK: &str = "import os, sys, threading, time\n\
        long_s = 0.15 * float(os.environ.get('IMAS_TEST_SLOWNESS', '1'))\n\
        def work():\n    begin = time.thread_time()\n    while time.thread_time() - begin < long_s: pass\n\
        kept = b'x' * (64 << 20)\n\
        threads = [threading.Thread(target=work) for _ in range(int(sys.argv[1]))]\n\
        [thread.start() for thread in threads]\n[thread.join() for thread in threads]\nwork()\n\
        del kept # its end, which it does not count itself, is short then\n\
        print(time.process_time(), flush=True)\n\
        os._exit(3)";

    #[test]
    fn the_kernel_accounts_for_a_process_and_its_threads() {
        let mut accounts = match ExitAccounts::open() {
            Ok(accounts) => accounts,
            Err(why) => return skipped(&format!("the kernel sends no records of ended threads: {why}")),
        };
        assert!(Command::new("true").status().unwrap().success());
        assert!(accounts.read().records.is_empty(), "nobody has asked");
        accounts.subscribe().unwrap();
        for threads in ["0", "5"] {
            // The process replaces its image: its account goes on.
            let mut command = Command::new("env");
            command.args(["python3", "-c", WORK, threads]).stdout(Stdio::piped());
            let child = command.spawn().unwrap();
            let pid = child.id();
            // Read meanwhile: on a busy machine the records of others fill the buffer.
            let found = account(&mut accounts, pid).expect("no record of the last thread came");
            let done = child.wait_with_output().unwrap();
            let used_s: f64 = String::from_utf8(done.stdout).unwrap().trim().parse().unwrap();
            assert_eq!(found.ended(), Ended::Clean { status: Some(3) });
            let (cpu_s, memory) = (found.usage(0.0).user_s, found.memory());
            assert!((cpu_s - used_s).abs() < f64::max(0.01, 0.1 * used_s), "{cpu_s} s, by itself {used_s} s");
            assert!(memory.resident_peak > 64 << 20 && memory.resident() > 32 << 20, "{memory:?}");
            assert!(found.wall_us >= 150_000, "{found:?}");
        }
        let mut killed = Command::new("sleep").arg("1000").spawn().unwrap();
        killed.kill().unwrap();
        killed.wait().unwrap();
        let found = account(&mut accounts, killed.id()).expect("no record of a killed process came");
        assert_eq!((found.wait_status & 0x7F, found.ended()), (9, Ended::Unknown));
    }
}
