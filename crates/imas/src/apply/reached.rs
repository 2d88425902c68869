// SPDX-License-Identifier: Apache-2.0
//! Command of a unit, and the effect of a candidate on it.
//!
//! First a candidate that is settings of a language runtime: what the unit's program takes, and what the unit itself sets
//! already. The candidate for something that lasts, a service or a container, is chosen from what is settled, never from
//! half a measurement.
//!
//! Then whether what it starts can be given an allocator, as far as its files say; and whether it has it afterwards. And
//! services that hold much free memory in glibc's heaps, as `imas apply --auto` finds them without any trial: a trim would
//! return it now. What a candidate that gives back costs shows under the watch, which takes it back where it is worse.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_cli::format::mib;
use imas_cli::message::{self, Hinted};
use imas_core::SYSTEM;
use imas_engine::context::Context;
use imas_engine::decide::UnderWay;
use imas_engine::drop_in::LEAST_SYSTEMD;
use imas_engine::lasting;
use imas_engine::prices::advised_restart;
use imas_engine::program_view::ProgramView;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf::{ElfImage, Unfit};
use imas_linux::environment::{Reach, Variables, has_hidden_settings};
use imas_linux::heap::figures::HeapFigures;
use imas_linux::in_time::ROOT;
use imas_linux::program::{Command, Program, is_privileged};
use imas_linux::running::{self, Running};
use imas_linux::running_runtime::RunningRuntime;
use imas_linux::runtime::{FoundRuntime, Runtime, with_version};
use imas_linux::runtime_start::{StartOfProgram, contradicted, fitted, takes};
use imas_linux::serving::chooser::WantedLibraries;
use imas_linux::serving::{On, RealCandidates};
use imas_linux::{foreign_file, process, process_trim, trust};

use super::unit::{Unit, systemctl};

pub(crate) use imas_engine::lasting::{changes, files, usable};

/// Program of a unit, as far as settings of its runtime depend on it.
struct UnitProgram {
    file: PathBuf,
    words: Vec<OsString>,
    found: Vec<FoundRuntime>,
    unfit: Option<&'static str>,
    /// Whether the manager starts it, and no wrapper.
    is_direct: bool,
}

impl UnitProgram {
    fn of(unit: &Unit, root: Option<&Path>) -> Result<Self, String> {
        let commands = unit.commands(root);
        // The program of a wrapper may be at a place that is known to the wrapper alone.
        let inner = commands.iter().skip(1).rev().find_map(|words| Self::of_command(words, root).ok());
        match inner {
            Some(inner) => Ok(Self { is_direct: false, ..inner }),
            None => Self::of_command(&commands[0], root),
        }
    }

    fn of_command(words: &[OsString], root: Option<&Path>) -> Result<Self, String> {
        let path = std::env::var_os("PATH");
        let command = Command::resolve(words, path.as_deref()).map_err(|error| error.to_string())?;
        if root.is_some() && is_script(&command.file) {
            // Its interpreter in the image is not looked for.
            let file = command.file;
            return Ok(Self { words: words.to_vec(), found: vec![], unfit: None, is_direct: false, file });
        }
        // `#!/usr/bin/env NAME` is looked through by `resolve`.
        let is_direct = command.argv == words;
        let file = command.program.path;
        let elf = ElfImage::read(&file).map_err(|error| error.to_string())?;
        let found = elf.runtimes.iter().cloned().map(|found| with_version(found, &file)).collect();
        Ok(Self {
            unfit: elf.unfit().map(|unfit| unfit.why()),
            words: command.arguments,
            found,
            is_direct,
            file,
        })
    }

    fn is_of(&self, runtime: Runtime) -> bool {
        self.found.iter().any(|found| found.runtime == runtime)
    }

    /// Whether it may be there to start the program that does the work: a wrapper, a script, and what is of no runtime.
    fn may_start_others(&self) -> bool {
        !self.is_direct || self.found.is_empty()
    }

    fn start<'a>(&'a self, environment: &'a Variables, memory_limit: Option<u64>) -> StartOfProgram<'a> {
        StartOfProgram {
            found: &self.found,
            file: &self.file,
            words: &self.words,
            has_files: true,
            is_by_script: false,
            unfit: self.unfit,
            environment,
            memory_limit,
        }
    }
}

