// SPDX-License-Identifier: Apache-2.0
//! Settings that an application of .NET brings with it, in `APP.runtimeconfig.json` beside `APP.dll`. A
//! variable wins over that file, so a candidate whose variable stands for one of its properties is not offered.
//! Neither is the collector of workstations to an application that has it by default.
//!
//! Code caches that a script of Node.js makes or needs. V8 takes one only under the settings that it was made under: it
//! is slower where it was made in a trial, and a script that insists on its own fails.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use imas_core::printable;
use serde_json::Value;

use super::StartOfProgram;
use crate::catalogue::CatalogueCandidate;
use crate::files;
use crate::interpreter_target::Interpreter;
use crate::runtime::Runtime;

/// Bytes of such a file that are read: the SDK writes one or two kibibytes.
const MOST_BYTES: usize = 64 << 10;
/// Option of the host that names the file.
const NAMED: &str = "--runtimeconfig";
/// Options of the host, which stand before all other words. Each has its value in the next word.
const OF_HOST: [&str; 7] = [
    NAMED,
    "--additional-deps",
    "--additionalprobingpath",
    "--depsfile",
    "--fx-version",
    "--roll-forward",
    "--roll-forward-on-no-candidate-fx",
];
/// The SDK writes this property as `true` into each application of this framework.
const OF_SDK: (&str, &str) = ("System.GC.Server", "Microsoft.AspNetCore.App");
/// Setting of the collector of workstations, which every application has that does not set the other.
const OF_WORKSTATIONS: (&str, &str) = ("DOTNET_gcServer", "0");
/// Beginning of the names of properties.
const PROPERTY: &str = "System.";

/// Why the candidate would change something that the application sets, or nothing at all; `None` where it is of use.
pub(super) fn obstacle(candidate: &CatalogueCandidate, start: &StartOfProgram<'_>) -> Option<String> {
    let settings = candidate.runtime.as_ref().filter(|settings| settings.runtime == Runtime::Dotnet)?;
    let own = candidate.environment.keys().filter_map(|variable| property(variable));
    let yielded = settings.yields_to.iter().filter(|name| name.starts_with(PROPERTY)).cloned();
    let properties: Vec<String> = own.chain(yielded).collect();
    if !start.has_files || properties.is_empty() {
        return None;
    }
    let application = match Application::of(start) {
        Ok(application) => application,
        Err(why) => return Some(why),
    };
    let (collector, of_workstations) = OF_WORKSTATIONS;
    let chooses = candidate.environment.get(collector).is_some_and(|value| value == of_workstations);
    let is_idle = chooses && !application.has_collector_of_servers();
    let idle = || is_idle.then(|| "the application has no collector of servers".to_owned());
    application.set_already(&properties).or_else(idle)
}

/// The property that the variable stands for: `System.GC.Server` for `DOTNET_gcServer`; `None` for others.
fn property(variable: &str) -> Option<String> {
    let (collector, name) = variable.strip_prefix("DOTNET_")?.split_at_checked(2)?;
    collector.eq_ignore_ascii_case("gc").then(|| format!("{PROPERTY}GC.{name}"))
}

/// Settings that an application brings with it.
struct Application {
    /// The file, and `runtimeOptions` in it and in its developer's.
    file: PathBuf,
    options: Value,
    of_developer: Value,
}

impl Application {
    /// The application that is started.
    ///
    /// # Errors
    /// Why its settings are not known, as a clause for people.
    fn of(start: &StartOfProgram<'_>) -> Result<Self, String> {
        const NOT_FOUND: &str = "the runtimeconfig.json of its application is not found";
        let file = config_file(start).ok_or(NOT_FOUND)?;
        let options = read_options(&file)?.ok_or(NOT_FOUND)?;
        let of_developer = read_options(&file.with_extension("dev.json"))?.unwrap_or_default();
        Ok(Self { file, options, of_developer })
    }

    /// The first of these properties that it sets, as a clause for people.
    fn set_already(&self, properties: &[String]) -> Option<String> {
        let is_set = |property: &&String| sets(&self.options, property) || sets(&self.of_developer, property);
        let first = properties.iter().find(is_set)?;
        Some(format!("{first} is set already ({})", shown(&self.file)))
    }

    /// Whether the SDK has given it that collector. Where the author has, nothing is offered anyway.
    fn has_collector_of_servers(&self) -> bool {
        let all = self.options.get("configProperties");
        all.and_then(|all| all.get(OF_SDK.0)).is_some_and(|value| is_of_sdk(&self.options, OF_SDK.0, value))
    }
}

