// SPDX-License-Identifier: Apache-2.0
//! The candidates of a comparison: what `--with` names, or the default set, and why one cannot be used here.

use anyhow::Result;
use imas_cli::message;
use imas_linux::catalogue::CatalogueCandidate;
use imas_store::Store;

use crate::context::Context;
use crate::inline_candidate::has_settings;
use crate::inspect::ExecutableFacts;
use crate::runtime_command::of_program;
use crate::wrapped;

/// A candidate to be measured, or why it cannot be.
#[derive(Debug, Clone)]
pub struct ComparedCandidate<'a> {
    /// Entry of the candidate in the catalogue.
    pub candidate: &'a CatalogueCandidate,
    /// Why it cannot be used here.
    pub obstacle: Option<String>,
}

/// What is compared without `--with`.
#[derive(Debug, Clone, Copy)]
pub enum DefaultComparison<'a> {
    /// The catalogue's default set.
    DefaultSet,
    /// The catalogue's default set for services.
    ServiceSet,
    /// Candidates of these names, in this order. Names that the catalogue lacks are left out with a warning.
    These(&'a [&'a str]),
}

/// `system` and the candidates that are named (`all`: every one), in the order of the catalogue.
///
/// # Errors
/// When the catalogue lacks a name; the error lists those there are.
pub fn compared<'a>(
    names: &[String],
    default: DefaultComparison<'_>,
    context: &'a Context,
    store: Option<&Store>,
) -> Result<Vec<ComparedCandidate<'a>>> {
    compared_with_inline(names, &[], default, context, store)
}

/// The candidates of [`compared`], followed by `inline`: candidates whose settings are on the command line. A
/// name with settings stands for one of `inline`.
///
/// # Errors
/// When the catalogue lacks a name; the error lists those there are.
pub fn compared_with_inline<'a>(
    names: &[String],
    inline: &'a [CatalogueCandidate],
    default: DefaultComparison<'_>,
    context: &'a Context,
    store: Option<&Store>,
) -> Result<Vec<ComparedCandidate<'a>>> {
    let all = names.iter().any(|name| name == "all");
    for name in names.iter().filter(|name| *name != "all" && !has_settings(name)) {
        context.candidate(name)?;
    }
    let chosen: Vec<&CatalogueCandidate> = match default {
        DefaultComparison::These(these) if names.is_empty() => in_this_order(these, context),
        _ => {
            let is_service = matches!(default, DefaultComparison::ServiceSet);
            let is_chosen = |candidate: &&CatalogueCandidate| match names {
                _ if candidate.is_system() || all => true,
                [] => context.catalogue.is_default(candidate, is_service),
                names => names.contains(&candidate.name),
            };
            context.catalogue.candidates().iter().filter(is_chosen).collect()
        }
    };
    let with_obstacle =
        |candidate| ComparedCandidate { obstacle: context.obstacle(candidate, store), candidate };
    Ok(chosen.into_iter().chain(inline).map(with_obstacle).collect())
}

/// The candidates of [`compared`] that can be used here. A warning names each one that cannot, with the
/// reason.
///
/// # Errors
/// When the catalogue lacks a name; the error lists those there are.
pub fn usable<'a>(
    names: &[String],
    default: DefaultComparison<'_>,
    context: &'a Context,
) -> Result<Vec<&'a CatalogueCandidate>> {
    let store = context.open_store().ok(); // only a cache here
    let mut usable = Vec::new();
    for ComparedCandidate { candidate, obstacle } in compared(names, default, context, store.as_ref())? {
        match obstacle {
            None => usable.push(candidate),
            Some(why) => message::warning(&format!("{} is left out: {why}", candidate.name)),
        }
    }
    Ok(usable)
}

/// The candidates as they are for a program that defines these functions of libc. A candidate that calls one
/// of them has that as its obstacle.
#[must_use]
pub fn for_program<'a>(compared: &[ComparedCandidate<'a>], defined: &[String]) -> Vec<ComparedCandidate<'a>> {
    let for_program = |one: &ComparedCandidate<'a>| ComparedCandidate {
        candidate: one.candidate,
        obstacle: one.obstacle.clone().or_else(|| wrapped::obstacle(one.candidate, defined)),
    };
    compared.iter().map(for_program).collect()
}

/// Candidates of a program's runtime that a comparison has: those that are named (`all`: every one), else the
/// ones that are tested by default. A name of another runtime is among them, for the reason why it is not used.
#[must_use]
pub fn of_runtime<'a>(
    names: &[String],
    context: &'a Context,
    executable: &ExecutableFacts,
) -> Vec<&'a CatalogueCandidate> {
    let all = names.iter().any(|name| name == "all");
    let own: Vec<_> = of_program(&context.catalogue, executable).collect();
    let is_wanted = |one: &&CatalogueCandidate| match names {
        [] => one.default && own.contains(one),
        _ if all => own.contains(one),
        names => names.contains(&one.name),
    };
    context.catalogue.all().filter(|one| one.runtime.is_some()).filter(is_wanted).collect()
}

fn in_this_order<'a>(these: &[&str], context: &'a Context) -> Vec<&'a CatalogueCandidate> {
    let mut found: Vec<&CatalogueCandidate> = Vec::new();
    for name in these {
        match context.catalogue.find(name) {
            Some(candidate) => found.push(candidate),
            None => message::warning(&format!("{name} is left out: it is not in the catalogue")),
        }
    }
    found
}
