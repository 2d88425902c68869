// SPDX-License-Identifier: Apache-2.0
//! For tests and benchmarks of `libimas-preload.so`: publishes a catalogue table and an index that a few
//! lines of text describe.
//!
//! `publish RUN LIBRARIES < SPECIFICATION`; RUN must hold `state/`. Lines: `candidate NAME LIBRARY|-
//! [of:RUNTIME] [yields:WORD...] [NAME=VALUE...]`, `entry EXECUTABLE CANDIDATE [trial=CANDIDATE:HEX] [flags=N] [uid=N] [program=N]
//! [file=PATH|text=TEXT|unit=NAME|name=NAME]`, `fill N` (N entries of no file), `daemon UID`, `boot ID`,
//! `generation N`, `catalogue HEX`, `disabled`. `publish given EXECUTABLE WORDS...` prints the detail of a
//! command line: kind and two numbers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::catalogue_table::{self, Owners, write_catalogue_table};
use imas_linux::environment::Libraries;
use imas_linux::index::{self, Detail, Entry, Executable, Facts, OfferedTrial, write_index};
use imas_linux::interpreter_target::InterpreterTarget;
use imas_linux::runtime::{Runtime, RuntimeSettings};

type Failure = Box<dyn std::error::Error>;

struct Specification {
    candidates: Vec<CatalogueCandidate>,
    entries: Vec<Vec<String>>,
    fill: u64,
    owners: Owners,
    catalogue: Option<u64>,
    facts: Facts,
}

fn main() -> Result<(), Failure> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.as_slice() {
        [verb, executable, rest @ ..] if verb == "given" => {
            print_arguments(Path::new(executable), rest);
            Ok(())
        }
        [run, libraries] => publish(Path::new(run), Path::new(libraries)),
        _ => Err("usage: publish RUN LIBRARIES < SPECIFICATION | publish given EXECUTABLE WORDS...".into()),
    }
}

#[allow(clippy::print_stdout, reason = "that is what it is for")]
fn print_arguments(executable: &Path, words: &[OsString]) {
    let (kind, [first, second]) = Detail::of(&InterpreterTarget::to(executable, words), Path::new(".")).key();
    println!("{kind} {first:x} {second:x}");
}

fn publish(run: &Path, folder: &Path) -> Result<(), Failure> {
    let specification = read(&std::io::read_to_string(std::io::stdin())?)?;
    let libraries = Libraries::plain(folder);
    let table = run.join(catalogue_table::FILE_NAME);
    let written = write_catalogue_table(&table, &specification.candidates, &libraries, specification.owners)?;
    if let Some(refusal) = written.refused.first() {
        return Err(format!("{}: {}", refusal.candidate, refusal.why).into());
    }
    let id = |name: &str| written.table.id_of(name).ok_or_else(|| format!("no candidate '{name}'"));
    let mut entries = Vec::new();
    for words in &specification.entries {
        entries.push(entry(words, &id)?);
    }
    entries.extend((0..specification.fill).map(nobody));
    let catalogue_id = specification.catalogue.unwrap_or_else(|| written.table.id());
    write_index(&run.join("state"), &entries, &Facts { catalogue_id, ..specification.facts })?;
    Ok(())
}

fn read(text: &str) -> Result<Specification, Failure> {
    let mut specification = Specification {
        candidates: Vec::new(),
        entries: Vec::new(),
        fill: 0,
        owners: Owners { trusted: nix::unistd::getuid().as_raw(), daemon: nix::unistd::getuid().as_raw() },
        catalogue: None,
        facts: Facts {
            generation: 1,
            catalogue_id: 0,
            made_boot_ns: index::boot_time_ns(),
            boot_id: imas_linux::process::boot_id()?,
            disabled: false,
        },
    };
    for line in text.lines() {
        let words: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let value = words.get(1).map_or("", String::as_str);
        match words[0].as_str() {
            "candidate" => specification.candidates.push(candidate(&words)),
            "entry" => specification.entries.push(words),
            "fill" => specification.fill = value.parse()?,
            "daemon" => specification.owners.daemon = value.parse()?,
            "boot" => value.clone_into(&mut specification.facts.boot_id),
            "generation" => specification.facts.generation = value.parse()?,
            "catalogue" => specification.catalogue = Some(u64::from_str_radix(value, 16)?),
            "disabled" => specification.facts.disabled = true,
            other => return Err(format!("unknown line '{other}'").into()),
        }
    }
    Ok(specification)
}

fn candidate(words: &[String]) -> CatalogueCandidate {
    let library = words.get(2).filter(|path| *path != "-").map(PathBuf::from);
    let pair = |word: &String| word.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    let after = |mark: &str| {
        words.iter().filter_map(|word| word.strip_prefix(mark)).map(str::to_owned).collect::<Vec<_>>()
    };
    let runtime = Runtime::ALL.into_iter().find(|one| after("of:").contains(&one.id().to_owned()));
    let runtime =
        runtime.map(|one| RuntimeSettings { yields_to: after("yields:"), ..RuntimeSettings::of(one) });
    CatalogueCandidate {
        runtime,
        name: words.get(1).cloned().unwrap_or_default(),
        library,
        environment: words.iter().skip(3).filter_map(pair).collect(),
        ..CatalogueCandidate::default()
    }
}

fn entry(words: &[String], id: &dyn Fn(&str) -> Result<u16, String>) -> Result<Entry, Failure> {
    let [_, executable, candidate, options @ ..] = words else {
        return Err("entry: executable and candidate are needed".into());
    };
    let about = std::fs::metadata(executable)?;
    let mut entry = Entry { candidate: id(candidate)?, ..nobody(0) };
    entry.executable = Executable::from(&about);
    for option in options {
        let (name, value) = option.split_once('=').ok_or("an option is NAME=VALUE")?;
        match name {
            "trial" => {
                let (candidate, token) = value.rsplit_once(':').ok_or("trial=CANDIDATE:TOKEN")?;
                let token = u64::from_str_radix(token, 16)?;
                entry.trials.push(OfferedTrial { candidate: id(candidate)?, token });
            }
            "flags" => entry.flags = value.parse()?,
            "uid" => entry.uid = Some(value.parse()?),
            "program" => entry.program_id = value.parse()?,
            "file" => entry.detail = Detail::of(&InterpreterTarget::Word(value.into()), Path::new("/")),
            "text" => entry.detail = Detail::Text(value.into()),
            "unit" => entry.detail = Detail::Unit(value.into()),
            "name" => entry.detail = Detail::Name(value.into()),
            "bytes" => entry.executable.bytes = value.parse()?,
            _ => return Err(format!("unknown option '{name}'").into()),
        }
    }
    Ok(entry)
}

fn nobody(number: u64) -> Entry {
    Entry {
        executable: Executable { dev: u64::MAX, ino: number, mtime_ns: 0, bytes: 0 },
        detail: Detail::None,
        uid: None,
        candidate: imas_abi::CANDIDATE_SYSTEM,
        trials: vec![],
        flags: 0,
        program_id: number,
    }
}
