// SPDX-License-Identifier: Apache-2.0
//! Figures and states as people read them, short enough for a column. Names of programs are escaped here.

use imas_core::printable;
use imas_core::stats::Interval;
use imas_engine::live::snapshot::{Certainty, LiveGain, LiveProcess, ProcessState};
use imas_engine::memory_look::MemoryAnswer;
use imas_engine::memory_look::parts::MemoryPart;
use imas_linux::index::ServiceUnit;

/// Bytes in four or five characters: `812K`, `1.2G`.
pub(crate) fn size(bytes: f64) -> String {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    let mut value = bytes / 1024.0;
    let mut unit = 0;
    while value.abs() >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value.abs() < 9.95 && unit > 0);
    // Adding 0 makes plus zero of minus zero.
    let value = if digits == 0 { value.round() + 0.0 } else { value };
    format!("{value:.digits$}{}", UNITS[unit])
}

/// A change in bytes, with its sign.
pub(crate) fn signed_size(bytes: f64) -> String {
    if bytes > 0.0 { format!("+{}", size(bytes)) } else { size(bytes) }
}

/// The program in one line. A script stands before what runs it: a narrow column cuts the end.
pub(crate) fn program(process: &LiveProcess) -> String {
    let name = process.path.rsplit('/').next().unwrap_or_default();
    // An interpreter is known by what it runs; a service has a column of its own.
    let runs = process.detail.rsplit('/').next().filter(|detail| !detail.is_empty());
    let runs = runs.filter(|_| process.detail != process.unit.as_ref().map(unit).unwrap_or_default());
    let text = runs.map_or_else(|| name.to_owned(), |runs| format!("{runs} ({name})"));
    printable::name(&text).into_owned()
}

/// How IMAS writes a service where a detail is expected.
fn unit(name: &ServiceUnit) -> String {
    format!("unit {name}")
}

/// State of the program under IMAS; a dash where nothing is known of it, as of most.
pub(crate) fn state(process: &LiveProcess) -> String {
    if process.state == ProcessState::Unknown { "-".to_owned() } else { process.state.words() }
}

/// The gain in a column: `~` is an estimate, `?` is not proven.
pub(crate) fn gain(gain: Option<&LiveGain>) -> String {
    let Some(gain) = gain else { return "-".to_owned() };
    let memory = gain.memory_bytes.map(|bytes| signed_size(-bytes.mid));
    let cpu = gain.cpu_percent.map(|percent| format!("{:+.0}%", (-percent.mid).round() + 0.0));
    let figures: Vec<_> = memory.into_iter().chain(cpu).collect();
    let figures = if figures.is_empty() { "no data".to_owned() } else { figures.join(" ") };
    match gain.certainty {
        Certainty::Proven => figures,
        Certainty::NotProven => format!("{figures}?"),
        Certainty::Estimate => format!("~{figures}"),
    }
}

/// The gain in a sentence, with intervals: changes, as in the column.
pub(crate) fn gain_sentence(gain: &LiveGain) -> String {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    // Adding 0 makes plus zero of minus zero.
    let interval = |of: &Interval, unit: &str| {
        format!("{:+.1} {unit} [{:+.1}, {:+.1}]", 0.0 - of.mid, 0.0 - of.hi, 0.0 - of.lo)
    };
    let memory = gain.memory_bytes.map(|bytes| {
        let of = Interval { lo: mib(bytes.lo), mid: mib(bytes.mid), hi: mib(bytes.hi) };
        interval(&of, "MiB")
    });
    let cpu = gain.cpu_percent.map(|percent| interval(&percent, "% of CPU"));
    let figures: Vec<_> = memory.into_iter().chain(cpu).collect();
    let saved = if figures.is_empty() { "unknown".to_owned() } else { figures.join(", ") };
    let [on, other] = gain.trials;
    let sure = match gain.certainty {
        Certainty::Proven => format!("proven by {on} and {other} trials"),
        Certainty::NotProven => format!("not proven, {on} and {other} trials"),
        Certainty::Estimate => "free pages in its heap now, not measured".to_owned(),
    };
    printable::name(&format!("{} after a restart: {saved} ({sure})", gain.candidate)).into_owned()
}

/// Parts of the memory in the pane.
const PARTS: usize = 4;

/// The verdict on the memory, its limit, and its largest parts, as `imas explain PID` has them.
pub(crate) fn memory_lines(memory: &MemoryAnswer) -> Vec<String> {
    let parts: Vec<String> = memory.parts.iter().take(PARTS).map(MemoryPart::words).collect();
    let limit = memory.limit.iter().map(|limit| limit.sentence.clone());
    let lines = [memory.sentence.clone()].into_iter().chain(limit).chain([parts.join("; ")]);
    lines.map(|line| printable::name(&line).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fit_a_column() {
        let all = [0.0, 1023.0, 812.0 * 1024.0, 1.2e9, 999.6 * 1024.0, 9.97e15].map(size);
        assert_eq!(all, ["0K", "1K", "812K", "1.1G", "1.0M", "8.9P"]);
        assert_eq!((signed_size(2e6).as_str(), signed_size(-2e6).as_str()), ("+1.9M", "-1.9M"));
        assert_eq!([-0.0, -300.0].map(signed_size), ["0K", "0K"], "no minus before a zero");
    }

    #[test]
    fn the_sign_of_a_certainty_is_shown() {
        let of = |certainty| {
            let saved = Some(Interval { lo: 1e6, mid: 2e6, hi: 3e6 });
            let gain = LiveGain {
                candidate: "a".into(),
                memory_bytes: saved,
                cpu_percent: None,
                certainty,
                trials: [3, 4],
            };
            super::gain(Some(&gain))
        };
        assert_eq!(
            [of(Certainty::Proven), of(Certainty::NotProven), of(Certainty::Estimate)],
            ["-1.9M", "-1.9M?", "~-1.9M"]
        );
        assert_eq!(super::gain(None), "-");
    }
}
