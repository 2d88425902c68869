// SPDX-License-Identifier: Apache-2.0
//! Commands that start another command: `nice PROG`, `timeout 5 PROG`, `sh -c 'PROG'`, a shim of pyenv. IMAS
//! learns about the program that runs in the end.
//!
//! The work of `env` is done here, and the program is started at once. Every other wrapper is started as it
//! is, with `imas run` before the command inside it: `timeout 5 imas run -- PROG`. It makes no difference
//! then whether the wrapper calls exec or forks.

mod command_line;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

use imas_linux::environment::Variables;
use imas_linux::interpreter_target::Interpreter;
use imas_linux::program::{Command, find};

/// A command as it is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unwrapped {
    pub(crate) words: Vec<OsString>,
    pub(crate) environment: Variables,
    /// The command inside the words, which `imas run` has to be put before.
    pub(crate) inner: Option<Inner>,
}

/// Beginning of the command that a wrapper starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inner {
    /// The command is the words from this one on.
    Words(usize),
    /// The command is in the text of this word, from this byte on.
    Code { word: usize, byte: usize },
    /// A shim of pyenv, rbenv or one of their kind, whose variables begin with that.
    Shim(String),
}

/// Takes off what `env` does, and looks for a command inside what is left.
pub(crate) fn unwrap(words: &[OsString], environment: Variables) -> Unwrapped {
    let (words, environment) = command_line::taken_off_env(words, environment);
    let inner = inner(&words, &environment);
    Unwrapped { words, environment, inner }
}

/// The command inside a wrapper, as far as it can be known before that runs; `None` for a command that is none.
pub(crate) fn inner_command(words: &[OsString], environment: Variables) -> Option<Vec<OsString>> {
    let unwrapped = unwrap(words, environment);
    unwrapped.inner_words().or_else(|| (unwrapped.words != words).then_some(unwrapped.words))
}

/// Whether the command is there to start another one: a script of a shell, or a wrapper.
pub(crate) fn starts_another(command: &Command, environment: Variables) -> bool {
    command.is_of_a_shell() || inner_command(&command.argv, environment).is_some()
}

fn inner(words: &[OsString], environment: &Variables) -> Option<Inner> {
    let path_variable = path_of(environment);
    let file = find(words.first()?, path_variable).ok()?;
    if let Some(prefix) = command_line::shim_prefix(&file) {
        return Some(Inner::Shim(prefix));
    }
    let real = std::fs::canonicalize(&file).ok()?;
    if Interpreter::of(&real) == Some(Interpreter::Shell) {
        return command_line::inner_of_shell(words, environment);
    }
    let at = command_line::command_at(&file, is_elf(&file), words)?;
    find(words.get(at)?, path_variable).ok()?;
    Some(Inner::Words(at))
}

/// Variable `PATH`, with the folders where programs are looked for.
pub(crate) fn path_of(environment: &Variables) -> Option<&OsStr> {
    environment.get(OsStr::new("PATH")).map(OsString::as_os_str)
}

fn is_elf(file: &Path) -> bool {
    let mut start = [0_u8; 4];
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\x7fELF"
}

impl Unwrapped {
    /// The words with `launcher` (`imas run ... --`) before the command inside, and what has to be set for
    /// it. None where it cannot be put there.
    pub(crate) fn with_launcher(&self, launcher: &[OsString]) -> Option<(Vec<OsString>, Variables)> {
        let mut words = self.words.clone();
        let mut environment = self.environment.clone();
        match self.inner.as_ref()? {
            Inner::Words(at) => {
                words.splice(at..at, launcher.iter().cloned());
            }
            Inner::Code { word, byte } => {
                let code = words.get(*word)?.to_str()?;
                let (before, after) = code.split_at_checked(*byte)?;
                words[*word] = format!("{before}{} {after}", quoted(launcher)?).into();
            }
            Inner::Shim(prefix) => command_line::shim_set(prefix, &quoted(launcher)?, &mut environment)?,
        }
        Some((words, environment))
    }

    /// The words of the command inside, as far as they can be known before the wrapper runs.
    pub(crate) fn inner_words(&self) -> Option<Vec<OsString>> {
        match self.inner.as_ref()? {
            Inner::Words(at) => self.words.get(*at..).map(<[OsString]>::to_vec),
            Inner::Code { word, byte } => {
                let code = self.words.get(*word)?.to_str()?.get(*byte..)?;
                Some(shell_words::split(code).ok()?.into_iter().map(OsString::from).collect())
            }
            Inner::Shim(_) => None,
        }
    }
}

fn quoted(words: &[OsString]) -> Option<String> {
    let words: Option<Vec<_>> = words.iter().map(|word| word.to_str()).collect();
    Some(shell_words::join(words?))
}

/// `imas run`, with the options of this call and the mark that a wrapper stands before it.
pub(crate) fn launcher(command_words: usize) -> Option<Vec<OsString>> {
    let exe = std::env::current_exe().ok().filter(|exe| exe.is_file())?;
    let mut words: Vec<OsString> = std::env::args_os().collect();
    words.truncate(words.len().checked_sub(command_words)?);
    words[0] = exe.into();
    if words.last().is_some_and(|last| last == "--") {
        words.pop();
    }
    let mark = OsString::from(format!("--{INSIDE}"));
    if !words.contains(&mark) {
        words.push(mark);
    }
    words.push("--".into());
    Some(words)
}

