// SPDX-License-Identifier: Apache-2.0
//! What the user has set already, on the command line and in the environment. It wins.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use imas_core::printable;

use super::StartOfProgram;
use crate::catalogue::CatalogueCandidate;
use crate::runtime::{Entry, FoundRuntime, Runtime, RuntimeSettings, list_sign};

/// Why the candidate would change something that the user has set; `None` when it would not.
pub(super) fn user_value(
    candidate: &CatalogueCandidate,
    found: &FoundRuntime,
    start: &StartOfProgram<'_>,
) -> Option<String> {
    let settings = candidate.runtime.as_ref()?;
    let own_names = candidate.environment.keys().filter(|name| list_sign(name).is_none());
    let yielded = settings.yields_to.iter().filter(|name| !is_option(name));
    if let Some(name) = own_names.chain(yielded).find(|name| start.environment.contains_key(name.as_str())) {
        return Some(format!("{name} is set already"));
    }
    let taken = taken(candidate, settings);
    let given = given(settings.runtime, found, start);
    given.into_iter().find_map(|(option, from)| {
        let option = like_ours(settings.runtime, &option);
        let is_taken = taken.iter().any(|beginning| option.starts_with(beginning.as_str()));
        let shown = || printable::name(&option.chars().take(64).collect::<String>()).into_owned();
        match is_taken {
            true => Some(format!("{} is given already ({from})", shown())),
            false if hides_options(settings.runtime, &option) => {
                Some(format!("options may be given in a file, which is not read ({})", shown()))
            }
            false => None,
        }
    })
}

fn is_option(text: &str) -> bool {
    text.starts_with(['-', '+']) || text.ends_with('=')
}

/// Beginnings of the options that the candidate sets, and of those that it yields to.
fn taken(candidate: &CatalogueCandidate, settings: &RuntimeSettings) -> Vec<String> {
    let in_lists = candidate
        .environment
        .iter()
        .filter_map(|(name, list)| Some(list.split(list_sign(name).filter(|_| name != "GLIBC_TUNABLES")?)));
    let own = settings.arguments.iter().map(String::as_str).chain(in_lists.flatten());
    let beginnings = own.flat_map(|option| beginnings(settings.runtime, option));
    let yielded = settings.yields_to.iter().filter(|one| is_option(one)).cloned();
    beginnings.chain(yielded).collect()
}

/// Collectors of HotSpot, as their options name them.
const COLLECTORS: [&str; 9] = [
    "UseSerialGC",
    "UseParallelGC",
    "UseParallelOldGC",
    "UseG1GC",
    "UseZGC",
    "UseShenandoahGC",
    "UseEpsilonGC",
    "UseConcMarkSweepGC",
    "UseParNewGC",
];

/// What an option with the same effect begins with.
fn beginnings(runtime: Runtime, option: &str) -> Vec<String> {
    if let Some((key, _)) = option.split_once('=') {
        return vec![format!("{key}=")];
    }
    match option.strip_prefix("-XX:+").filter(|_| runtime == Runtime::Jvm) {
        // Only one collector can be chosen.
        Some(name) if COLLECTORS.contains(&name) => {
            let any = COLLECTORS.iter().map(|one| format!("-XX:+{one}"));
            any.chain([format!("-XX:-{name}")]).collect()
        }
        Some(name) => vec![option.to_owned(), format!("-XX:-{name}")],
        None if option.is_empty() => vec![],
        None => vec![option.to_owned()],
    }
}

/// Node.js takes `_` for `-` in names.
fn like_ours(runtime: Runtime, option: &str) -> String {
    match option.split_once('=') {
        _ if runtime != Runtime::Node => option.to_owned(),
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")),
        None => option.replace('_', "-"),
    }
}

/// Whether the option names a file with further options.
fn hides_options(runtime: Runtime, option: &str) -> bool {
    let files = ["@", "-XX:Flags=", "-XX:VMOptionsFile="];
    runtime == Runtime::Jvm && files.iter().any(|file| option.starts_with(file))
}

