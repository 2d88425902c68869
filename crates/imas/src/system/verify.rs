// SPDX-License-Identifier: Apache-2.0
//! `imas system verify`: checks of a file before every program of the machine may load it (the file is not loaded for them),
//! then the battery: programs of every kind that loads a preload differently. Each runs without the library and with it, and
//! must end, print and complain the same.
//!
//! The rehearsal is the battery in a mount namespace of its own, where `/etc/ld.so.preload` really names the library. A
//! child of this command makes the namespace; nothing outside it changes, and with the child it is gone. Its `/etc` is a
//! folder in memory full of links to the real one, so that ld.so.preload can be there or not, whatever the machine has.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use imas_cli::{message, output};
use imas_linux::preloads;
use imas_linux::trust::untrusted;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::VerifyArgs;
use super::machine::{self, Machine, PRELOAD_FILE, need_root};

/// Faults and outcomes that were found.
#[derive(Debug)]
pub(super) struct Finding {
    /// Faults of the files themselves. Where there are any, nothing is started.
    pub(super) faults: Vec<String>,
    pub(super) verdicts: Vec<Verdict>,
    /// The side without the library.
    pub(super) before: Vec<Outcome>,
    /// How the library was loaded in the last round.
    pub(super) how: &'static str,
}

impl Finding {
    /// Everything that is wrong, a line each. Empty: nothing is.
    pub(super) fn wrong(&self) -> Vec<String> {
        let verdicts = self.verdicts.iter().filter_map(|verdict| {
            let fault = verdict.fault.as_ref()?;
            Some(format!("{} ({}): {fault}", verdict.program, verdict.case))
        });
        self.faults.iter().cloned().chain(verdicts).collect()
    }
}

