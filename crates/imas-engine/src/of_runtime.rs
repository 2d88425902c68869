// SPDX-License-Identifier: Apache-2.0
//! The candidates of a comparison that are for its program alone: settings of its runtime, and allocators that are
//! built for musl.

use anyhow::Result;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::running_runtime::RunningRuntime;
use imas_store::Store;

use crate::compared::{ComparedCandidate, for_program, of_runtime};
use crate::context::Context;
use crate::inline_candidate::inline_candidates;
use crate::inspect::ExecutableFacts;
use crate::musl;
use crate::runtime_command::{RuntimeCommand, seen_arguments};

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
            Ok(fitted) => (fitted, context.obstacle(candidate, store)),
            Err(why) => (candidate.clone(), Some(why)),
        };
        let of_runtime = context.catalogue.of_runtime(runtime.found.runtime);
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
            match musl::candidate(context, candidate) {
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

    /// The candidates as they are for this program, followed by those of its runtime.
    #[must_use]
    pub fn join<'a>(
        &'a self,
        compared: &[ComparedCandidate<'a>],
        executable: &ExecutableFacts,
    ) -> Vec<ComparedCandidate<'a>> {
        let mut all = for_program(compared, &executable.defines);
        if let Some(why) = &executable.unfit {
            // What was not asked for by name, and cannot be, is not spoken of.
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
