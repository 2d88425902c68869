// SPDX-License-Identifier: Apache-2.0
//! A candidate that is settings of a runtime, for one program: what it sets there, or why the program does
//! not get it.
//!
//! - `user_values`: what the user has set already; that wins
//! - `dotnet_config`: what an application of .NET sets in a file beside it; that wins too
//! - `jvm_flags`: options of the JVM that are set inside it
//! - `node_script`: code caches of a script of Node.js
//! - `trial_start`: one start, to see whether the runtime takes the settings
//!
//! Options of the JVM as flags that `libimas-settings.so` sets inside it. The program sees none of them, and hands none
//! to a JVM that it starts (docs/decisions/0056).

mod dotnet_config;
mod trial_start;
mod user_values;

use std::ffi::OsString;
use std::path::Path;

use imas_abi::env::{JVM_FLAGS, JVM_YIELDS};

use crate::catalogue::CatalogueCandidate;
use crate::runtime::{self, FoundRuntime, Runtime, RuntimeEntry, RuntimeSettings, VersionRange, only};
use crate::variables::Variables;
use user_values::{given_to_jvm, user_value};

pub use trial_start::takes;
pub(crate) use user_values::words_of_user;
pub use user_values::{asked_with, contradicted};

/// A start of a program, as far as settings of its runtime depend on it.
#[derive(Debug, Clone, Copy)]
pub struct StartOfProgram<'a> {
    /// The runtimes that were found in the program.
    pub found: &'a [FoundRuntime],
    /// The executable.
    pub file: &'a Path,
    /// Its arguments, without its name.
    pub words: &'a [OsString],
    /// Files that it will read are there, and may be looked at.
    pub has_files: bool,
    /// A script starts it, or the kernel for a `#!` line: no argument can be added.
    pub is_by_script: bool,
    /// Why nothing of ours can be loaded into it.
    pub unfit: Option<&'a str>,
    /// The environment that it is to have.
    pub environment: &'a Variables,
    /// The limit on its memory, in bytes.
    pub memory_limit: Option<u64>,
}

/// A candidate whose settings are those for one program. Where the runtime can say whether it takes them, it
/// has not been asked yet ([`takes`]).
pub type Fitted = CatalogueCandidate;

/// The candidate with its settings as this program gets them. A candidate without a runtime is what it was.
///
/// # Errors
/// Why the program does not get it, as a clause for people.
pub fn fitted(candidate: &CatalogueCandidate, start: &StartOfProgram<'_>) -> Result<Fitted, String> {
    let mut fitted = candidate.clone();
    let Some(settings) = &mut fitted.runtime else { return Ok(fitted) };
    let found = found_for(settings.runtime, start.found)?;
    check_entry(settings, found)?;
    check_version(settings, found, trial_start::is_possible(settings.runtime))?;
    let loads = candidate.library.is_some();
    if let Some(why) = start.unfit.filter(|_| loads) {
        return Err(why.to_owned());
    }
    let set = user_value(candidate, found, start)
        .or_else(|| dotnet_config::obstacle(candidate, start))
        .or_else(|| dotnet_config::script_obstacle(candidate, start));
    if let Some(why) = set {
        return Err(why);
    }
    settings.is_bare = start.unfit.is_some() || settings.runtime.starts_bare();
    let is_bare = settings.is_bare;
    let values = settings.arguments.iter_mut().chain(fitted.environment.values_mut());
    for value in values.filter(|value| runtime::names_limit(value)) {
        let bytes = start.memory_limit.ok_or("no control group limits its memory")?;
        *value = runtime::filled_limit(value, bytes).ok_or("its share of the memory limit cannot be read")?;
    }
    if !is_bare {
        fitted = hidden_flags(fitted, found, &given_to_jvm(candidate));
    }
    let arguments = fitted.runtime.iter_mut().flat_map(|settings| &mut settings.arguments);
    for argument in arguments {
        if start.is_by_script {
            return Err("it is an argument, and a script starts the program".to_owned());
        }
        if found.entry == RuntimeEntry::Tool {
            argument.insert_str(0, "-J");
        }
    }
    Ok(fitted)
}

