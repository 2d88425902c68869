// SPDX-License-Identifier: Apache-2.0
//! `suite.toml`: the programs as data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{SuiteError, SuiteResult};

/// The whole suite, in the order of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Inputs that several programs share, by name.
    #[serde(default)]
    pub inputs: BTreeMap<String, Input>,
    /// The programs.
    #[serde(rename = "program")]
    pub programs: Vec<SuiteProgram>,
}

/// Files made once and kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Shell command that makes it in the current folder; `$SUITE` is the folder of the generators.
    pub setup: String,
    /// Debian packages that the command needs.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Shared inputs that must be there first.
    #[serde(default)]
    pub needs: Vec<String>,
}

/// A selection of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Set {
    /// Ten programs that install quickly.
    Quick,
    /// Programs of 0.3 to 3 s, for data sets with many rounds.
    Data,
    /// At least 120 programs of about 0.3 to 1 s, from every category. The project's own results use this
    /// set.
    Study,
    /// Programs of Java, Go, node and the like, whose heap is not malloc's.
    Runtimes,
    /// All programs.
    Full,
}

/// One program, its input and its command.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteProgram {
    /// Name of the program: unique; letters, digits and dashes.
    pub name: String,
    /// Kind of program, for grouping.
    pub category: String,
    /// Debian packages.
    #[serde(default)]
    pub packages: Vec<String>,
    /// PyPI requirements, installed into the suite's own folder.
    #[serde(default)]
    pub pip: Vec<String>,
    /// npm packages, installed into the suite's own folder.
    #[serde(default)]
    pub npm: Vec<String>,
    /// Crates with a program, installed into the suite's own folder.
    #[serde(default)]
    pub cargo: Vec<String>,
    /// Shared inputs that the program reads, as `../input/NAME/`.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Shell command that makes the program's own input in `../input/PROGRAM/`.
    pub setup: Option<String>,
    /// Shell command before each run, in the empty work folder; not measured.
    pub prepare: Option<String>,
    /// The measured command. It runs without a shell if it has no shell syntax.
    pub command: String,
    /// Standard input, relative to the work folder.
    pub input: Option<String>,
    /// The executable that does the work, if it is not the first word of `command`. It is checked for a
    /// malloc of its own.
    pub executable: Option<String>,
    /// Files that the command writes. They must be the same under every candidate.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// Shell command after each run; not measured. It must succeed.
    pub check: Option<String>,
    /// Standard output and files are not compared, because they differ between runs of the same candidate.
    #[serde(default)]
    pub varies: bool,
    /// Variables in addition to the suite's own.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Threads or processes that work at once.
    #[serde(default = "one")]
    pub threads: u32,
    /// Elapsed seconds of a run under `system` on a machine of 2026; for estimates and time-outs.
    pub seconds: f64,
    /// Sets that the program is in; all programs are in `full`.
    #[serde(default)]
    pub sets: Vec<Set>,
    /// Why the program is listed but not run.
    pub excluded: Option<String>,
    /// How to start and load the program, if it is a server.
    pub server: Option<Server>,
}

/// How a server is used. All commands are shell lines in the work folder; `$PORT` is a free port of
/// 127.0.0.1.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Succeeds once the server answers requests.
    pub ready: String,
    /// Makes the load; must succeed.
    pub load: String,
    /// Signal that ends the server: TERM, INT or QUIT.
    #[serde(default = "term")]
    pub stop: String,
}

fn one() -> u32 {
    1
}

fn term() -> String {
    "TERM".to_owned()
}

/// Whether a registry's client is installed, from Debian or otherwise. If so, its Debian package is not
/// needed.
fn on_path(client: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(client).is_file())
}

impl Suite {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// When it cannot be read or a key is wrong, with the line.
    pub fn read(path: &Path) -> SuiteResult<Self> {
        let text = std::fs::read_to_string(path).map_err(SuiteError::file(path))?;
        Self::parse(&text).map_err(|why| SuiteError::Definition { path: path.to_owned(), why })
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let suite: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        suite.check()?;
        Ok(suite)
    }

