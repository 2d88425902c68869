// SPDX-License-Identifier: Apache-2.0
//! Values that the user has set already, on the command line and in the environment. They win.

use std::ffi::{OsStr, OsString};

use imas_core::printable;

use super::StartOfProgram;
use crate::catalogue::CatalogueCandidate;
use crate::runtime::{FoundRuntime, Runtime, RuntimeEntry, RuntimeSettings, list_sign, only};

/// Why the candidate would change something that the user has set; `None` when it would not.
pub(super) fn user_value(
    candidate: &CatalogueCandidate,
    found: &FoundRuntime,
    start: &StartOfProgram<'_>,
) -> Option<String> {
    let settings = candidate.runtime.as_ref()?;
    let own_names = candidate.environment.keys().filter(|name| list_sign(name).is_none());
    let yielded = settings.yields_to.iter().filter(|name| !is_option(name)).map(String::as_str);
    let keeping = keeping(settings.runtime).iter().copied().filter(|name| !is_option(name));
    let mut names = own_names.map(String::as_str).chain(yielded).chain(keeping);
    if let Some(name) = names.find(|name| start.environment.contains_key(name)) {
        return Some(format!("{name} is set already"));
    }
    if let Some(why) = too_long(candidate, settings.runtime, start) {
        return Some(why);
    }
    let taken = taken(candidate, settings);
    let given = given(settings.runtime, found, start);
    let is_whole = settings.arguments.iter().all(|own| given.iter().any(|(option, _)| option == own));
    given.into_iter().find_map(|(option, from)| {
        let option = like_ours(settings.runtime, &option);
        let is_same = !is_whole && settings.arguments.contains(&option);
        let is_taken = !is_same && taken.iter().any(|beginning| option.starts_with(beginning.as_str()));
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

/// Words that a process which does not know its runtime yields to, as the catalogue table has them:
/// beginnings of options, and names of variables.
pub(crate) fn words_of_user(candidate: &CatalogueCandidate) -> Vec<String> {
    let Some(settings) = &candidate.runtime else { return vec![] };
    let given = taken(candidate, settings).into_iter().filter(|option| option.starts_with('-'));
    let options = given.map(|option| option.trim_end_matches('=').to_owned());
    let keeping = keeping(settings.runtime).iter().map(|&name| name.to_owned());
    let yielded = settings.yields_to.iter().cloned().chain(keeping).filter(|name| !is_option(name));
    let with_options = variables_with_options(settings.runtime).iter().map(|&name| name.to_owned());
    options.chain(yielded).chain(with_options).collect()
}

/// Beginnings of options with which a JVM of the candidate's reach keeps its own settings. One that names a file of options
/// is among them.
pub(super) fn given_to_jvm(candidate: &CatalogueCandidate) -> Vec<String> {
    let settings = candidate.runtime.as_ref().filter(|settings| settings.runtime == Runtime::Jvm);
    let taken = settings.map(|settings| taken(candidate, settings)).unwrap_or_default();
    taken.into_iter().chain(files_of_options(Runtime::Jvm).iter().map(|&file| file.to_owned())).collect()
}

/// An option in the text that contradicts the candidate's: where the text may become a command line of the runtime.
#[must_use]
pub fn contradicted(candidate: &CatalogueCandidate, text: &str) -> Option<String> {
    let settings = candidate.runtime.as_ref()?;
    let taken = taken(candidate, settings);
    let words = text.split_ascii_whitespace().map(|word| word.trim_matches(['"', '\'', '=']));
    let options = words.map(|word| like_ours(settings.runtime, word));
    let is_same = |option: &String| settings.arguments.contains(option);
    let mut options = options.filter(|option| !option.is_empty() && !is_same(option));
    let found =
        options.find(|option| taken.iter().any(|beginning| option.starts_with(beginning.as_str())))?;
    Some(printable::name(&found.chars().take(64).collect::<String>()).into_owned())
}

/// Node.js asks again for a value that is longer than this, and only the first question is answered.
const MOST_OF_NODE: usize = 255;

fn too_long(candidate: &CatalogueCandidate, runtime: Runtime, start: &StartOfProgram<'_>) -> Option<String> {
    let name = "NODE_OPTIONS";
    let ours = candidate.environment.get(name).filter(|_| runtime == Runtime::Node)?;
    let own = start.environment.get(name).map_or(0, |own| own.len());
    (own + 1 + ours.len() > MOST_OF_NODE).then(|| format!("{name} is too long to be added to"))
}

fn is_option(text: &str) -> bool {
    text.starts_with(['-', '+']) || text.ends_with('=')
}

/// Beginnings of the options that the candidate sets, and of those that it yields to.
fn taken(candidate: &CatalogueCandidate, settings: &RuntimeSettings) -> Vec<String> {
    let in_lists = candidate.environment.iter().filter_map(|(name, list)| Some(list.split(list_sign(name)?)));
    let own = settings.arguments.iter().map(String::as_str).chain(in_lists.flatten());
    let beginnings = own.flat_map(|option| beginnings(settings.runtime, option));
    let keeping = keeping(settings.runtime).iter().map(|&one| one.to_owned());
    let yielded = settings.yields_to.iter().cloned().chain(keeping).filter(|one| is_option(one));
    beginnings.chain(yielded).collect()
}

/// Beginnings of options, and variables, by which a program of the runtime writes or reads what is right under the
/// settings alone that it was written under: snapshots, code caches, archives of classes. They would outlast the settings.
fn keeping(runtime: Runtime) -> &'static [&'static str] {
    match runtime {
        Runtime::Node => &[
            "--snapshot-blob",
            "--build-snapshot",
            "--experimental-sea-config",
            "--build-sea",
            "NODE_COMPILE_CACHE",
        ],
        Runtime::Jvm => &[
            "-Xshare:",
            "-XX:SharedArchiveFile=",
            "-XX:ArchiveClassesAtExit=",
            "-XX:+AutoCreateSharedArchive",
            "-XX:+RecordDynamicDumpInfo",
            "-XX:AOT",
            "-XX:CRaC",
        ],
        _ => &[],
    }
}

const SERIAL: &str = "UseSerialGC";
const PARALLEL: &str = "UseParallelGC";
const G1: &str = "UseG1GC";

/// Collectors of HotSpot, as their options name them.
const COLLECTORS: [&str; 9] = [
    SERIAL,
    PARALLEL,
    "UseParallelOldGC",
    G1,
    "UseZGC",
    "UseShenandoahGC",
    "UseEpsilonGC",
    "UseConcMarkSweepGC",
    "UseParNewGC",
];

/// Beginnings of options that choose a collector by another name, or have no effect but under some, with these of ours.
/// Under another one the JVM ignores them, or prints a line on standard output.
const OF_COLLECTORS: [(&str, &[&str]); 26] = [
    ("-XX:+AggressiveHeap", &[]),
    ("-Xincgc", &[]),
    ("-Xconcgc", &[]),
    ("-XX:G1", &[G1]),
    ("-XX:+G1", &[G1]),
    ("-XX:-G1", &[G1]),
    ("-XX:MaxGCPauseMillis=", &[G1, PARALLEL]),
    ("-XX:GCPauseIntervalMillis=", &[G1]),
    ("-XX:GCTimeRatio=", &[G1, PARALLEL]),
    ("-XX:InitiatingHeapOccupancyPercent=", &[G1]),
    ("-XX:ConcGCThreads=", &[G1]),
    ("-XX:ParallelGCThreads=", &[G1, PARALLEL]),
    ("-XX:+ParallelRefProcEnabled", &[G1, PARALLEL]),
    ("-XX:+ExplicitGCInvokesConcurrent", &[G1]),
    ("-XX:+UseStringDeduplication", &[G1]),
    ("-XX:StringDeduplication", &[G1]),
    ("-XX:+UseNUMA", &[G1, PARALLEL]),
    ("-XX:SoftMaxHeapSize=", &[]),
    ("-XX:+UseAdaptiveSizePolicy", &[PARALLEL]),
    ("-XX:-UseAdaptiveSizePolicy", &[PARALLEL]),
    ("-XX:Shenandoah", &[]),
    ("-XX:+Shenandoah", &[]),
    ("-XX:Z", &[]),
    ("-XX:+Z", &[]),
    ("-XX:CMS", &[]),
    ("-XX:+CMS", &[]),
];

/// Beginnings of options with the same effect.
fn beginnings(runtime: Runtime, option: &str) -> Vec<String> {
    if let Some((key, _)) = option.split_once('=') {
        return vec![format!("{key}=")];
    }
    match option.strip_prefix("-XX:+").filter(|_| runtime == Runtime::Jvm) {
        // Only one collector can be chosen: with a second one the JVM does not start.
        Some(name) if COLLECTORS.contains(&name) => {
            let any = COLLECTORS.iter().map(|one| format!("-XX:+{one}"));
            let others = OF_COLLECTORS.iter().filter(|(_, having)| !having.contains(&name));
            let others = others.map(|(option, _)| (*option).to_owned());
            any.chain(others).chain([format!("-XX:-{name}")]).collect()
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
    files_of_options(runtime).iter().any(|file| option.starts_with(file))
}

/// Beginnings of options that name a file with further ones.
fn files_of_options(runtime: Runtime) -> &'static [&'static str] {
    match runtime {
        Runtime::Jvm => &["@", "-XX:Flags=", "-XX:VMOptionsFile="],
        Runtime::Beam => &["-args_file"],
        _ => &[],
    }
}

/// Options of the user's that a start for a question has too, since whether a JVM takes ours may depend on them: those that
/// set a flag or a size. Others write files, start programs, print much, or touch the whole heap.
#[must_use]
pub fn asked_with(start: &StartOfProgram<'_>) -> Vec<String> {
    let Ok(Some(found)) = only(start.found) else { return vec![] };
    if found.runtime != Runtime::Jvm {
        return vec![];
    }
    let given = given(Runtime::Jvm, found, start).into_iter().map(|(option, _)| option);
    given.filter(|option| is_plain_flag(option) && !option.starts_with("-XX:+AlwaysPreTouch")).collect()
}

fn is_plain_flag(option: &str) -> bool {
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_size = |text: &str| text.starts_with(|first: char| first.is_ascii_digit()) && is_plain(text);
    let of_heap = ["-Xmx", "-Xms", "-Xmn", "-Xss"];
    match option.strip_prefix("-XX:") {
        Some(flag) => match flag.split_once('=') {
            Some((name, value)) => is_plain(name) && is_size(value),
            None => {
                flag.strip_prefix(['+', '-']).is_some_and(|name| is_plain(name) && !name.starts_with("Print"))
            }
        },
        None => of_heap.iter().filter_map(|name| option.strip_prefix(name)).any(is_size),
    }
}

/// Options of the runtime that the user gives, and where.
fn given(runtime: Runtime, found: &FoundRuntime, start: &StartOfProgram<'_>) -> Vec<(String, String)> {
    let in_variables =
        start.environment.iter().filter(|(name, _)| has_options(runtime, name)).flat_map(|(name, value)| {
            let name = name.to_string_lossy().into_owned();
            parts(&name, &value.to_string_lossy()).into_iter().map(move |part| (part, name.clone()))
        });
    let words = match (runtime, found.entry) {
        (Runtime::Jvm, RuntimeEntry::Tool) => of_tool(start.words),
        (Runtime::Jvm, _) => of_java(start.words),
        (Runtime::Cpython, _) => of_python(start.words),
        (Runtime::Node | Runtime::Ruby | Runtime::Php, _) => leading(start.words),
        (Runtime::Beam, _) => start.words.iter().map(text).collect(),
        _ => vec![],
    };
    let words = words.into_iter().map(|word| (word, "command line".to_owned()));
    in_variables.chain(words).filter(|(word, _)| !word.is_empty()).collect()
}

/// Whether the variable has options of the runtime, or of the C library below it.
fn has_options(runtime: Runtime, name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_of_beam = runtime == Runtime::Beam && name.starts_with("ERL_OTP") && name.ends_with("_FLAGS");
    is_of_beam || variables_with_options(runtime).contains(&name) || name == "GLIBC_TUNABLES"
}

/// The variables with options of the runtime.
fn variables_with_options(runtime: Runtime) -> &'static [&'static str] {
    match runtime {
        Runtime::Jvm => &["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"],
        Runtime::Node => &["NODE_OPTIONS"],
        Runtime::Beam => &["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"],
        Runtime::Ocaml => &["OCAMLRUNPARAM", "CAMLRUNPARAM"],
        Runtime::Go => &["GODEBUG"],
        Runtime::Ruby => &["RUBYOPT"],
        Runtime::Php | Runtime::Cpython | Runtime::Dotnet => &[],
    }
}

/// The options in a variable's value.
fn parts(name: &str, value: &str) -> Vec<String> {
    let plain = |word: &str| word.trim_matches(['"', '\'']).to_owned();
    match list_sign(name) {
        Some(' ') => value.split_ascii_whitespace().map(plain).collect(),
        None if name.starts_with("ERL_") => value.split_ascii_whitespace().map(plain).collect(),
        sign => value.split(sign.unwrap_or(',')).map(plain).collect(),
    }
}

fn text(word: &OsString) -> String {
    word.to_string_lossy().into_owned()
}

fn of_tool(words: &[OsString]) -> Vec<String> {
    let handed_on = |word: &OsString| Some(text(word).strip_prefix("-J")?.to_owned());
    words.iter().filter_map(handed_on).collect()
}

/// Options of the `java` launcher with their value in the next word.
const WITH_VALUE: [&str; 16] = [
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
    "--enable-native-access",
    "--source",
    "-d",
    "--describe-module",
];

/// The options before the class, module or archive that is run. `-jar` is followed by options too.
fn of_java(words: &[OsString]) -> Vec<String> {
    let mut options = vec![];
    let mut words = words.iter().map(text);
    while let Some(word) = words.next() {
        if matches!(word.as_str(), "-m" | "--module") || !word.starts_with(['-', '@']) {
            break;
        }
        if WITH_VALUE.contains(&word.as_str()) {
            words.next();
        }
        options.push(word);
    }
    options
}

/// The options before what is run. Which of them have a value in the next word is not known: such a word is
/// passed over, and more may be looked at than is the runtime's.
fn leading(words: &[OsString]) -> Vec<String> {
    let mut options: Vec<String> = vec![];
    let mut may_be_value = false;
    for word in words.iter().map(text) {
        let is_option = word.starts_with('-');
        if word == "--" || word == "-" || !(is_option || may_be_value) {
            break;
        }
        may_be_value = is_option && !word.contains('=');
        if is_option {
            options.push(word);
        }
    }
    options
}

/// The options of Python before what is run, each letter by itself: `-IX dev` is `-I` and `-Xdev`.
fn of_python(words: &[OsString]) -> Vec<String> {
    let mut options = vec![];
    let mut words = words.iter().map(text);
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with('-'))
        else {
            break;
        };
        for (at, letter) in letters.char_indices() {
            if matches!(letter, 'c' | 'm') {
                return options;
            }
            if matches!(letter, 'X' | 'W') {
                let value = &letters[at + 1..];
                let value =
                    if value.is_empty() { words.next().unwrap_or_default() } else { value.to_owned() };
                options.push(format!("-{letter}{value}"));
                break;
            }
            options.push(format!("-{letter}"));
        }
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
        entry: RuntimeEntry,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
        yields_to: Vec<String>,
    }

    fn jvm(arguments: &[&str], yields_to: &[&str]) -> Case {
        Case {
            runtime: Runtime::Jvm,
            entry: RuntimeEntry::Own,
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
                has_files: false,
                is_by_script: false,
                unfit: None,
                environment: &environment,
                memory_limit: None,
            };
            user_value(&candidate, &found, &start)
        }
    }

    #[test]
    fn a_text_that_may_become_a_command_line_is_searched() {
        let settings = RuntimeSettings {
            runtime: Runtime::Jvm,
            versions: VersionRange::default(),
            arguments: vec![],
            yields_to: vec![],
            is_bare: false,
        };
        let candidate = CatalogueCandidate {
            environment: [("JAVA_TOOL_OPTIONS".to_owned(), "-XX:+UseSerialGC".to_owned())].into(),
            runtime: Some(settings),
            ..CatalogueCandidate::default()
        };
        let found = |text| contradicted(&candidate, text);
        assert_eq!(found("-Xmx1g\t'-XX:+UseG1GC'").unwrap(), "-XX:+UseG1GC");
        assert_eq!(found("-Xmx1g -Dx=-XX:+UseG1GC"), None);
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
        for line in [
            "-jar -XX:+UseG1GC a.jar",
            "--source 21 -XX:+UseG1GC A.java",
            "--enable-native-access x -XX:+UseZGC A",
        ] {
            assert!(serial.why(line, &[]).is_some(), "{line}");
        }
        for other in ["-XX:+AggressiveHeap", "-XX:G1HeapRegionSize=1m", "-XX:MaxGCPauseMillis=5"] {
            assert!(serial.why(other, &[]).is_some(), "{other}");
        }
        assert!(serial.why("", &[("JAVA_TOOL_OPTIONS", "-Dx=y\n-XX:+UseG1GC\t-Da=b")]).is_some());
        assert!(serial.why("@options Main", &[]).unwrap().contains("file"));
        assert!(serial.why("", &[("JDK_JAVA_OPTIONS", "@options")]).unwrap().contains("file"));
        let tool = Case { entry: RuntimeEntry::Tool, ..jvm(&["-XX:+UseSerialGC"], &["-Xmx"]) };
        assert!(tool.why("A.java -J-Xmx64m", &[]).is_some());
        assert_eq!(tool.why("@files -Xmx64m", &[]), None);
    }

    #[test]
    fn options_of_node_count_in_either_spelling() {
        let semi =
            by_variable(Runtime::Node, "NODE_OPTIONS", "--max-semi-space-size=8", &["--max-old-space-size"]);
        assert!(semi.why("", &[("NODE_OPTIONS", "--max_semi_space_size=1")]).is_some());
        assert!(semi.why("", &[("NODE_OPTIONS", &"-".repeat(240))]).unwrap().contains("too long"));
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
        let lean = by_variable(Runtime::Php, "GLIBC_TUNABLES", "glibc.malloc.arena_max=1", &[]);
        assert!(lean.why("", &[("GLIBC_TUNABLES", "a=1:glibc.malloc.arena_max=8")]).is_some());
        assert_eq!(lean.why("", &[("GLIBC_TUNABLES", "glibc.malloc.tcache_count=8")]), None);
        let no_limit = by_variable(Runtime::Php, "USE_ZEND_ALLOC", "0", &["-d", "--define"]);
        for line in ["-n -d memory_limit=64M a.php", "-dmemory_limit=64M a.php", "--define x=y a.php"] {
            assert!(no_limit.why(line, &[]).is_some(), "{line}");
        }
        assert_eq!(no_limit.why("a.php -d memory_limit=64M", &[]), None, "the program's own");
        let python =
            by_variable(Runtime::Cpython, "PYTHONMALLOC", "malloc", &["-E", "-I", "-Xdev", "PYTHONDEVMODE"]);
        for line in ["-E a.py", "-sI a.py", "-X dev a.py", "-bXdev a.py"] {
            assert!(python.why(line, &[]).is_some(), "{line}");
        }
        assert!(python.why("", &[("PYTHONDEVMODE", "1")]).is_some());
        assert_eq!(python.why("-X utf8 -u a.py -E", &[]), None);
        assert_eq!(python.why("-mI -E", &[]), None);
        let ruby = by_variable(Runtime::Ruby, "RUBY_GC_A", "1", &["-w", "-W"]);
        assert!(ruby.why("-w a.rb", &[]).is_some() && ruby.why("a.rb -w", &[]).is_none());
        assert!(ruby.why("", &[("RUBYOPT", "-r a -W2")]).is_some());
        let order = by_variable(Runtime::Beam, "ERL_FLAGS", "+MBas aobf", &[]);
        assert!(order.why("+MBas bf", &[]).is_some() && order.why("-noshell", &[]).is_none());
        assert!(order.why("-args_file vm.args", &[]).is_some());
        assert!(order.why("", &[("ERL_OTP27_FLAGS", "+MBas  bf")]).is_some());
    }
}