/// The words of a start, `argv[0]` first, with the arguments of a candidate that was [`fitted`].
#[must_use]
pub fn with_arguments(candidate: &CatalogueCandidate, words: &[OsString]) -> Vec<OsString> {
    let arguments = candidate.runtime.iter().flat_map(|settings| &settings.arguments).map(OsString::from);
    let (name, rest) = words.split_at(words.len().min(1));
    name.iter().cloned().chain(arguments).chain(rest.iter().cloned()).collect()
}

fn found_for(runtime: Runtime, found: &[FoundRuntime]) -> Result<&FoundRuntime, String> {
    match only(found)? {
        Some(one) if one.runtime == runtime => Ok(one),
        Some(one) => Err(format!(
            "it is for programs of {}, and this is one of {}",
            runtime.name(),
            one.runtime.name()
        )),
        None => Err(format!("it is for programs of {}", runtime.name())),
    }
}

/// Why the candidate is not given to programs of the runtime that was found where nobody asks it before: a
/// version out of range, or one that no file shows. `None` where it may be given.
#[must_use]
pub fn unasked_obstacle(candidate: &CatalogueCandidate, found: &FoundRuntime) -> Option<String> {
    check_version(candidate.runtime.as_ref()?, found, false).err()
}

/// `is_asked`: a start under the settings shows whether the runtime knows them.
fn check_version(settings: &RuntimeSettings, found: &FoundRuntime, is_asked: bool) -> Result<(), String> {
    let range = &settings.versions;
    let needs = || format!("it needs {} {}", settings.runtime.name(), range.text());
    // Where a version is the oldest it may be, a range without an end has every later one too.
    let is_exact = |version: &str| !version.ends_with('+');
    match found.version.as_deref() {
        Some(version) if range.has(version) && (is_exact(version) || !range.has_end()) => Ok(()),
        Some(version) if is_exact(version) => Err(format!("{}, and this is {version}", needs())),
        _ if range.is_everything() || is_asked => Ok(()),
        _ => Err(format!("{}, and the version of this program's is not known", needs())),
    }
}

fn check_entry(settings: &RuntimeSettings, found: &FoundRuntime) -> Result<(), String> {
    if found.entry == RuntimeEntry::Inside {
        return Err(format!(
            "the program has {} inside and gives it settings of its own",
            settings.runtime.name()
        ));
    }
    Ok(())
}

/// JVMs that describe their flags in a form that the library reads.
const DESCRIBED: &str = ">=17";
/// Begin of an option that sets a flag.
const OPTION: &str = "-XX:";

/// The candidate with its options as flags, if the JVM that was found has them described and each option is one. `yields_to`:
/// beginnings of options beside which the JVM gets none of the flags.
#[must_use]
fn hidden_flags(
    mut candidate: CatalogueCandidate,
    found: &FoundRuntime,
    yields_to: &[String],
) -> CatalogueCandidate {
    let is_described = || {
        let range = VersionRange::parse(DESCRIBED).unwrap_or_default();
        found.version.as_deref().is_some_and(|version| range.has(version))
    };
    let Some(flags) = jvm_flags(&candidate).filter(|_| is_described()) else { return candidate };
    candidate.environment.insert(JVM_FLAGS.to_owned(), flags);
    candidate.environment.insert(JVM_YIELDS.to_owned(), yields_to.join(" "));
    candidate.runtime.iter_mut().for_each(|settings| settings.arguments.clear());
    candidate
}

/// Words of [`JVM_FLAGS`] for the candidate's options; `None` where it has none, or one of another kind.
pub(super) fn jvm_flags(candidate: &CatalogueCandidate) -> Option<String> {
    let settings = candidate.runtime.as_ref().filter(|settings| settings.runtime == Runtime::Jvm)?;
    let words: Option<Vec<_>> = settings.arguments.iter().map(|option| flag(option)).collect();
    words.filter(|words| !words.is_empty()).map(|words| words.join(" "))
}

/// Options by which a JVM that is asked gets what the candidate sets, as the entry takes them.
pub(super) fn jvm_options(candidate: &CatalogueCandidate, entry: RuntimeEntry) -> Vec<String> {
    let words = candidate.environment.get(JVM_FLAGS).map(String::as_str).unwrap_or_default();
    let begin = if entry == RuntimeEntry::Tool { "-J" } else { "" };
    words.split(' ').filter(|word| !word.is_empty()).map(|word| format!("{begin}{OPTION}{word}")).collect()
}

