// SPDX-License-Identifier: Apache-2.0
//! From the words of a command line to the program they name.
//!
//! A program is what is executed: the resolved path of the executable, and for an interpreter also what it is
//! given to run, since two Python programs have as little in common as two C programs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use imas_core::printable;

use crate::index::with_templates;
use crate::interpreter_target::{self, Interpreter, InterpreterTarget};
use crate::program_file::ProgramFile;

/// The program a command names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program {
    /// Resolved path of the ELF executable that will run.
    pub path: PathBuf,
    /// Script, jar, module or main class given to an interpreter; `as NAME` where the name by which it is started
    /// counts ([`crate::interpreter_target`]); empty for everything else.
    pub detail: String,
}

/// The program for people, in one line; never a key.
impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printable::name(&self.path.to_string_lossy()))?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " {}", printable::name(&self.detail)) }
    }
}

/// The map with the paths by which programs are known as keys: a user writes `/bin/awk`, what runs is
/// `/usr/bin/mawk`. Keys that are no path, or none of a file that is there, stay as they are, but an instance
/// of a template unit stands for all instances. Where two keys lead to one program, its own name's entry
/// wins.
#[must_use]
pub fn by_real_path<T>(map: BTreeMap<String, T>) -> BTreeMap<String, T> {
    let real = |name: &String| std::fs::canonicalize(name).ok().filter(|_| name.starts_with('/'));
    let named = |(name, value): (String, T)| {
        let real =
            real(&name).map_or_else(|| with_templates(&name), |real| real.to_string_lossy().into_owned());
        (real != name, real, value)
    };
    let mut named: Vec<_> = map.into_iter().map(named).collect();
    named.sort_by_key(|(is_link, _, _)| !is_link);
    named.into_iter().map(|(_, name, value)| (name, value)).collect()
}

/// How to start a command, and what program that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The file to exec.
    pub file: PathBuf,
    /// Arguments of the command from `argv[0]` on.
    pub argv: Vec<OsString>,
    /// Arguments of the program's executable, without its name: a script's first line may give some.
    pub arguments: Vec<OsString>,
    /// The program that runs when the command is started.
    pub program: Program,
    /// Whether the file or the interpreter is set-user-ID, set-group-ID or has file capabilities.
    pub privileged: bool,
}

/// Why a command cannot be started at all.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum CommandError {
    #[error("no command was given")]
    Empty,
    /// Neither a file of that path nor one of that name in `PATH`.
    #[error("{}: not found", .0.display())]
    NotFound(PathBuf),
    #[error("{}: not executable: {why}", .file.display())]
    NotExecutable {
        file: PathBuf,
        /// The error of the system or what is missing.
        why: String,
    },
}

/// How deep `#!` lines may nest, as in the kernel.
const MAX_SCRIPT_DEPTH: usize = 4;

impl Command {
    /// Whether a shell runs it: what the script starts is not known before it does.
    #[must_use]
    pub fn is_of_a_shell(&self) -> bool {
        let real = std::fs::canonicalize(&self.program.path);
        real.is_ok_and(|file| Interpreter::of(&file) == Some(Interpreter::Shell))
    }

    /// Resolves the words of a command line, `PATH` and `#!` lines included.
    ///
    /// A script that starts with `#!/usr/bin/env NAME` is turned into the command that env would exec: env
    /// would otherwise be the program that runs under the candidate, and its successor would start clean.
    ///
    /// # Errors
    /// When nothing was given, the file is not found, or it cannot be executed.
    pub fn resolve(words: &[OsString], path_variable: Option<&OsStr>) -> Result<Self, CommandError> {
        let first = words.first().ok_or(CommandError::Empty)?;
        let file = find(first, path_variable)?;
        let mut command = Self {
            privileged: is_privileged(&file),
            program: Program { path: file.clone(), detail: String::new() },
            argv: words.to_vec(),
            arguments: vec![],
            file,
        };
        command.follow_scripts(path_variable)?;
        Ok(command)
    }

    fn follow_scripts(&mut self, path_variable: Option<&OsStr>) -> Result<(), CommandError> {
        let mut image = self.file.clone();
        let mut arguments = self.argv.get(1..).unwrap_or_default().to_vec();
        for _ in 0..MAX_SCRIPT_DEPTH {
            let Some(line) = shebang(&image)? else { break };
            let mut given = line.argument.iter().cloned().collect::<Vec<_>>();
            given.push(image.clone().into_os_string());
            given.extend(arguments);
            if let Some(name) = line.env_target() {
                image = find(name, path_variable)?;
                given.remove(0);
                self.argv = std::iter::once(name.to_owned()).chain(given.iter().cloned()).collect();
                self.file.clone_from(&image);
            } else {
                image = line.interpreter;
            }
            self.privileged |= is_privileged(&image);
            arguments = given;
        }
        let path = std::fs::canonicalize(&image).unwrap_or_else(|_| image.clone());
        let given = InterpreterTarget::to(&path, &arguments).detail();
        let detail = if given.is_empty() { interpreter_target::detail(&path, &image) } else { given };
        self.program = Program { detail, path };
        self.arguments = arguments;
        Ok(())
    }

