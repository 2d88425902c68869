// SPDX-License-Identifier: Apache-2.0
//! The licences that come along with libraries that are taken elsewhere.

use anyhow::Result;
use imas_cli::message::Hinted;
use imas_linux::catalogue::CatalogueCandidate;

use crate::context::Context;

/// The licence of IMAS, for the guard and for the layer that IMAS adds to each allocator.
pub const OURS: &str = include_str!("../../../LICENSE");
/// File with the licences of the allocators, written by the build.
const LICENCES: &str = "licences.txt";

/// The licence of IMAS and the unchanged licences of the allocator.
///
/// # Errors
/// If the licence of the allocator is not there.
pub fn of(context: &Context, candidate: &CatalogueCandidate) -> Result<String> {
    let ours = format!("IMAS (libimas-guard.so and the layer over each allocator):\n\n{OURS}\n");
    let Some(library) = &candidate.library else { return Ok(ours) };
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    // The textbook allocators are part of IMAS.
    if name.starts_with("libimas-") {
        return Ok(ours);
    }
    if candidate.added {
        return Ok(format!("{ours}{name}: {}\n", candidate.licence));
    }
    let file = context.lib_dir.join(LICENCES);
    let all = std::fs::read_to_string(&file).unwrap_or_default();
    let theirs = sections_of(&all, &name);
    if theirs.is_empty() {
        return Err(Hinted::error(
            format!("{}: the licence of {name} is not there, and must come along", file.display()),
            "'make allocators' writes it; an installed IMAS has it",
        ));
    }
    Ok(ours + &theirs)
}

/// Selects the sections whose title names the library. A title stands between two lines of equals signs.
fn sections_of(all: &str, library: &str) -> String {
    let rule = "=".repeat(78);
    let parts: Vec<_> = all.split(rule.as_str()).collect();
    let is_of = |title: &str| title.trim_start().starts_with(&format!("{library}, "));
    let sections = parts.windows(2).filter(|pair| is_of(pair[0]));
    sections.map(|pair| format!("{rule}{}{rule}{}", pair[0], pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_licences_of_one_library_are_found() {
        let rule = "=".repeat(78);
        let all =
            format!("\n{rule}\nliba.so, from x: L\n{rule}\n\nA\n\n{rule}\nlibb.so, from y: L\n{rule}\n\nB\n");
        let b = sections_of(&all, "libb.so");
        assert!(b.contains("libb.so, from y") && b.contains("\nB\n") && !b.contains("liba.so"), "{b}");
        assert_eq!(sections_of(&all, "libc.so"), "");
    }
}
