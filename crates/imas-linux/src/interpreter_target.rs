// SPDX-License-Identifier: Apache-2.0
//! Program that an interpreter is given to run, read from its arguments. `hook/interpreter_target.c` reads
//! them in the same way; a test runs both.
//!
//! The name by which a file was started, where it makes another program of the file: `redis-server` is a link to
//! `redis-check-rdb`, and `xzcat` one to `xz` (docs/decisions/0037).
//!
//! A name does not count where it leads to the same program by another path: a link of the alternatives, of a version
//! (`python3` to `python3.11`) or of a target (`gcc` to `x86_64-linux-gnu-gcc-12`), and a link of an
//! interpreter, whose programs differ by what they run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::c_bytes::fnv64;

/// The part of the command line that distinguishes programs with the same executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterpreterTarget {
    /// No target: not an interpreter, or one that reads its standard input.
    Nothing,
    /// Code on the command line: the option and the hash of the text after it, `-c #af63dc4c8601ec8c`. The
    /// text itself is not kept: it may hold secrets.
    Code(OsString),
    /// An option that names the program, and the name: `-m http.server`, `-jar app.jar`.
    Named(OsString, OsString),
    /// First plain word: a script or a main class.
    Word(OsString),
}

impl InterpreterTarget {
    /// Target of the executable at `path` by its `arguments`, which begin after `argv[0]`.
    #[must_use]
    pub fn to(path: &Path, arguments: &[OsString]) -> Self {
        let Some(kind) = Interpreter::of(path) else { return Self::Nothing };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_str().unwrap_or_default();
            if kind.is_inline_code(text) {
                return Self::Code(code_name(argument, rest.next()));
            }
            if kind.names_program(text) {
                return Self::Named(argument.clone(), rest.next().cloned().unwrap_or_default());
            }
            if kind.takes_value(text) {
                rest.next();
            } else if !argument.as_bytes().starts_with(b"-") {
                return Self::Word(argument.clone());
            }
        }
        Self::Nothing
    }

    /// For people and for the store: files with their whole path.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Code(option) => option.to_string_lossy().into_owned(),
            Self::Named(option, name) => format!("{} {}", option.to_string_lossy(), whole_path(name)),
            Self::Word(word) => whole_path(word),
        }
    }
}

/// The name of a program that is a text on the command line.
fn code_name(option: &OsStr, code: Option<&OsString>) -> OsString {
    let mut name = option.to_owned();
    if let Some(code) = code {
        name.push(format!(" #{:016x}", fnv64(code.as_bytes())));
    }
    name
}

/// The path in full when the word is a file; else the word (a class or module).
fn whole_path(word: &OsStr) -> String {
    let resolved = std::fs::canonicalize(word).ok().filter(|path| path.is_file());
    resolved.map_or_else(|| word.to_string_lossy().into_owned(), |path| path.to_string_lossy().into_owned())
}

/// Families of interpreters, by how their options are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter {
    /// CPython and PyPy.
    Python,
    /// The Java virtual machine.
    Java,
    /// The program `dotnet`.
    Dotnet,
    /// The Bourne shell and its descendants.
    Shell,
    /// Perl, Ruby, Lua, PHP, Node: `-e` or `-r` is code, the first plain word a script.
    Script,
}