/// The candidate as the unit gets it. `environment` is what the unit has without us, from its files too. A
/// program that is of no runtime, such as a start script, may start one that is; with `follows`, every
/// program may. A candidate without a runtime is what it was.
pub(crate) fn for_unit(
    candidate: &CatalogueCandidate,
    unit: &Unit,
    environment: &Variables,
    root: Option<&Path>,
    follows: bool,
) -> Result<CatalogueCandidate> {
    let Some(runtime) = candidate.runtime.as_ref().map(|settings| settings.runtime) else {
        return Ok(candidate.clone());
    };
    let name = &candidate.name;
    let refused = |why: String| {
        Hinted::error(
            format!("{}: {name} is not offered: {why}", unit.name),
            format!(
                "'imas run --candidate {name} -- ...' tries it; 'imas env --format systemd' prints the lines for a drop-in of your own"
            ),
        )
    };
    if let Some(own_root) = &unit.own_root {
        let why =
            format!("it runs in a file system of its own ({own_root}), where its program is not looked at");
        return Err(refused(why));
    }
    let program = UnitProgram::of(unit, root).map_err(refused)?;
    if !program.is_of(runtime) && (follows || program.may_start_others()) {
        message::warning(&format!(
            "{}: its own program is not one of {}: what it starts gets the settings of {name}, {}",
            unit.name,
            runtime.name(),
            match runtime {
                Runtime::Jvm => "if it is a JVM of version 17 or later that is given no others",
                _ => "whatever its version",
            }
        ));
        if let Some(option) = given_on(candidate, &program.words, environment) {
            return Err(refused(format!(
                "{option} is given already, in the unit's words, variables or start script"
            )));
        }
        return lasting::behind_a_script(candidate, environment, unit.memory_max).map_err(refused);
    }
    let start = program.start(environment, unit.memory_max);
    let fitted = lasting::in_variables_where_needed(candidate, |one| fitted(one, &start));
    let fitted = lasting::left_open(fitted.map_err(refused)?);
    match root {
        Some(_) => message::warning(&format!(
            "{}: whether its program takes the settings of {name} cannot be tried in an image",
            unit.name
        )),
        None => try_it(&fitted, &start).map_err(refused)?,
    }
    Ok(fitted)
}

/// Whom the candidate is for in the unit: every process, but for settings that `libimas-settings.so` hands to a runtime that the
/// unit starts itself. What such a process starts may have others: a JVM does not start with two collectors.
pub(crate) fn reach(
    candidate: &CatalogueCandidate,
    unit: &Unit,
    root: Option<&Path>,
    follows: bool,
) -> Reach {
    let is_own = |program: UnitProgram| {
        candidate
            .runtime
            .as_ref()
            .is_some_and(|settings| program.is_direct && program.is_of(settings.runtime))
    };
    let stays = !follows && has_hidden_settings(candidate) && UnitProgram::of(unit, root).is_ok_and(is_own);
    if stays { Reach::Program } else { Reach::Children }
}

/// An option of the candidate's kind that a script may give to the runtime: as a word of its own, in a variable such as
/// `JAVA_OPTS`, whatever its name, or in its text.
fn given_on(candidate: &CatalogueCandidate, words: &[OsString], environment: &Variables) -> Option<String> {
    let values = environment.iter().map(|(_, value)| value);
    let scripts = words.iter().map(Path::new).filter(|file| is_script(file)).filter_map(text_of);
    let texts = words.iter().chain(values).map(|text| text.to_string_lossy().into_owned());
    texts.chain(scripts).find_map(|text| contradicted(candidate, &text))
}

/// Longest text of a script that is looked at, bytes.
const LONGEST_SCRIPT: u64 = 1 << 20;

/// A pipe is not opened: that would wait for who writes into it.
fn is_script(file: &Path) -> bool {
    let mut start = [0_u8; 2];
    if !file.is_absolute() || !file.is_file() {
        return false;
    }
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"#!"
}

/// Words of a script, without the quotes around them.
fn text_of(file: &Path) -> Option<String> {
    let mut text = vec![];
    std::fs::File::open(file).ok()?.take(LONGEST_SCRIPT).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let code = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join(" ");
    // `JAVA_OPTS=-XX:...`: the value is a word.
    Some(code.replace(['"', '\''], " ").replace("=-", " -"))
}

/// Variables that make a program load what they name.
const LOADING: [&str; 3] = ["LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"];