    /// Whether the kernel starts the program for the first line of a script.
    #[must_use]
    pub fn is_by_script(&self) -> bool {
        std::fs::canonicalize(&self.file).is_ok_and(|file| file != self.program.path)
    }
}

/// The file of that path, or the first executable of that name in `PATH`.
///
/// # Errors
/// When there is none, or it may not be executed.
pub fn find(word: &OsStr, path_variable: Option<&OsStr>) -> Result<PathBuf, CommandError> {
    // Behind each folder of `PATH` it would name the folder.
    if word.is_empty() {
        return Err(CommandError::NotFound(PathBuf::from("''")));
    }
    if word.as_bytes().contains(&b'/') {
        let file = PathBuf::from(word);
        return executable(&file).map(|()| file);
    }
    let default = OsString::from("/bin:/usr/bin");
    let folders = std::env::split_paths(path_variable.unwrap_or(&default)).collect::<Vec<_>>();
    let mut refused = None;
    for folder in folders {
        let file =
            if folder.as_os_str().is_empty() { PathBuf::from(".").join(word) } else { folder.join(word) };
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(error @ CommandError::NotExecutable { .. }) => refused = Some(error),
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| CommandError::NotFound(PathBuf::from(word))))
}

fn executable(file: &Path) -> Result<(), CommandError> {
    let refuse = |why: &str| CommandError::NotExecutable { file: file.to_owned(), why: why.to_owned() };
    let about = std::fs::metadata(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            CommandError::NotFound(file.to_owned())
        }
        _ => refuse(&error.to_string()),
    })?;
    if about.is_dir() {
        return Err(refuse("it is a directory"));
    }
    nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).map_err(|errno| refuse(errno.desc()))
}

/// Set-user-ID, set-group-ID or file capabilities: the kernel then sets AT_SECURE for ordinary users.
#[must_use]
pub fn is_privileged(file: &Path) -> bool {
    let by_mode = std::fs::metadata(file).is_ok_and(|about| about.permissions().mode() & 0o6000 != 0);
    let mut no_value = [0_u8; 64];
    by_mode || rustix::fs::getxattr(file, "security.capability", &mut no_value[..]).is_ok()
}

struct Shebang {
    interpreter: PathBuf,
    argument: Option<OsString>,
}

impl Shebang {
    /// The program that `env` would exec, when it is given a bare name and nothing else.
    fn env_target(&self) -> Option<&OsStr> {
        let by_env = self.interpreter.file_name() == Some(OsStr::new("env"));
        let bare = |word: &&OsString| {
            let bytes = word.as_bytes();
            !bytes.is_empty() && bytes[0] != b'-' && !bytes.iter().any(|b| matches!(b, b' ' | b'\t' | b'='))
        };
        self.argument.as_ref().filter(|_| by_env).filter(bare).map(OsString::as_os_str)
    }
}

/// Number of bytes that the kernel reads of a file for its `#!` line.
const SCRIPT_LINE_BYTES: u64 = 256;

