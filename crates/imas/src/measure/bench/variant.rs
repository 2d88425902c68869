// SPDX-License-Identifier: Apache-2.0
//! The commands of one call: each line of `--shell`, with each value of the parameters.

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::Result;

use crate::command_line::bench_args::{BenchArgs, CommandsArgs};
use imas_cli::message::Hinted;

/// One command, with its parameters filled in.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    pub(super) words: Vec<OsString>,
    pub(super) parameters: BTreeMap<String, String>,
    /// Label that distinguishes the command from the others of this call; None when it is the only one.
    label: Option<Label>,
}

#[derive(Debug, Clone)]
enum Label {
    /// The line that was typed.
    Line(String),
    /// Parameters like `n=1 m=2`.
    Parameters(String),
}

impl Variant {
    /// A line around the runs with this command's parameters.
    pub(super) fn fill(&self, line: &str) -> String {
        filled(line, &self.parameters)
    }

    /// Name of the program in raw runs: commands of one call must not be taken for one.
    pub(super) fn name(&self, typed: Option<&str>, file: &str) -> String {
        match (&self.label, typed) {
            (None, typed) => typed.unwrap_or(file).to_owned(),
            (Some(Label::Line(line)), None) => line.clone(),
            (Some(Label::Line(line)), Some(typed)) => format!("{typed}: {line}"),
            (Some(Label::Parameters(values)), typed) => format!("{} {values}", typed.unwrap_or(file)),
        }
    }
}

/// More commands than this are a mistake.
const MOST: usize = 1000;

/// Commands in the order typed; the last parameter varies fastest.
pub(super) fn variants(args: &BenchArgs) -> Result<Vec<Variant>> {
    let commands = commands(&args.commands, &args.command)?;
    let parameters = parameters(&args.commands)?;
    let mut variants = vec![];
    for (at, words) in commands.iter().enumerate() {
        let line = (commands.len() > 1).then(|| args.command[at].to_string_lossy());
        let label = |values: &BTreeMap<String, String>| match &line {
            Some(line) => Some(Label::Line(filled(line, values))),
            None => (parameters.len() > 1).then(|| Label::Parameters(listed(values))),
        };
        variants.extend(parameters.iter().map(|parameters| Variant {
            words: words.iter().map(|word| filled_word(word, parameters)).collect(),
            parameters: parameters.clone(),
            label: label(parameters),
        }));
    }
    Ok(variants)
}

fn listed(values: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(" ")
}

fn commands(args: &CommandsArgs, typed: &[OsString]) -> Result<Vec<Vec<OsString>>> {
    let Some(shell) = &args.shell else { return Ok(vec![typed.to_vec()]) };
    if shell == "none" {
        return typed.iter().map(split).collect();
    }
    let shell = words(shell)?;
    let of = |line: &OsString| [shell.clone(), vec!["-c".into(), line.clone()]].concat();
    Ok(typed.iter().map(of).collect())
}

fn split(line: &OsString) -> Result<Vec<OsString>> {
    words(&line.to_string_lossy())
}

fn words(line: &str) -> Result<Vec<OsString>> {
    let words = shell_words::split(line).unwrap_or_default();
    if words.is_empty() {
        return Err(Hinted::error(
            format!("'{line}' is no command"),
            "close its quotes; with --shell each word after -- is a command line",
        ));
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

/// Every combination of values; one without any where there are no parameters.
fn parameters(args: &CommandsArgs) -> Result<Vec<BTreeMap<String, String>>> {
    type Parameter = (String, Vec<String>);
    let lists = args.parameter_list.chunks_exact(2).map(|pair| -> Result<Parameter> {
        let values = pair[1].split(',').map(str::to_owned).collect();
        Ok((pair[0].clone(), values))
    });
    let step = args.parameter_step_size.unwrap_or(1.0);
    let scans = args
        .parameter_scan
        .chunks_exact(3)
        .map(|three| -> Result<Parameter> { Ok((three[0].clone(), scan(&three[1], &three[2], step)?)) });
    let mut all = vec![BTreeMap::new()];
    for parameter in lists.chain(scans) {
        let (name, values) = parameter?;
        let with = |known: &BTreeMap<String, String>, value: &String| {
            let mut known = known.clone();
            known.insert(name.clone(), value.clone());
            known
        };
        all = all.iter().flat_map(|known| values.iter().map(move |value| with(known, value))).collect();
        if all.len() > MOST {
            return Err(too_many());
        }
    }
    Ok(all)
}

fn too_many() -> anyhow::Error {
    Hinted::error(
        format!("more than {MOST} commands would be measured"),
        "name fewer values, or a larger --parameter-step-size",
    )
}

/// The values of a range, both ends included; whole numbers stay whole.
fn scan(from: &str, to: &str, step: f64) -> Result<Vec<String>> {
    let number = |text: &str| {
        text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| {
            Hinted::error(format!("'{text}' is no number"), "--parameter-scan takes NAME FROM TO")
        })
    };
    let (from, to) = (number(from)?, number(to)?);
    // An end that is missed by a rounding error belongs to it.
    let steps = ((to - from) / step + 1e-9).floor();
    if steps < 0.0 {
        return Err(Hinted::error(
            format!("there is no number from {from} to {to}"),
            "--parameter-scan takes the smaller one first",
        ));
    }
    if steps >= MOST as f64 {
        return Err(too_many());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
    let steps = steps as u32;
    let value = |at: u32| ((from + f64::from(at) * step) * 1e9).round() / 1e9;
    Ok((0..=steps).map(|at| value(at).to_string()).collect())
}

fn filled_word(word: &OsString, parameters: &BTreeMap<String, String>) -> OsString {
    // Names of files that are no text have no parameters in them.
    word.to_str().map_or_else(|| word.clone(), |text| filled(text, parameters).into())
}

fn filled(text: &str, parameters: &BTreeMap<String, String>) -> String {
    let fill = |text: String, (name, value): (&String, &String)| text.replace(&format!("{{{name}}}"), value);
    parameters.iter().fold(text.to_owned(), fill)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_has_both_ends() {
        assert_eq!(scan("1", "3", 1.0).unwrap(), ["1", "2", "3"]);
        assert_eq!(scan("0", "0.3", 0.1).unwrap(), ["0", "0.1", "0.2", "0.3"]);
        for (from, to, step) in [("3", "1", 1.0), ("x", "1", 1.0), ("0", "1e9", 0.5)] {
            assert!(scan(from, to, step).is_err(), "{from} {to}");
        }
    }

    #[test]
    fn parameters_are_combined_and_filled_in() {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let args = CommandsArgs {
            shell: None,
            parameter_list: owned(&["a", "x,y"]),
            parameter_scan: owned(&["b", "1", "2"]),
            parameter_step_size: None,
        };
        let all = parameters(&args).unwrap();
        let texts: Vec<String> = all.iter().map(|one| filled("{a}{b} {c}", one)).collect();
        assert_eq!(texts, ["x1 {c}", "x2 {c}", "y1 {c}", "y2 {c}"]);
    }
}
