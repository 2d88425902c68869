// SPDX-License-Identifier: Apache-2.0
//! Beginning of the command on the command line of a wrapper: after the wrapper's options and its own
//! operands.

use std::ffi::OsString;
use std::path::Path;

/// Grammar of a wrapper's own words.
struct Grammar {
    names: &'static [&'static str],
    /// Letters of the options that have a value.
    valued: &'static str,
    /// Letters of the options that have no value.
    flags: &'static str,
    /// Long options without a value; those with one are written `--name=value`.
    long: &'static [&'static str],
    /// Words of its own before the command.
    operands: usize,
}

const fn grammar(
    names: &'static [&'static str],
    valued: &'static str,
    flags: &'static str,
    long: &'static [&'static str],
    operands: usize,
) -> Grammar {
    Grammar { names, valued, flags, long, operands }
}

/// Programs of coreutils, util-linux and the like: all are found to be ELF files before they are taken for
/// what they are called.
const GRAMMARS: [Grammar; 13] = [
    grammar(&["nice"], "n", "0123456789", &[], 0),
    grammar(&["nohup"], "", "", &[], 0),
    grammar(&["ionice"], "cn", "t", &["--ignore"], 0),
    grammar(&["chrt"], "TPD", "abdfimorRv", &["--batch", "--fifo", "--idle", "--other", "--rr"], 1),
    grammar(&["taskset"], "", "c", &["--cpu-list"], 1),
    grammar(&["setsid"], "", "cfw", &["--ctty", "--fork", "--wait"], 0),
    grammar(&["stdbuf"], "ioe", "", &[], 0),
    grammar(&["timeout"], "ks", "v", &["--foreground", "--preserve-status", "--verbose"], 1),
    grammar(&["time"], "fo", "apqv", &["--append", "--portability", "--quiet", "--verbose"], 0),
    grammar(&["numactl"], "imNCp", "al", &["--all", "--localalloc"], 0),
    grammar(&["prlimit"], "", "", &[], 0),
    grammar(&["xargs"], "IELnPsda", "0rtx", &["--null", "--no-run-if-empty", "--verbose", "--exit"], 0),
    grammar(&["tini", "dumb-init", "catatonit", "dbus-run-session"], "", "sgcv", &[], 0),
];

/// The number of the word at which the command begins; None for what is no wrapper, or is called in a way
/// that is not known here.
pub(super) fn command_at(file: &Path, is_elf: bool, words: &[OsString]) -> Option<usize> {
    let name = file.file_name()?.to_str()?;
    if matches!(name, "bundle" | "bundler") {
        let plain = words.get(2)?.to_str().is_some_and(|word| !word.starts_with('-'));
        return (words.get(1)? == "exec" && plain).then_some(2);
    }
    let grammar = GRAMMARS.iter().find(|grammar| is_elf && grammar.names.contains(&name))?;
    let at = grammar.options_end(words)? + grammar.operands;
    (at < words.len()).then_some(at)
}

impl Grammar {
    fn options_end(&self, words: &[OsString]) -> Option<usize> {
        let mut at = 1;
        while let Some(text) = words.get(at).map(|word| word.to_str().unwrap_or_default()) {
            if text == "--" {
                return Some(at + 1);
            }
            if !text.starts_with('-') || text == "-" {
                return Some(at);
            }
            at += self.length_of(text)?;
        }
        None
    }

    /// Number of words that the option is.
    fn length_of(&self, option: &str) -> Option<usize> {
        if option.starts_with("--") {
            return (self.long.contains(&option) || option.contains('=')).then_some(1);
        }
        let mut letters = option[1..].chars();
        while let Some(letter) = letters.next() {
            if self.valued.contains(letter) {
                return Some(if letters.as_str().is_empty() { 2 } else { 1 });
            }
            if !self.flags.contains(letter) {
                return None;
            }
        }
        Some(1)
    }
}