impl Interpreter {
    /// The family of the executable at `path`, by its name; `None` for what is no interpreter.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        match stem {
            "python" | "pypy" => Some(Self::Python),
            "java" => Some(Self::Java),
            "dotnet" => Some(Self::Dotnet),
            "sh" | "bash" | "dash" | "zsh" | "ksh" => Some(Self::Shell),
            "perl" | "ruby" | "lua" | "luajit" | "php" | "node" | "nodejs" | "Rscript" | "tclsh"
            | "guile" => Some(Self::Script),
            _ => None,
        }
    }

    fn is_inline_code(self, word: &str) -> bool {
        match self {
            Self::Python => word == "-c" || ends_bundle(word, "bBdEIOPqsSuvx", "c"),
            Self::Java | Self::Dotnet => false,
            Self::Shell => word == "-c" || ends_bundle(word, "abefhiklmnprtuvxBCEHPT", "c"),
            Self::Script => {
                matches!(word, "-c" | "-e" | "-E" | "-r" | "--eval" | "-p" | "--print")
                    || ends_bundle(word, "0123456789acilnpsw", "eE")
            }
        }
    }

    fn names_program(self, word: &str) -> bool {
        match self {
            Self::Python => word == "-m",
            Self::Java => matches!(word, "-jar" | "-m" | "--module"),
            Self::Dotnet => word == "exec",
            Self::Script => word == "-f",
            Self::Shell => false,
        }
    }

    fn takes_value(self, word: &str) -> bool {
        match self {
            Self::Python => matches!(word, "-W" | "-X"),
            Self::Java => {
                matches!(
                    word,
                    "-cp" | "-classpath" | "--class-path" | "-p" | "--module-path" | "--add-modules"
                )
            }
            Self::Dotnet => {
                matches!(
                    word,
                    "--additional-deps"
                        | "--additionalprobingpath"
                        | "--depsfile"
                        | "--fx-version"
                        | "--roll-forward"
                        | "--runtimeconfig"
                )
            }
            Self::Shell => matches!(word, "-o" | "-O" | "--rcfile" | "--init-file"),
            Self::Script => matches!(word, "-I" | "--require" | "--import" | "-d" | "-o" | "-O"),
        }
    }
}

/// Whether the word is several options of one letter, without values, and the last takes the code:
/// `-lc`, `-ne`.
fn ends_bundle(word: &str, letters: &str, last: &str) -> bool {
    let Some(bundle) = word.strip_prefix('-') else { return false };
    let mut reversed = bundle.chars().rev();
    reversed.next().is_some_and(|end| last.contains(end)) && reversed.all(|letter| letters.contains(letter))
}

/// How the name is written in place of what an interpreter is given: `as NAME`.
const AS: &str = "as ";
/// Links that the machine's operator may lead to another file of the same purpose.
const ALTERNATIVES: &str = "/etc/alternatives";
/// Number of links that the kernel follows.
const MOST_LINKS: usize = 40;
/// Path of a program that is named without its folder.
const FOLDERS: [&str; 5] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];

/// The detail of the program that is started as `started`, a path that leads to the file `real`. Empty where the file
/// alone says what program it is.
#[must_use]
pub fn detail(real: &Path, started: &Path) -> String {
    let names = started.file_name().zip(real.file_name());
    let Some((name, file)) = names.filter(|(name, file)| name != file) else { return String::new() };
    let is_same = Interpreter::of(real).is_some() || is_variant(name, file) || is_alternative(started);
    if is_same { String::new() } else { format!("{AS}{}", name.to_string_lossy()) }
}

/// The detail of a running process of the file `real`, from its first argument: only a name under which a link to the
/// file is found. A path that the process names is looked at: only a helper may ([`crate::foreign_process`]).
#[must_use]
pub(super) fn detail_of_running(real: &Path, first_argument: &OsStr) -> String {
    detail_by_link(real, first_argument, true)
}

/// The detail of a running process of the file `real` that may be anybody's, from its first argument. No path
/// that the process names is looked at, only links beside the file and in the folders of programs.
#[must_use]
pub fn detail_of_foreign(real: &Path, first_argument: &OsStr) -> String {
    detail_by_link(real, first_argument, false)
}

fn detail_by_link(real: &Path, first_argument: &OsStr, is_trusted: bool) -> String {
    // Daemons write what they do after their name.
    let word = first_argument.as_bytes().split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    let word = Path::new(OsStr::from_bytes(word.strip_suffix(b":").unwrap_or(word)));
    let Some(name) = word.file_name().filter(|name| real.file_name() != Some(*name)) else {
        return String::new();
    };
    let beside = real.parent().map(|folder| folder.join(name));
    let named = Some(word.to_owned()).filter(|word| is_trusted && word.is_absolute());
    let elsewhere = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let places = named.into_iter().chain(beside).chain(elsewhere);
    let leads_there = |place: &PathBuf| std::fs::canonicalize(place).is_ok_and(|found| found == real);
    places.into_iter().find(leads_there).map_or_else(String::new, |started| detail(real, &started))
}

/// The name in such a detail.
#[must_use]
pub fn name_of_detail(detail: &str) -> Option<&str> {
    detail.strip_prefix(AS)
}

