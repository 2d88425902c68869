// SPDX-License-Identifier: Apache-2.0
//! imasd's recordings and replays in `imas status`.

use imas_engine::daemon_status::ReplayState;
use imas_report::format::counted;

/// Begins with a line end, as what follows the headline does.
pub(super) fn lines(replay: &ReplayState) -> String {
    let now = match (replay.is_replaying, &replay.obstacle) {
        (true, _) => "; one is being replayed".to_owned(),
        (false, Some(why)) => format!("; nothing is replayed now: {why}"),
        (false, None) => String::new(),
    };
    let waiting = format!(
        "\nrecordings: {} to be recorded at the next start, {} to be replayed{now}",
        counted(replay.asked, "program"),
        replay.waiting
    );
    format!(
        "{waiting}\n  since its start: {} replayed, {} refused (imas show --system N has the reason), {} stopped by \
         other work",
        replay.learned, replay.refused, replay.stopped
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_and_why_is_told() {
        let state = ReplayState { asked: 1, waiting: 2, refused: 3, ..ReplayState::default() };
        let text = lines(&state);
        assert!(text.contains("1 program to be recorded at the next start, 2 to be replayed\n"), "{text}");
        assert!(text.contains("3 refused"), "{text}");
        let busy = ReplayState { obstacle: Some("the machine has other work".to_owned()), ..state.clone() };
        assert!(lines(&busy).contains("nothing is replayed now: the machine has other work"));
        assert!(lines(&ReplayState { is_replaying: true, ..busy }).contains("one is being replayed"));
    }
}
