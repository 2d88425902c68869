// SPDX-License-Identifier: Apache-2.0
//! One start of a runtime under settings, to see whether it takes them. It runs nothing of the user's, and is
//! made with the rights of the one who starts the program, never by imasd.

use std::collections::BTreeMap;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::{Fitted, StartOfProgram, asked_with};
use crate::runtime::{Runtime, RuntimeEntry, only};
use crate::start_program::{Stopped, run_timed};

/// A runtime starts within a second on an idle machine.
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes of what it says that are looked at.
const MOST_BYTES: usize = 16 << 10;
/// Variables of the user's that a runtime may need in order to start.
const KEPT: [&str; 5] = ["PATH", "HOME", "LD_LIBRARY_PATH", "LANG", "TMPDIR"];

/// Arguments with which a program of the runtime does nothing but start.
fn words(runtime: Runtime) -> Option<&'static [&'static str]> {
    match runtime {
        Runtime::Jvm => Some(&["-version"]),
        Runtime::Node => Some(&["-e", "0"]),
        Runtime::Cpython => Some(&["-S", "-c", ""]),
        Runtime::Ruby => Some(&["-e", ""]),
        Runtime::Php => Some(&["-n", "-v"]),
        // Their programs are anything, and they ignore what they do not know.
        Runtime::Go | Runtime::Ocaml | Runtime::Beam | Runtime::Dotnet => None,
    }
}

/// Whether a program of the runtime can be asked.
pub(super) fn is_possible(runtime: Runtime) -> bool {
    words(runtime).is_some()
}

/// Whether the runtime takes the candidate's settings. Where it cannot be asked, it is believed to.
///
/// # Errors
/// Why it does not, as a clause for people.
pub fn takes(candidate: &Fitted, start: &StartOfProgram<'_>) -> Result<(), String> {
    let Some(settings) = &candidate.runtime else { return Ok(()) };
    let Some(words) = words(settings.runtime) else { return Ok(()) };
    let entry = only(start.found).ok().flatten().map(|found| found.entry).unwrap_or_default();
    let handed_on =
        |word: &str| if entry == RuntimeEntry::Tool { format!("-J{word}") } else { word.to_owned() };
    let of_user: Vec<_> = asked_with(start).iter().map(|option| handed_on(option)).collect();
    let ours = settings.arguments.iter().cloned().chain(super::jvm_options(candidate, entry));
    let words: Vec<_> = words.iter().map(|word| handed_on(word)).collect();
    let told = asked(start, ours.chain(of_user.clone()).chain(words.clone()), &candidate.environment)?;
    let warning = judged(&told)?;
    // A warning about the user's options alone is no matter of ours.
    if warning.is_some() && !of_user.is_empty() {
        let without = asked(start, of_user.into_iter().chain(words), &BTreeMap::new())?;
        if warnings(&told.0).count() <= warnings(&without.0).count() {
            return Ok(());
        }
    }
    warning.map_or(Ok(()), Err)
}

/// Text of a start with these arguments and settings, and how it ended.
fn asked(
    start: &StartOfProgram<'_>,
    arguments: impl Iterator<Item = String>,
    settings: &BTreeMap<String, String>,
) -> Result<(String, ExitStatus), String> {
    let mut command = Command::new(start.file);
    command.args(arguments);
    command.current_dir("/").env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in KEPT {
        if let Some(value) = start.environment.get(name) {
            command.env(name, value);
        }
    }
    // Electron is Node.js only with this; without it a window would open.
    command.env("ELECTRON_RUN_AS_NODE", "1").envs(settings);
    match run_timed(&mut command, LIMIT, MOST_BYTES) {
        Ok(told) => Ok(told),
        Err(Stopped::Late) => Err(format!("a start under it did not end within {} s", LIMIT.as_secs())),
        Err(Stopped::Io(error)) => Err(format!("a start under it failed: {error}")),
    }
}

/// Reason why the settings are not taken that a warning gives: it would be a line in what the program prints.
fn judged((said, status): &(String, ExitStatus)) -> Result<Option<String>, String> {
    if !status.success() {
        let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(format!("a start under it ended with {status}: {}", shown(first)));
    }
    Ok(warnings(said).next().map(|line| format!("it is warned of: {}", shown(line))))
}

fn warnings(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter(|line| line.to_ascii_lowercase().contains("warning"))
}

fn shown(line: &str) -> String {
    imas_core::printable::name(line.chars().take(160).collect::<String>().trim()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::CatalogueCandidate;
    use crate::runtime::{RuntimeSettings, VersionRange};
    use crate::variables::Variables;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::Instant;

    fn answer(script: &str) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let (written, file) = (folder.path().join("written"), folder.path().join("java"));
        std::fs::write(&written, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&written, std::fs::Permissions::from_mode(0o755)).unwrap();
        imas_testing::copy_program(&written, &file);
        asked(&file)
    }

    fn asked(file: &Path) -> Result<(), String> {
        let candidate = CatalogueCandidate {
            environment: [("SET".to_owned(), "1".to_owned())].into(),
            runtime: Some(RuntimeSettings {
                runtime: Runtime::Jvm,
                versions: VersionRange::default(),
                arguments: vec!["-XX:+UseSerialGC".to_owned()],
                yields_to: vec![],
                is_bare: false,
            }),
            ..CatalogueCandidate::default()
        };
        let environment = Variables::from([("SECRET".into(), "1".into()), ("PATH".into(), "/bin".into())]);
        let start = StartOfProgram {
            found: &[],
            file,
            words: &["a".into()],
            has_files: false,
            is_by_script: false,
            unfit: None,
            environment: &environment,
            memory_limit: None,
        };
        takes(&candidate, &start)
    }

    #[test]
    fn a_clean_start_with_the_settings_alone_is_a_yes() {
        let sees = "[ \"$*\" = '-XX:+UseSerialGC -version' ] && [ \"$SET\" = 1 ] && [ -z \"$SECRET\" ]";
        assert_eq!(answer(sees), Ok(()));
        assert!(answer("echo 'Unrecognized VM option' >&2; exit 1").unwrap_err().contains("Unrecognized"));
        assert!(answer("echo 'VM warning: ignored' >&2").unwrap_err().contains("warned of"));
    }

    #[test]
    fn what_hangs_dies_or_prints_nonsense_is_a_no() {
        let began = Instant::now();
        assert!(answer("sleep 1000 & exec sleep 1000").unwrap_err().contains("did not end"));
        assert!(answer("kill -9 $$").is_err());
        assert!(answer("exec yes warning >&2").is_err());
        assert!(asked(Path::new("/no/such/java")).is_err());
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}
