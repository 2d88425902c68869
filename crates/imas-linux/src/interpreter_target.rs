// SPDX-License-Identifier: Apache-2.0
//! What an interpreter is given to run, read from its arguments. `hook/interpreter_target.c` reads them in
//! the same way; a test runs both.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::fnv::fnv64;

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
    /// What the executable at `path` is given by `arguments`, which begin after `argv[0]`.
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

/// Whether the word is several options of one letter, without values, of which the last takes the code:
/// `-lc`, `-ne`.
fn ends_bundle(word: &str, letters: &str, last: &str) -> bool {
    let Some(bundle) = word.strip_prefix('-') else { return false };
    let mut reversed = bundle.chars().rev();
    reversed.next().is_some_and(|end| last.contains(end)) && reversed.all(|letter| letters.contains(letter))
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
}
