// SPDX-License-Identifier: Apache-2.0
//! All observations of one program. Tables and pages compare runs here, so that they agree.

use super::comparison::{Comparison, CountedExits, compare_counted, look};
use super::eligibility::IneligibleCandidate;
use super::look_outcome::LookOutcome;
use super::options::Options;
use super::prepare::prepare;
use super::run::CandidateRuns;

/// The runs of one program under all candidates, and what is known beside the measured ones.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Observed {
    /// Measured runs by candidate, in the order shown. Those that failed are among them.
    pub runs: Vec<CandidateRuns>,
    /// Ends of the counted runs.
    pub counted: CountedExits,
    /// Candidates of which a run hung.
    pub hung: Vec<String>,
    /// Candidates of which a run took many times what any took under `system`.
    pub excess: Vec<String>,
    /// Candidates of which a run did not end in time.
    pub timed_out: Vec<String>,
}

impl Observed {
    /// The runs as they are compared (with normalised CPU time, outliers marked), and what they say.
    #[must_use]
    pub fn compare(self, options: &Options) -> (Vec<CandidateRuns>, Comparison) {
        let Self { mut runs, counted, hung, excess, timed_out } = self;
        prepare(&mut runs);
        let comparison = compare_counted(&runs, &counted, options)
            .without(&hung, IneligibleCandidate::Hung)
            .without(&excess, IneligibleCandidate::Excess)
            .without(&timed_out, IneligibleCandidate::TimedOut);
        (runs, comparison)
    }

    /// Result of the runs so far, and whether more rounds would change the answer.
    #[must_use]
    pub fn look(self, options: &Options) -> (Comparison, LookOutcome) {
        let Self { mut runs, counted, .. } = self;
        prepare(&mut runs);
        look(&runs, &counted, options)
    }
}
