// SPDX-License-Identifier: Apache-2.0
//! Running a command with its whole process tree, and what that cost.

use std::ffi::OsString;
use std::fs::File;
use std::hash::Hasher;
use std::io::{PipeReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use imas_core::pace::Pace;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use siphasher::sip::SipHasher13;

use crate::control_group::MemoryKills;
use crate::environment::Variables;
use crate::foreign_process;
use crate::pace::{Meter, OneCpu, Touch, prefault};
use crate::sampler::{Counters, HardwareCounts, Resident, Sampler};
use crate::standstill::{Most, Stillness, taken};
use crate::start_program::{ChildSetup, ProgramStart, StartedProgram};

/// One run to be made.
#[derive(Debug, Clone)]
pub struct RunRequest<'a> {
    /// The file to exec.
    pub file: &'a Path,
    /// Arguments of the run from `argv[0]` on.
    pub argv: &'a [OsString],
    /// Whole environment of the run.
    pub variables: &'a Variables,
    /// Standard input; /dev/null when there is none.
    pub input: Option<&'a Path>,
    /// Working folder; this process's own when there is none.
    pub folder: Option<&'a Path>,
    /// Pass the program's output on instead of only hashing it.
    pub show_output: bool,
    /// Time after which the run is ended by SIGKILL.
    pub timeout: Duration,
    /// Time for which the run's tree has used no CPU time before it is ended by SIGKILL; never for that when
    /// there is none.
    pub still: Option<Duration>,
    /// CPU time and memory above which the run is ended by SIGKILL; never for that when there is none.
    pub most: Option<Most>,
    /// The only CPU that it may use; all of ours when there is none.
    pub cpu: Option<usize>,
    /// Bytes of free memory that are touched before the run, so that the host need not provide it during the
    /// run; 0: none.
    pub prefault_bytes: u64,
}

/// Cost and end of one run.
#[derive(Debug, Clone, Default)]
pub struct RunOutcome {
    /// Exit status, or 128 + signal.
    pub exit: i32,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// CPU seconds in user mode, whole tree.
    pub user_s: f64,
    /// CPU seconds in the kernel, whole tree.
    pub system_s: f64,
    /// Seconds from start to the end of the first process.
    pub wall_s: f64,
    /// Page faults served without the disk, whole tree.
    pub minor_faults: u64,
    /// Page faults that waited for the disk, whole tree.
    pub major_faults: u64,
    /// Voluntary context switches of the whole tree.
    pub voluntary_switches: u64,
    /// Involuntary context switches of the whole tree.
    pub involuntary_switches: u64,
    /// Resident anonymous memory of the tree.
    pub resident: Resident,
    /// Hardware counters, where the machine has them.
    pub counts: HardwareCounts,
    /// Pace of the CPU meanwhile; of a server, while it was loaded.
    pub pace: Option<Pace>,
    /// Cost of touching free memory before the run.
    pub prefaulted: Option<Touch>,
    /// Hash of standard output (SipHash-1-3, key 0): the same bytes give the same on every machine.
    pub output_hash: u64,
    /// The end of what was written to standard error.
    pub stderr_tail: String,
    /// The run was killed because it took longer than allowed.
    pub timed_out: bool,
    /// The run was killed because it hung.
    pub hung: bool,
    /// The run was killed because it took more than it may.
    pub excess: bool,
    /// The kernel killed the first process for want of memory, in a control group with a limit.
    pub out_of_memory: bool,
    /// Processes still running when the first had ended; they were ended.
    pub left_running: u32,
}

/// A run that used more CPU time than this share of its elapsed time used several CPUs at once.
const SEVERAL_CPUS: f64 = 1.05;

impl RunOutcome {
    /// Whether the run used one CPU at a time, by its CPU time: keeping it on one CPU takes nothing from it.
    #[must_use]
    pub fn is_serial(&self) -> bool {
        self.user_s + self.system_s <= SEVERAL_CPUS * self.wall_s
    }
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum RunError {
    /// The input file could not be opened.
    #[error("{}: {error}", .path.display())]
    Input { path: PathBuf, error: std::io::Error },
    /// The command could not be started.
    #[error("{}: {error}", .file.display())]
    Start { file: PathBuf, error: std::io::Error },
    #[error("cannot make a pipe: {0}")]
    Pipe(std::io::Error),
    #[error("cannot measure: {0}")]
    System(#[from] nix::Error),
    #[error("cannot wait for the program: {0}")]
    Wait(std::io::Error),
    #[error(
        "a process that the run has left cannot be ended: it is another user's, or the kernel does not let it go"
    )]
    Left,
}