/// Options of the runtime that the user gives, and where.
fn given(runtime: Runtime, found: &FoundRuntime, start: &StartOfProgram<'_>) -> Vec<(String, &'static str)> {
    let variables: &[&'static str] = match runtime {
        Runtime::Jvm => &["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"],
        Runtime::Node => &["NODE_OPTIONS"],
        Runtime::Beam => &["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"],
        Runtime::Ocaml => &["OCAMLRUNPARAM", "CAMLRUNPARAM"],
        Runtime::Go => &["GODEBUG"],
        Runtime::Ruby | Runtime::Php | Runtime::Cpython | Runtime::Dotnet => &[],
    };
    let of_variable = |name: &&'static str| {
        let sign = list_sign(name).unwrap_or(',');
        let values: Vec<_> = start.environment.values(OsStr::new(name)).collect();
        let words = move |value: &OsString| -> Vec<String> {
            value
                .to_string_lossy()
                .split(sign)
                .map(|word| word.trim_matches(['"', '\'']).to_owned())
                .collect()
        };
        let name = *name;
        values.into_iter().flat_map(words).map(move |word| (word, name)).collect::<Vec<_>>()
    };
    let words = match (runtime, found.entry) {
        (Runtime::Jvm, Entry::Tool) => of_tool(start.words),
        (Runtime::Jvm | Runtime::Node, _) => leading(start.words),
        (Runtime::Beam, _) => start.words.iter().map(text).collect(),
        _ => vec![],
    };
    let words = words.into_iter().map(|word| (word, "command line"));
    variables.iter().flat_map(of_variable).chain(words).filter(|(word, _)| !word.is_empty()).collect()
}

fn text(word: &OsString) -> String {
    word.to_string_lossy().into_owned()
}

fn of_tool(words: &[OsString]) -> Vec<String> {
    let handed_on = |word: &OsString| Some(text(word).strip_prefix("-J")?.to_owned());
    words.iter().filter_map(handed_on).collect()
}

/// Options with their value in the next word.
const WITH_VALUE: [&str; 18] = [
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--add-exports",
    "--add-opens",
    "--add-reads",
    "--limit-modules",
    "--patch-module",
    "-r",
    "--require",
    "--import",
    "--loader",
    "-C",
    "--conditions",
];
/// Options before what is run; what follows them is the program's.
const LAST: [&str; 7] = ["-jar", "-m", "--module", "-e", "--eval", "--", "-"];