/// Starts the runtime under the settings once. Root starts nothing that others could change: neither such a file, nor one
/// with the variables of a unit, whose files may be of its user.
fn try_it(candidate: &CatalogueCandidate, start: &StartOfProgram<'_>) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return takes(candidate, start);
    }
    if let Some(why) = trust::untrusted(start.file, 0) {
        return Err(format!("root does not try it with a program that others could change: {why}"));
    }
    if let Some(name) = LOADING.iter().find(|name| start.environment.contains_key(name)) {
        return Err(format!("root does not try it with the unit's {name}"));
    }
    let environment = Variables::from([("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())]);
    takes(candidate, &StartOfProgram { environment: &environment, ..*start })
}

/// The candidate that was learned for the program. If none is settled, the error has the reason.
pub(crate) fn settled_or_why(state: &ProgramView) -> Result<&str> {
    state.settled().ok_or_else(|| {
        let program = &state.known.program;
        let decided = state.decision.reason.sentence();
        let under_way = state.under_way.as_ref().map(UnderWay::words);
        let reason = under_way.as_deref().unwrap_or_else(|| decided.trim_end_matches('.'));
        Hinted::error(
            format!("{program}: nothing is settled yet: {reason}"),
            format!("let it run under 'imas run -- ...' until 'imas show {}' has picks, or name one with --candidate", program.id),
        )
    })
}

/// Programs that become another one and hand their environment on. Some are static: they load nothing, and what they
/// start does.
const HANDING_ON: [&str; 9] = [
    "gosu",
    "su-exec",
    "tini",
    "tini-static",
    "dumb-init",
    "catatonit",
    "docker-init",
    "s6-setuidgid",
    "busybox",
];

/// Refuses a unit whose program cannot be preloaded into: its drop-in would do nothing.
pub(super) fn check(unit: &Unit, root: Option<&Path>, candidate: &CatalogueCandidate) -> Result<()> {
    if candidate.huge_pages.is_some() && root.is_none() {
        check_manager(&candidate.name, &systemctl(&["--version"])?)?;
    }
    if candidate.is_bare() {
        return Ok(());
    }
    // An image does not run.
    let program = if root.is_none() { unit.program() } else { None };
    let unfit = unit.commands(root).iter().find_map(|words| unfit(words, root, program.as_ref()));
    let of_program = || program.as_ref().and_then(|program| unfit_file(&program.path));
    match unfit.or_else(of_program) {
        Some(unfit) => Err(Hinted::error(
            format!("{}: its program cannot be given an allocator: {}", unit.name, unfit.why()),
            "leave the service as it is",
        )),
        None => Ok(()),
    }
}

/// Refuses huge pages where the manager would pass over the line: `version` is what it prints.
fn check_manager(candidate: &str, version: &str) -> Result<()> {
    let number = version.split_whitespace().nth(1).and_then(|number| number.parse::<u32>().ok());
    if number.is_some_and(|number| number >= LEAST_SYSTEMD) {
        return Ok(());
    }
    Err(Hinted::error(
        format!("{candidate}: this systemd has no MemoryTHP=: {LEAST_SYSTEMD} has it"),
        format!("put 'imas run --candidate {candidate} --' in front of the command in ExecStart="),
    ))
}

/// Why the program of a command cannot be preloaded into. With another program in its place by now, that one counts.
fn unfit(words: &[std::ffi::OsString], root: Option<&Path>, running: Option<&Program>) -> Option<Unfit> {
    let (file, is_privileged) = match root {
        None => {
            let command = Command::resolve(words, std::env::var_os("PATH").as_deref()).ok()?;
            (command.program.path, command.privileged)
        }
        // The interpreter of a script in an image is not looked for.
        Some(_) => {
            let file = PathBuf::from(words.first()?);
            let privileged = is_privileged(&file);
            (file, privileged)
        }
    };
    if is_privileged {
        return Some(Unfit::Privileged);
    }
    let is_replaced = running.is_some_and(|program| program.path != file);
    if is_replaced { None } else { unfit_file(&file) }
}

fn unfit_file(file: &Path) -> Option<Unfit> {
    let hands_on = HANDING_ON.iter().any(|name| file.file_name() == Some(OsStr::new(name)));
    // The service's program may be a file of its user.
    if hands_on { None } else { foreign_file::image(file, ROOT).ok()?.elf.ok()?.unfit() }
}

/// How long a restarted service may take until the candidate is seen in it.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// Warns if, after its restart, the candidate does not serve in the service's process that holds the most memory.
pub(super) fn warn_if_unserved(name: &str, preload: &str) {
    let until = Instant::now() + LONGEST_WAIT;
    let mut seen = Unit::read(name, None).ok().and_then(|unit| unserved(&unit, preload));
    while seen.is_some() && Instant::now() < until {
        std::thread::sleep(BETWEEN_LOOKS);
        seen = Unit::read(name, None).ok().and_then(|unit| unserved(&unit, preload));
    }
    if let Some(process) = seen {
        message::warning(&format!(
            "{name}: the candidate does not serve in {process}, which holds the most memory\n\
             hint: 'imas explain --pid PID' says why; 'imas unapply {name} --write' takes the drop-in away"
        ));
    }
}

/// The process of the unit that holds the most memory, where it lacks what is preloaded; `None` where it has that, where
/// nothing of ours is preloaded, and where no process can be looked into.
pub(super) fn unserved(unit: &Unit, preload: &str) -> Option<String> {
    let wanted = WantedLibraries::of_preload(preload)?;
    let processes = running::all().into_iter().filter(|process| unit.has(process));
    let largest = running::one(wanted.missed_by(processes.map(|process| process.pid))?)?;
    Some(format!("process {} ({})", largest.pid, largest.program))
}

/// Least free memory of a service, and least share of its resident memory: a restart is worth no less.
const LEAST: u64 = 32 << 20;
const LEAST_SHARE: f64 = 0.1;
/// Processes of a service whose heaps are read, the largest first.
const MOST: usize = 16;

/// The candidate for a running service that was left untouched and holds much free memory.
pub(super) fn held_free_candidate(context: &Context, unit: &Unit) -> Option<String> {
    let candidates = RealCandidates::of(context.catalogue.all());
    let of_unit = |process: &Running| process.system_unit() == Some(unit.name.as_str()) && unit.has(process);
    let untouched = |process: &Running| process.is_on(SYSTEM, &candidates) != On::No;
    let own: Vec<Running> = running::all().into_iter().filter(of_unit).collect();
    if own.is_empty() || !own.iter().all(untouched) {
        return None;
    }
    let mut sized: Vec<(u64, &Running)> =
        own.iter().filter_map(|one| Some((process::resident_bytes(one.pid)?, one))).collect();
    sized.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let resident: u64 = sized.iter().map(|(bytes, _)| bytes).sum();
    let looked_at = sized.iter().take(MOST).filter_map(|(_, one)| process_trim::heaps_of(one.pid).ok());
    let heaps: Vec<HeapFigures> = looked_at.collect();
    let free = heaps.iter().map(|heaps| heaps.bytes.returnable).fold(0, u64::saturating_add);
    if !is_much(free, resident) {
        return None;
    }
    let runtime = RunningRuntime::of(sized.first()?.1).map(|runtime| runtime.found.runtime);
    let arenas = heaps.iter().map(|heaps| heaps.arenas).max().unwrap_or(0);
    let restart = advised_restart(runtime, arenas, &candidates)?;
    message::say(&format!(
        "imas: {}: {} of {} MiB are free pages that a trim returns; nothing is measured yet, so {} is tried: {}",
        unit.name,
        mib(free as f64),
        mib(resident as f64),
        restart.candidate,
        restart.price
    ));
    Some(restart.candidate.to_owned())
}

fn is_much(free: u64, resident: u64) -> bool {
    free >= LEAST && free as f64 >= resident as f64 * LEAST_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_manager_gets_no_line_that_it_passes_over() {
        assert!(check_manager("thp:off", "systemd 260 (260.1-1)\n+PAM").is_ok());
        for older in ["systemd 252 (252.38-1~deb12u1)\n+PAM", "", "systemd"] {
            assert!(check_manager("thp:off", older).is_err(), "{older}");
        }
    }

    #[test]
    fn little_free_memory_is_no_reason_for_a_restart() {
        let mib = |number: u64| number << 20;
        assert!(is_much(mib(40), mib(150)));
        assert!(!is_much(mib(31), mib(60)), "too little");
        assert!(!is_much(mib(40), mib(900)), "too small a share");
    }
}
