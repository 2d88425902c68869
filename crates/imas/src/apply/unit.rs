// SPDX-License-Identifier: Apache-2.0
//! A systemd service as it is: its environment and what it runs, from the running manager or from the files
//! below a root.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_linux::environment::Variables;
use imas_linux::preloads::undone;
use imas_linux::program::{Command, Program};
use imas_linux::running::Running;

use super::unit_files::{self, bytes, lines, shown_command, words};
use imas_engine::drop_in::{self, Found};

use crate::command_line::wrapper;
use imas_cli::message::Hinted;

/// How many commands may stand in each other.
const MOST_WRAPPERS: usize = 8;

/// Facts of a service that matter here.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    /// Name of the unit, with its suffix.
    pub(crate) name: String,
    /// Effective, as the manager or the files have it, ours included.
    pub(crate) environment: Variables,
    /// Variables whose text in a file has a specifier such as `%i`: systemd alone knows their values.
    pub(crate) with_specifiers: BTreeSet<String>,
    /// Files of variables, which win over `Environment=`.
    pub(crate) environment_files: Vec<PathBuf>,
    /// Names of variables, or variables with a value, that systemd takes away last: `UnsetEnvironment=`.
    unset: Vec<String>,
    /// Words of the first `ExecStart=`.
    exec: Vec<OsString>,
    /// Folder in which it starts: `WorkingDirectory=`. Empty where none is set.
    folder: PathBuf,
    main_pid: Option<u32>,
    /// Its control group, as the manager has it: `ControlGroup=`. Empty where it does not run, or was read from files.
    control_group: String,
    /// Limit on its memory in bytes: `MemoryMax=`.
    pub(crate) memory_max: Option<u64>,
    /// `RootDirectory=` or `RootImage=` where the unit runs in another file system.
    pub(crate) own_root: Option<String>,
    /// systemd refuses to restart it: `RefuseManualStop=`.
    pub(crate) refuses_stop: bool,
}

/// Suffixes of units. Any other text after a dot is part of the name, as in `php8.2-fpm`.
const KINDS: [&str; 11] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "slice",
    "scope",
];

/// The name with its suffix.
///
/// # Errors
/// When it is no service, or no name that systemd would take.
pub(crate) fn full_name(word: &str) -> Result<String> {
    let has_kind = word.rsplit_once('.').is_some_and(|(_, kind)| KINDS.contains(&kind));
    let name = if has_kind { word.to_owned() } else { format!("{word}.service") };
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b':' | b'-' | b'_' | b'.' | b'\\' | b'@');
    let stem = name.strip_suffix(".service").unwrap_or_default();
    if stem.is_empty() || !name.bytes().all(good) {
        return Err(Hinted::error(
            format!("{word}: not the name of a service"),
            "'systemctl list-units --type=service' lists them",
        ));
    }
    Ok(name)
}

/// Whether the unit is a template (`foo@.service`), whose drop-in all its instances have.
pub(crate) fn is_template(name: &str) -> bool {
    name.ends_with("@.service")
}

impl Unit {
    /// Asks the running manager, or reads the files below `root`. The manager knows no templates: their files
    /// are read.
    pub(crate) fn read(name: &str, root: Option<&Path>) -> Result<Self> {
        match root {
            Some(root) => Self::from_files(name, root),
            None if is_template(name) => Self::from_files(name, Path::new("/")),
            None => Self::from_manager(name),
        }
    }

