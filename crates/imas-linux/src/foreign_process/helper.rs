// SPDX-License-Identifier: Apache-2.0
//! The helper: this very program, started once more. Both sides of its socket.

use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::answer::{self, Answers};
use super::question::Asked;
use super::{TOO_LARGE, failed, stat};

/// First argument of a helper.
pub(super) const HELPER_ARGUMENT: &str = "__read_foreign";
/// A helper that more looks than these, of a second all together, found asleep in the kernel is stuck.
const MOST_ASLEEP: u32 = 50;
/// Number of such looks for a helper that waits for another process by its own will, and has bounds of its own.
const MOST_ASLEEP_AT_WORK: u32 = 600;
/// A helper that works or waits for a CPU may take so long.
const LONGEST: Duration = Duration::from_secs(20);
/// The walk of a helper may take so much CPU time: page tables of 800 GB.
const MOST_CPU: Duration = Duration::from_secs(5);
/// Time between two looks at what a slow helper does.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The helper's side: questions and answers pass through its standard input, a socket.
pub(super) fn help(answers: &Answers) -> Result<()> {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    loop {
        let asked = Asked::read(&mut socket)?;
        let (code, bytes) = match answer::of(&asked, answers) {
            Ok(bytes) => (0, bytes),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => (TOO_LARGE, vec![]),
            Err(error) => (error.raw_os_error().unwrap_or(TOO_LARGE), vec![]),
        };
        let length = u32::try_from(bytes.len()).map_err(|_| ErrorKind::FileTooLarge)?;
        socket.write_all([code.cast_unsigned(), length].map(u32::to_be_bytes).as_flattened())?;
        socket.write_all(&bytes)?;
    }
}

/// A helper, as the program sees it that has started it.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    socket: UnixStream,
}

/// Waiting for an answer.
struct Waiting<'a> {
    begin: Instant,
    /// Looks that found the helper asleep.
    asleep: u32,
    /// More of them, and it is stuck.
    most_asleep: u32,
    /// CPU time of the helper at the first look.
    cpu: Option<Duration>,
    /// Called at each look.
    slow: &'a dyn Fn(),
}

impl Waiting<'_> {
    /// Whether a look that finds this is the last one. Looks are counted, not the time between them: where we get no
    /// CPU ourselves, a single look would stand for seconds.
    fn is_over(&mut self, is_asleep: bool, cpu: Duration) -> bool {
        self.asleep += u32::from(is_asleep);
        let used = cpu.saturating_sub(*self.cpu.get_or_insert(cpu));
        self.asleep > self.most_asleep || self.begin.elapsed() > LONGEST || used > MOST_CPU
    }
}

impl Helper {
    pub(super) fn start() -> Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(HELPER_ARGUMENT).env_clear().env("IMAS_DISABLE", "1");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        ours.set_read_timeout(Some(BETWEEN_LOOKS))?;
        Ok(Self { child, socket: ours })
    }

    /// The inner result is the answer; the outer one says whether the helper is of further use.
    pub(super) fn ask(&mut self, asked: &Asked<&Path>, slow: &dyn Fn()) -> Result<Result<Vec<u8>>> {
        let begin = Instant::now();
        let most_asleep = if asked.question.is_waited_for() { MOST_ASLEEP_AT_WORK } else { MOST_ASLEEP };
        let mut waiting = Waiting { begin, asleep: 0, most_asleep, cpu: None, slow };
        self.socket.write_all(&asked.bytes()?)?;
        let mut head = [[0; 4]; 2];
        self.receive(head.as_flattened_mut(), &mut waiting)?;
        let [code, length] = head.map(u32::from_be_bytes);
        if code != 0 {
            return Ok(Err(failed(code.cast_signed())));
        }
        if length as usize > asked.question.most_bytes() {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length as usize];
        self.receive(&mut bytes, &mut waiting)?;
        Ok(Ok(bytes))
    }

    fn receive(&mut self, bytes: &mut [u8], waiting: &mut Waiting<'_>) -> Result<()> {
        let mut got = 0;
        while got < bytes.len() {
            match self.socket.read(&mut bytes[got..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.look(waiting)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// On a busy machine a helper waits for a CPU, and for a moment for the disk: it is not stuck then.
    fn look(&self, waiting: &mut Waiting<'_>) -> Result<()> {
        (waiting.slow)();
        let stat = stat(self.child.id());
        let ticks = stat.as_ref().map_or(0, |stat| stat.utime + stat.stime);
        let cpu = Duration::from_millis(ticks * 1000 / procfs::ticks_per_second());
        let is_asleep = stat.is_none_or(|stat| stat.state != 'R');
        if waiting.is_over(is_asleep, cpu) { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, and waits for its end.
    pub(super) fn end(mut self) {
        let _ = self.child.kill(); // it has ended, perhaps
        let _ = self.child.wait();
    }

    /// Kills it; returned where it has not ended.
    pub(super) fn killed(mut self) -> Option<Child> {
        let _ = self.child.kill(); // it has ended, perhaps
        matches!(self.child.try_wait(), Ok(None)).then_some(self.child)
    }
}

/// Whether the other end of the socket is gone.
pub(super) fn is_of_ended(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_that_sleeps_now_and_then_is_waited_for_and_one_that_only_sleeps_is_not() {
        let looks_until_over = |is_asleep: fn(u32) -> bool, cpu_each: Duration| {
            let begin = Instant::now();
            let mut waiting = Waiting { begin, asleep: 0, most_asleep: MOST_ASLEEP, cpu: None, slow: &|| {} };
            (0..1000).position(|look| waiting.is_over(is_asleep(look), cpu_each * look))
        };
        assert_eq!(looks_until_over(|_| true, Duration::ZERO), Some(50));
        assert_eq!(looks_until_over(|look| look % 10 == 0, Duration::ZERO), Some(500));
        assert_eq!(looks_until_over(|_| false, Duration::ZERO), None, "it waits for a CPU");
        assert_eq!(looks_until_over(|_| false, Duration::from_millis(20)), Some(251), "works 5 s");
    }
}
