// SPDX-License-Identifier: Apache-2.0
//! The procedure: a thread is chosen, stopped, judged, and let go into malloc_trim.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::frame::{self, Before, Laid};
use crate::process::{self, LeftAlone, Memory, Range, Standing, Target, Unfit, Waiting};
use crate::trace::{Registers, Stop, Tracee};
use crate::waits::Wait;
use crate::{Done, TrimSite, TrimTime, filter};

/// Time in which a thread stands still once it was asked to. A frozen one does not.
const LONGEST_STOP: Duration = Duration::from_millis(200);
/// Time in which the locks of all arenas must have been seen free, while one thread stands still.
const LONGEST_LOCKS: Duration = Duration::from_millis(20);
/// Time between two looks at a lock that is held.
const BETWEEN_LOCKS: Duration = Duration::from_micros(20);
/// A thread that has begun its wait no longer ago than this may be made to begin it again.
const JUST_BEGUN: Duration = Duration::from_millis(5);
/// Most arenas whose locks are looked at.
const MOST_ARENAS: usize = 4096;

/// Does what [`crate::trim`] says, with every request of ptrace in a thread of its own: when that ends, the kernel lets
/// go whatever it traced.
pub(crate) fn by_a_thread(pid: u32, site: &TrimSite, bounds: TrimTime) -> Result<Done, LeftAlone> {
    let site = site.clone();
    let procedure = move || (rustix::thread::gettid(), Procedure::run(pid, site, bounds));
    let traced = std::thread::Builder::new().name("trim".to_owned()).spawn(procedure);
    let ended = traced.map(std::thread::JoinHandle::join).map(|joined| {
        joined.map(|(tracer, done)| {
            wait_until_gone(tracer);
            done
        })
    });
    match ended {
        Ok(Ok(Ok((done, target)))) => {
            let resident =
                done.resident.zip(target.anonymous_bytes()).map(|((before, _), after)| (before, after));
            Ok(Done { resident, ..done })
        }
        Ok(Ok(Err(refusal))) => Err(refusal),
        Ok(Err(_)) => Err(LeftAlone::Kernel("the tracing thread failed".to_owned())),
        Err(error) => Err(LeftAlone::Kernel(error.to_string())),
    }
}

/// Waits until the kernel has let go what a thread of this process traced: it was joined when its memory was free, and
/// the kernel comes to what it traced after that.
fn wait_until_gone(tracer: rustix::thread::Pid) {
    let folder = format!("/proc/self/task/{}", tracer.as_raw_pid());
    let until = Instant::now() + LONGEST_STOP;
    while std::path::Path::new(&folder).exists() && Instant::now() < until {
        sleep(BETWEEN_LOCKS);
    }
}

struct Procedure {
    target: Target,
    site: TrimSite,
    until: Instant,
    tries: u32,
}

/// Why a try with one thread came to nothing.
enum Failed {
    Thread(Unfit),
    Process(LeftAlone),
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::Process(LeftAlone::of_errno(&error))
    }
}

impl From<Unfit> for Failed {
    fn from(unfit: Unfit) -> Self {
        Self::Thread(unfit)
    }
}

impl From<LeftAlone> for Failed {
    fn from(refusal: LeftAlone) -> Self {
        Self::Process(refusal)
    }
}

/// A thread that stands still and may be let go into malloc_trim.
struct Judged {
    laid: Laid,
    memory: Memory,
    arenas: usize,
    next: Next,
}

impl Procedure {
    fn run(pid: u32, site: TrimSite, bounds: TrimTime) -> Result<(Done, Target), LeftAlone> {
        let target = Target::of(pid)?;
        if target.has_shadow_stack() {
            return Err(LeftAlone::ShadowStack);
        }
        let mut procedure = Self { target, site, until: Instant::now() + bounds.find, tries: 0 };
        let before = procedure.target.anonymous_bytes();
        let (mut done, away) = procedure.find()?;
        let begun = Instant::now();
        if away.was_seen_back(&procedure.target, begun + bounds.end) {
            done.trim_ms = Some(begun.elapsed().as_secs_f64() * 1e3);
        }
        // The second number is read once the thread is not traced.
        done.resident = before.map(|before| (before, before));
        Ok((done, procedure.target))
    }