/// The file with the settings of the application that is started.
fn config_file(start: &StartOfProgram<'_>) -> Option<PathBuf> {
    let is_muxer = Interpreter::of(start.file) == Some(Interpreter::Dotnet);
    let words = match start.words {
        [first, rest @ ..] if is_muxer && first.eq_ignore_ascii_case("exec") => rest,
        words => words,
    };
    let (named, words) = of_host(words);
    if let Some(named) = named {
        return Some(named.into());
    }
    let application = match is_muxer {
        true => words.first().map(PathBuf::from).filter(|word| is_managed(word))?,
        false => with_ending(start.file, ".dll")?,
    };
    // The host follows links before it looks for the file.
    with_ending(&std::fs::canonicalize(application).ok()?.with_extension(""), ".runtimeconfig.json")
}

/// The file that the options of the host name, and the words behind these options.
fn of_host(mut words: &[OsString]) -> (Option<&OsString>, &[OsString]) {
    let mut named = None;
    while let [option, value, rest @ ..] = words
        && OF_HOST.iter().any(|one| option.eq_ignore_ascii_case(one))
    {
        if option.eq_ignore_ascii_case(NAMED) {
            named = Some(value);
        }
        words = rest;
    }
    (named, words)
}

/// Whether `dotnet` runs that file. Another word is a command of the SDK, which starts applications in turn.
fn is_managed(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ["dll", "exe"].iter().any(|one| ending.eq_ignore_ascii_case(one)))
}

fn with_ending(file: &Path, ending: &str) -> Option<PathBuf> {
    let mut name = file.file_name()?.to_owned();
    name.push(ending);
    Some(file.with_file_name(name))
}

/// `runtimeOptions` of the file; `None` where there is no such file.
///
/// # Errors
/// Why the file cannot be read, as a clause for people.
fn read_options(file: &Path) -> Result<Option<Value>, String> {
    let bytes = match files::read_plain(file, MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{} cannot be read: {error}", shown(file))),
    };
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let read: Result<Value, _> = serde_json::from_slice(text);
    let mut read = read.map_err(|error| format!("{} cannot be read: {error}", shown(file)))?;
    Ok(Some(read.get_mut("runtimeOptions").map(Value::take).unwrap_or_default()))
}

fn sets(options: &Value, property: &str) -> bool {
    let all = options.get("configProperties").and_then(Value::as_object);
    let is_it = |(name, value): (&String, &Value)| {
        name.eq_ignore_ascii_case(property) && !is_of_sdk(options, name, value)
    };
    all.into_iter().flatten().any(is_it)
}

/// Whether the SDK has set it, and not the one who wrote the application.
fn is_of_sdk(options: &Value, property: &str, value: &Value) -> bool {
    let lists = ["frameworks", "includedFrameworks"].map(|name| options.get(name).and_then(Value::as_array));
    let mut frameworks = options.get("framework").into_iter().chain(lists.into_iter().flatten().flatten());
    (property, value) == (OF_SDK.0, &Value::Bool(true))
        && frameworks.any(|framework| framework.get("name").and_then(Value::as_str) == Some(OF_SDK.1))
}

fn shown(file: &Path) -> String {
    printable::name(&file.file_name().unwrap_or_default().to_string_lossy()).into_owned()
}

/// Bundles of one file have some megabytes.
const MOST_SCRIPT_BYTES: usize = 8 << 20;
/// Parts of the names by which a script asks V8, Node.js or a package for such a cache.
const NAMES: [&[u8]; 4] = [b"achedData", b"ompileCache", b"compile-cache", b"bytenode"];