/// Time for which processes that outlive the first may go on before they are ended.
const GRACE: Duration = Duration::from_millis(500);
/// Time for which a process is killed in vain: of one of another user, as sudo starts it, there is no end.
const IN_VAIN: Duration = Duration::from_secs(120);
/// Bytes of standard error that are kept.
const TAIL_BYTES: usize = 4096;

impl RunRequest<'_> {
    /// Makes the run and waits for the whole tree. One at a time: usage is distinguished by what this process
    /// reaped.
    ///
    /// # Errors
    /// When the program cannot be started or the system refuses to measure it; a program that fails is no
    /// error.
    pub fn measure(&self) -> Result<RunOutcome, RunError> {
        self.make(true)
    }

    /// Makes the run as [`RunRequest::measure`] does, of a program that reports its own figures. Neither
    /// memory nor the pace of the CPU is looked at meanwhile, which would take CPU time from the program.
    ///
    /// # Errors
    /// As [`RunRequest::measure`].
    pub fn run(&self) -> Result<RunOutcome, RunError> {
        self.make(false)
    }

    fn make(&self, is_sampled: bool) -> Result<RunOutcome, RunError> {
        let prefaulted = self.prepare()?;
        let before = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let counters = Counters::open();
        let run = self.start()?;
        let sampler = is_sampled.then(Sampler::start);
        let meter = is_sampled.then(|| Meter::start(self.cpu));
        let watchdog = Watchdog::start(run.child.id(), self.timeout, self.still, self.most);
        let status = run.child.wait().map_err(RunError::Wait)?;
        let wall_s = run.began.elapsed().as_secs_f64();
        let pace = meter.and_then(Meter::stop);
        let end = RunEnd::of(status, watchdog)?;
        let resident = sampler.map(Sampler::stop).unwrap_or_default();
        let outcome = run.outcome(&end, &before)?;
        Ok(RunOutcome { wall_s, prefaulted, resident, pace, counts: counters.read(), ..outcome })
    }

    /// Measures a server and nothing else: starts it, lets `load` do its work (it gets the server's pid and
    /// may start processes, which it must wait for), then asks the server to end by `stop` and waits for its
    /// whole tree.
    ///
    /// CPU and memory are of the server's own tree, from its start to its end; no hardware counters.
    /// `timeout` is how long it may take to end.
    ///
    /// # Errors
    /// As [`RunRequest::measure`]; what `load` returns comes back beside the outcome.
    pub fn measure_server<T>(
        &self,
        stop: Signal,
        load: impl FnOnce(u32) -> T,
    ) -> Result<(RunOutcome, T), RunError> {
        let prefaulted = self.prepare()?;
        let run = self.start()?;
        let sampler = Sampler::of(run.child.id());
        let meter = Meter::start(self.cpu);
        let loaded = load(run.child.id());
        let wall_s = run.began.elapsed().as_secs_f64();
        let pace = meter.stop();
        let resident = sampler.stop();
        foreign_process::end_helper();
        // All that was reaped so far belongs to the load; what comes from here on is the server's.
        let before = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        if let Ok(pid) = i32::try_from(run.child.id()) {
            let _ = kill(Pid::from_raw(pid), stop); // it may have ended by itself
        }
        let watchdog = Watchdog::start(run.child.id(), self.timeout, None, None);
        let end = RunEnd::of(run.child.wait().map_err(RunError::Wait)?, watchdog)?;
        let outcome = run.outcome(&end, &before)?;
        Ok((RunOutcome { wall_s, prefaulted, resident, pace, ..outcome }, loaded))
    }

    /// Prepares for a run. Orphans of the tree become ours, so that their CPU time is counted and they can be
    /// ended. From then on each child of ours counts for the run.
    fn prepare(&self) -> Result<Option<Touch>, RunError> {
        foreign_process::end_helper();
        adopt_orphans()?;
        Ok(prefault(self.prefault_bytes))
    }

    fn start(&self) -> Result<StartedRun, RunError> {
        let (output, output_end) = std::io::pipe().map_err(RunError::Pipe)?;
        let (errors, errors_end) = std::io::pipe().map_err(RunError::Pipe)?;
        let setup = ChildSetup {
            input: Some(self.opened_input()?.into()),
            output: Some(output_end.into()),
            errors: Some(errors_end.into()),
            folder: self.folder,
            leads_group: false,
        };
        let kills = MemoryKills::now();
        // On a busy machine the child may be far on before we are back from its start.
        let began = Instant::now();
        let child = self.spawn(&setup)?;
        drop(setup); // the pipes end with the program
        let output = hash_output(output, self.show_output);
        let errors = keep_tail(errors, self.show_output);
        Ok(StartedRun { child, began, kills, output, errors })
    }

    fn opened_input(&self) -> Result<File, RunError> {
        let path = self.input.unwrap_or_else(|| Path::new("/dev/null"));
        File::open(path).map_err(|error| RunError::Input { path: path.to_owned(), error })
    }

    fn spawn(&self, setup: &ChildSetup<'_>) -> Result<StartedProgram, RunError> {
        let _kept = self.cpu.and_then(|cpu| OneCpu::keep(cpu).ok()); // taken away meanwhile: any will do
        ProgramStart { file: self.file, argv: self.argv, variables: self.variables }
            .spawn(setup)
            .map_err(|error| RunError::Start { file: self.file.to_owned(), error })
    }
}

