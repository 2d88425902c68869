// SPDX-License-Identifier: Apache-2.0
//! The folder with everything: inputs, tools, and the work folder of the current run.

use std::ffi::OsString;
use std::fs::File;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::time::Duration;

use imas_linux::environment::Variables;
use imas_linux::files;
use siphasher::sip::SipHasher13;

use crate::definition::{Suite, SuiteProgram};
use crate::error::{SuiteError, SuiteResult};
use crate::shell::Shell;

/// `input/NAME/` for each shared or own input, `tools/` from the registries, `work/` for the current run.
#[derive(Debug, Clone)]
pub struct Place {
    root: PathBuf,
    generators: PathBuf,
}

/// The programs' PATH. Debian's folders come first, so that a developer's own tools change nothing.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/games:/usr/local/bin";
/// Time limit for making an input.
const LONGEST_SETUP: Duration = Duration::from_secs(900);
/// File that records what an input was made from. It is written last, so it is missing in an incomplete
/// input.
const MADE: &str = ".made";

impl Place {
    /// Creates the folder. `generators` has the suite's own input generators and programs.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(root: &Path, generators: &Path) -> SuiteResult<Self> {
        std::fs::create_dir_all(root.join("input")).map_err(SuiteError::file(root))?;
        Ok(Self { root: root.to_owned(), generators: generators.to_owned() })
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder into which programs of the language registries are installed.
    #[must_use]
    pub fn tools(&self) -> PathBuf {
        self.root.join("tools")
    }

    /// A path that exists once the tool is installed.
    #[must_use]
    pub fn tool_mark(&self, tool: &Tool) -> PathBuf {
        let name = tool.wanted.replace('/', "_");
        self.tools().join(format!(".have-{}-{name}", tool.registry))
    }

    /// The current run's working folder.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Locks out every other session until the file is dropped, because there is only one work folder.
    ///
    /// # Errors
    /// When another session has it, or the file cannot be made.
    pub fn lock(&self) -> SuiteResult<File> {
        let path = self.root.join(".lock");
        let file = File::create(&path).map_err(SuiteError::file(&path))?;
        match files::lock(&file) {
            Ok(true) => Ok(file),
            Ok(false) => Err(SuiteError::Busy { folder: self.root.clone() }),
            Err(error) => Err(SuiteError::file(&path)(error)),
        }
    }

    /// Empties the work folder.
    ///
    /// # Errors
    /// When something in it cannot be removed.
    pub fn clear_work(&self) -> SuiteResult<PathBuf> {
        let work = self.work();
        // Programs may leave read-only folders. Those cannot be removed before their mode is changed.
        if work.exists() && std::fs::remove_dir_all(&work).is_err() {
            let _ = std::process::Command::new("chmod").args(["-R", "u+rwx"]).arg(&work).status();
            std::fs::remove_dir_all(&work).map_err(SuiteError::file(&work))?;
        }
        std::fs::create_dir_all(work.join("tmp")).map_err(SuiteError::file(&work))?;
        Ok(work)
    }

    /// The whole environment of a program. No variable of the user is in it.
    #[must_use]
    pub fn variables(&self, program: Option<&SuiteProgram>, port: Option<u16>) -> Variables {
        let tools = self.tools();
        let mut path = OsString::from(PATH);
        let folders = ["cargo/bin", "npm/node_modules/.bin", "pip/bin"].map(|below| tools.join(below));
        for folder in folders.iter().chain([&self.generators.join("bin")]) {
            path.push(":");
            path.push(folder);
        }
        let work = self.work();
        let mut variables: Variables = [
            ("PATH", path),
            ("SUITE", self.generators.clone().into()),
            ("HOME", work.clone().into()),
            ("TMPDIR", work.join("tmp").into()),
            ("LANG", "C.UTF-8".into()),
            ("TZ", "UTC".into()),
            ("SOURCE_DATE_EPOCH", "1000000000".into()),
            ("PYTHONHASHSEED", "0".into()),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("USER", "suite".into()),
        ]
        .map(|(name, value)| (name.into(), value))
        .into();
        variables.extend(port.map(|port| ("PORT".into(), port.to_string().into())));
        let own = program.map(|program| &program.environment).into_iter().flatten();
        variables.extend(own.map(|(name, value)| (name.into(), value.into())));
        variables
    }

