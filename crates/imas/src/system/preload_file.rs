// SPDX-License-Identifier: Apache-2.0
//! The text of `/etc/ld.so.preload`, read only: `imas-ldpreload` alone edits it.

use std::path::Path;

/// Entries of the file in order with their line numbers, as the dynamic linker reads them: separated by
/// blank, tab, newline or colon, comments left out as it leaves them out.
pub(super) fn entries(text: &str) -> Vec<(usize, &str)> {
    let seen = without_comments(text.as_bytes());
    let separates = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b':');
    let mut found = vec![];
    let (mut at, mut line) = (0, 1);
    for word in seen.split(|&byte| separates(byte)) {
        let end = at + word.len();
        // Comments are blanked to their line's end or to nowhere: a word is never cut out of the midst of a
        // character.
        if let Some(entry) = text.get(at..end).filter(|entry| !entry.is_empty()) {
            found.push((line, entry));
        }
        line += usize::from(seen.get(end) == Some(&b'\n'));
        at = end + 1;
    }
    found
}

/// Replaces by blanks what glibc takes for comments. After each comment, glibc searches for the next from the
/// beginning of the file, but only as many bytes as follow the comment. So it misses later comments and loads
/// the libraries in them.
fn without_comments(text: &[u8]) -> Vec<u8> {
    let mut seen = text.to_vec();
    let mut rest = seen.len();
    while let Some(comment) = seen[..rest].iter().position(|&byte| byte == b'#') {
        rest -= comment;
        let mut at = comment;
        loop {
            seen[at] = b' ';
            rest -= 1;
            at += 1;
            if rest == 0 || seen[at] == b'\n' {
                break;
            }
        }
    }
    seen
}

/// Text of the file; empty when there is none.
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
    fn entries_are_parsed_as_by_the_linker() {
        let text = "/a.so /b.so:/c.so # /no.so\n\t/d.so\n";
        assert_eq!(entries(text), [(1, "/a.so"), (1, "/b.so"), (1, "/c.so"), (2, "/d.so")]);
        let overlooked = "# a long first comment, longer than the rest\n/a.so\n# /no.so\n";
        assert_eq!(entries(overlooked), [(2, "/a.so"), (3, "#"), (3, "/no.so")]);
        assert_eq!(without(text, "/b.so"), "/a.so\n/c.so\n/d.so\n");
    }
}
