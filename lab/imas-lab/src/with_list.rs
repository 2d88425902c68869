// SPDX-License-Identifier: Apache-2.0
//! Candidates that `--with` names where each program has some of its own beside those for every program:
//! settings of its language runtime.

use anyhow::Result;
use imas_engine::compared::{DefaultComparison, usable};
use imas_engine::context::Context;
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};

/// Word of `--with` for all candidates that are settings of a program's runtime, or of the kernel.
const SETTINGS: &str = "settings";

/// The candidates for every program: those that are named, else the default ones.
pub(crate) fn for_every_program<'a>(
    with: &[String],
    default: DefaultComparison<'_>,
    context: &'a Context,
) -> Result<Vec<&'a CatalogueCandidate>> {
    let names: Vec<String> = with.iter().filter(|name| *name != SETTINGS).cloned().collect();
    let default = if names.len() < with.len() { DefaultComparison::These(&[SYSTEM]) } else { default };
    usable(&names, default, context)
}

/// The names by which a program gets candidates of its runtime ([`imas_engine::compared::of_runtime`]).
pub(crate) fn names_for_runtimes(with: &[String]) -> Vec<String> {
    let is_all = with.iter().any(|name| name == SETTINGS);
    if is_all { vec!["all".to_owned()] } else { with.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_stands_for_all_settings() {
        let names = |with: &[&str]| {
            names_for_runtimes(&with.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names(&["glibc:arena1", "settings"]), ["all"]);
        assert_eq!(names(&["glibc:arena1", "jvm:serial"]), ["glibc:arena1", "jvm:serial"]);
        assert_eq!(names(&[]), [""; 0]);
    }
}
