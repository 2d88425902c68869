// SPDX-License-Identifier: Apache-2.0
//! The kernel's process events (proc connector): which processes have called exec, which have ended and how.
//! Needs CAP_NET_ADMIN and the first network and pid namespaces; where it is refused, [`crate::census`] looks
//! into /proc every few seconds instead.

use std::io::Cursor;
use std::os::fd::{AsFd, BorrowedFd};

use imas_core::sample::is_crash_signal;
use neli::connector::{CnMsg, CnMsgBuilder, ProcEvent, ProcEventHeader};
use neli::consts::connector::{CnMsgIdx, CnMsgVal, ProcCnMcastOp};
use neli::consts::nl::{NlmF, Nlmsg};
use neli::nl::{NlPayload, Nlmsghdr, NlmsghdrBuilder};
use neli::{FromBytes, ToBytes};

use crate::kernel_socket::KernelSocket;

/// `NETLINK_CONNECTOR` of linux/netlink.h.
const NETLINK_CONNECTOR: u32 = 11;
/// The group of process events, `CN_IDX_PROC`.
const PROCESS_EVENTS: u32 = 1;
/// Events read at once: a flood of new processes does not delay everything else.
const MOST_AT_ONCE: usize = 16_384;

/// What a process did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEvent {
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
pub(crate) struct Connector {
    socket: KernelSocket,
    acknowledged: bool,
}

/// Events of one reading.
#[derive(Debug, Default)]
pub(crate) struct ProcessEvents {
    /// Events in the order of happening.
    pub(crate) events: Vec<ProcessEvent>,
    /// Events were lost: the buffer was full.
    pub(crate) lost: bool,
}

impl Connector {
    /// Subscribes to the kernel's process events.
    pub(crate) fn open() -> std::io::Result<Self> {
        let socket = KernelSocket::open(NETLINK_CONNECTOR, PROCESS_EVENTS)?;
        socket.send(&subscription()?)?;
        Ok(Self { socket, acknowledged: false })
    }

    /// Whether the kernel has confirmed the subscription: it answers within microseconds, or never.
    pub(crate) fn is_confirmed(&mut self) -> bool {
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
    pub(crate) fn read(&mut self) -> ProcessEvents {
        let mut found = ProcessEvents::default();
        for _ in 0..MOST_AT_ONCE {
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

#[cfg(test)]
mod tests {
    use super::*;
    use imas_testing::skipped;
    use nix::time::{ClockId, clock_gettime};
    use std::time::Duration;

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
}