/// A program that runs; threads read its output.
struct StartedRun {
    child: StartedProgram,
    began: Instant,
    /// The kills for want of memory before its start.
    kills: Option<MemoryKills>,
    output: JoinHandle<u64>,
    errors: JoinHandle<String>,
}

impl StartedRun {
    /// Outcome of the run, once the whole tree has ended: usage since `before`, output and exit status.
    fn outcome(self, end: &RunEnd, before: &Usage) -> Result<RunOutcome, RunError> {
        let (exit, signal) = exit_of(end.status);
        let by_another = signal == Some(Signal::SIGKILL as i32) && end.why.is_none();
        Ok(RunOutcome {
            exit,
            signal,
            out_of_memory: by_another && self.kills.is_some_and(|kills| kills.have_grown()),
            timed_out: end.why == Some(Why::TooLong),
            hung: end.why == Some(Why::Idle),
            excess: end.why == Some(Why::TooMuch),
            left_running: end.left_running,
            output_hash: self.output.join().unwrap_or_default(),
            stderr_tail: self.errors.join().unwrap_or_default(),
            ..usage_between(before, &getrusage(UsageWho::RUSAGE_CHILDREN)?)
        })
    }
}

/// End of a run.
struct RunEnd {
    status: ExitStatus,
    /// Reason why the watchdog killed it, if it did.
    why: Option<Why>,
    left_running: u32,
}

impl RunEnd {
    /// End of a run whose first process has ended with that status. What the run left running is ended.
    fn of(status: ExitStatus, watchdog: Watchdog) -> Result<Self, RunError> {
        let why = watchdog.stop();
        Ok(Self { status, why, left_running: end_orphans()? })
    }
}

/// Exit code as a shell reports it, and the signal.
fn exit_of(status: ExitStatus) -> (i32, Option<i32>) {
    let signal = status.signal();
    (status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0)), signal)
}

fn usage_between(before: &Usage, after: &Usage) -> RunOutcome {
    use nix::sys::time::TimeValLike;
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a run are far below 2^52")]
    let seconds = |after: nix::sys::time::TimeVal, before| (after - before).num_microseconds() as f64 / 1e6;
    let count = |after: i64, before: i64| u64::try_from(after - before).unwrap_or(0);
    RunOutcome {
        user_s: seconds(after.user_time(), before.user_time()),
        system_s: seconds(after.system_time(), before.system_time()),
        minor_faults: count(after.minor_page_faults(), before.minor_page_faults()),
        major_faults: count(after.major_page_faults(), before.major_page_faults()),
        voluntary_switches: count(after.voluntary_context_switches(), before.voluntary_context_switches()),
        involuntary_switches: count(
            after.involuntary_context_switches(),
            before.involuntary_context_switches(),
        ),
        ..RunOutcome::default()
    }
}

/// Reads standard output to its end on a thread of its own, so that the program never waits for us.
fn hash_output(pipe: PipeReader, show: bool) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut hasher = SipHasher13::new();
        drain(pipe, |bytes| {
            hasher.write(bytes);
            if show {
                let _ = std::io::stdout().write_all(bytes); // a closed terminal must not end the run
            }
        });
        hasher.finish()
    })
}

fn keep_tail(pipe: PipeReader, show: bool) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut tail: Vec<u8> = Vec::new();
        drain(pipe, |bytes| {
            tail.extend_from_slice(bytes);
            let surplus = tail.len().saturating_sub(TAIL_BYTES);
            tail.drain(..surplus);
            if show {
                let _ = std::io::stderr().write_all(bytes);
            }
        });
        String::from_utf8_lossy(&tail).into_owned()
    })
}