/// Why the script does not get the candidate; `None` where its own file names no cache. What it loads is not read.
pub(super) fn script_obstacle(candidate: &CatalogueCandidate, start: &StartOfProgram<'_>) -> Option<String> {
    let is_of_node = candidate.runtime.as_ref().is_some_and(|settings| settings.runtime == Runtime::Node);
    if !is_of_node || !start.has_files {
        return None;
    }
    let words = start.words.iter().map(Path::new);
    let script = words
        .into_iter()
        .find(|word| !word.as_os_str().as_encoded_bytes().starts_with(b"-") && word.is_file())?;
    let text = files::read_plain(script, MOST_SCRIPT_BYTES).ok()?;
    let has = |name: &&[u8]| text.windows(name.len()).any(|part| part == *name);
    NAMES
        .iter()
        .any(has)
        .then(|| "its script uses code caches of V8, which hold under its own settings alone".to_owned())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::runtime::RuntimeSettings;
    use crate::variables::Variables;

    /// A folder with an application and its file of settings.
    struct App {
        folder: tempfile::TempDir,
    }

    impl App {
        fn with(config: impl AsRef<[u8]>) -> Self {
            let app = Self { folder: tempfile::tempdir().unwrap() };
            std::fs::write(app.path("my.app.dll"), "").unwrap();
            std::fs::write(app.path("my.app.runtimeconfig.json"), config).unwrap();
            app
        }

        /// An application that sets these properties.
        fn setting(properties: &str) -> Self {
            Self::with(format!(r#"{{ "runtimeOptions": {{ "configProperties": {{ {properties} }} }} }}"#))
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Why a start of the file with these words does not get `DOTNET_gcServer`. Where a word is a file of
        /// the folder, that is meant.
        fn why(&self, file: &str, words: &[&str]) -> Option<String> {
            why("DOTNET_gcServer", &self.path(file), words.iter().map(|word| self.word(word)).collect())
        }

        fn word(&self, word: &str) -> OsString {
            let is_file = self.path(word).exists();
            if is_file { self.path(word).into() } else { word.into() }
        }

        /// Answer for the app host, and for `dotnet my.app.dll`.
        fn why_not(&self) -> Option<String> {
            let by_host = self.why("my.app", &["--port", "80"]);
            assert_eq!(self.why("dotnet", &["my.app.dll", "x"]), by_host);
            by_host
        }
    }

    fn why(variable: &str, file: &Path, words: Vec<OsString>) -> Option<String> {
        let settings = RuntimeSettings {
            yields_to: vec!["System.GC.HeapCount".into(), "COMPlus_gcServer".into()],
            ..RuntimeSettings::of(Runtime::Dotnet)
        };
        let candidate = CatalogueCandidate {
            environment: [(variable.to_owned(), "0".to_owned())].into(),
            runtime: Some(settings),
            ..CatalogueCandidate::default()
        };
        let start = StartOfProgram {
            found: &[],
            file,
            words: &words,
            has_files: true,
            is_by_script: false,
            unfit: None,
            environment: &Variables::new(),
            memory_limit: None,
        };
        assert_eq!(obstacle(&candidate, &StartOfProgram { has_files: false, ..start }), None);
        obstacle(&candidate, &start)
    }

    const IDLE: &str = "the application has no collector of servers";
    const ALREADY: &str = "System.GC.Server is set already (my.app.runtimeconfig.json)";

    #[test]
    fn what_the_application_sets_wins_whatever_the_value() {
        for value in ["true", "false", "\"true\"", "null"] {
            assert_eq!(App::setting(&format!("\"System.GC.Server\": {value}")).why_not().unwrap(), ALREADY);
        }
        let yielded = App::setting(r#""System.GC.HeapCount": 4"#).why_not().unwrap();
        assert!(yielded.starts_with("System.GC.HeapCount is set already"), "{yielded}");
        let other = App::setting(r#""System.GC.Concurrent": false, "Mine": { "System.GC.Server": true }"#);
        assert_eq!(other.why_not().unwrap(), IDLE);
        assert_eq!(App::with("\u{feff}{ \"runtimeOptions\": {} }").why_not().unwrap(), IDLE);
        std::fs::write(
            other.path("my.app.runtimeconfig.dev.json"),
            r#"{ "runtimeOptions": { "configProperties": { "System.GC.Server": true } } }"#,
        )
        .unwrap();
        assert_eq!(other.why_not().unwrap(), ALREADY);
    }

    #[test]
    fn properties_go_by_the_names_of_variables() {
        assert_eq!(property("DOTNET_GCConserveMemory").unwrap(), "System.GC.ConserveMemory");
        for other in ["DOTNET_", "DOTNET_é", "DOTNET_TieredPGO", "GCHeapCount"] {
            assert_eq!(property(other), None, "{other}");
        }
        let app = App::setting(r#""System.GC.Gen0Size": 1"#);
        let of = |variable| why(variable, &app.path("my.app"), vec![]);
        assert!(of("DOTNET_GCgen0size").is_some() && of("DOTNET_GCRetainVM").is_none());
    }

    #[test]
    fn what_the_sdk_writes_into_every_web_application_is_no_value_of_a_user() {
        let config = |frameworks: &str, value: &str| {
            let properties = format!(r#""configProperties": {{ "System.GC.Server": {value} }}"#);
            App::with(format!(r#"{{ "runtimeOptions": {{ {frameworks}, {properties} }} }}"#)).why_not()
        };
        let framework = |name: &str| format!(r#"{{ "name": "Microsoft.{name}.App" }}"#);
        let (web, base) = (framework("AspNetCore"), framework("NETCore"));
        for frameworks in [
            format!(r#""framework": {web}"#),
            format!(r#""frameworks": [{base}, {web}]"#),
            format!(r#""includedFrameworks": [{base}, {web}]"#),
        ] {
            assert_eq!(config(&frameworks, "true"), None, "{frameworks}");
            assert_eq!(config(&frameworks, "false").unwrap(), ALREADY, "{frameworks}");
        }
        assert_eq!(config(&format!(r#""framework": {base}"#), "true").unwrap(), ALREADY);
        assert_eq!(config(r#""frameworks": "none""#, "true").unwrap(), ALREADY);
    }

    #[test]
    fn the_file_is_the_one_that_the_host_reads() {
        let app = App::setting(r#""System.GC.Server": true"#);
        std::fs::write(app.path("other.json"), r#"{ "runtimeOptions": {} }"#).unwrap();
        let of = |words: &[&str]| app.why("dotnet", words);
        let own = ["exec", "--Depsfile", "x", "my.app.dll", "--runtimeconfig", "other.json"];
        assert_eq!(of(&own).unwrap(), ALREADY, "behind the application the words are its own");
        assert_eq!(of(&["exec", "--runtimeconfig", "other.json", "my.app.dll"]).unwrap(), IDLE);
        assert_eq!(app.why("my.app", &["--runtimeconfig", "other.json"]).unwrap(), IDLE);
        assert_eq!(app.why("my.app", &["exec", "--runtimeconfig", "other.json"]).unwrap(), ALREADY);
        std::os::unix::fs::symlink(app.path("my.app.dll"), app.path("link.dll")).unwrap();
        assert_eq!(of(&["link.dll"]).unwrap(), ALREADY, "links are followed");
        let unknown =
            [&[][..], &["build"], &["run", "my.app.dll"], &["exec"], &["none.dll"], &["--fx-version"]];
        for words in unknown {
            assert!(of(words).unwrap().contains("is not found"), "{words:?}");
        }
        assert!(app.why("renamed", &[]).unwrap().contains("is not found"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_reason() {
        let deep = format!(r#"{{ "runtimeOptions": {}"#, "[".repeat(10_000));
        for broken in ["", "{", "{ /* a comment */ }", &deep, "\u{0}", "{} x"] {
            let why = App::with(broken).why_not().unwrap();
            assert!(why.starts_with("my.app.runtimeconfig.json cannot be read"), "{broken:.20}: {why}");
        }
        let no_object = r#"{ "runtimeOptions": { "configProperties": [] } }"#;
        for odd in ["[]", "1", "null", r#"{ "runtimeOptions": 1 }"#, no_object] {
            assert_eq!(App::with(odd).why_not().unwrap(), IDLE, "the host does not start it: {odd}");
        }
        assert!(App::with(vec![b' '; MOST_BYTES + 1]).why_not().is_some());
        let app = App::setting("");
        let file = app.path("my.app.runtimeconfig.json");
        std::fs::remove_file(&file).unwrap();
        assert!(app.why_not().unwrap().contains("is not found"));
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        assert!(app.why_not().is_some(), "nobody waits for a FIFO");
    }

    #[test]
    fn a_script_that_makes_code_caches_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a.js");
        let candidate = CatalogueCandidate {
            runtime: Some(RuntimeSettings::of(Runtime::Node)),
            ..CatalogueCandidate::default()
        };
        let why = |text: &str, words: &[&str]| {
            std::fs::write(&script, text).unwrap();
            let mut words: Vec<OsString> = words.iter().map(Into::into).collect();
            words.push(script.clone().into());
            let environment = Variables::new();
            let start = StartOfProgram {
                found: &[],
                file: Path::new("/p"),
                words: &words,
                has_files: true,
                is_by_script: false,
                unfit: None,
                environment: &environment,
                memory_limit: None,
            };
            script_obstacle(&candidate, &start)
        };
        for text in
            ["new vm.Script(s, {cachedData})", "script.createCachedData()", "require('v8-compile-cache')"]
        {
            assert!(why(text, &["--no-warnings", "-r", "x"]).is_some(), "{text}");
        }
        assert_eq!(why("console.log('data')", &[]), None);
    }
}
