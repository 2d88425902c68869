// SPDX-License-Identifier: Apache-2.0
//! `--replay`: the default policy with predictions as a prior, and what it is compared with.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::message::{self, Hinted};
use imas_core::adaptive::Settings;
use imas_simulate::{Contender, HostCorrection, Predictions, PriorBasis, Replays, SimulatedProgram};

/// Contenders that are the default policy with a prior, one for each kind of prior.
pub(super) struct Priors {
    /// Prior from the program's own replays.
    pub(super) replay: Contender,
    /// Prior from what the candidates did to other programs.
    pub(super) others: Contender,
    /// Prior from the program's own replays, on a host of half of the programs: with the table of the other
    /// half.
    pub(super) half: Contender,
    /// Prior of `half`, corrected by the host's own trials.
    pub(super) host: Contender,
}

impl Priors {
    /// Priors from a file of predictions. Programs that the file does not know are removed from `programs`.
    pub(super) fn read(file: &Path, programs: &mut Vec<SimulatedProgram>, seed: u64) -> Result<Self> {
        const MADE_BY: &str = "--replay names a file that 'imas-lab study replay' has written";
        let text = imas_runs::data::read(file)?;
        let predictions = Predictions::of(&text);
        let replays = Replays::of(&predictions);
        if let [first, others @ ..] = predictions.unreadable.as_slice() {
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
            let all = counted(all, "program");
            let why = format!("{}: no prediction for any of the {all} of the data", file.display());
            return Err(Hinted::error(why, MADE_BY));
        }
        if programs.len() < all {
            message::say(&format!(
                "imas-lab: note: {} of {all} programs have no predictions and are left out",
                all - programs.len()
            ));
        }
        let with = |name: &str, priors| Contender::WithPrior {
            name: name.to_owned(),
            settings: Settings::default(),
            priors: Arc::new(priors),
        };
        let on_a_host = |correction| replays.on_a_host(programs, correction, seed);
        Ok(Self {
            replay: with("adaptive + replay", replays.held_out(programs, PriorBasis::Replay)),
            others: with("adaptive + others", replays.held_out(programs, PriorBasis::OtherPrograms)),
            half: with("adaptive + replay, half studied", on_a_host(HostCorrection::None)),
            host: with("adaptive + replay, half studied + host", on_a_host(HostCorrection::OwnTrials)),
        })
    }
}

/// Contenders that are compared when none is named.
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
