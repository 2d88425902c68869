// SPDX-License-Identifier: Apache-2.0
//! Which candidate is meant by a name that the catalogue does not have.

/// How alike two names have to be, from 0 to 1: one letter wrong, missing or swapped.
const ALIKE: f64 = 0.8;

/// Candidates of earlier catalogues, each with what is used in its place: no command that was measured gained by them.
const GONE: [(&str, &str); 3] =
    [("cpython:jemalloc", "jemalloc"), ("cpython:lean", "glibc:lean"), ("php:mimalloc", "php:lean")];

/// The candidate that is used in place of one that an earlier catalogue had.
#[must_use]
pub fn in_place_of(gone: &str) -> Option<&'static str> {
    GONE.iter().find(|(name, _)| *name == gone).map(|(_, instead)| *instead)
}

/// The name that is most like the word; None when none is much like it.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |name: &'a str| (strsim::jaro_winkler(word, name), name);
    let alike = names.into_iter().map(likeness).filter(|(alike, _)| *alike > ALIKE);
    alike.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_name_is_meant_if_any() {
        let names = ["jemalloc", "mimalloc", "tcmalloc", "glibc:lean"];
        assert_eq!(nearest("jmalloc", names), Some("jemalloc"));
        assert_eq!(nearest("mimaloc", names), Some("mimalloc"));
        assert_eq!(nearest("glibc-lean", names), Some("glibc:lean"));
        assert_eq!(nearest("firefox", names), None);
    }
}