fn drain(mut pipe: PipeReader, mut sink: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => sink(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Why a process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    TooLong,
    Idle,
    TooMuch,
}

/// Kills one process if it is still there after a while, or hangs.
struct Watchdog {
    done: Sender<()>,
    thread: JoinHandle<Option<Why>>,
}

impl Watchdog {
    fn start(pid: u32, timeout: Duration, still: Option<Duration>, most: Option<Most>) -> Self {
        let (done, wait) = channel();
        let thread = std::thread::spawn(move || {
            let mut still = still.map(|limit| Stillness::new(pid, limit));
            let why = watch(&wait, timeout, &mut still, || most.is_some_and(|most| takes_more(pid, most)));
            if why.is_some()
                && let Ok(pid) = i32::try_from(pid)
            {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL); // it may have ended this instant
            }
            why
        });
        Self { done, thread }
    }

    fn stop(self) -> Option<Why> {
        let _ = self.done.send(()); // the thread may have ended already
        self.thread.join().unwrap_or(None)
    }
}

/// Time between two looks what a run has taken.
const LOOK: Duration = Duration::from_millis(200);

/// Waits until the run is over, or there is a reason to end it.
fn watch(
    done: &Receiver<()>,
    timeout: Duration,
    still: &mut Option<Stillness>,
    takes_too_much: impl Fn() -> bool,
) -> Option<Why> {
    let begun = Instant::now();
    let mut looked = begun;
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        let gap = if still.is_some() { LOOK.min(left) } else { left };
        if done.recv_timeout(gap) != Err(RecvTimeoutError::Timeout) {
            return None;
        }
        if begun.elapsed() >= timeout {
            return Some(Why::TooLong);
        }
        if takes_too_much() {
            return Some(Why::TooMuch);
        }
        if let Some(still) = still.as_mut().filter(|still| looked.elapsed() >= still.gap()) {
            looked = Instant::now();
            if still.is_reached() {
                return Some(Why::Idle);
            }
        }
    }
}

fn takes_more(pid: u32, most: Most) -> bool {
    let took = taken(pid);
    took.cpu_s > most.cpu_s || took.bytes > most.bytes
}

/// Reaps what the tree has left running, ending what does not end by itself; how many had to be ended.
fn end_orphans() -> Result<u32, RunError> {
    let start = Instant::now();
    let mut ended = Vec::new();
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(nix::Error::ECHILD) => return Ok(u32::try_from(ended.len()).unwrap_or(u32::MAX)),
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(WaitStatus::StillAlive) if start.elapsed() > IN_VAIN => return Err(RunError::Left),
            Ok(WaitStatus::StillAlive) => {
                if start.elapsed() > GRACE {
                    kill_children(&mut ended);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(_) => {}
        }
    }
}

/// Makes orphans of every process that is started from now on ours, so that they can be found and ended.
///
/// # Errors
/// When the kernel refuses.
pub fn adopt_orphans() -> Result<(), RunError> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Ends every descendant of this process and waits for each. Whatever stands for one of them has no
/// exit status to return afterwards.
///
/// # Errors
/// When a child cannot be waited for.
pub fn end_descendants() -> Result<(), RunError> {
    kill_descendants();
    end_orphans().map(|_| ())
}

/// Ends every descendant of this process at once: for a program that is about to end in the middle of a run.
pub fn kill_descendants() {
    let all = crate::sampler::tree(std::process::id());
    for pid in all.into_iter().skip(1).filter_map(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL); // it may have ended this instant
    }
}

/// SIGTERM once, SIGKILL at the second time of asking: each round, orphans of those ended become ours.
fn kill_children(ended: &mut Vec<u32>) {
    let mut children = crate::sampler::children(std::process::id());
    // There are some: a kernel without CONFIG_PROC_CHILDREN has no list of them.
    if children.is_empty() {
        children = crate::sampler::children_by_parent(std::process::id());
    }
    for pid in children {
        let Ok(raw) = i32::try_from(pid) else { continue };
        let signal = if ended.contains(&pid) { Signal::SIGKILL } else { Signal::SIGTERM };
        if !ended.contains(&pid) {
            ended.push(pid);
        }
        let _ = kill(Pid::from_raw(raw), signal); // it may have ended this instant
    }
    std::thread::sleep(Duration::from_millis(100));
}