    fn from_manager(name: &str) -> Result<Self> {
        const PROPERTIES: &str = "LoadState,Environment,EnvironmentFiles,UnsetEnvironment,ExecStart,MainPID,RootDirectory,RootImage,RefuseManualStop,MemoryMax,WorkingDirectory,ControlGroup";
        let shown = systemctl(&["show", "--property", PROPERTIES, "--", name])?;
        let mut unit = Self { name: name.to_owned(), ..Self::default() };
        // The manager gives every service `DefaultEnvironment=`. Without an answer the unit's own variables
        // are known.
        let of_all = systemctl(&["show", "--property", "Environment", "--value"]).unwrap_or_default();
        unit.add_environment(&of_all);
        for line in shown.lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            match key {
                "LoadState" if value == "not-found" => return Err(unknown(name)),
                "Environment" => unit.add_environment(value),
                "EnvironmentFiles" => {
                    let file = value.split(" (").next().unwrap_or(value);
                    unit.environment_files.push(file.into());
                }
                "UnsetEnvironment" => unit.unset = words(value),
                "ExecStart" if unit.exec.is_empty() => unit.exec = shown_command(value),
                "MemoryMax" => unit.memory_max = bytes(value),
                "WorkingDirectory" => unit.folder = folder(value),
                "RefuseManualStop" => unit.refuses_stop = value == "yes",
                "ControlGroup" => value.clone_into(&mut unit.control_group),
                "MainPID" => unit.main_pid = value.parse().ok().filter(|&pid| pid != 0),
                "RootDirectory" | "RootImage" if !value.is_empty() && value != "/" => {
                    unit.own_root = Some(format!("{key}={value}"));
                }
                _ => {}
            }
        }
        Ok(unit)
    }

    fn from_files(name: &str, root: &Path) -> Result<Self> {
        let mut unit = Self { name: name.to_owned(), ..Self::default() };
        let files = unit_files::of_unit(name, root);
        unit.add_files(&files)?;
        if !files.iter().any(|file| file.extension().is_some_and(|e| e == "service")) {
            return Err(unknown(name));
        }
        let mut of_all = Self::default();
        of_all.add_files(&unit_files::of_manager(root))?;
        unit.add_defaults(&of_all);
        Ok(unit)
    }

    fn add_files(&mut self, files: &[PathBuf]) -> Result<()> {
        for file in files {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            self.add_file(&text);
        }
        Ok(())
    }

    /// Adds what the manager gives every service. What the unit itself sets wins.
    fn add_defaults(&mut self, of_all: &Self) {
        for (name, value) in of_all.environment.iter() {
            if self.environment.contains_key(name) {
                continue;
            }
            let text = name.to_string_lossy();
            if of_all.with_specifiers.contains(&*text) {
                self.with_specifiers.insert(text.into_owned());
            }
            self.environment.insert(name.clone(), value.clone());
        }
    }

    /// Adds one file of a unit or of the manager, or a drop-in, after those before it.
    fn add_file(&mut self, text: &str) {
        let mut section = String::new();
        for line in &lines(text) {
            let line = line.trim();
            if line.starts_with('[') {
                line.clone_into(&mut section);
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let key = match (section.as_str(), key.trim()) {
                ("[Service]", key) => key,
                ("[Manager]", "DefaultEnvironment") => "Environment",
                _ => continue,
            };
            let value = value.trim();
            match key {
                // An empty value takes back all before it.
                "Environment" if value.is_empty() => {
                    self.environment.clear();
                    self.with_specifiers.clear();
                }
                "Environment" => self.add_environment_of_file(value),
                "EnvironmentFile" if value.is_empty() => self.environment_files.clear(),
                "EnvironmentFile" => self.environment_files.push(value.trim_start_matches('-').into()),
                "UnsetEnvironment" if value.is_empty() => self.unset.clear(),
                "UnsetEnvironment" => self.unset.extend(words(value)),
                "ExecStart" if value.is_empty() => self.exec.clear(),
                "ExecStart" if self.exec.is_empty() => {
                    let command = value.trim_start_matches(['@', '-', ':', '+', '!']);
                    self.exec = words(command).into_iter().map(OsString::from).collect();
                    if value[..value.len() - command.len()].contains('@') && self.exec.len() > 1 {
                        self.exec.remove(1); // the name of the process
                    }
                }
                "MemoryMax" => self.memory_max = bytes(value),
                "WorkingDirectory" => self.folder = folder(value),
                "RootDirectory" | "RootImage" if !value.is_empty() && value != "/" => {
                    self.own_root = Some(line.to_owned());
                }
                _ => {}
            }
        }
    }

    fn add_environment(&mut self, value: &str) {
        for word in words(value) {
            if let Some((name, value)) = word.split_once('=') {
                self.environment.insert(name.into(), value.into());
            }
        }
    }

    fn add_environment_of_file(&mut self, value: &str) {
        for word in words(value) {
            let Some((name, value)) = word.split_once('=') else { continue };
            if value.replace("%%", "").contains('%') {
                self.with_specifiers.insert(name.to_owned());
            } else {
                self.with_specifiers.remove(name);
            }
            self.environment.insert(name.into(), value.replace("%%", "%").into());
        }
    }

    /// Whether the process is in the control group that the manager gave the service.
    pub(super) fn has(&self, process: &Running) -> bool {
        !self.control_group.is_empty() && process.is_in_group(&self.control_group)
    }

    /// Whether systemd takes the variable with this value away from the environment.
    pub(crate) fn unsets(&self, name: &str, value: &str) -> bool {
        self.unset.iter().any(|unset| match unset.split_once('=') {
            Some(of_value) => of_value == (name, value),
            None => unset == name,
        })
    }

    /// The environment as it is without what `imas apply` wrote: its own notes say what was there before.
    fn environment_without_ours(&self) -> Variables {
        undone(&self.environment)
    }

    /// The environment as it is without this drop-in of ours.
    pub(crate) fn environment_before(&self, ours: &Found) -> Variables {
        let mut before = self.environment_without_ours();
        let Found::Ours(text) = ours else { return before };
        if self.environment.contains_key(imas_abi::env::UNSET) || text.contains(imas_abi::env::WAS) {
            return before;
        }
        let (mut set, mut was) = (Self::default(), Self::default());
        set.add_file(text);
        let lines = text.lines().filter_map(|line| line.strip_prefix(drop_in::WAS));
        was.add_file(&format!("[Service]\n{}", lines.collect::<Vec<_>>().join("\n")));
        set.environment.keys().for_each(|name| before.remove(name));
        for (name, value) in was.environment.iter() {
            before.insert(name.clone(), value.clone());
        }
        before
    }

    /// Its files of variables below the root, with their text; empty where one cannot be read.
    pub(crate) fn file_texts<'a>(&'a self, root: &'a Path) -> impl Iterator<Item = (&'a Path, String)> {
        let text = |file: &Path| std::fs::read_to_string(below(root, file)).unwrap_or_default();
        self.environment_files.iter().map(move |file| (file.as_path(), text(file)))
    }

    /// The words of its first command, with the paths of the program and of files that are there below the root.
    fn words_below(&self, root: Option<&Path>) -> Vec<OsString> {
        let mut words = self.exec.clone();
        let mut each = words.iter_mut();
        if let (Some(root), Some(first)) = (root, each.next()) {
            *first = below(root, Path::new(first)).into_os_string();
        }
        for word in each {
            let file = below(root.unwrap_or_else(|| Path::new("/")), &self.folder.join(&word));
            if file.is_file() {
                *word = file.into_os_string();
            }
        }
        words
    }

    /// Its first command, and those inside it where that is a wrapper such as `nice` or `sh -c`, from the outermost on: as
    /// words, with the paths of files that are there below the root.
    pub(crate) fn commands(&self, root: Option<&Path>) -> Vec<Vec<OsString>> {
        let path: Variables =
            std::env::var_os("PATH").map(|path| ("PATH".into(), path)).into_iter().collect();
        let is_below = |words: &Vec<OsString>| {
            root.is_none_or(|root| words.first().is_some_and(|word| Path::new(word).starts_with(root)))
        };
        let inner = |words: &Vec<OsString>| wrapper::inner_command(words, path.clone()).filter(is_below);
        std::iter::successors(Some(self.words_below(root)), inner).take(MOST_WRAPPERS).collect()
    }

    /// The program of the service: its main process's, else the one its first command names. After an
    /// update the process runs a file that is at no path any more.
    pub(crate) fn program(&self) -> Option<Program> {
        let running = self.main_pid.and_then(imas_linux::running::program_of);
        let is_there = |program: &Program| !program.path.to_string_lossy().ends_with(" (deleted)");
        running.filter(is_there).or_else(|| {
            Command::resolve(&self.exec, std::env::var_os("PATH").as_deref()).ok().map(|c| c.program)
        })
    }
}