pub(super) fn run(args: VerifyArgs, machine: &Machine) -> Result<ExitCode> {
    need_root("system verify")?;
    let finding = match is_in_place(machine)? {
        true => real(machine, rehearse(machine, Scope::Before)?.before)?,
        false => rehearsal(machine)?,
    };
    let wrong = finding.wrong();
    if args.json.json {
        let verdicts = &finding.verdicts;
        output::json(
            &json!({ "schema": 1, "passed": wrong.is_empty(), "how": finding.how, "faults": finding.faults, "programs": verdicts }),
        )?;
    } else if !args.quiet {
        output::text(&page(&finding))?;
    } else {
        wrong.iter().for_each(|line| message::say(line));
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Whether the running machine's programs load the library by the file and the links that are there now.
fn is_in_place(machine: &Machine) -> Result<bool> {
    let text = machine::read_preload(&machine.preload_file)?;
    let entry = machine.entry();
    Ok(machine.is_live() && machine::preload_entries(&text).iter().any(|&(_, other)| other == entry))
}

/// Checks the files, then rehearses: first by LD_PRELOAD, which affects no other process, then as on the
/// enabled machine.
pub(super) fn rehearsal(machine: &Machine) -> Result<Finding> {
    let faults = stub_faults(machine)?;
    if !faults.is_empty() {
        return Ok(Finding { faults, verdicts: vec![], before: vec![], how: "not loaded" });
    }
    let Rehearsal { before, variable, after } = rehearse(machine, Scope::All)?;
    let (after, how) = match after.is_empty() {
        true => (variable, "by LD_PRELOAD"),
        false => (after, "rehearsed in a mount namespace"),
    };
    Ok(Finding { faults, verdicts: compare(&before, &after), before, how })
}

/// The battery as the machine is now, against the side without the library.
pub(super) fn real(machine: &Machine, before: Vec<Outcome>) -> Result<Finding> {
    let after = run_battery(machine, By::Machine)?;
    let faults = stub_faults(machine)?.into_iter().chain(not_mapped(machine)?).collect();
    let verdicts = compare(&before, &after);
    Ok(Finding { faults, verdicts, before, how: "as the machine is" })
}

/// Why the library is not loaded into a program that is started now, if it is not. Without this check, that
/// nothing goes wrong would prove nothing.
fn not_mapped(machine: &Machine) -> Result<Option<String>> {
    let link = &machine.placements()?[0].link;
    let library = match std::fs::canonicalize(link) {
        Ok(library) => library.display().to_string(),
        Err(error) => return Ok(Some(format!("{}: {error}", link.display()))),
    };
    let maps = Command::new("/bin/cat").arg("/proc/self/maps").env_clear().output()?;
    let maps = String::from_utf8_lossy(&maps.stdout);
    let mapped = maps.lines().any(|line| line.ends_with(&library));
    Ok((!mapped).then(|| format!("{library}: a program that was started now has not loaded it")))
}

fn page(finding: &Finding) -> String {
    let mut page = format!("library loaded: {}\n", finding.how);
    for fault in &finding.faults {
        page += &format!("  FAULT  {fault}\n");
    }
    for verdict in &finding.verdicts {
        page += &match &verdict.fault {
            None => format!("  same   {} ({})\n", verdict.program, verdict.case),
            Some(fault) => format!("  FAULT  {} ({}): {fault}\n", verdict.program, verdict.case),
        };
    }
    page + match finding.wrong().is_empty() {
        true => "Every program ends, prints and complains as without it.",
        false => "Not fit to be loaded by every program.",
    }
}

/// Faults of the machine's own files: the libraries to be linked and the static tools.
fn stub_faults(machine: &Machine) -> anyhow::Result<Vec<String>> {
    let mut faults = vec![];
    for placement in machine.placements()? {
        match placement.stub.try_exists() {
            Ok(false) if !placement.loader.native => {} // its programs get one message a start; `verify` shows it
            _ => faults.extend(library_fault(&placement.stub)),
        }
    }
    for name in ["imas-ldpreload", "imas-rescue"] {
        faults.extend(tool_fault(&machine.tool(name)?));
    }
    Ok(faults)
}

fn library_fault(path: &Path) -> Option<String> {
    let why = unsafe_to_use(path).or_else(|| imas_linux::elf::preload_fault(path).err());
    why.map(|why| format!("{}: {why}", path.display()))
}

fn tool_fault(path: &Path) -> Option<String> {
    let why = unsafe_to_use(path).or_else(|| match imas_linux::elf::ElfImage::read(path) {
        Ok(elf) if elf.interpreter.is_some() => {
            Some("it is not static: it would not run when it is needed".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    });
    why.map(|why| format!("{}: {why}", path.display()))
}

/// Why others than root could change the file, or put another in its place.
fn unsafe_to_use(path: &Path) -> Option<String> {
    untrusted(path, 0).map(|why| format!("not safe to use: {why}"))
}

/// A program that takes longer hangs.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);
/// The user `nobody`. A set-user-ID program runs in secure-execution mode only if another user than its owner
/// starts it.
const NOBODY: u32 = 65534;

/// One program of the battery.
#[derive(Debug)]
struct Case {
    /// Name of the kind of programs that it stands for.
    name: &'static str,
    command: Vec<String>,
    as_nobody: bool,
    /// Whether LD_PRELOAD with this machine's own library is a valid test for it.
    native: bool,
}

/// End and output of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) case: String,
    /// The program itself.
    pub(super) program: String,
    /// End of the program, like `exit status 0` or `died of SIGSEGV`.
    end: String,
    /// The program had to be killed.
    hung: bool,
    stdout: Vec<u8>,
    stderr: String,
}

/// Outcomes of one case on both sides, compared.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) case: String,
    pub(super) program: String,
    /// Difference with the library; none: nothing differs.
    pub(super) fault: Option<String>,
}

/// Way in which the library is loaded.
#[derive(Debug, Clone, Copy)]
pub(super) enum By<'a> {
    /// The present contents of `/etc/ld.so.preload`.
    Machine,
    /// The variable LD_PRELOAD.
    Variable(&'a Path),
}

/// Runs the battery; programs that are not installed are left out. After one that hangs the others are not
/// tried: at boot people wait for this.
fn run_battery(machine: &Machine, by: By<'_>) -> Result<Vec<Outcome>> {
    let wanted = |case: &&Case| case.native || matches!(by, By::Machine);
    let mut outcomes = vec![];
    for case in cases(machine)?.iter().filter(wanted) {
        outcomes.push(case.run(by)?);
        if outcomes.last().is_some_and(|outcome| outcome.hung) {
            break;
        }
    }
    Ok(outcomes)
}

/// The program that hung, which ends a side.
pub(super) fn hung(outcomes: &[Outcome]) -> Option<&Outcome> {
    outcomes.last().filter(|last| last.hung)
}

/// Compares the two sides, in the order of `after`.
pub(super) fn compare(before: &[Outcome], after: &[Outcome]) -> Vec<Verdict> {
    let verdict = |after: &Outcome| {
        let before = before.iter().find(|before| before.case == after.case)?;
        Some(Verdict {
            case: after.case.clone(),
            program: after.program.clone(),
            fault: difference(before, after),
        })
    };
    after.iter().filter_map(verdict).collect()
}

fn difference(before: &Outcome, after: &Outcome) -> Option<String> {
    let first = |text: &str| text.lines().next().unwrap_or_default().chars().take(200).collect::<String>();
    if after.stderr != before.stderr {
        return Some(format!("{}; it says: {}", after.end, first(&after.stderr)));
    }
    if after.end != before.end {
        return Some(format!("{}; without it: {}", after.end, before.end));
    }
    (after.stdout != before.stdout).then(|| "it prints something else than without it".to_owned())
}

fn cases(machine: &Machine) -> Result<Vec<Case>> {
    let imas = machine.imas().display().to_string();
    let rescue = machine.tool("imas-rescue")?.display().to_string();
    let python = "import os, threading\n\
                  work = lambda: [bytearray(n) for n in range(2000)]\n\
                  threads = [threading.Thread(target=work) for _ in range(4)]\n\
                  [t.start() for t in threads]\n\
                  child = os.fork()\n\
                  child or os._exit(7)\n\
                  print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n\
                  [t.join() for t in threads]";
    let shell = "ls / | wc -l; echo to standard error >&2; exit 3";
    let choices: &[(&'static str, &[&[&str]])] = &[
        ("simplest", &[&["/bin/true"]]),
        ("shell with children", &[&["/bin/sh", "-c", shell]]),
        ("library with a constructor that allocates", &[&["/bin/ls", "/"]]),
        (
            "C++",
            &[
                &["/usr/bin/apt-get", "--version"],
                &["/usr/bin/dnf5", "--version"],
                &["/usr/bin/cmake", "--version"],
                &["/usr/bin/gdb", "--version"],
            ],
        ),
        ("threads that fork", &[&["/usr/bin/python3", "-c", python]]),
        ("threads and children", &[&[&imas, "system", "exercise"]]),
        ("perl", &[&["/usr/bin/perl", "-e", "print join ',', map { $_ x 3 } 1 .. 99"]]),
        ("login", &[&["/usr/sbin/sshd", "-V"]]),
        ("init", &[&["/usr/lib/systemd/systemd", "--version"], &["/lib/systemd/systemd", "--version"]]),
        ("static", &[&[&rescue, "--version"]]),
    ];
    let mut cases: Vec<_> =
        choices.iter().filter_map(|(name, commands)| Case::first_of(name, commands)).collect();
    // A file that only root can read, or reach, is missing for everybody else.
    cases.extend(
        Case::first_of("another user", &[&["/bin/true"]]).map(|case| Case { as_nobody: true, ..case }),
    );
    let privileged: &[&[&str]] =
        &[&["/usr/bin/mount", "--version"], &["/usr/bin/su", "--version"], &["/usr/bin/passwd", "--help"]];
    cases.extend(Case::first_of("set-user-ID", privileged).map(|case| Case { as_nobody: true, ..case }));
    cases.extend(foreign());
    Ok(cases)
}

/// A C library can be run as a program: for other dynamic linkers the one program that is there for certain.
fn foreign() -> Vec<Case> {
    let libc = |loader: &preloads::Loader| {
        let folders = [PathBuf::from("/").join(&loader.lib), PathBuf::from("/usr").join(&loader.lib)];
        let libc = folders.iter().map(|folder| folder.join("libc.so.6")).find(|path| path.is_file())?;
        let command = vec![loader.path.display().to_string(), libc.display().to_string()];
        Some(Case { name: "32-bit", command, as_nobody: false, native: false })
    };
    preloads::loaders().iter().filter(|loader| !loader.native).filter_map(libc).collect()
}

impl Case {
    /// Case with the first command whose program is here.
    fn first_of(name: &'static str, commands: &[&[&str]]) -> Option<Self> {
        let command = commands.iter().find(|words| Path::new(words[0]).is_file())?;
        let command = command.iter().map(|&word| word.to_owned()).collect();
        Some(Self { name, command, as_nobody: false, native: true })
    }

    fn run(&self, by: By<'_>) -> Result<Outcome> {
        let mut stdout = scratch()?;
        let mut stderr = scratch()?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).current_dir("/").stdin(Stdio::null()).process_group(0);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
        command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        if self.as_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        if let By::Variable(library) = by {
            command.env("LD_PRELOAD", library);
        }
        let (end, hung) = end_of(&mut command);
        Ok(Outcome {
            case: self.name.to_owned(),
            program: self.command[0].clone(),
            end,
            hung,
            stdout: contents(&mut stdout)?,
            stderr: String::from_utf8_lossy(&contents(&mut stderr)?).into_owned(),
        })
    }
}

/// A file without a name, in memory: at boot there is no place to write yet.
fn scratch() -> Result<File> {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    Ok(File::from(
        nix::sys::memfd::memfd_create("imas-battery", flags).context("memory for a program's output")?,
    ))
}

fn contents(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Starts the command and waits: how it ended, in words, and whether it hung. What cannot be started is an
/// outcome too.
fn end_of(command: &mut Command) -> (String, bool) {
    match wait(command) {
        Ok(Some(status)) => match status.signal() {
            Some(signal) => (format!("died of {}", imas_linux::process::signal_name(signal)), false),
            None => (format!("exit status {}", status.code().unwrap_or_default()), false),
        },
        Ok(None) => (format!("did not end within {} s", CHECK_TIMEOUT.as_secs()), true),
        Err(error) => (format!("could not be started: {error}"), false),
    }
}

fn wait(command: &mut Command) -> std::io::Result<Option<ExitStatus>> {
    const LOOK_AGAIN: Duration = Duration::from_millis(2);
    let mut child = command.spawn()?;
    let begun = Instant::now();
    while begun.elapsed() < CHECK_TIMEOUT {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
    let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL); // its children as well
    child.wait()?;
    Ok(None)
}

/// The battery's own program: threads that allocate and free each other's memory while others start children.
pub(super) fn exercise() -> Result<ExitCode> {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    let (give, take) = std::sync::mpsc::channel::<Vec<u8>>();
    let all_well = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let give = give.clone();
                scope.spawn(move || {
                    let sent = (1..ROUNDS).all(|round| give.send(vec![0; round * 97]).is_ok());
                    let child = Command::new("/bin/true").env("THREAD", thread.to_string()).status();
                    sent && child.is_ok_and(|status| status.success())
                })
            })
            .collect();
        drop(give);
        let bytes: usize = take.iter().map(|block| block.len()).sum();
        let expected = THREADS * (1..ROUNDS).map(|round| round * 97).sum::<usize>();
        workers.into_iter().all(|worker| worker.join().unwrap_or(false)) && bytes == expected
    });
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Outcomes of the rehearsal, on both sides.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rehearsal {
    /// Outcomes without our entry, others' kept.
    pub(super) before: Vec<Outcome>,
    /// Outcomes with LD_PRELOAD alone.
    pub(super) variable: Vec<Outcome>,
    /// Outcomes with our entry; empty if LD_PRELOAD failed already.
    pub(super) after: Vec<Outcome>,
}

