// SPDX-License-Identifier: Apache-2.0
//! The result as a candidate of the user's catalogue.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_engine::catalogue_files;
use imas_engine::inline_candidate::inline_candidate;
use serde::Serialize;

use crate::context::Context;
use crate::message::Hinted;
use crate::tune_args::TuneArgs;

/// A candidate that was added.
#[derive(Debug, Serialize)]
pub(super) struct NamedCandidate {
    pub(super) name: String,
    pub(super) file: PathBuf,
}

/// One file of the user's catalogue.
#[derive(Serialize)]
struct CatalogueFile {
    schema: u32,
    candidate: Vec<CatalogueEntry>,
}

#[derive(Serialize)]
struct CatalogueEntry {
    name: String,
    allocator: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    library: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    origin: String,
    licence: String,
    summary: String,
    environment: BTreeMap<String, String>,
}

/// Writes the settings into a file of the user's catalogue. An earlier result of the same name is replaced.
pub(super) fn add(settings: &str, args: &TuneArgs, context: &Context) -> Result<NamedCandidate> {
    let candidate = inline_candidate(settings, context)?;
    let label = args.name.clone().unwrap_or_else(|| format!("tuned-{}", plain_word(&program(args))));
    let name = format!("{}:{label}", candidate.allocator);
    let folder = catalogue_files::folder_of_user().ok_or_else(|| {
        Hinted::error("there is no folder for your catalogue", "set HOME, or XDG_CONFIG_HOME")
    })?;
    let file = folder.join(format!("{}.toml", name.replace(':', "-")));
    let taken = context.catalogue.find(&name).filter(|known| known.defined.0 != file);
    if let Some(known) = taken {
        return Err(Hinted::error(
            format!("{name} is in the catalogue already: {}", known.defined.0.display()),
            "choose another name with --name",
        ));
    }
    let entry = CatalogueEntry {
        name: name.clone(),
        allocator: candidate.allocator,
        library: candidate.library,
        version: candidate.version,
        origin: candidate.origin,
        licence: candidate.licence,
        summary: format!("Found by imas tune for {}: {settings}", program(args)),
        environment: candidate.environment,
    };
    write(&folder, &file, &CatalogueFile { schema: 1, candidate: vec![entry] })?;
    Ok(NamedCandidate { name, file })
}

fn write(folder: &Path, file: &Path, contents: &CatalogueFile) -> Result<()> {
    let named = || file.display().to_string();
    std::fs::create_dir_all(folder).with_context(named)?;
    let mut whole = tempfile::NamedTempFile::new_in(folder).with_context(named)?;
    std::io::Write::write_all(&mut whole, toml::to_string(contents)?.as_bytes()).with_context(named)?;
    whole.persist(file).map_err(|error| error.error).with_context(named)?;
    Ok(())
}

/// The name of the command's file.
fn program(args: &TuneArgs) -> String {
    let first = args.command.first().map(Path::new).and_then(Path::file_name);
    first.map_or_else(|| "program".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// What a candidate's name may have in it.
fn plain_word(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(plain).collect::<String>().trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_other_letters_than_the_catalogue_takes() {
        assert_eq!(plain_word("Python3.11"), "python3-11");
        assert_eq!(plain_word("[weird] näme"), "weird--n-me");
    }
}