fn unknown(name: &str) -> anyhow::Error {
    Hinted::error(
        format!("{name}: there is no such service"),
        "'systemctl list-unit-files --type=service' lists them",
    )
}

/// The path below the root.
pub(crate) fn below(root: &Path, file: &Path) -> PathBuf {
    root.join(file.strip_prefix("/").unwrap_or(file))
}

/// The folder that `WorkingDirectory=` names. The manager shows `!` for the `-` that a file has before it.
fn folder(value: &str) -> PathBuf {
    PathBuf::from(value.trim_start_matches(['-', '!']))
}

/// Restarts the service if it runs, of a template all instances that run. Answers which were restarted.
pub(crate) fn try_restart(name: &str) -> Result<Vec<String>> {
    let names = if is_template(name) { loaded_instances(name)? } else { vec![name.to_owned()] };
    let mut restarted = vec![];
    for name in names {
        if is_active(&name)? {
            restarted.push(name.clone());
        }
        systemctl(&["try-restart", "--", &name])?;
    }
    Ok(restarted)
}

fn loaded_instances(template: &str) -> Result<Vec<String>> {
    let pattern = template.replace("@.", "@*.");
    let shown = systemctl(&["list-units", "--plain", "--no-legend", "--full", "--", &pattern])?;
    Ok(shown.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect())
}

