// SPDX-License-Identifier: Apache-2.0
//! `imas trim UNIT --every TIME`: a timer of systemd that trims a service, without imasd. Shown first; written, and taken
//! away, only with --write.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use imas_cli::message::{self, Hinted};
use imas_cli::output;
use imas_linux::trust;

use super::unit::{self, Unit, systemctl};
use super::{LEFT_ALONE, left_alone};
use crate::command_line::cli::JsonArgs;
use crate::command_line::service_args::{TrimArgs, TrimEvery, WriteArgs};
use imas_engine::drop_in::{self, Found};

/// Least pages that are worth a thread's pause again and again, MiB.
const LEAST_MIB: u64 = 32;
/// Where packages put imas, for an image.
const INSTALLED: &str = "/usr/bin/imas";

/// The two files of a service's timer.
struct TrimTimer {
    service: PathBuf,
    timer: PathBuf,
    /// Name of the timer, as systemd has it.
    name: String,
}

impl TrimTimer {
    fn of(unit: &str, root: &Path) -> Self {
        let stem = format!("imas-trim-{}", unit.trim_end_matches(".service"));
        let folder = root.join("etc/systemd/system");
        Self {
            service: folder.join(format!("{stem}.service")),
            timer: folder.join(format!("{stem}.timer")),
            name: format!("{stem}.timer"),
        }
    }

    /// The first of the files that is there and not as imas wrote it.
    fn foreign(&self, root: &Path) -> Result<Option<&Path>> {
        for file in [&self.service, &self.timer] {
            drop_in::check_below(root, file)?;
            if drop_in::find(file)? == Found::Edited {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

/// Writes the timer of the service, or takes it away.
pub(super) fn run(args: &TrimArgs, every: TrimEvery) -> Result<ExitCode> {
    let word = args.what.as_deref().unwrap_or_default();
    if word.parse::<u32>().is_ok() {
        return Err(Hinted::error(
            format!("--every is for services, and {word} is a process"),
            "'systemctl status PID' shows the service of a process",
        ));
    }
    let root = args.root.as_deref().unwrap_or_else(|| Path::new("/"));
    let name = unit::full_name(word)?;
    let files = TrimTimer::of(&name, root);
    if let Some(file) = files.foreign(root)? {
        left_alone(file);
        return Ok(ExitCode::from(LEFT_ALONE));
    }
    match every {
        TrimEvery::Off => take_away(&files, &name, args),
        TrimEvery::Seconds(seconds) => put_there(&files, &name, seconds, args),
    }
}

/// Time between two trims of a service whose candidate goes with trims, s.
const BESIDE_A_CANDIDATE_S: u64 = 60;

/// Writes the timer that goes with a candidate, where the candidate is written too.
pub(super) fn beside_candidate(name: &str, how: &WriteArgs, is_written: bool) -> Result<()> {
    if !is_written {
        message::say(&format!("and a timer that trims it each minute: imas trim {name} --every 1m --write"));
        return Ok(());
    }
    let every = TrimEvery::Seconds(BESIDE_A_CANDIDATE_S);
    let json = JsonArgs { json: how.json.json };
    let root = how.root.clone();
    let what = Some(name.to_owned());
    let args = TrimArgs { what, all: false, at_least: None, every: Some(every), write: true, root, json };
    run(&args, every).map(drop)
}

fn put_there(files: &TrimTimer, name: &str, seconds: u64, args: &TrimArgs) -> Result<ExitCode> {
    Unit::read(name, args.root.as_deref())?; // a service that is not known is an error
    let program = program(args.root.as_deref())?;
    let least = args.at_least.map_or_else(|| format!("{LEAST_MIB}M"), |bytes| bytes.to_string());
    let service = service_text(name, &program, &least);
    let timer = timer_text(name, seconds);
    if !args.json.json {
        output::text(&format!(
            "{}:\n{service}\n{}:\n{timer}",
            files.service.display(),
            files.timer.display()
        ))?;
    }
    if !args.write {
        message::say("nothing was written; to do it: the same with --write");
        return Ok(ExitCode::SUCCESS);
    }
    for (file, text) in [(&files.service, &service), (&files.timer, &timer)] {
        drop_in::write(file, text).map_err(drop_in::advised)?;
    }
    if args.root.is_none() {
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", "--now", "--", &files.name])?;
    }
    Ok(ExitCode::SUCCESS)
}

fn take_away(files: &TrimTimer, name: &str, args: &TrimArgs) -> Result<ExitCode> {
    let there: Vec<&PathBuf> =
        [&files.timer, &files.service].into_iter().filter(|file| file.exists()).collect();
    if there.is_empty() {
        message::say(&format!("imas: {name} has no timer of 'imas trim'"));
        return Ok(ExitCode::from(LEFT_ALONE));
    }
    if !args.write {
        message::say(&format!("{} would be taken away; to do it: the same with --write", files.name));
        return Ok(ExitCode::SUCCESS);
    }
    if args.root.is_none() {
        systemctl(&["disable", "--now", "--", &files.name])?;
    }
    for file in there {
        drop_in::remove(file).map_err(drop_in::advised)?;
    }
    if args.root.is_none() {
        systemctl(&["daemon-reload"])?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The imas that root is to run again and again: nobody else may be able to change it.
fn program(root: Option<&Path>) -> Result<PathBuf> {
    if root.is_some() {
        return Ok(INSTALLED.into());
    }
    let program = std::env::current_exe().context("the path of imas")?;
    match trust::untrusted(&program, 0) {
        None => Ok(program),
        Some(why) => Err(Hinted::error(
            format!("root would run a program that others could change: {why}"),
            "install imas first (docs/install.md), then use /usr/bin/imas",
        )),
    }
}

fn service_text(name: &str, program: &Path, least: &str) -> String {
    drop_in::marked(&format!(
        "# Free memory of {name} is given back; to end it: imas trim {name} --every off --write\n\
         [Unit]\n\
         Description=IMAS: give back free memory of {name}\n\
         Documentation=man:imas-trim(1)\n\
         After={name}\n\n\
         [Service]\n\
         Type=oneshot\n\
         ExecStart=\"{}\" trim --at-least {least} -- {name}\n\
         # Nothing to give back, or a service that does not run, is no failure.\n\
         SuccessExitStatus=1 2\n\
         # Tracing, the memory of other users, and reading their filters of system calls.\n\
         CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_SYS_ADMIN CAP_SYS_PTRACE\n\
         NoNewPrivileges=yes\n\
         ProtectSystem=strict\n\
         ProtectHome=yes\n\
         PrivateNetwork=yes\n\
         RestrictAddressFamilies=AF_UNIX\n\
         Nice=10\n",
        program.display().to_string().replace('%', "%%")
    ))
}

fn timer_text(name: &str, seconds: u64) -> String {
    drop_in::marked(&format!(
        "# Free memory of {name} is given back each {seconds} s\n\
         [Unit]\n\
         Description=IMAS: give back free memory of {name} each {seconds} s\n\n\
         [Timer]\n\
         OnActiveSec={seconds}\n\
         OnUnitActiveSec={seconds}\n\
         AccuracySec=10\n\n\
         [Install]\n\
         WantedBy=timers.target\n"
    ))
}
