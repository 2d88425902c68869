// SPDX-License-Identifier: Apache-2.0
//! A catalogue file as it is written, and what it may contain.
//!
//! Libraries of the distribution: where the loader would find them, and which build they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::CatalogueCandidate;
use crate::elf;
use crate::huge_pages::HugePages;
use crate::runtime::{Runtime, RuntimeSettings, VersionRange};

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) schema: u32,
    #[serde(default)]
    pub(super) candidate: Vec<toml::Spanned<toml::Table>>,
}

/// One `[[candidate]]` table. The keys are described at the top of `allocators/catalogue.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    allocator: Option<String>,
    library: Option<PathBuf>,
    needs: Option<String>,
    version: Option<String>,
    #[serde(default)]
    origin: String,
    #[serde(default)]
    licence: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    default: bool,
    #[serde(default)]
    service_default: bool,
    page_size: Option<u64>,
    huge_pages: Option<HugePages>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    withheld: Option<String>,
    runtime: Option<Runtime>,
    #[serde(default)]
    versions: String,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    yields_to: Vec<String>,
    #[serde(default)]
    accept: Vec<String>,
    /// Built with the laboratory, which may not be installed.
    #[serde(default)]
    laboratory: bool,
    // Whether it can be opened in a running process, and why not: for people and for the conformance kit.
    #[serde(default, rename = "dlopen")]
    _dlopen: bool,
    #[serde(rename = "dlopen_reason")]
    _dlopen_reason: Option<String>,
}

impl Entry {
    /// Checks the entry. The error is what is wrong with it, as a sentence.
    pub(super) fn check(&self, added: bool) -> Result<(), String> {
        let name = &self.name;
        if !is_candidate_name(name) {
            return Err(format!("candidate name '{name}': use a-z, 0-9, '-', '_', '.' and one ':'"));
        }
        let forbidden = |key: &&String| key.starts_with("LD_") || key.starts_with("IMAS_");
        if let Some(variable) = self.environment.keys().find(forbidden) {
            return Err(format!("candidate '{name}': its environment may not set {variable}"));
        }
        let is_name = |key: &str| !key.is_empty() && !key.bytes().any(|b| b == b'=' || b == 0);
        let bad = self.environment.iter().find(|(key, value)| !is_name(key) || value.contains('\0'));
        if let Some((variable, _)) = bad {
            return Err(format!("candidate '{name}': '{variable}' cannot be set in an environment"));
        }
        self.check_runtime().map_err(|why| format!("candidate '{name}': {why}"))?;
        match &self.library {
            Some(library) if added && library.is_relative() => {
                let shown = library.display();
                Err(format!("candidate '{name}': library '{shown}' is a relative path: give the whole one"))
            }
            _ if !added && !self.accept.is_empty() => {
                Err(format!("candidate '{name}': 'accept' is for added candidates only"))
            }
            None if self.needs.is_some() => Err(format!("candidate '{name}': 'needs' is for a library")),
            _ => Ok(()),
        }
    }

    fn check_runtime(&self) -> Result<(), String> {
        let Some(settings) = self.runtime_settings()? else {
            let none = self.versions.is_empty() && self.arguments.is_empty() && self.yields_to.is_empty();
            return if none {
                Ok(())
            } else {
                Err("'versions', 'arguments' and 'yields_to' need a 'runtime'".into())
            };
        };
        if self.library.is_some() && settings.runtime.starts_bare() {
            return Err(format!("nothing can be loaded into programs of {}", settings.runtime.name()));
        }
        if self.environment.is_empty() && self.arguments.is_empty() {
            return Err("it sets nothing in the runtime".to_owned());
        }
        settings.check(self.environment.values())
    }

    fn runtime_settings(&self) -> Result<Option<RuntimeSettings>, String> {
        let Some(runtime) = self.runtime else { return Ok(None) };
        let versions = VersionRange::parse(&self.versions)
            .ok_or_else(|| format!("'{}' is no range of versions, such as '>=17,<21'", self.versions))?;
        let (arguments, yields_to) = (self.arguments.clone(), self.yields_to.clone());
        Ok(Some(RuntimeSettings { runtime, versions, arguments, yields_to, is_bare: false }))
    }

    /// The allocator, which the name begins with where none is given.
    fn allocator(&self) -> &str {
        let of_name = || self.name.split(':').next().unwrap_or(&self.name);
        self.allocator.as_deref().unwrap_or_else(of_name)
    }

    /// The candidate; `None` when it needs a library that this machine does not have, or is part of a laboratory that is
    /// not installed.
    pub(super) fn into_candidate(self, file: &Path, line: usize, added: bool) -> Option<CatalogueCandidate> {
        let needs = match &self.needs {
            Some(soname) => Some(find_installed(soname)?),
            None => None,
        };
        let allocator = self.allocator().to_owned();
        let runtime = self.runtime_settings().ok().flatten();
        let name = self.name;
        let folder = file.parent().unwrap_or_else(|| Path::new("/"));
        let library = self.library.map(|library| folder.join(library));
        if self.laboratory && !library.as_deref().is_some_and(Path::exists) {
            return None;
        }
        Some(CatalogueCandidate {
            allocator,
            library,
            version: self.version.or_else(|| needs.as_deref().and_then(build_of)),
            origin: self.origin,
            licence: self.licence,
            summary: self.summary,
            default: self.default,
            service_default: self.service_default,
            page_size: self.page_size,
            trims: false,
            huge_pages: self.huge_pages,
            environment: self.environment,
            runtime,
            needs,
            withheld: self.withheld,
            accept: self.accept,
            added,
            defined: (file.to_owned(), line),
            name,
        })
    }
}

fn is_candidate_name(name: &str) -> bool {
    let plain = |s: &str| {
        !s.is_empty()
            && s.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'))
    };
    let mut parts = name.splitn(2, ':');
    name.len() < imas_abi::CANDIDATE_BYTES
        && parts.next().is_some_and(plain)
        && parts.next().is_none_or(plain)
}

/// The folders of the common distributions, in the order of glibc's loader: multiarch first, then the plain
/// ones.
fn folders() -> impl Iterator<Item = PathBuf> {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let usual =
        [format!("/lib/{multiarch}"), format!("/usr/lib/{multiarch}"), "/lib64".into(), "/usr/lib64".into()];
    let plain = ["/lib", "/usr/lib", "/usr/local/lib"].map(String::from);
    usual.into_iter().chain(plain).map(PathBuf::from)
}

/// The library of that soname, if it is installed.
pub(crate) fn find_installed(soname: &str) -> Option<PathBuf> {
    folders().map(|folder| folder.join(soname)).find(|file| file.is_file())
}

/// `build` and the first 12 digits of its build-id: the version that changes whenever the library does.
/// `None` without one.
#[must_use]
pub fn build_of(library: &Path) -> Option<String> {
    let id = elf::build_id(library).ok()??;
    Some(format!("build {}", id.get(..12).unwrap_or(&id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_with_at_most_one_setting() {
        for good in ["a", "glibc:arena1", "a-b_c.d:e"] {
            assert!(is_candidate_name(good), "{good}");
        }
        for bad in ["", ":", "a:", "A", "a b", "a/b", "a:b:c"] {
            assert!(!is_candidate_name(bad), "{bad}");
        }
    }
}