/// Flag with a sign, or with a number.
fn flag(option: &str) -> Option<&str> {
    let flag = option.strip_prefix(OPTION)?;
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_number = |value: &str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let is_flag = match flag.split_once('=') {
        Some((name, value)) => is_name(name) && is_number(value),
        None => flag.strip_prefix(['+', '-']).is_some_and(is_name),
    };
    is_flag.then_some(flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{RuntimeSettings, VersionRange};

    fn candidate(runtime: Runtime, arguments: &[&str], environment: &[(&str, &str)]) -> CatalogueCandidate {
        CatalogueCandidate {
            name: format!("{runtime}:x"),
            environment: environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            runtime: Some(RuntimeSettings {
                runtime,
                versions: VersionRange::default(),
                arguments: arguments.iter().map(|&one| one.into()).collect(),
                yields_to: vec![],
                is_bare: false,
            }),
            ..CatalogueCandidate::default()
        }
    }

    fn found(runtime: Runtime, entry: RuntimeEntry, version: Option<&str>) -> FoundRuntime {
        FoundRuntime { runtime, by: "x".into(), version: version.map(Into::into), entry }
    }

    fn fit(
        candidate: &CatalogueCandidate,
        found: &[FoundRuntime],
        limit: Option<u64>,
    ) -> Result<Fitted, String> {
        let environment = Variables::new();
        fitted(
            candidate,
            &StartOfProgram {
                found,
                file: Path::new("/p"),
                words: &[],
                has_files: false,
                is_by_script: false,
                unfit: None,
                environment: &environment,
                memory_limit: limit,
            },
        )
    }

    #[test]
    fn only_programs_of_the_runtime_get_it() {
        let gogc = candidate(Runtime::Go, &[], &[("GOGC", "200")]);
        let go = found(Runtime::Go, RuntimeEntry::Own, Some("1.26.8"));
        let node = found(Runtime::Node, RuntimeEntry::Own, None);
        assert!(fit(&gogc, std::slice::from_ref(&go), None).unwrap().runtime.unwrap().is_bare);
        assert!(
            fit(&gogc, std::slice::from_ref(&node), None).unwrap_err().contains("this is one of Node.js")
        );
        assert!(fit(&gogc, &[], None).is_err());
        assert!(fit(&gogc, &[go, node], None).unwrap_err().contains("several runtimes"));
        let inside = found(Runtime::Jvm, RuntimeEntry::Inside, None);
        assert!(fit(&candidate(Runtime::Jvm, &["-x"], &[]), &[inside], None).unwrap_err().contains("inside"));
    }

    #[test]
    fn a_version_that_is_out_of_range_or_unknown_does_not_get_it() {
        let mut limited = candidate(Runtime::Go, &[], &[("GOMEMLIMIT", "{memory_limit 90%}")]);
        limited.runtime.as_mut().unwrap().versions = VersionRange::parse(">=1.19").unwrap();
        let of = |version, limit| fit(&limited, &[found(Runtime::Go, RuntimeEntry::Own, version)], limit);
        assert_eq!(of(Some("1.26"), Some(1000)).unwrap().environment["GOMEMLIMIT"], "900");
        assert!(of(Some("1.18.1"), Some(1000)).unwrap_err().contains("this is 1.18.1"));
        assert!(of(None, Some(1000)).unwrap_err().contains("not known"));
        assert!(of(Some("1.26"), None).unwrap_err().contains("control group"));
    }

    #[test]
    fn mimalloc_of_cpython_is_for_3_13_and_later() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../allocators/catalogue.toml");
        let catalogue = crate::catalogue::Catalogue::read(&[file]);
        let mimalloc = catalogue.find("cpython:mimalloc").unwrap();
        let python = |version| found(Runtime::Cpython, RuntimeEntry::Own, Some(version));
        for version in ["3.13", "3.13.2", "3.14"] {
            let fitted = fit(mimalloc, &[python(version)], None).unwrap();
            assert_eq!(fitted.environment["PYTHONMALLOC"], "mimalloc", "{version}");
            assert_eq!(unasked_obstacle(mimalloc, &python(version)), None, "{version}");
        }
        assert!(fit(mimalloc, &[python("3.12.9")], None).unwrap_err().contains("this is 3.12.9"));
        assert!(unasked_obstacle(mimalloc, &python("3.8+")).unwrap().contains("is not known"));
    }

    #[test]
    fn where_nobody_asks_the_version_must_be_known() {
        let mut semi = candidate(Runtime::Node, &[], &[("NODE_OPTIONS", "--x")]);
        let node = |version| found(Runtime::Node, RuntimeEntry::Own, version);
        assert_eq!(unasked_obstacle(&semi, &node(None)), None, "it is for all versions");
        semi.runtime.as_mut().unwrap().versions = VersionRange::parse(">=18.18").unwrap();
        assert!(unasked_obstacle(&semi, &node(None)).unwrap().contains("is not known"));
        assert!(unasked_obstacle(&semi, &node(Some("16.20.2"))).unwrap().contains("this is 16.20.2"));
        assert_eq!(unasked_obstacle(&semi, &node(Some("18.18+"))), None);
        for range in [">=20", ">=18,<22"] {
            semi.runtime.as_mut().unwrap().versions = VersionRange::parse(range).unwrap();
            let oldest = node(Some("18.18+"));
            assert!(unasked_obstacle(&semi, &oldest).unwrap().contains("is not known"), "{range}");
            assert!(fit(&semi, &[oldest], None).is_ok(), "a start shows it");
        }
        assert!(fit(&semi, &[node(None)], None).is_ok(), "a start shows it");
        assert_eq!(unasked_obstacle(&CatalogueCandidate::default(), &node(None)), None);
    }

    #[test]
    fn tools_of_the_jdk_hand_their_options_on() {
        let serial = candidate(Runtime::Jvm, &["-XX:+UseSerialGC"], &[]);
        let words: Vec<OsString> = vec!["javac".into(), "A.java".into()];
        let of =
            |entry| with_arguments(&fit(&serial, &[found(Runtime::Jvm, entry, None)], None).unwrap(), &words);
        assert_eq!(of(RuntimeEntry::Tool), ["javac", "-J-XX:+UseSerialGC", "A.java"]);
        assert_eq!(of(RuntimeEntry::Own), ["javac", "-XX:+UseSerialGC", "A.java"]);
        assert!(with_arguments(&serial, &[]).len() == 1);
    }

    fn of(options: &[&str], version: Option<&str>) -> CatalogueCandidate {
        let arguments = options.iter().map(|&one| one.to_owned()).collect();
        let settings = RuntimeSettings { arguments, ..RuntimeSettings::of(Runtime::Jvm) };
        let candidate = CatalogueCandidate { runtime: Some(settings), ..CatalogueCandidate::default() };
        let found = FoundRuntime {
            runtime: Runtime::Jvm,
            by: String::new(),
            version: version.map(Into::into),
            entry: RuntimeEntry::Own,
        };
        hidden_flags(candidate, &found, &["-XX:+UseG1GC".to_owned(), "@".to_owned()])
    }

    #[test]
    fn options_become_flags_where_the_jvm_describes_them() {
        let lean = of(&["-XX:+UseSerialGC", "-XX:MinHeapFreeRatio=10"], Some("17.0.15"));
        assert_eq!(lean.environment[JVM_FLAGS], "+UseSerialGC MinHeapFreeRatio=10");
        assert_eq!(lean.environment[JVM_YIELDS], "-XX:+UseG1GC @");
        assert!(lean.runtime.as_ref().unwrap().arguments.is_empty());
        let asked = jvm_options(&lean, RuntimeEntry::Tool);
        assert_eq!(asked, ["-J-XX:+UseSerialGC", "-J-XX:MinHeapFreeRatio=10"]);
        for version in [None, Some("11.0.2"), Some("8.0_402")] {
            assert!(of(&["-XX:+UseSerialGC"], version).environment.is_empty(), "{version:?}");
        }
        for other in ["-Xss1m", "-XX:OnError=x", "-XX:+", "-XX:=1", "-XX:A=-1", "-XX:A=1m", "-XX:+A B"] {
            let candidate = of(&["-XX:+UseSerialGC", other], Some("25"));
            assert!(candidate.environment.is_empty(), "{other}");
            assert_eq!(candidate.runtime.unwrap().arguments.len(), 2, "{other}");
        }
    }
}
