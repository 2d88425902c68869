// SPDX-License-Identifier: Apache-2.0
//! The candidate to advise where glibc's heaps hold pages that a trim would return.

use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::serving::candidate::RealCandidates;

/// Fewer bytes do not justify a restart.
pub const LEAST_BYTES: u64 = 8 << 20;

/// The advised candidate: glibc itself, which gives pages back while the program lives. If there are several, the one
/// with the most settings, which leave it less to give back. None where the catalogue has none.
#[must_use]
pub fn candidate(among: &RealCandidates) -> Option<&str> {
    own(among).max_by_key(|one| one.environment.len()).map(|one| one.name.as_str())
}

/// The candidate to be tried unasked: of those, the one with the fewest settings, which changes least beside giving pages
/// back.
#[must_use]
pub fn careful(among: &RealCandidates) -> Option<&str> {
    own(among).min_by_key(|one| one.environment.len()).map(|one| one.name.as_str())
}

/// The candidates of glibc, for every program, that give pages back.
fn own(among: &RealCandidates) -> impl Iterator<Item = &CatalogueCandidate> {
    let is_own =
        |one: &&CatalogueCandidate| one.allocator == "glibc" && one.give_back && one.runtime.is_none();
    among.all().iter().filter(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, give_back: bool, settings: usize) -> CatalogueCandidate {
        CatalogueCandidate {
            name: name.into(),
            allocator: name.split(':').next().unwrap().into(),
            give_back,
            environment: (0..settings).map(|number| (number.to_string(), String::new())).collect(),
            ..CatalogueCandidate::default()
        }
    }

    #[test]
    fn it_gives_back_and_is_glibc() {
        let all = [
            named("glibc:any", true, 0),
            named("glibc:set", true, 1),
            named("glibc:keeps", false, 2),
            named("jemalloc:any", true, 2),
        ];
        assert_eq!(candidate(&RealCandidates::of(&all)), Some("glibc:set"));
        assert_eq!(careful(&RealCandidates::of(&all)), Some("glibc:any"));
        let others = RealCandidates::of(&all[2..]);
        assert_eq!((candidate(&others), careful(&others)), (None, None));
    }
}
