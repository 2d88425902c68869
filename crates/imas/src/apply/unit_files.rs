// SPDX-License-Identifier: Apache-2.0
//! The files of a service and of its manager below a root, in the order in which systemd reads them; and their lines, words
//! and sizes, as it reads them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Folders of unit files, the first wins.
const FOLDERS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// The unit's file and its drop-ins in the order of reading. A drop-in of the first folder wins, and one of the unit over
/// one of all services.
pub(super) fn of_unit(name: &str, root: &Path) -> Vec<PathBuf> {
    let folders: Vec<_> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    let template = name.split_once('@').map(|(stem, _)| format!("{stem}@.service"));
    let names: Vec<&str> = std::iter::once(name).chain(template.as_deref()).collect();
    let main = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file());
    let (last_first, named) = (|| folders.iter().rev(), names_of_drop_ins(name));
    let of_all = last_first().map(|folder| folder.join("service.d"));
    let own =
        last_first().flat_map(|folder| named.iter().rev().map(move |name| folder.join(format!("{name}.d"))));
    main.into_iter().chain(drop_ins(of_all.chain(own))).collect()
}

/// The names of units whose drop-ins the unit has, the first wins: its own, its template's, and their
/// beginnings up to a dash.
fn names_of_drop_ins(name: &str) -> Vec<String> {
    let stem = name.strip_suffix(".service").unwrap_or(name);
    let (stem, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let (mut names, mut end) = (vec![name.to_owned()], ".service".to_owned());
    if !instance.is_empty() {
        names.extend(names_of_drop_ins(&format!("{stem}@.service")));
        end = format!("@{instance}.service");
    }
    let begin = stem.strip_suffix('-').unwrap_or(stem).rsplit_once('-').map(|(begin, _)| begin);
    if let Some(begin) = begin.filter(|begin| !begin.is_empty()) {
        names.extend(names_of_drop_ins(&format!("{begin}-{end}")));
    }
    names
}

/// The manager's own file and its drop-ins in the order of reading.
pub(super) fn of_manager(root: &Path) -> Vec<PathBuf> {
    let folders: Vec<_> =
        FOLDERS.iter().map(|folder| root.join(folder).with_file_name("system.conf")).collect();
    let main = folders.iter().find(|file| file.is_file()).cloned();
    let of_folders = folders.iter().rev().map(|file| file.with_extension("conf.d"));
    main.into_iter().chain(drop_ins(of_folders)).collect()
}

/// The drop-ins in these folders, by name. Of one name it is the one of the last folder.
fn drop_ins(folders: impl Iterator<Item = PathBuf>) -> impl Iterator<Item = PathBuf> {
    let mut found = BTreeMap::new();
    for folder in folders {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for file in files.filter(|file| file.extension().is_some_and(|e| e == "conf")) {
            found.insert(file.file_name().map(OsString::from), file);
        }
    }
    found.into_values()
}

/// A size as systemd writes it, such as `512M`; `None` for a share of the machine, or no limit.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let power = match &text[number.len()..] {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << (10 * power)).filter(|bytes| *bytes < u64::MAX)
}

/// The lines of a unit file without comments, each that ends in a backslash with the next one.
pub(super) fn lines(text: &str) -> Vec<String> {
    let (mut lines, mut begun) = (vec![], String::new());
    for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', ';'])) {
        let rest = line.trim_end_matches('\\');
        if (line.len() - rest.len()) % 2 == 1 {
            begun.push_str(&line[..line.len() - 1]);
            begun.push(' ');
        } else {
            begun.push_str(line);
            lines.push(std::mem::take(&mut begun));
        }
    }
    lines.push(begun);
    lines
}

/// Quoted words, as systemd reads and prints them. It knows no comment behind a word.
pub(super) fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote): (Vec<String>, Option<String>, Option<char>) = (vec![], None, None);
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        if quote == Some(sign) {
            quote = None;
            continue;
        }
        if quote.is_none() && sign.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        match sign {
            '"' | '\'' if quote.is_none() => quote = Some(sign),
            '\\' => word.extend(escaped(&mut signs)),
            _ => word.push(sign),
        }
    }
    words.extend(word);
    words
}

/// The sign that the text behind a backslash stands for.
fn escaped(signs: &mut std::str::Chars<'_>) -> Option<char> {
    match signs.next()? {
        'n' => Some('\n'),
        't' => Some('\t'),
        's' => Some(' '),
        'x' => {
            let digits: String = signs.by_ref().take(2).collect();
            u8::from_str_radix(&digits, 16).ok().map(char::from)
        }
        sign => Some(sign),
    }
}

/// The command in systemd's text `{ path=/bin/x ; argv[]=/bin/x -a ; ignore_errors=no ; ... }`. The words of
/// `argv[]` have no quotes around them, and its first one need not be the program.
pub(super) fn shown_command(value: &str) -> Vec<OsString> {
    let between = |begin: &str, end: &str| {
        let (_, rest) = value.split_once(begin)?;
        Some(rest.split_once(end).map_or(rest, |(text, _)| text))
    };
    let Some(path) = between("path=", " ; argv[]=") else { return vec![] };
    let argv = between("argv[]=", " ; ignore_errors=").unwrap_or_default();
    let rest = argv.strip_prefix(path).or_else(|| Some(argv.split_once(' ')?.1)).unwrap_or_default();
    std::iter::once(path).chain(rest.split_whitespace()).map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which systemd 252 takes them (`systemd-analyze --root=DIR verify`).
    #[test]
    fn drop_ins_of_a_common_beginning_are_read() {
        let names = |name: &str| names_of_drop_ins(name).join(" ").replace(".service", "");
        assert_eq!(names("web.service"), "web");
        assert_eq!(names("a-b-c.service"), "a-b-c a-b- a-");
        assert_eq!(names("a-b-c@x.service"), "a-b-c@x a-b-c@ a-b- a- a-b-@x a-b-@ a- a-@x a-@");
        assert_eq!(names("-a.service"), "-a");
        assert_eq!(names("a--b.service"), "a--b a-- a-");
    }
}