    fn check(&self) -> std::result::Result<(), String> {
        let mut names = BTreeSet::new();
        for program in &self.programs {
            let name = &program.name;
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                return Err(format!("program '{name}': a name has letters, digits and - _ + . only"));
            }
            if !names.insert(name) || self.inputs.contains_key(name) {
                return Err(format!("'{name}' is there twice"));
            }
            if !(program.seconds > 0.0 && program.seconds < 3600.0) {
                return Err(format!("program '{name}': seconds must be above 0 and below 3600"));
            }
            crate::line::words(&program.command)
                .ok_or_else(|| format!("program '{name}': command is empty or has an open quote"))?;
            if let Some(server) = &program.server
                && !["TERM", "INT", "QUIT"].contains(&server.stop.as_str())
            {
                return Err(format!("program '{name}': stop must be TERM, INT or QUIT"));
            }
            self.check_needs(name, &program.needs)?;
        }
        self.inputs.iter().try_for_each(|(name, input)| self.check_needs(name, &input.needs))
    }

    fn check_needs(&self, name: &str, needs: &[String]) -> std::result::Result<(), String> {
        let missing = needs.iter().find(|need| !self.inputs.contains_key(*need));
        missing.map_or(Ok(()), |need| Err(format!("'{name}' needs '{need}', which is not among the inputs")))
    }

    /// The program of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, name: &str) -> SuiteResult<&SuiteProgram> {
        self.programs.iter().find(|program| program.name == name).ok_or_else(|| {
            let near = self.programs.iter().map(|program| &program.name);
            let near = near.filter(|known| known.contains(name) || name.contains(known.as_str()));
            SuiteError::NoProgram { name: name.to_owned(), near: near.take(3).cloned().collect() }
        })
    }

    /// The programs of a set.
    pub fn set(&self, set: Set) -> impl Iterator<Item = &SuiteProgram> {
        self.programs.iter().filter(move |program| set == Set::Full || program.sets.contains(&set))
    }

    /// Debian packages of a program and of the inputs it needs.
    #[must_use]
    pub fn packages(&self, program: &SuiteProgram) -> BTreeSet<String> {
        let mut packages: BTreeSet<String> = program.packages.iter().cloned().collect();
        for input in self.inputs_of(program) {
            packages.extend(self.inputs[&input].packages.iter().cloned());
        }
        let tools: [(&[String], &str, bool); 3] = [
            (&program.pip, "python3-venv", false),
            (&program.npm, "npm", on_path("npm")),
            (&program.cargo, "cargo", on_path("cargo")),
        ];
        let needed = tools.iter().filter(|(wanted, _, here)| !wanted.is_empty() && !here);
        packages.extend(needed.map(|(_, tool, _)| (*tool).to_owned()));
        packages
    }

    /// Shared inputs of a program, those needed first before those that need them.
    #[must_use]
    pub fn inputs_of(&self, program: &SuiteProgram) -> Vec<String> {
        let mut order = Vec::new();
        program.needs.iter().for_each(|need| self.collect(need, &mut order, 0));
        order
    }

    fn collect(&self, name: &str, order: &mut Vec<String>, depth: usize) {
        const DEEPEST: usize = 16; // ends a cycle: the set-up command then reports the missing input
        if depth > DEEPEST || order.iter().any(|known| known == name) {
            return;
        }
        if let Some(input) = self.inputs.get(name) {
            input.needs.iter().for_each(|need| self.collect(need, order, depth + 1));
            order.push(name.to_owned());
        }
    }
}

impl SuiteProgram {
    /// The executable that does the work: the given one, else the command's first word.
    #[must_use]
    pub fn executable(&self) -> String {
        let first = || shell_words::split(&self.command).ok().and_then(|words| words.first().cloned());
        self.executable.clone().or_else(first).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> std::result::Result<Suite, String> {
        Suite::parse(text)
    }

    fn program(more: &str) -> String {
        format!("[[program]]\nname = 'a'\ncategory = 'c'\ncommand = 'true'\nseconds = 1\n{more}")
    }

    #[test]
    fn a_wrong_definition_is_rejected_with_its_place() {
        assert!(parse(&program("")).is_ok());
        for (text, want) in [
            (program("comand = 'x'"), "comand"),
            (program("needs = ['x']"), "'x', which is not among"),
            (program("") + &program(""), "'a' is there twice"),
            (program("[program.server]\nready='true'\nload='true'\nstop='KILL'"), "stop must be"),
            (program("").replace("seconds = 1", "seconds = 0"), "seconds must be"),
            (program("").replace("'a'", "'../a'"), "a name has"),
            (program("").replace("'true'", "\"a 'b\""), "open quote"),
        ] {
            let why = parse(&text).unwrap_err();
            assert!(why.contains(want), "{why}");
        }
    }

    #[test]
    fn inputs_come_in_the_order_they_need() {
        let text = "[inputs.x]\nsetup=''\nneeds=['b']\n[inputs.b]\nsetup=''\npackages=['p']\n".to_owned()
            + &program("needs = ['x']\npip = ['x']");
        let suite = parse(&text).unwrap();
        assert_eq!(suite.inputs_of(&suite.programs[0]), ["b", "x"]);
        assert_eq!(suite.packages(&suite.programs[0]).into_iter().collect::<Vec<_>>(), ["p", "python3-venv"]);
    }

    #[test]
    fn a_name_that_is_not_there_brings_those_like_it() {
        let suite = parse(&program("").replace("'a'", "'gcc-o2'")).unwrap();
        let error = suite.find("gcc").unwrap_err();
        assert!(error.hint().contains("gcc-o2"), "{}", error.hint());
    }
}
