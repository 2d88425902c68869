// SPDX-License-Identifier: Apache-2.0
//! A candidate in a cluster: its name there, and the environment of a container that runs under it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use imas_cli::message::{self, Hinted};
use imas_engine::context::Context;
use imas_engine::lasting;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Libraries, Reach, Variables};

/// Longest value of a label.
const LABEL_LENGTH: usize = 63;

/// Candidates by their names in the cluster, each with its variables.
pub(crate) type Environments = BTreeMap<String, BTreeMap<String, String>>;

/// Name of a candidate in a cluster: a label's value has no colon, question mark or comma.
pub(crate) fn label(candidate: &str) -> String {
    let good = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
    let label: String = candidate.chars().map(|sign| if good(sign) { sign } else { '.' }).collect();
    let is_edge = |sign: char| !sign.is_ascii_alphanumeric();
    let short: String = label.trim_start_matches(is_edge).chars().take(LABEL_LENGTH).collect();
    short.trim_end_matches(is_edge).to_owned()
}

/// The candidate of that name, as a container can have it.
pub(crate) fn taken(context: &Context, name: &str) -> Result<CatalogueCandidate> {
    let candidate = lasting::usable(context, name)?;
    if candidate.runtime.is_some() {
        return Err(Hinted::error(
            format!(
                "{name} is settings of a language runtime: what the pods set themselves would not win in all cases"
            ),
            format!("set them in the workload: imas env --candidate {name} --format kubernetes"),
        ));
    }
    lasting::can_be_taken(&candidate)?;
    Ok(candidate)
}

/// The environment of each candidate, where the libraries are found in the folder `at`.
pub(crate) fn environments(context: &Context, names: &[String], at: &Path) -> Result<Environments> {
    let mut all = Environments::new();
    for name in names {
        let candidate = taken(context, name)?;
        let moved = lasting::moved(&candidate, at);
        let variables = lasting::changes(&Libraries::plain(at), &moved, Reach::Children, &Variables::new())?;
        let escaped = variables.into_iter().map(|(name, value)| (name, value.replace("$(", "$$(")));
        if all.insert(label(name), escaped.collect()).is_some() {
            bail!("{name}: another candidate has the same name in a cluster, {}", label(name));
        }
    }
    if all.is_empty() {
        return Err(Hinted::error("no candidate is named", "'imas list' shows them"));
    }
    Ok(all)
}

/// Says for which images the libraries of these candidates are.
pub(crate) fn warn_of_libraries(context: &Context, names: &[String]) -> Result<()> {
    let candidates = names.iter().map(|name| taken(context, name)).collect::<Result<Vec<_>>>()?;
    message::warning(&format!(
        "for images with {} or later only: in one with musl (Alpine) or an older C library no program of the container would start",
        lasting::oldest_libc(candidates.iter().flat_map(|one| lasting::files(context, one)))
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_the_value_of_a_label() {
        assert_eq!(label("glibc:lean-trim"), "glibc.lean-trim");
        assert_eq!(label("jemalloc?narenas:1"), "jemalloc.narenas.1");
        assert_eq!(label(&"x".repeat(90)).len(), LABEL_LENGTH);
        assert_eq!(label("a?"), "a");
        assert_eq!(label(&format!("{}:y", "x".repeat(62))), "x".repeat(62), "cut at the dot");
    }
}