    /// Tries threads, the best ones first, until one was sent into malloc_trim.
    fn find(&mut self) -> Result<(Done, Away), LeftAlone> {
        let mut why = "all of them run, or wait elsewhere".to_owned();
        loop {
            for waiting in self.target.waiting() {
                self.tries += 1;
                match self.attempt(&waiting) {
                    Ok(done) => return Ok(done),
                    Err(Failed::Process(LeftAlone::Ended))
                        if Target::of(self.target.pid.unsigned_abs()).is_ok() => {}
                    Err(Failed::Process(refusal)) => return Err(refusal),
                    Err(Failed::Thread(unfit)) => why = unfit.words().to_owned(),
                }
                if Instant::now() >= self.until {
                    return Err(LeftAlone::NoThread(why));
                }
            }
            if Instant::now() >= self.until {
                return Err(LeftAlone::NoThread(why));
            }
            sleep(BETWEEN_LOOKS);
        }
    }

    fn attempt(&self, waiting: &Waiting) -> Result<(Done, Away), Failed> {
        let tid = waiting.tid;
        if self.target.is_frozen(tid) {
            return Err(LeftAlone::Standing.into());
        }
        let has_filter = self.target.has_filter(tid)? && !filter::is_passed_by(self.target.pid, tid);
        let (mapping, is_stack) = self.target.mapping(waiting.call.stack).ok_or(Unfit::UnknownStack)?;
        let is_first = is_stack && tid == self.target.pid;
        if waiting.wait == Wait::JustBegun {
            self.wait_for_begin(tid)?;
        }
        let begun = Instant::now();
        let tracee = Tracee::seize(tid)?;
        tracee.interrupt()?;
        // From here on an early return leaves the thread traced until ours ends: so each way out lets it go.
        match tracee.wait(begun + LONGEST_STOP)? {
            Some(Stop::Asked) => {}
            Some(Stop::Signal(signal)) => return let_go(tracee, signal, Unfit::WentOn),
            Some(_) => return let_go(tracee, 0, Unfit::WentOn),
            None => return Err(LeftAlone::Standing.into()), // it cannot be let go before it stands; it is when we end
        }
        let mut begun = begun;
        let (next, judged) = match self.goes_on_with(&tracee, waiting, &mut begun) {
            Ok(next) => {
                let judged = self.judge(&tracee, &next, (mapping, is_first), has_filter);
                (Some(next), judged)
            }
            Err(failed) => (None, Err(failed)),
        };
        let Judged { laid, memory, arenas, next } = match judged {
            Ok(judged) => judged,
            Err(failed) => {
                // A call that EINTR would end is made again all the same.
                if let Some(next) = next.filter(|next| next.for_a_handler.is_some()) {
                    tracee.set_registers(&next.registers)?;
                }
                let _ = tracee.let_go(0); // it has ended, perhaps
                return Err(failed);
            }
        };
        let written =
            memory.write(laid.address, &laid.bytes).and_then(|()| tracee.set_registers(&laid.registers));
        // The first frame blocks all signals while malloc_trim runs, for a handler might allocate. Here they are blocked
        // before that, so that a handler runs behind the second one. Either frame brings a mask, also when we are killed here.
        written.and_then(|()| tracee.block(frame::ALL_SIGNALS)).and_then(|()| tracee.go_on())?;
        let done = Done {
            thread: tid,
            call: waiting.call.number,
            stood_ms: begun.elapsed().as_secs_f64() * 1e3,
            trim_ms: None,
            arenas,
            tries: self.tries,
            resident: None,
        };
        Ok((done, Away::of(tracee, tid, &laid, next)))
    }

    /// Waits until the thread begins its wait anew.
    fn wait_for_begin(&self, tid: i32) -> Result<(), Unfit> {
        let before = self.target.waits_begun(tid);
        let mut last = Instant::now();
        while Instant::now() < self.until {
            sleep(BETWEEN_LOOKS);
            let has_begun = self.target.waits_begun(tid) != before;
            if has_begun && last.elapsed() < JUST_BEGUN && self.target.look(tid).is_some() {
                return Ok(());
            }
            if has_begun {
                return Err(Unfit::WentOn);
            }
            last = Instant::now();
        }
        Err(Unfit::TimeLimit)
    }

    /// The registers with which the thread, which stands still, goes on after malloc_trim. Where its wait has a limit
    /// that only the kernel knows, it is waited for first; `begun` is then the time of its end.
    fn goes_on_with(&self, tracee: &Tracee, waiting: &Waiting, begun: &mut Instant) -> Result<Next, Failed> {
        let registers = tracee.registers()?;
        let interrupted = frame::interrupted(&registers, &waiting.call).ok_or(Unfit::WentOn)?;
        if frame::stack_pointer(&registers) != waiting.call.stack {
            return Err(Unfit::WentOn.into());
        }
        if waiting.wait != Wait::ToItsEnd {
            let for_a_handler = Some(interrupted.for_a_handler);
            return Ok(Next { registers: interrupted.again, for_a_handler });
        }
        if !interrupted.may_be_continued {
            return Err(Unfit::TimeLimit.into());
        }
        let registers = self.at_its_end(tracee, &registers)?;
        *begun = Instant::now();
        Ok(Next { registers, for_a_handler: None })
    }

