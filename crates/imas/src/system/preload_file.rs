// SPDX-License-Identifier: Apache-2.0
//! The text of `/etc/ld.so.preload`, read only: `imas-ldpreload` alone edits it.

use std::path::Path;

/// Its entries in order with their line numbers, as the dynamic linker reads them: separated by blank, tab, newline or colon;
/// `#` begins a comment.
pub(super) fn entries(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().zip(1..);
    lines
        .flat_map(|(line, number)| {
            let said = line.split('#').next().unwrap_or_default();
            said.split([' ', '\t', ':']).filter(|entry| !entry.is_empty()).map(move |entry| (number, entry))
        })
        .collect()
}

/// Its text; empty when there is none.
pub(super) fn read(file: &Path) -> std::io::Result<String> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// The text without that entry, for a rehearsal: entries one to a line.
pub(super) fn without(text: &str, entry: &str) -> String {
    let others = entries(text).into_iter().filter(|&(_, other)| other != entry);
    others.map(|(_, other)| format!("{other}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_what_the_linker_sees() {
        let text = "/a.so /b.so:/c.so # /no.so\n#/no.so\n\t/d.so#/no.so\n";
        assert_eq!(entries(text), [(1, "/a.so"), (1, "/b.so"), (1, "/c.so"), (3, "/d.so")]);
        assert_eq!(without(text, "/b.so"), "/a.so\n/c.so\n/d.so\n");
    }
}