/// Whether a program of that detail is meant by another one: itself, or the file where its name is not known.
#[must_use]
pub fn is_meant(known: &str, running: &str) -> bool {
    known == running || (known.is_empty() && name_of_detail(running).is_some())
}

/// Whether one name is the other with a version behind it, or a target before it.
fn is_variant(name: &OsStr, file: &OsStr) -> bool {
    let stem = |name: &OsStr| {
        let is_version = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
        name.to_string_lossy().trim_end_matches(is_version).to_owned()
    };
    let (name, file) = (stem(name), stem(file));
    name == file || file.strip_suffix(&name).is_some_and(|target| target.ends_with('-'))
}

/// Whether the path leads through a link of the alternatives.
fn is_alternative(started: &Path) -> bool {
    let mut path = started.to_owned();
    for _ in 0..MOST_LINKS {
        if path.starts_with(ALTERNATIVES) {
            return true;
        }
        let Ok(target) = std::fs::read_link(&path) else { return false };
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn interpreters_are_distinguished_by_what_they_run() {
        let d = |path: &str, text: &str| InterpreterTarget::to(Path::new(path), &words(text)).detail();
        assert_eq!(d("/usr/bin/python3.11", "-u -X dev -m http.server 80"), "-m http.server");
        assert_eq!(d("/usr/bin/python3.11", "-c a"), "-c #af63dc4c8601ec8c", "the hash of the text");
        assert_eq!(d("/bin/bash", "-lc a x y"), "-lc #af63dc4c8601ec8c");
        assert_eq!(d("/usr/bin/perl", "-lane a /no/file"), "-lane #af63dc4c8601ec8c");
        assert_eq!(d("/bin/sh", "-c"), "-c");
        assert_eq!(
            d("/usr/bin/ruby", "-rpipe /no/script"),
            "/no/script",
            "-r has its value in the same word"
        );
        assert_eq!(d("/usr/lib/jvm/bin/java", "-Xmx1g -cp a:b org.example.Main x"), "org.example.Main");
        assert_eq!(d("/usr/lib/jvm/bin/java", "-jar /no/app.jar"), "-jar /no/app.jar");
        assert_eq!(d("/usr/bin/dotnet", "--roll-forward Major /no/app.dll --port 80"), "/no/app.dll");
        assert_eq!(d("/usr/bin/dotnet", "exec /no/app.dll"), "exec /no/app.dll");
        assert_eq!(d("/usr/bin/sqlite3", "db"), "");
        assert_eq!(d("/usr/bin/node", "--max-old-space-size=100 /no/app.js"), "/no/app.js");
    }

    #[test]
    fn a_version_or_a_target_is_the_same_program() {
        let of = |name: &str, file: &str| detail(&Path::new("/b").join(file), &Path::new("/b").join(name));
        for (name, file) in [
            ("redis-server", "redis-check-rdb"),
            ("xzcat", "xz"),
            ("ls", "busybox"),
            ("clang++", "clang"),
            ("ld.lld", "lld"),
            ("unpigz", "pigz"),
        ] {
            assert_eq!(of(name, file), format!("as {name}"));
        }
        for (name, file) in [
            ("python3", "python3.11"),
            ("gcc", "gcc-12"),
            ("gcc", "x86_64-linux-gnu-gcc-12"),
            ("sort", "sort"),
            ("sh", "dash"),
            ("node", "nodejs"),
        ] {
            assert_eq!(of(name, file), "", "{name} is {file}");
        }
    }

    #[test]
    fn a_running_process_is_named_by_a_link_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        let real = folder.join("multi");
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink("multi", folder.join("one")).unwrap();
        let of = |argument: &str| detail_of_running(&real, OsStr::new(argument));
        assert_eq!(of("one"), "as one");
        assert_eq!(of(&format!("{}/one *:6379", folder.display())), "as one");
        assert_eq!(of("one: worker"), "as one");
        for other in ["multi", "two", "", "sort"] {
            assert_eq!(of(other), "", "{other}");
        }
        assert_eq!(name_of_detail("as one"), Some("one"));
        assert!(is_meant("", "as one") && is_meant("as one", "as one") && !is_meant("as two", "as one"));
        assert!(!is_meant("", "/script"));
    }
}
