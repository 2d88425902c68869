// SPDX-License-Identifier: Apache-2.0
//! How a fleet shares out a program's trials, in words.

use imas_engine::fleet_turn::{AloneReason, TrialSharing};

use imas_cli::when::when;

/// How the trials are shared out, in a sentence.
#[must_use]
pub fn words(sharing: &TrialSharing) -> String {
    const ALONE: &str = "this host tries as if it were alone";
    let TrialSharing { hosts, in_trial, .. } = sharing;
    match sharing.alone {
        Some(AloneReason::NoStatistics) => format!("it has no statistics of this program yet: {ALONE}"),
        Some(AloneReason::NoOtherHost) => format!("no other host is known to run this program: {ALONE}"),
        Some(AloneReason::FleetGone) => format!("it was not reached for a week: {ALONE}"),
        None if *in_trial == 0 => {
            format!("about {hosts} hosts run this program; no trials are lacking, none is in one")
        }
        None => format!(
            "about {in_trial} of {hosts} hosts are in a trial at a time; this host's turn: {}",
            turn(sharing)
        ),
    }
}

/// How the trials are shared out, in a word or two for a table.
#[must_use]
pub fn short(sharing: &TrialSharing) -> String {
    match sharing.alone {
        Some(_) => "as if alone".to_owned(),
        None if sharing.in_trial == 0 => "no trials lacking".to_owned(),
        None => format!("turn: {}", turn(sharing)),
    }
}

fn turn(sharing: &TrialSharing) -> String {
    match (&sharing.candidate, &sharing.next) {
        (Some(candidate), _) => format!("{candidate}, until {}", when(sharing.until_unix_s)),
        (None, Some(next)) => format!("{}, from {} on", next.candidate, when(next.at_unix_s)),
        (None, None) => "none within a day".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_engine::fleet_turn::NextTurn;

    #[test]
    fn the_turn_is_now_or_later_or_not_needed() {
        let of = |in_trial, candidate: Option<&str>, next: Option<&str>| TrialSharing {
            alone: None,
            hosts: 41,
            in_trial,
            candidate: candidate.map(str::to_owned),
            until_unix_s: 600.0,
            next: next.map(|candidate| NextTurn { at_unix_s: 1200.0, candidate: candidate.to_owned() }),
        };
        let now = words(&of(3, Some("jemalloc"), Some("mimalloc")));
        let begin = "about 3 of 41 hosts are in a trial at a time; this host's turn: jemalloc, until 1970-";
        assert!(now.starts_with(begin), "{now}");
        let later = words(&of(3, None, Some("mimalloc")));
        assert!(later.contains("turn: mimalloc, from 1970-") && later.ends_with(" on"), "{later}");
        assert!(words(&of(3, None, None)).ends_with("none within a day"));
        assert!(words(&of(0, None, None)).contains("no trials are lacking"));
        let gone = TrialSharing { alone: Some(AloneReason::FleetGone), ..of(0, None, None) };
        assert!(words(&gone).contains("as if it were alone") && short(&gone) == "as if alone");
    }
}
