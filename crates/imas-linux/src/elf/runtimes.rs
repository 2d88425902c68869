// SPDX-License-Identifier: Apache-2.0
//! Which language runtimes a file shows: by a section, its symbols and the texts of small launchers.

use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::headers::{Headers, Part};
use super::symbols;
use crate::runtime::{FoundRuntime, GO_BUILD_BYTES, Marker, Runtime, RuntimeEntry, go_version, is_version};

/// Launchers that open their runtime later are small; the texts of larger programs are not looked at.
const MOST_LAUNCHER_BYTES: u64 = 1 << 20;
/// Bytes that a linker may leave behind the last part of a file.
const LARGEST_PADDING: u64 = 16;
/// Libraries by which a version is known: what stands between these two is the version.
const VERSIONED: [(Runtime, &str, &str); 3] = [
    (Runtime::Cpython, "libpython", ".so"),
    (Runtime::Ruby, "libruby-", ".so"),
    (Runtime::Ruby, "libruby.so.", ""),
];

/// A function for modules in C that Node.js exports since 18.18 and 20.4.
const OF_NEW_NODE: &str = "node_api_create_external_string_latin1";
/// The first number of `libnode.so.N` of Node.js 20: the number of its binary interface.
const INTERFACE_OF_NODE_20: u32 = 115;

/// The runtimes of the file, each once. At most `left` bytes of it are read. A file that cannot be read to
/// that end shows none: nothing depends on it.
pub(super) fn of<R: Read + Seek>(
    source: &mut R,
    headers: &Headers,
    left: u64,
    path: &Path,
) -> Vec<FoundRuntime> {
    let mut found = found(source, headers, left).unwrap_or_default();
    let is_packed = is_packed(source, headers).unwrap_or(true);
    for one in &mut found {
        if one.entry == RuntimeEntry::Own && (is_packed || !is_interpreter(one.runtime, headers, path)) {
            one.entry = RuntimeEntry::Inside;
        }
    }
    found
}

/// Whether an application is packed into the file: behind its end, or in a note.
fn is_packed(source: &mut (impl Read + Seek), headers: &Headers) -> io::Result<bool> {
    // A file that says it ends beyond all numbers has nothing behind its end.
    let end = headers.end.checked_next_multiple_of(LARGEST_PADDING).unwrap_or(u64::MAX);
    Ok(headers.has_application || source.seek(SeekFrom::End(0))? > end)
}

/// Whether the file is the interpreter, and not an application with one inside, which would be started when the
/// interpreter is asked something. It is one if it has the runtime from the runtime's library. If it defines the
/// runtime itself, its name must be the interpreter's too.
fn is_interpreter(runtime: Runtime, headers: &Headers, path: &Path) -> bool {
    let name = match runtime {
        Runtime::Jvm => "java",
        Runtime::Node => "node",
        Runtime::Cpython => "python",
        Runtime::Ruby => "ruby",
        Runtime::Php => "php",
        // Their programs are not asked.
        Runtime::Go | Runtime::Ocaml | Runtime::Beam | Runtime::Dotnet => return true,
    };
    let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
    library_of(runtime, headers).is_some() || file.starts_with(name)
}

fn found<R: Read + Seek>(source: &mut R, headers: &Headers, left: u64) -> io::Result<Vec<FoundRuntime>> {
    let mut found: Vec<FoundRuntime> = go(source, headers.go_build)?.into_iter().collect();
    // The texts of a launcher are read twice at most.
    let left_for_symbols = left.saturating_sub(2 * MOST_LAUNCHER_BYTES);
    let (markers, is_new_node) = symbol_markers(source, headers, left_for_symbols)?;
    for marker in markers {
        let by = match library_of(marker.runtime, headers) {
            Some(library) => format!("linked with {library}, uses {}", marker.name),
            None => format!("has the symbol {}", marker.name),
        };
        let oldest = || oldest(marker.runtime, is_new_node).map(str::to_owned);
        add(&mut found, marker, by, version(marker.runtime, headers).or_else(oldest));
    }
    for marker in text_markers(source, headers)? {
        add(&mut found, marker, format!("has the text {}", marker.name), None);
    }
    if let Some(jvm) =
        found.iter_mut().find(|one| one.runtime == Runtime::Jvm && one.entry == RuntimeEntry::Own)
        && is_tool(source, headers)?
    {
        jvm.entry = RuntimeEntry::Tool;
    }
    Ok(found)
}

/// Adds a runtime. The first marker counts; a program that enters a runtime itself is not only around it.
fn add(found: &mut Vec<FoundRuntime>, marker: Marker, by: String, version: Option<String>) {
    match found.iter_mut().find(|one| one.runtime == marker.runtime) {
        Some(known) if marker.entry == RuntimeEntry::Own => known.entry = RuntimeEntry::Own,
        Some(_) => {}
        None => found.push(FoundRuntime { runtime: marker.runtime, by, version, entry: marker.entry }),
    }
}

