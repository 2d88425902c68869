// SPDX-License-Identifier: Apache-2.0
//! The candidates of a comparison: what `--with` names, or the default set, settings of the program's runtime, allocators
//! that are built for musl, and why one cannot be used here.

use anyhow::Result;
use imas_cli::message;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::running_runtime::RunningRuntime;
use imas_store::Store;

use crate::context::Context;
use crate::inline_candidate::{inline_candidates, is_typed};
use crate::inspect::ExecutableFacts;
use crate::runtime_command::{self, RuntimeCommand, of_program, seen_arguments};

/// A candidate to be measured, or why it cannot be.
#[derive(Debug, Clone)]
pub struct ComparedCandidate<'a> {
    /// Entry of the candidate in the catalogue.
    pub candidate: &'a CatalogueCandidate,
    /// Why it cannot be used here.
    pub obstacle: Option<String>,
}

/// Candidates to compare without `--with`.
#[derive(Debug, Clone, Copy)]
pub enum DefaultComparison<'a> {
    /// The catalogue's default set.
    DefaultSet,
    /// The catalogue's default set for services.
    ServiceSet,
    /// Candidates of these names, in this order. Names that the catalogue lacks are left out with a warning.
    These(&'a [&'a str]),
}

/// Candidates with trims from outside that a server is compared under by default.
const TRIMMED: [&str; 2] = ["system+trims", "glibc:arena1+trims"];

/// The typed candidates of a comparison of servers: those that `with` names, else `system+trims` and `glibc:arena1+trims`.
///
/// # Errors
/// When a typed name is wrong.
pub fn typed_for_services(with: &[String], context: &Context) -> Result<Vec<CatalogueCandidate>> {
    match with {
        [] => inline_candidates(&TRIMMED.map(str::to_owned), context),
        with => inline_candidates(with, context),
    }
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
    for name in names.iter().filter(|name| *name != "all" && !is_typed(name)) {
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
        obstacle: one.obstacle.clone().or_else(|| runtime_command::wrapped_obstacle(one.candidate, defined)),
    };
    compared.iter().map(for_program).collect()
}

/// Candidates of a program's runtime and of the kernel that a comparison has: those that are named (`all`: every one), else
/// the ones that are tested by default. A name of another runtime is among them, for the reason why it is not used.
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
        _ if all => own.contains(one) || one.is_huge_pages(),
        names => names.contains(&one.name),
    };
    let is_bare = |one: &&CatalogueCandidate| one.runtime.is_some() || one.is_huge_pages();
    context.catalogue.all().filter(is_bare).filter(is_wanted).collect()
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

// The candidates of a comparison that are for its program alone: settings of its runtime, and allocators that are
// built for musl.

/// Candidates of the runtime that are asked for, with their settings for one command; or why it does not get
/// one.
#[derive(Debug)]
pub struct OfRuntime {
    candidates: Vec<(CatalogueCandidate, Option<String>)>,
    /// Candidates were asked for by name.
    is_named: bool,
    /// Allocators that are built for musl are among the candidates.
    has_musl: bool,
}

impl OfRuntime {
    /// The candidates of the command that `names` name, or all that are tested by default.
    #[must_use]
    pub fn find(
        command: &RuntimeCommand<'_>,
        names: &[String],
        context: &Context,
        store: Option<&Store>,
    ) -> Self {
        let fitted = |candidate: &CatalogueCandidate| match command.fitted(candidate, store) {
            Ok(fitted) => {
                let seen = || seen_arguments(&fitted, command.executable).filter(|_| names.is_empty());
                let obstacle = context.obstacle(candidate, store).or_else(|| seen().map(str::to_owned));
                (fitted, obstacle)
            }
            Err(why) => (candidate.clone(), Some(why)),
        };
        let wanted = of_runtime(names, context, command.executable);
        let candidates = wanted.into_iter().map(fitted).collect();
        Self { candidates, is_named: !names.is_empty(), has_musl: false }
    }

    /// The candidates of the runtime of a process that a start script has started; `names` as above.
    #[must_use]
    pub fn behind_a_script(
        runtime: &RunningRuntime,
        names: &[String],
        context: &Context,
        store: Option<&Store>,
    ) -> Self {
        let all = names.iter().any(|name| name == "all");
        let is_wanted = |candidate: &&CatalogueCandidate| match names {
            [] => candidate.default,
            names => all || names.contains(&candidate.name),
        };
        let fitted = |candidate: &CatalogueCandidate| match runtime.fitted_behind_a_script(candidate) {
            _ if candidate.is_huge_pages() => (candidate.clone(), context.obstacle(candidate, store)),
            Ok(fitted) => (fitted, context.obstacle(candidate, store)),
            Err(why) => (candidate.clone(), Some(why)),
        };
        let of_runtime = context.catalogue.of_runtime(runtime.found.runtime);
        let of_runtime = of_runtime.chain(context.catalogue.of_the_kernel());
        let candidates = of_runtime.filter(is_wanted).map(fitted).collect();
        Self { candidates, is_named: !names.is_empty(), has_musl: false }
    }

    /// Adds the allocators that are asked for, as a program of musl gets them.
    ///
    /// # Errors
    /// When a name with settings in it is no candidate.
    pub fn with_musl(
        mut self,
        names: &[String],
        context: &Context,
        executable: &ExecutableFacts,
    ) -> Result<Self> {
        if !executable.fits_musl {
            return Ok(self);
        }
        let all = names.iter().any(|name| name == "all");
        let is_wanted = |candidate: &&CatalogueCandidate| match names {
            _ if candidate.is_system() => false,
            [] => context.catalogue.is_default(candidate, false),
            names => all || names.contains(&candidate.name),
        };
        let typed = inline_candidates(names, context)?;
        for candidate in context.catalogue.candidates().iter().filter(is_wanted).chain(&typed) {
            match runtime_command::candidate_of_musl(context, candidate) {
                Ok(built) => self.candidates.push((built, None)),
                Err(why) if !names.is_empty() => self.candidates.push((candidate.clone(), Some(why))),
                Err(_) => {}
            }
        }
        self.has_musl = true;
        Ok(self)
    }

    /// Why nothing can be measured but `system`.
    #[must_use]
    pub fn why_nothing<'a>(&self, executable: &'a ExecutableFacts) -> Option<&'a String> {
        let has_settings = self.candidates.iter().any(|(_, obstacle)| obstacle.is_none());
        executable.unfit.as_ref().filter(|_| !has_settings)
    }

    /// The candidates as they are for this program, followed by the candidates of its runtime.
    #[must_use]
    pub fn join<'a>(
        &'a self,
        compared: &[ComparedCandidate<'a>],
        executable: &ExecutableFacts,
    ) -> Vec<ComparedCandidate<'a>> {
        let mut all = for_program(compared, &executable.defines);
        if let Some(why) = &executable.unfit {
            // A candidate that was not asked for by name, and cannot be given, is not mentioned.
            all.retain(|one| one.candidate.is_system() || (self.is_named && !self.has_musl));
            for one in all.iter_mut().filter(|one| !one.candidate.is_system()) {
                one.obstacle = Some(why.clone());
            }
        }
        let own = self.candidates.iter();
        all.extend(
            own.map(|(candidate, obstacle)| ComparedCandidate { candidate, obstacle: obstacle.clone() }),
        );
        all
    }
}