/// The options before what is run.
fn leading(words: &[OsString]) -> Vec<String> {
    let mut options = vec![];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if LAST.iter().any(|last| bytes == last.as_bytes())
            || !(bytes.starts_with(b"-") || bytes.starts_with(b"@"))
        {
            break;
        }
        if WITH_VALUE.iter().any(|one| bytes == one.as_bytes()) {
            words.next();
        }
        options.push(text(word));
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::VersionRange;
    use crate::variables::Variables;
    use std::path::Path;

    struct Case {
        runtime: Runtime,
        entry: Entry,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
        yields_to: Vec<String>,
    }

    fn jvm(arguments: &[&str], yields_to: &[&str]) -> Case {
        Case {
            runtime: Runtime::Jvm,
            entry: Entry::Own,
            arguments: arguments.iter().map(|&one| one.into()).collect(),
            environment: vec![],
            yields_to: yields_to.iter().map(|&one| one.into()).collect(),
        }
    }

    fn by_variable(runtime: Runtime, name: &str, value: &str, yields_to: &[&str]) -> Case {
        let environment = vec![(name.into(), value.into())];
        Case { runtime, environment, ..jvm(&[], yields_to) }
    }

    impl Case {
        fn why(&self, line: &str, variables: &[(&str, &str)]) -> Option<String> {
            let candidate = CatalogueCandidate {
                environment: self.environment.iter().cloned().collect(),
                runtime: Some(RuntimeSettings {
                    runtime: self.runtime,
                    versions: VersionRange::default(),
                    arguments: self.arguments.clone(),
                    yields_to: self.yields_to.clone(),
                    is_bare: false,
                }),
                ..CatalogueCandidate::default()
            };
            let found =
                FoundRuntime { runtime: self.runtime, by: String::new(), version: None, entry: self.entry };
            let environment: Variables = variables.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            let words: Vec<OsString> =
                line.split(' ').filter(|word| !word.is_empty()).map(Into::into).collect();
            let start = StartOfProgram {
                found: std::slice::from_ref(&found),
                file: Path::new("/p"),
                words: &words,
                is_by_script: false,
                unfit: None,
                environment: &environment,
                memory_limit: None,
            };
            user_value(&candidate, &found, &start)
        }
    }

    #[test]
    fn a_variable_of_one_value_wins_whatever_it_is() {
        let gogc = by_variable(Runtime::Go, "GOGC", "200", &["GOMEMLIMIT"]);
        assert_eq!(gogc.why("", &[("GOGC", "")]).unwrap(), "GOGC is set already");
        assert!(gogc.why("", &[("GOMEMLIMIT", "1GiB")]).is_some());
        assert_eq!(gogc.why("GOGC=1", &[("HOME", "/")]), None);
    }

    #[test]
    fn options_of_the_jvm_count_wherever_they_are_given() {
        let serial = jvm(&["-XX:+UseSerialGC"], &["-Xmx", "-XX:MaxHeap"]);
        assert!(serial.why("-cp x -Xmx64m Main", &[]).unwrap().contains("-Xmx64m is given already"));
        for variable in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"] {
            assert!(serial.why("Main", &[(variable, "-Dx=y -XX:+UseG1GC")]).unwrap().contains(variable));
        }
        assert!(serial.why("-XX:-UseSerialGC Main", &[]).is_some());
        assert_eq!(serial.why("-cp x Main -Xmx64m -XX:+UseG1GC", &[]), None, "the program's own");
        assert_eq!(serial.why("-jar a.jar -Xmx64m", &[]), None);
        assert!(serial.why("@options Main", &[]).unwrap().contains("file"));
        assert!(serial.why("", &[("JDK_JAVA_OPTIONS", "@options")]).unwrap().contains("file"));
        let tool = Case { entry: Entry::Tool, ..jvm(&["-XX:+UseSerialGC"], &["-Xmx"]) };
        assert!(tool.why("A.java -J-Xmx64m", &[]).is_some());
        assert_eq!(tool.why("@files -Xmx64m", &[]), None);
    }

    #[test]
    fn options_of_node_count_in_either_spelling() {
        let semi =
            by_variable(Runtime::Node, "NODE_OPTIONS", "--max-semi-space-size=8", &["--max-old-space-size"]);
        assert!(semi.why("", &[("NODE_OPTIONS", "--max_semi_space_size=1")]).is_some());
        assert!(semi.why("-r x --max-old-space-size=100 a.js", &[]).is_some());
        assert_eq!(
            semi.why("a.js --max-old-space-size=100", &[("NODE_OPTIONS", "--enable-source-maps")]),
            None
        );
    }

    #[test]
    fn parts_of_a_list_count_by_their_name() {
        let space = by_variable(Runtime::Ocaml, "OCAMLRUNPARAM", "o=200,s=1M", &[]);
        assert!(space.why("", &[("OCAMLRUNPARAM", "b,o=80")]).is_some());
        assert!(space.why("", &[("CAMLRUNPARAM", "s=4k")]).is_some());
        assert_eq!(space.why("", &[("OCAMLRUNPARAM", "b")]), None);
        let order = by_variable(Runtime::Beam, "ERL_FLAGS", "+MBas aobf", &[]);
        assert!(order.why("+MBas bf", &[]).is_some() && order.why("-noshell", &[]).is_none());
    }
}