fn go(source: &mut (impl Read + Seek), section: Option<Part>) -> io::Result<Option<FoundRuntime>> {
    let Some(part) = section else { return Ok(None) };
    let mut bytes = vec![];
    source.seek(SeekFrom::Start(part.offset))?;
    source.take(part.bytes.min(GO_BUILD_BYTES as u64)).read_to_end(&mut bytes)?;
    let found = |version| FoundRuntime {
        runtime: Runtime::Go,
        by: "has the section .go.buildinfo".to_owned(),
        version,
        entry: RuntimeEntry::Own,
    };
    Ok(go_version(&bytes).map(found))
}

/// The function by which a program of Go becomes another one. It is in the program only if it is called.
const EXEC_OF_GO: &str = "syscall.Exec";

/// Whether a program of Go replaces itself, which it does by an instruction of its own.
pub(super) fn execs_itself(
    source: &mut (impl Read + Seek),
    headers: &Headers,
    left: u64,
) -> io::Result<bool> {
    let Some(names) = headers.go_names else { return Ok(false) };
    Ok(!symbols::among(source, names, left, &[EXEC_OF_GO])?.is_empty())
}

/// Markers among the names of the dynamic symbols, else of all symbols: a program that exports nothing, or is
/// static, has no others. With them, whether a function of newer versions of Node.js is there.
fn symbol_markers(
    source: &mut (impl Read + Seek),
    headers: &Headers,
    left: u64,
) -> io::Result<(Vec<Marker>, bool)> {
    let wanted: Vec<_> = Marker::SYMBOLS.iter().map(|marker| marker.name).chain([OF_NEW_NODE]).collect();
    let dynamic = headers.table.map(|table| table.names);
    let mut left = left;
    for part in [dynamic, headers.other_names].into_iter().flatten() {
        let names = symbols::among(source, part, left, &wanted)?;
        left = left.saturating_sub(part.bytes);
        let markers: Vec<_> =
            Marker::SYMBOLS.into_iter().filter(|marker| names.contains(marker.name)).collect();
        if !markers.is_empty() {
            return Ok((markers, names.contains(OF_NEW_NODE)));
        }
    }
    Ok((vec![], false))
}

fn text_markers(source: &mut (impl Read + Seek), headers: &Headers) -> io::Result<Vec<Marker>> {
    let mut found = BTreeSet::new();
    each_text(source, headers, |text| {
        found.extend(Marker::TEXTS.iter().position(|marker| marker.name == text));
        false
    })?;
    Ok(found.into_iter().map(|at| Marker::TEXTS[at]).collect())
}

/// Whether the launcher starts a class of the JDK, whose name it has inside.
fn is_tool(source: &mut (impl Read + Seek), headers: &Headers) -> io::Result<bool> {
    each_text(source, headers, |text| {
        text == "-m" || text.starts_with("com.sun.tools.") || text.starts_with("sun.tools.")
    })
}

/// Texts of the launcher alone: an application may be packed behind its end.
fn each_text(
    source: &mut (impl Read + Seek),
    headers: &Headers,
    mut is_wanted: impl FnMut(&str) -> bool,
) -> io::Result<bool> {
    let mut left = headers.end;
    if left > MOST_LAUNCHER_BYTES {
        return Ok(false);
    }
    symbols::any_text(source, &mut left, |_, text| is_wanted(text))
}

fn library_of(runtime: Runtime, headers: &Headers) -> Option<&str> {
    let beginnings: &[&str] = match runtime {
        Runtime::Jvm => &["libjli.so", "libjvm.so"],
        Runtime::Node => &["libnode.so"],
        Runtime::Cpython => &["libpython"],
        Runtime::Ruby => &["libruby"],
        Runtime::Php => &["libphp"],
        Runtime::Ocaml => &["libasmrun", "libcamlrun"],
        Runtime::Dotnet => &["libhostfxr.so", "libcoreclr.so"],
        Runtime::Go | Runtime::Beam => &[],
    };
    let is_it = |library: &&String| beginnings.iter().any(|beginning| library.starts_with(beginning));
    headers.needed.iter().find(is_it).map(String::as_str)
}

fn version(runtime: Runtime, headers: &Headers) -> Option<String> {
    let of_library = |library: &String| {
        VERSIONED.iter().filter(|(of, ..)| *of == runtime).find_map(|(_, before, behind)| {
            let rest = library.strip_prefix(before)?;
            let version = if behind.is_empty() { rest } else { rest.split_once(behind)?.0 };
            is_version(version).then(|| version.to_owned())
        })
    };
    let of_node = || node_20(headers).filter(|_| runtime == Runtime::Node);
    headers.needed.iter().find_map(of_library).or_else(of_node)
}

/// The oldest version with the symbols that were found: CPython has its marker since 3.8.
fn oldest(runtime: Runtime, is_new_node: bool) -> Option<&'static str> {
    match runtime {
        Runtime::Node if is_new_node => Some("18.18+"),
        Runtime::Cpython => Some("3.8+"),
        _ => None,
    }
}

/// "20 or later", where the program is linked with a library of Node.js that has such a binary interface.
fn node_20(headers: &Headers) -> Option<String> {
    let number = |library: &String| library.strip_prefix("libnode.so.")?.parse::<u32>().ok();
    let is_new = headers.needed.iter().filter_map(number).any(|number| number >= INTERFACE_OF_NODE_20);
    is_new.then(|| "20+".to_owned())
}
