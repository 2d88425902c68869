// SPDX-License-Identifier: Apache-2.0
//! What a program's own trials say of the predictions for it, to correct those for other programs.

use super::{Board, Point, Standing};

/// A difference of fewer rounds is not known well enough, however clear.
const FEWEST_ROUNDS: u32 = 2;

/// Live less predicted difference to `system`, with the name of each candidate. Only candidates whose own
/// interval of 95 % excludes a difference of 0 count, better or worse. So candidates that disappoint teach as
/// much as those that please. The others would teach noise.
pub fn checked_predictions(board: &Board, standings: &[Standing]) -> Vec<(String, Point)> {
    let checked = |(i, standing): (usize, &Standing)| {
        let forecast = board.replay.as_ref()?.of(i)?;
        let predicted = Point { cpu: forecast.predicted.cpu, memory: forecast.predicted.memory };
        let live = Point { cpu: standing.cpu, memory: standing.memory };
        let is_clear = standing.rounds >= FEWEST_ROUNDS && standing.gain.abs() > standing.within;
        is_clear.then(|| (forecast.predicted.candidate.clone(), live.over(predicted)))
    };
    standings.iter().enumerate().filter_map(checked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::board::JudgedTrial;
    use crate::adaptive::{Role, Settings, judge};
    use crate::candidate::Candidate;
    use crate::reliability::{RecordedRunFacts, ReliabilityTable};
    use crate::replay_prior::{PredictedDifference, ReplayPrior};

    /// Eight rounds: `a` takes 30 % less, `b` is like `system`. Both are predicted to be alike.
    #[test]
    fn clear_differences_alone_are_compared_with_their_prediction() {
        let candidates = ["system", "a", "b"].map(|name| Candidate::new(name, "", &[]));
        let predicted = ["a", "b"]
            .map(|name| PredictedDifference { candidate: name.to_owned(), ..PredictedDifference::default() });
        let table = ReliabilityTable::default();
        let prior = ReplayPrior::new(&predicted, &RecordedRunFacts::default(), &table);
        let trial = |at: usize| {
            let swing = if (at / 3).is_multiple_of(2) { 0.001 } else { -0.001 };
            let share = [1.0, 0.7, 1.0][at % 3];
            JudgedTrial { candidate: at % 3, point: Point::new(share + swing * (at % 3) as f64, share * 1e6) }
        };
        let trials: Vec<_> = (0..24).map(trial).collect();
        let board = Board { replay: Some(prior.evidence(&candidates)), ..Board::new(&trials, 3, 0) };
        let judgement = judge(&board, &[Role::Tested; 3], 0, 0.5, &Settings::default());
        let checked = checked_predictions(&board, &judgement.standings);
        let [(name, off)] = checked.as_slice() else { panic!("{checked:?}") };
        assert!(name == "a" && (off.cpu - 0.7_f64.ln()).abs() < 0.01, "{off:?}");
        assert_eq!(
            checked_predictions(&Board::new(&trials, 3, 0), &judgement.standings),
            [],
            "no prediction"
        );
    }
}
