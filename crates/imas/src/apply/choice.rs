// SPDX-License-Identifier: Apache-2.0
//! The candidate for something that lasts: a service, a container. Chosen from what is settled, never from
//! half a measurement.

use anyhow::Result;
use imas_cli::message::Hinted;
use imas_engine::decide::UnderWay;
pub(crate) use imas_engine::lasting::{changes, files, usable};
use imas_engine::program_view::ProgramView;

/// The candidate that was learned for the program. If none is settled, the error has the reason.
pub(crate) fn settled_or_why(state: &ProgramView) -> Result<&str> {
    state.settled().ok_or_else(|| {
        let program = &state.known.program;
        let decided = state.decision.reason.sentence();
        let under_way = state.under_way.as_ref().map(UnderWay::words);
        let reason = under_way.as_deref().unwrap_or_else(|| decided.trim_end_matches('.'));
        Hinted::error(
            format!("{program}: nothing is settled yet: {reason}"),
            format!("let it run under 'imas run -- ...' until 'imas show {}' has picks, or name one with --candidate", program.id),
        )
    })
}