    /// The registers with which the thread goes on behind its call, where it leaves it.
    fn at_its_end(&self, tracee: &Tracee, interrupted: &Registers) -> Result<Registers, Failed> {
        // The first stop is where it enters the call that continues the interrupted one.
        for _ in 0..2 {
            tracee.go_on_to_call()?;
            match tracee.wait(self.until)? {
                Some(Stop::SystemCall) => {}
                Some(Stop::Signal(signal)) => {
                    // It gets its signal now. The next stop is the one that was asked for.
                    return Err(self.with_signal(tracee, signal));
                }
                Some(_) => return Err(Unfit::WentOn.into()),
                None => {
                    // Asked to stand again, so that it can be let go; the kernel continues its call.
                    tracee.interrupt()?;
                    return match tracee.wait(Instant::now() + LONGEST_STOP)? {
                        Some(Stop::Signal(signal)) => Err(self.with_signal(tracee, signal)),
                        Some(_) => Err(Unfit::TimeLimit.into()),
                        None => Err(LeftAlone::Standing.into()),
                    };
                }
            }
        }
        Ok(frame::left(&tracee.registers()?, interrupted).ok_or(Unfit::WentOn)?)
    }

    /// Lets the thread have the signal that came meanwhile.
    fn with_signal(&self, tracee: &Tracee, signal: i32) -> Failed {
        match tracee.hand_on(signal) {
            Ok(()) => Unfit::WentOn.into(),
            Err(error) => error.into(),
        }
    }

    /// Whether the thread, which stands still, may be let go into malloc_trim, and how.
    fn judge(
        &self,
        tracee: &Tracee,
        next: &Next,
        (mapping, is_first): (Range, bool),
        has_filter: bool,
    ) -> Result<Judged, Failed> {
        let memory = Memory::of_thread(self.target.pid)?;
        self.is_same_program(&memory)?;
        if next.for_a_handler.is_some() {
            let mut instruction = [0; frame::SYSCALL.len()];
            memory
                .read(frame::program_counter(&next.registers), &mut instruction)
                .ok_or(Unfit::OtherEntry)?;
            if instruction != frame::SYSCALL {
                return Err(Unfit::OtherEntry.into());
            }
        }
        if frame::has_shadow_stack(tracee) {
            return Err(LeftAlone::ShadowStack.into());
        }
        let thread = frame::thread_pointer(tracee, &next.registers)?;
        let record =
            if is_first { Some(vec![]) } else { words(&memory, frame::record(thread), frame::RECORD) };
        let record = record.ok_or(Unfit::UnknownStack)?;
        let pointer = frame::stack_pointer(&next.registers);
        let standing = Standing { pointer, thread, record: &record, mapping, is_first };
        let stack = standing.stack()?;
        let extended = tracee.extended_registers()?;
        if !standing.has_room(stack, frame::room(extended.len())) {
            return Err(Unfit::NoRoom.into());
        }
        let used = standing.in_use(stack);
        let bytes = usize::try_from(used.end - used.begin).unwrap_or(0);
        let in_use = words(&memory, used.begin, bytes).ok_or(Unfit::UnknownStack)?;
        if process::has_signal_frame(&in_use) {
            return Err(Unfit::InHandler.into());
        }
        if has_filter {
            self.passes_filters(tracee, frame::program_counter(&next.registers))?;
        }
        let arenas = self.locks_seen_free(&memory)?;
        let before = Before { registers: next.registers, extended: &extended, blocked: tracee.blocked()? };
        let laid =
            frame::lay(&before, self.site.malloc_trim.0, self.site.sigreturn.0).ok_or(Unfit::NoRoom)?;
        Ok(Judged { laid, memory, arenas, next: *next })
    }

    /// Whether the process still has the code that was found.
    fn is_same_program(&self, memory: &Memory) -> Result<(), LeftAlone> {
        for (address, expected) in [self.site.malloc_trim, self.site.sigreturn] {
            let mut bytes = [0; 16];
            if memory.read(address, &mut bytes).is_none() || bytes != expected {
                return Err(LeftAlone::OtherProgram);
            }
        }
        Ok(())
    }