/// Whether the manager would restart it: `systemctl try-restart` starts none that does not run.
fn is_active(name: &str) -> Result<bool> {
    let shown = systemctl(&["show", "--property", "ActiveState", "--value", "--", name])?;
    Ok(["active", "reloading", "activating"].contains(&shown.trim()))
}

/// Standard output of systemctl.
///
/// # Errors
/// When systemctl is missing or fails.
pub(crate) fn systemctl(arguments: &[&str]) -> Result<String> {
    let output = std::process::Command::new("systemctl")
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output();
    let failed = |why: String| {
        // sd_booted(3) asks in the same way.
        let what = match Path::new("/run/systemd/system").is_dir() {
            true => format!("systemctl {}: {why}", arguments.join(" ")),
            false => {
                "systemd does not run here, so there is no service of it to look at or to change".to_owned()
            }
        };
        Hinted::error(
            what,
            "for an image or a folder use --root DIR; 'imas env' prints what to set by hand, and 'imas run' starts a program",
        )
    };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(variables: &Variables, name: &str) -> Option<String> {
        variables.get(std::ffi::OsStr::new(name)).map(|value| value.to_string_lossy().into_owned())
    }

    #[test]
    fn names_of_services() {
        assert_eq!(full_name("nginx").unwrap(), "nginx.service");
        assert_eq!(full_name("a@b.service").unwrap(), "a@b.service");
        assert_eq!(full_name("php8.2-fpm").unwrap(), "php8.2-fpm.service");
        assert_eq!(full_name("org.example.web").unwrap(), "org.example.web.service");
        for bad in ["", "x.socket", "../x.service", "a b", ".service", "x/y.service"] {
            assert!(full_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_read_as_systemd_does() {
        let mut unit = Unit::default();
        unit.add_file("[Unit]\nEnvironment=NO=1\n[Service]\nEnvironment=A=b \"C=d e\" \\\n  'F=%%g'\nEnvironmentFile=-/etc/default/x\nExecStart=-/usr/bin/env true\nExecStart=/bin/second\n");
        assert_eq!(get(&unit.environment, "A").unwrap(), "b");
        assert_eq!(get(&unit.environment, "C").unwrap(), "d e");
        assert_eq!(get(&unit.environment, "F").unwrap(), "%g");
        assert_eq!(get(&unit.environment, "NO"), None);
        assert_eq!(unit.environment_files, [PathBuf::from("/etc/default/x")]);
        assert_eq!(unit.exec, ["/usr/bin/env", "true"]);
        unit.add_file("[Service]\nEnvironment=\nEnvironment=A=z\nExecStart=\nExecStart=/bin/other\n");
        assert_eq!((unit.environment.len(), get(&unit.environment, "A").unwrap().as_str()), (1, "z"));
        assert_eq!(unit.exec, ["/bin/other"]);
    }

    #[test]
    fn odd_lines_are_read_as_systemd_does() {
        let mut unit = Unit::default();
        unit.add_file(
            "[Service]\n# A=no \\\nEnvironment=A=1 \\\n; between\n  B=2 #C D=#4 'E=\"' F=a\\x2db G='%%i'\n",
        );
        for (name, value) in [("A", "1"), ("B", "2"), ("D", "#4"), ("E", "\""), ("F", "a-b"), ("G", "%i")] {
            assert_eq!(get(&unit.environment, name).as_deref(), Some(value), "{name}");
        }
        assert!(unit.with_specifiers.is_empty());
        unit.add_file("[Service]\nUnsetEnvironment=A\nUnsetEnvironment=\nUnsetEnvironment=B 'C=1 2'\n");
        assert!(unit.unsets("B", "x") && unit.unsets("C", "1 2"));
        assert!(!unit.unsets("A", "1") && !unit.unsets("C", "1"));
        unit.add_file("[Service]\nEnvironment=H=/%i I=%i\nEnvironment=I=1\nExecStart=-@/bin/x name -a\n");
        assert_eq!(unit.with_specifiers, BTreeSet::from(["H".to_owned()]));
        assert_eq!(unit.exec, ["/bin/x", "-a"]);
    }

    #[test]
    fn what_every_service_gets_is_read_too() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("usr/lib/systemd/system/a-b.service", "[Service]\nEnvironment=\nEnvironment=A=unit B=unit\n");
        write("usr/lib/systemd/system/a-b.service.d/20.conf", "[Service]\nEnvironment=C=unit\n");
        write("etc/systemd/system/a-.service.d/10.conf", "[Service]\nEnvironment=B=some\n");
        write("etc/systemd/system/service.d/10.conf", "[Service]\nEnvironment=B=all\n");
        write("etc/systemd/system/service.d/20.conf", "[Service]\nEnvironment=C=all D=all\n");
        write("etc/systemd/system.conf", "[Manager]\nDefaultEnvironment=A=least E=least F=%H\n");
        write("usr/lib/systemd/system.conf.d/e.conf", "[Manager]\nDefaultEnvironment=E=less\n");
        let unit = Unit::read("a-b.service", Some(root.path())).unwrap();
        let all = ["A", "B", "C", "D", "E"].map(|name| get(&unit.environment, name).unwrap_or_default());
        assert_eq!(all, ["unit", "some", "unit", "", "less"], "of one name that of the longest name is read");
        assert_eq!(unit.with_specifiers, BTreeSet::from(["F".to_owned()]));
    }

    #[test]
    fn a_drop_in_of_ours_is_undone() {
        let mut unit = Unit::default();
        unit.add_environment(
            "LD_PRELOAD=/g.so:/x.so GLIBC_TUNABLES=a=1 IMAS_WAS_LD_PRELOAD=/x.so IMAS_UNSET=GLIBC_TUNABLES IMAS_PAD= IMAS_FOLLOW=1 HOME=/h",
        );
        let clean = unit.environment_without_ours();
        assert_eq!(clean.len(), 2, "{clean:?}");
        assert_eq!(get(&clean, "LD_PRELOAD").unwrap(), "/x.so");
    }

    #[test]
    fn a_command_is_read_as_systemd_prints_it() {
        let value = "{ path=/usr/bin/x ; argv[]=/usr/bin/x -a b ; ignore_errors=no ; start_time=[n/a] }";
        assert_eq!(shown_command(value), ["/usr/bin/x", "-a", "b"]);
        let value = "{ path=/a dir/x ; argv[]=/a dir/x -n it's ; -b ; ignore_errors=no ; start_time=[n/a] }";
        assert_eq!(shown_command(value), ["/a dir/x", "-n", "it's", ";", "-b"]);
        let value = "{ path=/usr/bin/x ; argv[]=name -a ; ignore_errors=no }";
        assert_eq!(shown_command(value), ["/usr/bin/x", "-a"]);
        assert_eq!(shown_command("{ path=/x ; argv[]=name ; ignore_errors=no }"), ["/x"]);
    }
}
