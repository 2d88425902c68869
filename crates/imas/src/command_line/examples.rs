// SPDX-License-Identifier: Apache-2.0
//! An example or two for each verb, at the end of its help and of its man page.

use clap::Command;

/// An example in each line: its verb, a command, and what that does, with tabs between them.
const EXAMPLES: &str = include_str!("examples.txt");

/// The command line with examples at the end of each verb's help.
pub(crate) fn add(command: Command) -> Command {
    let lines: Vec<(&str, &str)> = EXAMPLES.lines().filter_map(|line| line.split_once('\t')).collect();
    lines.chunk_by(|one, next| one.0 == next.0).fold(command, |command, lines| {
        let examples: Vec<_> = lines.iter().filter_map(|(_, example)| example.split_once('\t')).collect();
        command.mut_subcommand(lines[0].0, |verb| {
            let long = verb.get_after_long_help().map(|text| format!("\n\n{text}")).unwrap_or_default();
            let text = text(&examples);
            below(verb, &examples).after_long_help(format!("{text}{long}")).after_help(text)
        })
    })
}

/// The verb whose own verbs (`exclude add`) have the examples that are theirs.
fn below(verb: Command, examples: &[(&str, &str)]) -> Command {
    let name = verb.get_name().to_owned();
    let below: Vec<String> = verb.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    below.into_iter().fold(verb, |verb, one| {
        let whole = format!("imas {name} {one}");
        let own: Vec<_> = examples.iter().filter(|(command, _)| command.contains(&whole)).copied().collect();
        if own.is_empty() { verb } else { verb.mut_subcommand(one, |one| one.after_help(text(&own))) }
    })
}

fn text(examples: &[(&str, &str)]) -> String {
    let lines = examples.iter().map(|(command, what)| format!("  {command}\n      {what}"));
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_line_has_three_parts() {
        assert!(super::EXAMPLES.lines().all(|line| line.split('\t').count() == 3));
    }
}