    /// Whether each filter of system calls lets malloc_trim do what it does.
    fn passes_filters(&self, tracee: &Tracee, instruction: u64) -> Result<(), Failed> {
        for number in 0.. {
            let filter = match tracee.filter(number) {
                Ok(Some(filter)) => filter,
                Ok(None) => break,
                Err(_) => return Err(LeftAlone::FilterUnread.into()),
            };
            for (name, seen) in filter::needed(self.site.first_arena, instruction) {
                if !filter::allows(&filter, &seen) {
                    return Err(LeftAlone::Filter(name.to_owned()).into());
                }
            }
        }
        Ok(())
    }

    /// Number of arenas whose locks were each seen free once.
    fn locks_seen_free(&self, memory: &Memory) -> Result<usize, Unfit> {
        let until = Instant::now() + LONGEST_LOCKS;
        let (mut arena, mut arenas) = (self.site.first_arena, 0);
        loop {
            while memory.word(arena).ok_or(Unfit::LockHeld)? & 0xffff_ffff != 0 {
                if Instant::now() >= until {
                    return Err(Unfit::LockHeld);
                }
                sleep(BETWEEN_LOCKS);
            }
            arenas += 1;
            arena = memory.word(arena.wrapping_add(self.site.next)).ok_or(Unfit::LockHeld)?;
            if arena == self.site.first_arena {
                return Ok(arenas);
            }
            if arenas >= MOST_ARENAS {
                return Err(Unfit::LockHeld);
            }
        }
    }
}

/// Lets the thread go with this signal, as it was.
fn let_go<T>(tracee: Tracee, signal: i32, unfit: Unfit) -> Result<T, Failed> {
    tracee.let_go(signal)?;
    Err(unfit.into())
}

/// Words from the address on.
fn words(memory: &Memory, address: u64, bytes: usize) -> Option<Vec<u64>> {
    let mut read = vec![0; bytes / 8 * 8];
    memory.read(address, &mut read)?;
    Some(read.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

// A thread on its way through malloc_trim. It is traced until it is back.
//
// Signals are blocked meanwhile. One that comes is delivered behind the signal frame, before the interrupted call
// is made again, and the thread would then wait although a handler has run that ends the call. So the thread gets
// its call back as it was interrupted, and the kernel ends it or makes it again, as the handler wants it.

/// Time between two looks at the threads of a process.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Registers with which a thread goes on after malloc_trim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) registers: Registers,
    /// Registers for a thread whose signal handler runs first, where the system call is made again.
    pub(super) for_a_handler: Option<Registers>,
}

/// A thread in malloc_trim.
#[derive(Debug)]
pub(super) struct Away {
    tracee: Option<Tracee>,
    tid: i32,
    frame: Range,
    next: Next,
}

impl Away {
    pub(super) fn of(tracee: Tracee, tid: i32, laid: &Laid, next: Next) -> Self {
        let frame = Range { begin: laid.address, end: laid.address + laid.bytes.len() as u64 };
        Self { tracee: Some(tracee), tid, frame, next }
    }

    /// Whether the thread was seen in a system call outside of its frame, in time. It may be traced until our
    /// thread ends.
    fn was_seen_back(mut self, target: &Target, until: Instant) -> bool {
        while Instant::now() < until {
            self.hand_signal_on();
            match target.call(self.tid) {
                Some(call) if call.stack >= self.frame.end => return true,
                _ => sleep(BETWEEN_LOOKS),
            }
        }
        false
    }

    /// Lets the thread go if it stands still. A traced thread does so for each signal that is delivered to it.
    fn hand_signal_on(&mut self) {
        let stop = self.tracee.as_ref().map(|tracee| tracee.wait(Instant::now()));
        let (Some(stop), Some(tracee)) = (stop, self.tracee.take()) else { return };
        match stop {
            Ok(None) => self.tracee = Some(tracee),
            Ok(Some(Stop::Signal(signal))) => {
                let is_behind_the_frame = tracee
                    .registers()
                    .is_ok_and(|now| frame::goes_on_at(&now) == frame::goes_on_at(&self.next.registers));
                if let Some(registers) = self.next.for_a_handler.filter(|_| is_behind_the_frame) {
                    let _ = tracee.set_registers(&registers); // it has ended, perhaps
                }
                let _ = tracee.let_go(signal);
            }
            Ok(Some(Stop::Ended)) | Err(_) => {}
            Ok(Some(_)) => drop(tracee.let_go(0)),
        }
    }
}