/// The hidden option of `imas run` that marks a start by a wrapper.
pub(crate) const INSIDE: &str = "inside-wrapper";

/// bash names in `_` what it starts: that was `imas`, and has to be the program.
pub(crate) fn name_program(environment: &mut Variables, words: &[OsString]) {
    let key = OsStr::new("_");
    let exe = std::env::current_exe().ok().map(PathBuf::into_os_string);
    let (Some(word), Some(named)) = (words.first(), environment.get(key)) else { return };
    if exe.as_ref() == Some(named)
        && let Ok(file) = find(word, path_of(environment))
    {
        environment.insert(key.into(), file.into_os_string());
    }
}

/// Programs that start others and do little themselves, beside shells.
const LAUNCHERS: [&str; 24] = [
    "make",
    "ninja",
    "npm",
    "npx",
    "yarn",
    "pnpm",
    "sudo",
    "doas",
    "su",
    "runuser",
    "watch",
    "script",
    "parallel",
    "cargo",
    "go",
    "meson",
    "cmake",
    "ctest",
    "systemd-run",
    "unshare",
    "chroot",
    "gdb",
    "strace",
    "docker",
];

/// Advice at the first start of a program that starts others; None for a program that works itself.
pub(crate) fn advice(command: &Command) -> Option<String> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // A script of npm is known by its own name, a program by its file's.
    let script = Path::new(&command.program.detail);
    let named = [name(&command.file), name(script).trim_end_matches("-cli.js").to_owned()];
    let launches = named.iter().any(|name| LAUNCHERS.contains(&name.as_str()));
    let is_shell = Interpreter::of(&command.program.path) == Some(Interpreter::Shell);
    let name = if is_shell { name(&command.program.path) } else { name(&command.file) };
    (is_shell || launches).then(|| {
        format!(
            "{name} starts other programs, and IMAS learns about {name} alone\n\
             hint: put 'imas run --' before the command inside, or measure all together with 'imas bench -- ...' \
             and use the result with 'imas run --follow --candidate NAME -- ...'"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        shell_words::split(text).unwrap().into_iter().map(OsString::from).collect()
    }

    fn inside(text: &str) -> Option<String> {
        let environment = Variables::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let (words, _) = unwrap(&words(text), environment).with_launcher(&words("IMAS run --"))?;
        Some(shell_words::join(words.iter().map(|word| word.to_string_lossy())))
    }

    #[test]
    fn the_command_inside_is_found() {
        for (text, expected) in [
            ("nice -n 5 sort -n", "nice -n 5 IMAS run -- sort -n"),
            ("nice -5 sort", "nice -5 IMAS run -- sort"),
            ("timeout -k 1 --foreground 5s sort", "timeout -k 1 --foreground 5s IMAS run -- sort"),
            ("env A=1 timeout 5 sort", "timeout 5 IMAS run -- sort"),
            ("xargs -0 -n 3 sort", "xargs -0 -n 3 IMAS run -- sort"),
            ("sh -c 'sort -n \"$1\" <in >out 2>&1' x", "sh -c 'IMAS run -- sort -n \"$1\" <in >out 2>&1' x"),
            ("bash -lc ' exec sort'", "bash -lc ' exec IMAS run -- sort'"),
            ("sh -c \"sort -t ';' a\"", "sh -c 'IMAS run -- sort -t '\\'';'\\'' a'"),
        ] {
            assert_eq!(inside(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn several_commands_are_not_looked_through() {
        for text in [
            "sort -n",
            "nice",
            "nice --help",
            "timeout 5",
            "timeout --what 5 sort",
            "taskset -p 3 1",
            "nice no-such-program",
            "sh script.sh",
            "sh -c 'sort; sort'",
            "sh -c 'sort | sort'",
            "sh -c 'sort &'",
            "sh -c 'A=1 sort'",
            "sh -c 'echo hello'",
            "sh -c '$X a'",
            "sh -c '(sort)'",
            "sh -c 'sort $(ls)'",
            "sh -c 'if sort'",
            "sh -c '! sort'",
            "sh -c 'sort \"a'",
            "sh -xc sort",
        ] {
            assert_eq!(inside(text), None, "{text}");
        }
    }

    #[test]
    fn env_is_looked_through_with_its_variables() {
        let environment = Variables::from([("A".into(), "1".into()), ("PATH".into(), "/bin".into())]);
        let off = |text: &str| {
            let unwrapped = unwrap(&words(text), environment.clone());
            let set = unwrapped
                .environment
                .iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()));
            (
                shell_words::join(unwrapped.words.iter().map(|word| word.to_string_lossy())),
                set.collect::<Vec<_>>().join(" "),
            )
        };
        let is = |words: &str, set: &str| (words.to_owned(), set.to_owned());
        assert_eq!(off("env B=2 sort -n"), is("sort -n", "A=1 PATH=/bin B=2"));
        assert_eq!(off("env -u A -- sort"), is("sort", "PATH=/bin"));
        assert_eq!(off("env -i C= env D=1 sort"), is("sort", "C= D=1"));
        for untouched in ["env", "env A=2", "env -S 'a b'", "env -C / sort", "env -0"] {
            assert_eq!(off(untouched).1, "A=1 PATH=/bin", "{untouched}");
            assert!(off(untouched).0.starts_with("env"), "{untouched}");
        }
    }
}
