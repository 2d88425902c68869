// SPDX-License-Identifier: Apache-2.0
//! `--replay`: the default policy with predictions as a prior, and what it is compared with.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use imas_core::adaptive::Settings;
use imas_core::simulate::{Contender, PriorBasis, Replays, SimulatedProgram};
use imas_report::message::{self, Hinted};

/// The default policy with a prior.
pub(super) struct Priors {
    /// From the program's own replays.
    pub(super) replay: Contender,
    /// From what the candidates did to other programs.
    pub(super) others: Contender,
}

impl Priors {
    /// From a file of predictions. Of the programs those remain that it knows. How far off they were is written to
    /// `reliability`, if that is named.
    pub(super) fn read(
        file: &Path,
        reliability: Option<&Path>,
        programs: &mut Vec<SimulatedProgram>,
    ) -> Result<Self> {
        const MADE_BY: &str = "--replay names a file that 'imas-lab study replay' has written";
        let text = imas_runs::data::read(file)?;
        let replays = Replays::read(&text);
        if let [first, others @ ..] = replays.unread.as_slice() {
            let and =
                if others.is_empty() { String::new() } else { format!("; {} more lines", others.len()) };
            message::warning(&format!(
                "{}: line {first} is no prediction and is skipped{and}",
                file.display()
            ));
        }
        let all = programs.len();
        programs.retain(|program| replays.knows(&program.name));
        if programs.is_empty() {
            let why = format!("{}: no prediction for any of the {all} programs of the data", file.display());
            return Err(Hinted::error(why, MADE_BY));
        }
        if programs.len() < all {
            message::say(&format!(
                "imas-lab: note: {} of {all} programs have no predictions and are left out",
                all - programs.len()
            ));
        }
        if let Some(to) = reliability {
            let source = format!("imas-lab simulate --reliability, {} programs", programs.len());
            let table = serde_json::to_string_pretty(&replays.reliability(programs, &source))?;
            std::fs::write(to, table + "\n").with_context(|| to.display().to_string())?;
        }
        let with = |name: &str, basis| Contender::WithPrior {
            name: name.to_owned(),
            settings: Settings::default(),
            priors: Arc::new(replays.held_out(programs, basis)),
        };
        Ok(Self {
            replay: with("adaptive + replay", PriorBasis::Replay),
            others: with("adaptive + others", PriorBasis::OtherPrograms),
        })
    }
}

/// What is compared when nothing is named.
pub(super) fn baselines(priors: &Priors) -> Vec<Contender> {
    vec![
        Contender::Adaptive(Settings::default()),
        priors.replay.clone(),
        priors.others.clone(),
        Contender::Once,
        Contender::All,
        Contender::Always(imas_core::SYSTEM.to_owned()),
    ]
}