/// Sides of the rehearsal that the child is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The side without the library alone.
    Before,
    /// Every side.
    All,
}

/// Starts the child and takes its report.
fn rehearse(machine: &Machine, scope: Scope) -> Result<Rehearsal> {
    let made = !machine.run_dir.exists();
    machine::make_run_dir(&machine.run_dir)?; // there must be a folder to mount over
    let mut child = Command::new(machine.imas());
    child.arg("system").arg("stage").stdin(Stdio::null()).stderr(Stdio::piped());
    child.arg("--run-dir").arg(&machine.run_dir).arg("--preload-file").arg(&machine.preload_file);
    child.arg("--lib-dir").arg(machine.lib_dir()?);
    if scope == Scope::Before {
        child.arg("--before");
    }
    let output = child.output();
    if made {
        let _ = std::fs::remove_dir(&machine.run_dir); // a rehearsal leaves nothing behind
    }
    let output = output.context("the rehearsal could not be started")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let printed = printed.trim().trim_start_matches("imas: ");
        bail!("the rehearsal could not run ({}): {printed}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("the rehearsal's report")
}

/// The child.
pub(super) fn run_stage(scope: Scope, machine: &Machine) -> Result<ExitCode> {
    super::machine::need_root("a rehearsal")?;
    let text = machine::read_preload(&machine.preload_file)?;
    let others = machine::without_entry(&text, &machine.entry());
    enter(&machine.run_dir).context("a mount namespace of its own")?;
    set_preload(&others)?;
    let before = run_battery(machine, By::Machine)?;
    if let Some(hung) = hung(&before) {
        bail!("{} does not end, without our library: nothing can be compared", hung.program);
    }
    let mut rehearsal = Rehearsal { before, variable: vec![], after: vec![] };
    if scope == Scope::All {
        try_library(machine, &others, &mut rehearsal)?;
    }
    imas_cli::output::json(&rehearsal)?;
    Ok(ExitCode::SUCCESS)
}

fn try_library(machine: &Machine, others: &str, rehearsal: &mut Rehearsal) -> Result<()> {
    let stub = &machine.placements()?[0].stub;
    rehearsal.variable = run_battery(machine, By::Variable(stub))?;
    let verdicts = compare(&rehearsal.before, &rehearsal.variable);
    if verdicts.iter().all(|verdict| verdict.fault.is_none()) {
        machine::place_links(machine)?;
        set_preload(&format!("{}\n{others}", machine.entry()))?;
        rehearsal.after = run_battery(machine, By::Machine)?;
    }
    Ok(())
}

/// Leaves the machine's mounts: an empty run folder, and an `/etc` that only this process and its children
/// see.
fn enter(run_dir: &Path) -> Result<()> {
    const NOTHING: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)?;
    mount(Some("imas"), run_dir, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))?;
    let real = run_dir.join("etc");
    std::fs::create_dir(&real)?;
    mount(Some("/etc"), &real, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING)?;
    mount(Some("imas"), "/etc", Some("tmpfs"), MsFlags::empty(), Some("mode=755"))?;
    for entry in std::fs::read_dir(&real)? {
        let name = entry?.file_name();
        let place = Path::new("/etc").join(&name);
        if place != Path::new(PRELOAD_FILE) {
            symlink(real.join(&name), place)?;
        }
    }
    Ok(())
}

fn set_preload(text: &str) -> Result<()> {
    let fresh = format!("{PRELOAD_FILE}.new");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, PRELOAD_FILE).context(PRELOAD_FILE)
}
