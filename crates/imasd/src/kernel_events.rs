// SPDX-License-Identifier: Apache-2.0
//! Reports of the kernel by netlink: the events of processes (proc connector), and its records of threads
//! that have ended (taskstats).
//!
//! The kernel's process events (proc connector): which processes have called exec, which have ended and how. Needs
//! CAP_NET_ADMIN and the first network and pid namespaces; where it is refused, `census` looks into /proc every few
//! seconds instead.

use std::io::{Cursor, Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use imas_core::sample::is_crash_signal;
use imas_linux::taskstats::{
    CONTROL, DEREGISTER_CPUS, ExitRecord, FAMILY_NAME, GET, GET_FAMILY, Message, REGISTER_CPUS, message,
    request,
};
use neli::connector::{CnMsg, CnMsgBuilder, ProcEvent, ProcEventHeader};
use neli::consts::connector::{CnMsgIdx, CnMsgVal, ProcCnMcastOp};
use neli::consts::nl::{NlmF, Nlmsg};
use neli::nl::{NlPayload, Nlmsghdr, NlmsghdrBuilder};
use neli::{FromBytes, ToBytes};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send, socket_with,
};

/// `NETLINK_CONNECTOR` of linux/netlink.h.
const NETLINK_CONNECTOR: u32 = 11;
/// The group of process events, `CN_IDX_PROC`.
const PROCESS_EVENTS: u32 = 1;
/// Events read at once: a flood of new processes does not delay everything else.
const MOST_EVENTS: usize = 16_384;

/// Event of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessEvent {
    /// The process runs another image now.
    Exec {
        /// Id of the process.
        pid: u32,
        /// Time of the event, by `CLOCK_MONOTONIC`, ns.
        at_ns: u64,
    },
    /// The process has ended; with the signal that ended it, 0 for none.
    Exit {
        /// Id of the process.
        pid: u32,
        /// The signal, 0 for none.
        signal: u32,
    },
}

/// An open subscription.
#[derive(Debug)]
pub(super) struct Connector {
    socket: KernelSocket,
    acknowledged: bool,
}

/// Events of one reading.
#[derive(Debug, Default)]
pub(super) struct ProcessEvents {
    /// Events in the order of happening.
    pub(super) events: Vec<ProcessEvent>,
    /// Events were lost: the buffer was full.
    pub(super) lost: bool,
}

impl Connector {
    /// Subscribes to the kernel's process events.
    pub(super) fn open() -> std::io::Result<Self> {
        let socket = KernelSocket::open(NETLINK_CONNECTOR, PROCESS_EVENTS)?;
        socket.send(&subscription()?)?;
        Ok(Self { socket, acknowledged: false })
    }

    /// Whether the kernel has confirmed the subscription: it answers within microseconds, or never.
    pub(super) fn is_confirmed(&mut self) -> bool {
        let wait = std::time::Duration::from_millis(5);
        for _ in 0..20 {
            let _ = self.read(); // what happens now is seen by the first look at /proc
            if self.acknowledged {
                return true;
            }
            std::thread::sleep(wait);
        }
        false
    }

