// SPDX-License-Identifier: Apache-2.0
//! Several commands side by side: what each takes under `system`, and its pick.

use imas_cli::format;
use imas_cli::table::Table;
use imas_core::bench::MedianRun;
use imas_core::candidate::SYSTEM;
use imas_core::judgement::Goal;
use imas_linux::host::Host;
use imas_report::bench::BenchReport;

const HEADS: [&str; 6] = ["command", "wall", "CPU", "to the first", "peak MiB", "pick"];

/// Columns that every terminal has.
const WIDTH: usize = 80;
/// Characters of a command that are always shown.
const LEAST_SHOWN: usize = 12;
const LEFT_OUT: &str = "...";

/// The commands in the order of the call, cut so that a line fits a terminal.
pub(super) fn table(reports: &[BenchReport<Host>]) -> String {
    let mut table = Table::new("", "", &HEADS);
    let first = reports.first().and_then(of_system).map(|run| run.cpu_s);
    reports.iter().for_each(|report| table.push(row(report, first)));
    fitted(table)
}

fn fitted(mut table: Table) -> String {
    let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
    let width = longest(&mut table.plain().lines().map(|line| line.chars().count()));
    let of_commands = longest(&mut table.rows.iter().map(|row| row[0].chars().count()));
    let most = of_commands.saturating_sub(width.saturating_sub(WIDTH)).max(LEAST_SHOWN);
    table.rows.iter_mut().for_each(|row| row[0] = without_middle(&row[0], most));
    table.plain()
}

/// Commands differ at their ends as a rule: the value of a parameter, the file.
fn without_middle(text: &str, most: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= most {
        return text.to_owned();
    }
    let shown = most.saturating_sub(LEFT_OUT.len());
    let (begin, end) = (shown / 2, characters.len() - (shown - shown / 2));
    let part = |part: &[char]| part.iter().collect::<String>();
    format!("{}{LEFT_OUT}{}", part(&characters[..begin]), part(&characters[end..]))
}

fn of_system(report: &BenchReport<Host>) -> Option<&MedianRun> {
    report.candidates.iter().find(|one| one.name == SYSTEM)?.median.as_ref()
}

fn row(report: &BenchReport<Host>, first_cpu_s: Option<f64>) -> Vec<String> {
    let command = report.command.join(" ");
    let Some(run) = of_system(report) else {
        return [&command, "-", "-", "-", "-", "-"].map(str::to_owned).to_vec();
    };
    let ratio = first_cpu_s.filter(|first| *first > 0.0).map(|first| run.cpu_s / first);
    vec![
        command,
        format::seconds(run.wall_s),
        format::seconds(run.cpu_s),
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2} x")),
        format::mib(run.peak_bytes as f64),
        report.judgement.pick(Goal::Balanced).unwrap_or(SYSTEM).to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(commands: &[String]) -> Vec<String> {
        let mut table = Table::new("", "", &HEADS);
        for command in commands {
            let row = [command, "123.4 ms", "123.4 ms", "12.34 x", "1234.5", "distro-mimalloc:small"];
            table.push(row.map(str::to_owned).to_vec());
        }
        fitted(table).lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_fits_a_terminal_and_shows_both_ends_of_the_command() {
        let long = format!("python3 {}/work.py --size 20000", "folder/".repeat(30));
        let lines = lines(&["short one".to_owned(), long]);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        assert!(lines.iter().any(|line| line.trim_start().starts_with("short one ")), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.contains("pyth") && line.contains("...") && line.contains("000 "))
        );
        assert_eq!(without_middle("exactly-12-c", 12), "exactly-12-c");
    }
}