    /// Makes the inputs of a program that are missing or were made by another command.
    ///
    /// Each is made in a temporary folder and then renamed. So a run that is killed half-way leaves no
    /// incomplete input.
    ///
    /// # Errors
    /// When a command fails.
    pub fn prepare(&self, suite: &Suite, program: &SuiteProgram) -> SuiteResult<()> {
        for name in suite.inputs_of(program) {
            self.make(&name, &suite.inputs[&name].setup)?;
        }
        match &program.setup {
            Some(setup) => self.make(&program.name, setup),
            None => Ok(()),
        }
    }

    fn make(&self, name: &str, setup: &str) -> SuiteResult<()> {
        let folder = self.root.join("input").join(name);
        let source = self.source(setup);
        if std::fs::read_to_string(folder.join(MADE)).is_ok_and(|made| made == source) {
            return Ok(());
        }
        let partial = self.root.join("input").join(format!("{name}.partial"));
        for stale in [&partial, &folder] {
            if stale.exists() {
                std::fs::remove_dir_all(stale).map_err(SuiteError::file(stale))?;
            }
        }
        std::fs::create_dir_all(&partial).map_err(SuiteError::file(&partial))?;
        let mut variables = self.variables(None, None);
        variables.insert("HOME".into(), partial.clone().into());
        variables.insert("TMPDIR".into(), partial.clone().into());
        let shell = Shell { folder: &partial, variables: &variables };
        let output = shell.run(setup, LONGEST_SETUP).map_err(SuiteError::file(&partial))?;
        if !output.ok {
            let last = output.last_line().to_owned();
            return Err(SuiteError::Setup { name: name.to_owned(), how: output.how, message: last });
        }
        std::fs::write(partial.join(MADE), source).map_err(SuiteError::file(&partial))?;
        std::fs::rename(&partial, &folder).map_err(SuiteError::file(&folder))
    }

    /// Sources of an input, as a text: a hash of the generators it names, and the command.
    fn source(&self, setup: &str) -> String {
        let mut hasher = SipHasher13::new();
        let folder = self.generators.join("input");
        let mut files: Vec<_> =
            std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.sort();
        let named =
            |file: &&PathBuf| file.file_name().is_some_and(|name| setup.contains(&*name.to_string_lossy()));
        for file in files.iter().filter(named) {
            hasher.write(&std::fs::read(file).unwrap_or_default());
        }
        format!("{:016x}\n{setup}", hasher.finish())
    }
}

/// A program of a language registry that has to be installed into the suite's own folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tool {
    /// pip, npm or cargo.
    pub registry: &'static str,
    /// The requirement, in the syntax of that registry's client.
    pub wanted: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(setup: &str) -> Suite {
        let text = format!(
            "[inputs.x]\nsetup = {setup:?}\n[[program]]\nname='a'\ncategory='c'\ncommand='true'\nseconds=1\nneeds=['x']"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn an_input_is_made_once_and_again_when_its_command_changes() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path(), folder.path()).unwrap();
        let made = folder.path().join("input/x/date");
        let make = |setup: &str| {
            let suite = suite(setup);
            place.prepare(&suite, &suite.programs[0])
        };
        make("date +%N > date").unwrap();
        let first = std::fs::read(&made).unwrap();
        make("date +%N > date").unwrap();
        assert_eq!(std::fs::read(&made).unwrap(), first);
        make("date +%N%N > date").unwrap();
        assert_ne!(std::fs::read(&made).unwrap(), first);
    }

    #[test]
    fn one_session_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path(), folder.path()).unwrap();
        let first = place.lock().unwrap();
        assert!(matches!(place.lock(), Err(SuiteError::Busy { .. })));
        drop(first);
        // A child of another test inherits the open file and keeps the lock until its exec.
        let again = (0..6000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            place.lock().is_ok()
        });
        assert!(again);
    }

    #[test]
    fn a_failed_command_leaves_nothing_that_looks_made() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path(), folder.path()).unwrap();
        let suite = suite("echo half > half; echo no >&2; false");
        for _ in 0..2 {
            let error = place.prepare(&suite, &suite.programs[0]).unwrap_err();
            assert_eq!(error.to_string(), "the input of x could not be made (exit 1): no");
            assert!(!folder.path().join("input/x").exists());
        }
    }
}