    /// The events that are there; of very many, a part.
    pub(super) fn read(&mut self) -> ProcessEvents {
        let mut found = ProcessEvents::default();
        for _ in 0..MOST_EVENTS {
            match self.socket.receive() {
                Ok(message) => self.acknowledged |= take(message, &mut found.events),
                Err(rustix::io::Errno::NOBUFS) => found.lost = true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        found
    }
}

/// Adds the event of the message, if it has one; whether it is the kernel's confirmation.
fn take(message: &[u8], events: &mut Vec<ProcessEvent>) -> bool {
    let mut bytes = Cursor::new(message);
    let Ok(message) = Nlmsghdr::<Nlmsg, CnMsg<ProcEventHeader>>::from_bytes(&mut bytes) else { return false };
    let Some(payload) = message.get_payload() else { return false };
    let id = |pid: i32| u32::try_from(pid).unwrap_or(0);
    let reported = payload.payload();
    match reported.event {
        ProcEvent::Exec { process_tgid, .. } => {
            events.push(ProcessEvent::Exec { pid: id(process_tgid), at_ns: reported.timestamp_ns });
        }
        // A thread that ends is no process that does, but for one that takes all others along: the first
        // may be gone by then.
        ProcEvent::Exit { process_pid, process_tgid, exit_code, .. }
            if process_pid == process_tgid || is_crash_signal(exit_code & 0x7f) =>
        {
            events.push(ProcessEvent::Exit { pid: id(process_tgid), signal: exit_code & 0x7f });
        }
        ProcEvent::Ack { err } => return err == 0,
        _ => {}
    }
    false
}

impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn subscription() -> std::io::Result<Vec<u8>> {
    let failed = |error: &dyn std::fmt::Display| std::io::Error::other(error.to_string());
    let listen = CnMsgBuilder::default()
        .idx(CnMsgIdx::Proc)
        .val(CnMsgVal::Proc)
        .payload(ProcCnMcastOp::Listen)
        .build()
        .map_err(|error| failed(&error))?;
    let message = NlmsghdrBuilder::default()
        .nl_type(Nlmsg::Done)
        .nl_flags(NlmF::empty())
        .nl_payload(NlPayload::Payload(listen))
        .build()
        .map_err(|error| failed(&error))?;
    let mut bytes = Cursor::new(Vec::new());
    message.to_bytes(&mut bytes).map_err(|error| failed(&error))?;
    Ok(bytes.into_inner())
}

// The kernel's records of threads that have ended (taskstats): what a process has used in which nothing of ours is.
// Needs CAP_NET_ADMIN, the first user and pid namespaces, and a kernel of 5.19 or later with taskstats.

/// `NETLINK_GENERIC` of linux/netlink.h.
const NETLINK_GENERIC: u32 = 16;
/// Name of the family.
const TASKSTATS: &str = "TASKSTATS";
/// Every CPU that there may be, as the kernel lists them.
const CPUS: &str = "/sys/devices/system/cpu/possible";
/// Records read at once: a flood of ending threads does not delay everything else.
const MOST_RECORDS: usize = 16_384;

/// A subscription that can be made.
#[derive(Debug)]
pub(super) struct ExitAccounts {
    socket: KernelSocket,
    /// Number of the family; 0 as long as it is not known.
    family: u16,
    /// All CPUs.
    cpus: String,
}

/// Records of one reading.
#[derive(Debug, Default)]
pub(super) struct EndedThreads {
    /// Records in the order of the ends.
    pub(super) records: Vec<ExitRecord>,
    /// Records were lost: the buffer was full.
    pub(super) lost: bool,
}

impl ExitAccounts {
    /// Finds out whether the kernel sends records. It sends none yet: one for each thread that ends on the machine is too
    /// dear where nobody asks.
    pub(super) fn open() -> Result<Self> {
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
    pub(super) fn subscribe(&mut self) -> Result<()> {
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
    pub(super) fn read(&mut self) -> EndedThreads {
        let mut ended = EndedThreads::default();
        for _ in 0..MOST_RECORDS {
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

/// Room for what comes faster than it is read: some ten thousand process events, or five thousand records.
const BUFFER_BYTES: usize = 8 << 20;
/// Largest message: an event has 76 bytes, two records of a thread have 1,200, and later kernels may have longer ones.
const MESSAGE_BYTES: usize = 4096;

/// The socket.
#[derive(Debug)]
pub(super) struct KernelSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl KernelSocket {
    /// Opens a socket of that protocol, which is a member of these groups.
    pub(super) fn open(protocol: u32, groups: u32) -> std::io::Result<Self> {
        // Elsewhere the kernel refuses without an answer; but we would receive its answers to others, and ids
        // that mean nothing here.
        if !imas_linux::process::is_in_first_pid_namespace() {
            return Err(std::io::Error::other("not in the first pid namespace"));
        }
        let protocol = std::num::NonZeroU32::new(protocol).map(Protocol::from_raw);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        // Beyond the machine's limit where that is allowed.
        let forced = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
        if forced.is_err() {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        }
        Ok(Self { socket, buffer: vec![0; MESSAGE_BYTES] })
    }

    /// Sends a message to the kernel.
    pub(super) fn send(&self, message: &[u8]) -> std::io::Result<()> {
        send(&self.socket, message, SendFlags::empty())?;
        Ok(())
    }

    /// The next message of the kernel; empty for one of another process, which may write to our socket.
    pub(super) fn receive(&mut self) -> rustix::io::Result<&[u8]> {
        let (received, _, from) = recvfrom(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT)?;
        // Only the kernel has number 0.
        let kernel = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
        let bytes = if kernel.is_some_and(|from| from.pid() == 0) { received } else { 0 };
        Ok(&self.buffer[..bytes])
    }
}

impl AsFd for KernelSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use imas_core::sample::Ended;
    use imas_linux::taskstats::Account;
    use imas_testing::skipped;
    use nix::time::{ClockId, clock_gettime};

    use super::*;

    /// A connector to which the kernel reports.
    fn confirmed() -> Option<Connector> {
        let mut connector = Connector::open().ok()?;
        connector.is_confirmed().then_some(connector)
    }

    #[test]
    fn the_start_and_the_end_of_a_killed_process_are_reported() {
        let Some(mut connector) = confirmed() else {
            return skipped("the kernel reports no process events here");
        };
        let now =
            || u64::try_from(Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap()).as_nanos());
        let before = now().unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let child_id = child.id();
        // A parent goes on before the kernel reports the exec of its child, and returns from wait before it
        // reports the end.
        let mut is_reported = |is_it: &dyn Fn(&ProcessEvent) -> bool| {
            (0..6000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                let read = connector.read();
                read.lost || read.events.iter().any(is_it)
            })
        };
        // By the clock that pages are compared by.
        let started = is_reported(
            &|event| matches!(event, ProcessEvent::Exec { pid, at_ns } if *pid == child_id && (before..now().unwrap()).contains(at_ns)),
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(started && is_reported(&|event| *event == ProcessEvent::Exit { pid: child_id, signal: 9 }));
    }

    #[test]
    fn a_crash_after_the_end_of_the_first_thread_is_reported() {
        let Some(mut connector) = confirmed() else {
            return skipped("the kernel reports no process events here");
        };
        let code = "import ctypes, os, threading, time\n\
            crash = lambda: (time.sleep(0.3), os.kill(os.getpid(), 11))\n\
            threading.Thread(target=crash).start()\n\
            ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)";
        let mut child = std::process::Command::new("python3").args(["-c", code]).spawn().unwrap();
        let (mut ends, mut last, mut lost) = (0, None, false);
        // Read meanwhile: on a busy machine other processes fill the buffer, which is reported as a loss.
        for _ in 0..6000 {
            let read = connector.read();
            lost |= read.lost;
            for event in read.events {
                if let ProcessEvent::Exit { pid, signal } = event
                    && pid == child.id()
                {
                    (ends, last) = (ends + 1, Some(signal));
                }
            }
            if lost || last == Some(11) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.wait().unwrap();
        assert!(lost || (ends > 0 && last == Some(11)), "{ends} {last:?}");
    }

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
