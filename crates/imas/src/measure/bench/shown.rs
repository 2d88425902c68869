// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench` as people read it. Last, several commands side by side: what each takes under `system`, and
//! its pick.

use std::path::Path;

use anyhow::Result;
use imas_cli::format::{self, counted};
use imas_cli::table::Table;
use imas_cli::{message, output};
use imas_core::bench::{MedianRun, Warning};
use imas_core::candidate::SYSTEM;
use imas_core::judgement::{BenchEnding, Goal};
use imas_engine::inline_candidate::is_typed;
use imas_linux::host::Host;
use imas_linux::interpreter_target::name_of_detail;
use imas_linux::program::Command;
use imas_report::bench::{BenchLayout, BenchReport, RoundsEnd, RoundsMade, check_text, coloured};

use super::session::CommandSession;
use crate::command_line::bench_args::{BenchArgs, StyleName};
use crate::measure::bench::export;

/// Shows one result: the table, the sentence, and what to do next.
pub(super) fn show(args: &BenchArgs, report: &BenchReport<Host>, session: &CommandSession<'_>) -> Result<()> {
    if args.json {
        return Ok(()); // all results are one document
    }
    if let Some(line) = report.too_little().filter(|_| !args.look.verbose && args.look.columns.is_empty()) {
        // Who names a candidate wants to know why it was not measured, too.
        let named = args.with();
        let left_out = report.candidates.iter().filter(|one| named.contains(&one.name));
        let reasons =
            left_out.filter_map(|one| Some(format!("\n{}: not usable: {}", one.name, one.reason.as_ref()?)));
        let text: String = std::iter::once(line).chain(reasons).collect();
        return if args.look.style == StyleName::None { Ok(()) } else { print_for_people(args, &text) };
    }
    if args.look.style != StyleName::None {
        text(args, report, &session.command)?;
    }
    let lines = if args.look.verbose {
        Warning::lines(&report.warnings)
    } else {
        Warning::few_lines(&report.warnings)
    };
    for (what, hint) in lines {
        message::warning(&format!("{what}\nhint: {hint}"));
    }
    let is_cut = |rounds: &RoundsMade| matches!(rounds.ended, RoundsEnd::Interrupted | RoundsEnd::MaxTime);
    if let Some(note) =
        report.rounds.filter(|rounds| is_cut(rounds) && !args.look.verbose).and_then(|it| it.note())
    {
        message::say(&format!("imas: note: {note}"));
    }
    if args.look.verbose {
        report.notes.iter().for_each(|note| message::say(&format!("imas: note: {note}")));
    } else if let Some(noise) = Warning::noise(&report.warnings) {
        message::say(&format!("imas: {noise}; -v explains"));
    }
    Ok(())
}

fn text(args: &BenchArgs, report: &BenchReport<Host>, command: &Command) -> Result<()> {
    if args.commands.shell.is_some() || !report.parameters.is_empty() {
        print_for_people(args, &format!("\n{}", report.command.join(" ")))?;
    }
    tell_table(args, &format!("\n{}", report.table(&layout(args))))?;
    print_for_people(args, &format!("\n{}", report.sentence()))?;
    if args.look.where_memory_was {
        print_for_people(args, &format!("\n{}", where_memory_was(args, report)))?;
    }
    report.checks.iter().try_for_each(|check| print_for_people(args, &check_text(check)))?;
    print_for_people(args, &how_to_use(report, command))
}

/// The table of the counted runs, which are others than in the first table.
fn where_memory_was(args: &BenchArgs, report: &BenchReport<Host>) -> String {
    let splits = report.splits();
    if splits.is_empty() {
        return "Where the resident memory was is not known: there was no counted run (--trials), or it was too short.\n"
            .to_owned();
    }
    let runs = counted(args.counted_runs(), "counted run");
    format!("From {runs} of each candidate, beside the measured runs of the first table:\n{splits}")
}

/// All results side by side.
pub(super) fn overview(args: &BenchArgs, reports: &[BenchReport<Host>]) -> Result<()> {
    if args.json || args.look.style == StyleName::None {
        return Ok(());
    }
    print_for_people(args, &format!("\nUnder system, and what suits each:\n{}", table(reports)))
}

/// Text for people: not on standard output where an export has it to itself.
fn print_for_people(args: &BenchArgs, text: &str) -> Result<()> {
    if export::takes_stdout(args) {
        message::say(text.trim_end_matches('\n'));
        return Ok(());
    }
    output::text(text)
}

fn tell_table(args: &BenchArgs, text: &str) -> Result<()> {
    if export::takes_stdout(args) || !args.look.style.has_colour() {
        return print_for_people(args, text);
    }
    let (empty, table) = text.split_at(text.len() - text.trim_start_matches('\n').len());
    output::text(empty)?;
    output::coloured(table, coloured)
}

/// Layout that fits the terminal.
pub(crate) fn layout(args: &BenchArgs) -> BenchLayout {
    BenchLayout { columns: args.look.columns.clone(), sort: args.look.sort, width: terminal_width(args) }
}

/// Columns of a table for people.
pub(super) fn width(args: &BenchArgs) -> usize {
    terminal_width(args).unwrap_or(NO_TERMINAL)
}

/// Columns where there is no terminal.
const NO_TERMINAL: usize = 100;

fn terminal_width(args: &BenchArgs) -> Option<usize> {
    let width = if export::takes_stdout(args) {
        terminal_size::terminal_size_of(std::io::stderr())
    } else {
        terminal_size::terminal_size_of(std::io::stdout())
    };
    width.map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
}

/// The command that uses the best pick: the balanced one, else one that suits a shortage.
fn how_to_use(report: &BenchReport<Host>, command: &Command) -> String {
    let words = shell_words::join(&report.command);
    let start = |candidate: &str| {
        format!("imas run --follow --candidate {} -- {words}", shell_words::quote(candidate))
    };
    if let BenchEnding::LooksBetter { candidate, .. } = &report.judgement.ending {
        return format!("to try it:  {}", start(candidate));
    }
    match report.judgement.best() {
        Some(pick) if is_typed(pick) => format!(
            "to use it:  {}\nfor good:   a file of catalogue.d gives it a name (docs/adding-an-allocator.md)",
            start(pick)
        ),
        // The children were measured too, so they have to come along.
        Some(pick) => format!(
            "to use it:  {}\nfor good:   imas pin {} {pick}   (then: imas run --follow -- ...)",
            start(pick),
            shell_words::quote(&pinnable(command))
        ),
        None => format!("to have it looked at while it works:  imas run --follow -- {words}"),
    }
}

pub(super) fn pinnable(command: &Command) -> String {
    let program = &command.program;
    if let Some(name) = name_of_detail(&program.detail) {
        return name.to_owned();
    }
    let script = Path::new(&program.detail);
    if script.is_absolute() { program.detail.clone() } else { program.path.to_string_lossy().into_owned() }
}

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