/// The `#!` line of a script; `None` for anything else. The kernel takes one argument.
fn shebang(file: &Path) -> Result<Option<Shebang>, CommandError> {
    let unreadable = |error: &std::io::Error| CommandError::NotExecutable {
        file: file.to_owned(),
        why: format!("cannot be read: {error}"),
    };
    let mut start = Vec::new();
    let opened = match ProgramFile::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(CommandError::NotFound(file.to_owned())); // the interpreter of a script
        }
        // An execute-only binary cannot be read, but it can run.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(unreadable(&error)),
    };
    opened.file().take(SCRIPT_LINE_BYTES).read_to_end(&mut start).map_err(|error| unreadable(&error))?;
    let Some(rest) = start.strip_prefix(b"#!") else { return Ok(None) };
    let is_cut = start.len() as u64 == SCRIPT_LINE_BYTES && !rest.contains(&b'\n');
    if is_cut && !rest.trim_ascii_start().iter().any(u8::is_ascii_whitespace) {
        return Ok(None); // the interpreter's name is not all there: the kernel leaves the file to a shell
    }
    let line = rest.split(|&b| b == b'\n').next().unwrap_or_default().trim_ascii();
    let mut parts = line.splitn(2, |b| matches!(b, b' ' | b'\t'));
    let interpreter = parts.next().unwrap_or_default();
    let argument = parts.next().map(<[u8]>::trim_ascii).filter(|a| !a.is_empty());
    if interpreter.is_empty() {
        return Ok(None);
    }
    Ok(Some(Shebang {
        interpreter: PathBuf::from(OsStr::from_bytes(interpreter)),
        argument: argument.map(|a| OsStr::from_bytes(a).to_owned()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_link_names_the_file_that_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
        std::fs::write(file("real"), "").unwrap();
        for link in ["one", "zero"] {
            std::os::unix::fs::symlink(file("real"), file(link)).unwrap();
        }
        let of = |names: &[&str]| {
            by_real_path(names.iter().map(|name| (file(name), (*name).to_owned())).collect())
        };
        assert_eq!(of(&["one"]), BTreeMap::from([(file("real"), "one".to_owned())]));
        assert_eq!(of(&["one", "real", "zero"])[&file("real")], "real", "its own entry wins");
        let words = BTreeMap::from([("unit x.service".to_owned(), 1), ("/no/such/file".to_owned(), 2)]);
        assert_eq!(by_real_path(words.clone()), words);
    }

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn a_name_is_looked_up_in_path_and_links_are_resolved() {
        let command = Command::resolve(&words("true -x"), Some(OsStr::new("/nonexistent:/bin"))).unwrap();
        assert_eq!(command.file, Path::new("/bin/true"));
        assert_eq!(command.argv, words("true -x"));
        assert_eq!(command.program.path, std::fs::canonicalize("/bin/true").unwrap());
    }

    #[test]
    fn missing_and_unexecutable_files_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "x").unwrap();
        let not_there = Command::resolve(&words("surely-no-such-program"), None);
        assert!(matches!(not_there, Err(CommandError::NotFound(_))));
        let no_name = Command::resolve(&[OsString::new()], Some(OsStr::new("/bin")));
        assert!(matches!(no_name, Err(CommandError::NotFound(_))));
        let no_bit = Command::resolve(&[plain.into_os_string()], None);
        assert!(matches!(no_bit, Err(CommandError::NotExecutable { .. })));
        let directory = Command::resolve(&words("/usr"), None);
        assert!(matches!(directory, Err(CommandError::NotExecutable { .. })));
        assert!(matches!(Command::resolve(&[], None), Err(CommandError::Empty)));
    }

    #[test]
    fn a_script_is_its_interpreter_and_itself() {
        let folder = tempfile::tempdir().unwrap();
        let file = script(folder.path(), "s", "#!/bin/sh -e\nexit\n");
        let command = Command::resolve(&[file.clone().into_os_string()], None).unwrap();
        assert_eq!(command.file, file);
        assert_eq!(command.program.path, std::fs::canonicalize("/bin/sh").unwrap());
        assert_eq!(command.program.detail, std::fs::canonicalize(file).unwrap().to_string_lossy());
    }

    #[test]
    fn a_line_that_is_cut_inside_the_name_is_no_script_of_the_kernels() {
        let folder = tempfile::tempdir().unwrap();
        let long = script(folder.path(), "long", &format!("#!/{}\nexit\n", "x".repeat(300)));
        let command = Command::resolve(&[long.clone().into_os_string()], None).unwrap();
        assert_eq!((command.file, command.program.path.ends_with("long")), (long, true));
        let with_argument =
            script(folder.path(), "argument", &format!("#!/bin/sh {}\nexit\n", "x".repeat(300)));
        let command = Command::resolve(&[with_argument.into_os_string()], None).unwrap();
        assert_eq!(command.program.path, std::fs::canonicalize("/bin/sh").unwrap());
    }

    #[test]
    fn a_missing_interpreter_is_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let lost = script(folder.path(), "lost", "#!/no/such/interpreter\n");
        let resolved = Command::resolve(&[lost.into_os_string()], None);
        assert!(
            matches!(&resolved, Err(CommandError::NotFound(file)) if file == Path::new("/no/such/interpreter")),
            "{resolved:?}"
        );
    }

    #[test]
    fn env_is_looked_through() {
        let folder = tempfile::tempdir().unwrap();
        let file = script(folder.path(), "s", "#!/usr/bin/env bash\nexit\n");
        let command =
            Command::resolve(&[file.clone().into(), "arg".into()], Some(OsStr::new("/bin"))).unwrap();
        assert_eq!(command.file, Path::new("/bin/bash"));
        assert_eq!(command.argv, [OsString::from("bash"), file.clone().into(), "arg".into()]);
        assert_eq!(command.program.detail, std::fs::canonicalize(file).unwrap().to_string_lossy());
    }
}
