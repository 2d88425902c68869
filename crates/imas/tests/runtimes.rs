// SPDX-License-Identifier: Apache-2.0
//! Settings of language runtimes, in real ones: they act, nobody else sees them, and the user's own win.

use std::path::{Path, PathBuf};
use std::process::Output;

use imas_testing::skipped;

use crate::support::{World, build, describe, install, output, printed, stderr, stdout, succeeded};

/// A runtime of this machine; None where it is not there.
fn runtime(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/bin".into(), "/usr/local/go/bin".into()]);
    // A shim of a version manager is a script that needs its variables.
    let is_program = |file: &PathBuf| std::fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
    folders.map(|folder| folder.join(name)).find(is_program)
}

fn under(world: &World, candidate: &str, words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut imas = world.imas(["run", "-v", "--candidate", candidate, "--"]);
    output(imas.args(words).envs(variables.iter().copied()))
}

fn assert_untouched(done: &Output, why: &str) {
    let said = stderr(done);
    assert!(done.status.success(), "{}", describe(done));
    assert!(said.contains(why) && said.contains("under system"), "{said}");
}

const COLLECTORS: &str = r#"
public class Collectors {
    public static void main(String[] words) throws Exception {
        for (var one : java.lang.management.ManagementFactory.getGarbageCollectorMXBeans())
            System.out.println(one.getName());
        System.out.println(java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments());
        ProcessHandle.current().info().commandLine().ifPresent(System.out::println);
        System.out.println(System.getenv());
        new ProcessBuilder("/usr/bin/env").inheritIO().start().waitFor();
    }
}
"#;

#[test]
fn the_jvm_gets_flags_and_shows_nothing_of_them() {
    let Some(java) = runtime("java") else { return skipped("java is not installed") };
    let world = World::new();
    let source = world.work().join("Collectors.java");
    std::fs::write(&source, COLLECTORS).unwrap();
    let words = [java.to_str().unwrap(), source.to_str().unwrap()];
    let serial = under(&world, "jvm:serial", &words, &[]);
    let said = printed(&serial);
    assert!(said.contains("MarkSweepCompact") && !said.contains("UseSerialGC"), "{}", describe(&serial));
    assert!(!said.contains("IMAS_SETTINGS") && !said.contains("LD_PRELOAD"), "{said}");
    assert!(!stderr(&serial).contains("Picked up"), "{}", describe(&serial));
    for variable in ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"] {
        let own = under(&world, "jvm:serial", &words, &[(variable, "-XX:+UseParallelGC")]);
        assert_untouched(&own, &format!("is given already ({variable})"));
        assert!(stdout(&own).contains("PS MarkSweep"), "{}", describe(&own));
    }
    let beside = |candidate, option| under(&world, candidate, &[words[0], option, words[1]], &[]);
    // One of another collector, one with a line on standard output, one without, and what is kept beyond this start.
    for option in [
        "-XX:+UseParallelGC",
        "-XX:+UseStringDeduplication",
        "-XX:ConcGCThreads=1",
        "-XX:ArchiveClassesAtExit=x.jsa",
    ] {
        let own = beside("jvm:serial", option);
        assert_untouched(&own, "(command line)");
        assert!(!stdout(&own).contains("[stringdedup]"), "{}", describe(&own));
    }
    // Options that the user adds to the candidate, or has in common with it, contradict nothing.
    for option in ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=100", "-Xmx300m"] {
        let both = beside("jvm:g1-lean", option);
        assert!(stderr(&both).contains("under jvm:g1-lean"), "{option}: {}", describe(&both));
        assert!(printed(&both).contains("G1 Old Generation"), "{}", describe(&both));
    }
    assert_untouched(&beside("jvm:serial", "-XX:+UseSerialGC"), "is given already");
    world.add_catalogue(
        "mine.toml",
        "schema = 1\n[[candidate]]\nname = 'jvm:odd'\nruntime = 'jvm'\narguments = ['-XX:+NoSuchOption']\n\
         [[candidate]]\nname = 'jvm:later'\nruntime = 'jvm'\nversions = '>=999'\narguments = ['-XX:+UseSerialGC']\n",
    );
    for _ in 0..2 {
        let odd = under(&world, "jvm:odd", &words, &[]);
        assert_untouched(&odd, "jvm:odd is not offered");
        assert!(!stdout(&odd).is_empty(), "{}", describe(&odd));
    }
    assert_untouched(&under(&world, "jvm:later", &words, &[]), ">=999");
}

const WORKER: &str = r#"
import java.lang.management.ManagementFactory;
public class Worker {
    public static void main(String[] words) throws Exception {
        var command = new java.util.ArrayList<String>();
        command.add(System.getProperty("java.home") + "/bin/java");
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(java.util.List.of("-XX:+UseParallelGC", "-XX:+PrintFlagsFinal", "-version"));
        System.exit(new ProcessBuilder(command).inheritIO().start().waitFor());
    }
}
"#;

/// A launcher, a test runner, a build tool: each starts JVMs with its own arguments, and a collector of theirs.
#[test]
fn a_jvm_started_with_the_arguments_of_another_gets_none_of_ours() {
    let Some(java) = runtime("java") else { return skipped("java is not installed") };
    let world = World::new();
    let source = world.work().join("Worker.java");
    std::fs::write(&source, WORKER).unwrap();
    let words = [java.to_str().unwrap(), source.to_str().unwrap()];
    for candidate in ["jvm:serial", "jvm:serial-c1"] {
        let done = under(&world, candidate, &words, &[]);
        assert!(stderr(&done).contains(&format!("under {candidate}")), "{}", describe(&done));
        let flags = printed(&done);
        let value = |name: &str| {
            let line = flags.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
            line.and_then(|line| line.split_whitespace().nth(3)).map(str::to_owned)
        };
        assert_eq!(value("UseParallelGC").as_deref(), Some("true"), "{}", describe(&done));
        assert_eq!(value("TieredStopAtLevel").as_deref(), Some("4"), "{}", describe(&done));
    }
}

/// Start scripts of Tomcat, Kafka and their kind: the JVM that they start gets the settings, unless it is given others.
#[test]
fn a_jvm_behind_a_start_script_is_reached() {
    let Some(java) = runtime("java") else { return skipped("java is not installed") };
    let world = World::new();
    let script = world.work().join("start.sh");
    let run = |candidate: &str, options: &str, variables: &[(&str, &str)]| {
        let text = format!("#!/bin/sh\n{} {options} $JAVA_OPTS -Xlog:gc:stderr -version\n", java.display());
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut imas = world.imas(["run", "--follow", "--candidate", candidate, "--"]);
        let done = output(imas.arg(&script).envs(variables.iter().copied()));
        assert!(done.status.success() && stdout(&done).is_empty(), "{}", describe(&done));
        assert!(!stderr(&done).contains("Picked up"), "{}", describe(&done));
        stderr(&done)
    };
    assert!(run("jvm:serial", "", &[]).contains("Using Serial"));
    assert!(run("jvm:serial", "-XX:+UseG1GC", &[]).contains("Using G1"));
    assert!(run("jvm:serial", "", &[("JAVA_OPTS", "-XX:+UseG1GC")]).contains("Using G1"));
    assert!(run("jvm:parallel", "-Xmx64m", &[]).contains("Using Parallel"));
    assert!(run("jvm:g1-lean", "-XX:+UseG1GC", &[]).contains("Using G1"));
}

/// Data that node keeps beyond the start: V8 refuses a snapshot that was made under other settings.
#[test]
fn nothing_that_node_keeps_is_made_under_settings() {
    let Some(node) = runtime("node") else { return skipped("node is not installed") };
    let world = World::new();
    let build = world.work().join("build.js");
    std::fs::write(
        &build,
        "require('v8').startupSnapshot.setDeserializeMainFunction(() => console.log('snapshot'))",
    )
    .unwrap();
    let (node, build) = (node.to_str().unwrap(), build.to_str().unwrap());
    let blob = world.work().join("s.blob");
    let blob = blob.to_str().unwrap();
    let made = under(&world, "node:semi8", &[node, "--snapshot-blob", blob, "--build-snapshot", build], &[]);
    assert_untouched(&made, "is given already");
    assert_eq!(
        printed(&output(std::process::Command::new(node).args(["--snapshot-blob", blob]))),
        "snapshot\n"
    );
    let used = under(&world, "node:semi8", &[node, "--snapshot-blob", blob], &[]);
    assert_untouched(&used, "is given already");
    let cached = under(&world, "node:semi8", &[node, "-e", "0"], &[("NODE_COMPILE_CACHE", "/nowhere")]);
    assert_untouched(&cached, "NODE_COMPILE_CACHE is set already");
    let script = world.work().join("cache.js");
    std::fs::write(&script, "new (require('vm').Script)('1', { produceCachedData: true })").unwrap();
    let caching = under(&world, "node:semi8", &[node, script.to_str().unwrap()], &[]);
    assert_untouched(&caching, "uses code caches");
}

#[test]
fn tools_of_the_jdk_get_them_too() {
    let Some(javac) = runtime("javac") else { return skipped("javac is not installed") };
    let world = World::new();
    let source = world.work().join("Collectors.java");
    std::fs::write(&source, COLLECTORS).unwrap();
    let words = [javac.to_str().unwrap(), "-J-Xlog:gc*", source.to_str().unwrap()];
    let serial = under(&world, "jvm:serial-c1", &words, &[]);
    assert!(printed(&serial).contains("Using Serial"), "{}", describe(&serial));
    assert!(world.work().join("Collectors.class").is_file());
}

#[test]
fn node_is_asked_and_shows_nothing() {
    let Some(node) = runtime("node") else { return skipped("node is not installed") };
    let world = World::new();
    world.add_catalogue(
        "mine.toml",
        "schema = 1\n[[candidate]]\nname = 'node:small'\nruntime = 'node'\n\
         environment = { NODE_OPTIONS = '--max-old-space-size=64' }\n\
         [[candidate]]\nname = 'node:odd'\nruntime = 'node'\nenvironment = { NODE_OPTIONS = '--no-such-option' }\n",
    );
    let script = "console.log(v8.getHeapStatistics().heap_size_limit < 2 ** 28, process.env.NODE_OPTIONS,\
                  Object.keys(process.env).filter(name => /NODE|IMAS_S|PRELOAD/.test(name)));\
                  require('child_process').execFileSync('/usr/bin/env', {stdio: 'inherit'})";
    let words = [node.to_str().unwrap(), "-e", script];
    let small = under(&world, "node:small", &words, &[]);
    assert!(printed(&small).starts_with("true undefined [ 'IMAS_STORE' ]"), "{}", describe(&small));
    assert!(!stdout(&small).contains("NODE_OPTIONS"), "{}", describe(&small));
    let own = [("NODE_OPTIONS", "--no-warnings")];
    let added = under(&world, "node:small", &words, &own);
    assert!(printed(&added).starts_with("true --no-warnings"), "{}", describe(&added));
    assert!(stdout(&added).contains("\nNODE_OPTIONS=--no-warnings\n"), "{}", describe(&added));
    let set = under(&world, "node:small", &words, &[("NODE_OPTIONS", "--max_old_space_size=5000")]);
    assert_untouched(&set, "--max-old-space-size=5000 is given already");
    let odd = under(&world, "node:odd", &words, &[]);
    assert_untouched(&odd, "node:odd is not offered");
    let mut follows = world.imas(["run", "--follow", "--candidate", "node:small", "--"]);
    let followed = output(follows.args(words));
    assert!(stdout(&followed).contains("NODE_OPTIONS=--max-old-space-size=64"), "{}", describe(&followed));
}

#[test]
fn python_and_php_hand_their_objects_to_the_allocator() {
    let world = World::new();
    let (python, php) = (runtime("python3"), runtime("php"));
    for (name, found) in [("python3", &python), ("php", &php)] {
        if found.is_none() {
            skipped(&format!("{name} is not installed"));
        }
    }
    if let Some(python) = python {
        let script = "import os, sys; sys._debugmallocstats(); print([k for k in os.environ if k.startswith('PYTHON')])";
        let words = [python.to_str().unwrap(), "-c", script];
        let arenas = |done: &Output| stderr(done).contains("arenas allocated total");
        assert!(arenas(&under(&world, "system", &words, &[])), "a Python without its own allocator");
        for library in [None, Some("libjemalloc.so")] {
            world.add_settings_of_python(library);
            let done = under(&world, "cpython:own", &words, &[]);
            assert!(!arenas(&done) && printed(&done) == "[]\n", "{library:?}: {}", describe(&done));
        }
        let own = under(&world, "cpython:own", &words, &[("PYTHONMALLOC", "pymalloc")]);
        assert_untouched(&own, "PYTHONMALLOC is set already");
    }
    if let Some(php) = php {
        let words = [php.to_str().unwrap(), "-r", "echo memory_get_usage(), getenv('USE_ZEND_ALLOC');"];
        let done = under(&world, "php:lean", &words, &[]);
        assert_eq!(printed(&done), "0", "{}", describe(&done));
    }
}

const PERCENT: &str = r#"package main

import (
	"fmt"
	"os"
	"runtime/debug"
)

func main() { fmt.Print(debug.SetGCPercent(100), os.Getenv("LD_PRELOAD"), "\n") }
"#;

pub(crate) fn go_program(world: &World, name: &str, flags: &[&str]) -> Option<PathBuf> {
    go_built(world, name, flags, PERCENT, "0")
}

/// A program that the Go compiler made of that text; None where there is none.
pub(crate) fn go_built(world: &World, name: &str, flags: &[&str], text: &str, cgo: &str) -> Option<PathBuf> {
    let go = runtime("go")?;
    let source = world.work().join("percent.go");
    std::fs::write(&source, text).unwrap();
    let to = world.work().join(name);
    let mut command = world.command(go);
    command.args(["build", "-o"]).arg(&to).args(flags).arg(&source);
    command.env("GOCACHE", std::env::temp_dir().join("imas-test-go-cache"));
    succeeded(output(command.env("CGO_ENABLED", cgo).env("GOFLAGS", "")));
    Some(to)
}

#[test]
fn a_static_program_of_go_is_served_by_settings() {
    let world = World::new();
    for (name, flags) in [("plain", &[][..]), ("stripped", &["-ldflags=-s -w"]), ("pie", &["-buildmode=pie"])]
    {
        let Some(program) = go_program(&world, name, flags) else { return skipped("go is not installed") };
        let words = [program.to_str().unwrap()];
        assert_eq!(printed(&under(&world, "go:gogc200", &words, &[])), "200\n", "{name}");
        let own = under(&world, "go:gogc200", &words, &[("GOGC", "77")]);
        assert_untouched(&own, "GOGC is set already");
        assert_eq!(stdout(&own), "77\n");
    }
    let program = world.work().join("stripped");
    let words = [program.to_str().unwrap()];
    let shown = world.json(["explain", "--json", words[0]]);
    assert_eq!(shown["runtime"]["found"][0]["runtime"], "go", "{shown}");
    assert!(shown["runtime"]["found"][0]["version"].as_str().unwrap().starts_with("1."), "{shown}");
    assert!(shown["runtime"]["unfit"].as_str().unwrap().contains("statically linked"), "{shown}");
    let text = printed(&output(&mut world.imas(["explain", words[0]])));
    for part in ["runtime: Go 1.", ".go.buildinfo", "go:gogc50"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let untouched = output(world.imas(["run", "-v", "--"]).args(words));
    assert_untouched(&untouched, "");
    assert_eq!(stdout(&untouched), "100\n");
    let text = printed(&output(&mut world.imas(["explain", words[0]])));
    assert!(text.contains("under system"), "{text}");
    assert!(!text.contains("mimalloc"), "nothing can be loaded into it: {text}");
    world.check(["pin", words[0], "go:gogc400"]).success();
    assert_eq!(printed(&output(world.imas(["run", "--"]).args(words))), "400\n");
    let text = printed(&output(&mut world.imas(["explain", words[0]])));
    assert!(text.contains("pinned"), "{text}");
    world.check(["exclude", "add", words[0]]).success();
    let run = || printed(&output(world.imas(["run", "--"]).args(words)));
    assert_eq!(run(), "400\n", "a pin goes before an exclusion");
    world.check(["unpin", words[0]]).success();
    assert_eq!(run(), "100\n", "excluded");
    let pages = world.page_files().into_iter().filter(|name| name.ends_with(".page"));
    assert_eq!(pages.count(), 0);
}

#[test]
fn a_static_program_of_go_is_measured() {
    let world = World::new();
    let Some(program) = go_program(&world, "percent", &[]) else { return skipped("go is not installed") };
    let file = world.work().join("bench.json");
    succeeded(output(world.imas(["bench", "-n", "1", "--export-json"]).arg(&file).arg("--").arg(&program)));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let of =
        |name: &str| report["candidates"].as_array().unwrap().iter().find(|one| one["name"] == name).cloned();
    let usable = |name: &str| of(name).is_some_and(|one| one["available"] == true);
    assert!(usable("system") && usable("go:gogc50") && usable("go:gogc400"), "{report}");
    assert!(of("jemalloc").is_none() && of("node:semi1").is_none(), "{report}");
    let named = output(world.imas(["bench", "-n", "1", "--with", "go:gogc200,jemalloc", "--"]).arg(&program));
    assert!(stdout(&named).contains("statically linked"), "{}", describe(&named));
}

/// It is dynamic, and reads the environment itself all the same.
#[test]
fn a_program_of_go_with_c_inside_is_served_by_settings_too() {
    let world = World::new();
    let text = PERCENT.replace("import (", "import \"C\"\n\nimport (");
    let Some(program) = go_built(&world, "with-c", &[], &text, "1") else {
        return skipped("go is not installed");
    };
    let words = [program.to_str().unwrap()];
    assert_eq!(printed(&under(&world, "go:gogc200", &words, &[])), "200\n");
    assert_eq!(printed(&under(&world, "jemalloc", &words, &[])), "100\n");
    let measured =
        output(world.imas(["bench", "-n", "1", "--with", "go:gogc200,jemalloc", "--"]).args(words));
    assert!(measured.status.success() && stdout(&measured).contains("go:gogc200"), "{}", describe(&measured));
    for _ in 0..3 {
        let started = output(world.imas(["run", "-v", "--retest", "0", "--"]).args(words));
        assert!(printed(&started) == "100\n" && !stderr(&started).contains("go:"), "{}", describe(&started));
    }
    world.check(["pin", words[0], "go:gogc400"]).success();
    assert_eq!(printed(&output(world.imas(["run", "--"]).args(words))), "400\n");
}

fn like(world: &World, name: &str, flags: &[&str]) -> PathBuf {
    build::program_with("cc", "runtime_like", &[flags, &["-rdynamic"]].concat(), &world.work().join(name))
}

fn ran(world: &World, program: &Path, candidate: &str, why: &str) {
    for _ in 0..2 {
        let done = under(world, candidate, &[program.to_str().unwrap(), "a"], &[]);
        assert_eq!(stdout(&done), "ran with 2 words\n", "{}", describe(&done));
        assert_untouched(&done, why);
    }
}

#[test]
fn a_program_that_only_looks_like_a_runtime_starts_untouched() {
    let world = World::new();
    let hangs = like(&world, "java-hangs", &["-DLIKE_JAVA", "-DVERSION_DOES=pause()"]);
    ran(&world, &hangs, "jvm:serial", "did not end");
    let dies = like(&world, "java-dies", &["-DLIKE_JAVA", "-DVERSION_DOES=abort()"]);
    ran(&world, &dies, "jvm:serial", "SIGABRT");
    let babbles =
        like(&world, "java-babbles", &["-DLIKE_JAVA", "-DVERSION_DOES=for(;;)fputs(\"warning\", stderr)"]);
    ran(&world, &babbles, "jvm:serial", "not offered");
    // Nothing of it is started to find that out.
    world.add_settings_of_python(None);
    let inside = like(&world, "application", &["-DLIKE_PYTHON", "-DVERSION_DOES=pause()"]);
    ran(&world, &inside, "cpython:own", "inside");
    let packed = like(&world, "python-packed", &["-DLIKE_PYTHON"]);
    let mut bytes = std::fs::read(&packed).unwrap();
    bytes.extend([0x50; 4096]);
    std::fs::remove_file(&packed).unwrap();
    let (plain, packed) = (world.work().join("plain"), world.work().join("python-application"));
    std::fs::write(&plain, bytes).unwrap();
    install(&plain, &packed);
    ran(&world, &packed, "cpython:own", "inside");
    let both = like(&world, "both", &["-DLIKE_JAVA", "-DLIKE_PYTHON"]);
    ran(&world, &both, "jvm:serial", "several runtimes");
    let shown = printed(&output(world.imas(["explain"]).arg(&both)));
    assert!(shown.contains("no settings of it are offered"), "{shown}");
    let garbled = like(&world, "garbled", &["-DLIKE_GO=\"no Go at all\""]);
    ran(&world, &garbled, "go:gogc200", "it is for programs of Go");
    let plain = like(&world, "plain", &[]);
    ran(&world, &plain, "node:semi1", "it is for programs of Node.js");
}

/// Writes the file of an application of .NET with these properties.
fn set_in_file(application: &Path, properties: &str) {
    let text = format!(r#"{{ "runtimeOptions": {{ "configProperties": {{ {properties} }} }} }}"#);
    std::fs::write(application.with_extension("runtimeconfig.json"), text).unwrap();
}

/// A variable would win over the file, so it is not set.
#[test]
fn what_an_application_of_net_sets_in_its_file_wins() {
    let world = World::new();
    let program = like(&world, "web", &["-DLIKE_DOTNET"]);
    let words = [program.to_str().unwrap()];
    let start = || stdout(&output(world.imas(["run", "--"]).args(words)));
    let (given, untouched) = ("conserves 5\nran with 1 words\n", "conserves nothing\nran with 1 words\n");
    assert_untouched(&under(&world, "dotnet:conserve", &words, &[]), "runtimeconfig.json of its application");

    std::fs::write(world.work().join("web.dll"), "").unwrap();
    set_in_file(&program, "");
    assert_eq!(printed(&under(&world, "dotnet:conserve", &words, &[])), given);
    world.check(["pin", words[0], "dotnet:conserve"]).success();
    for _ in 0..2 {
        assert_eq!(start(), given, "decided, then settled");
    }

    set_in_file(&program, r#""System.GC.ConserveMemory": 2"#);
    assert_eq!(start(), untouched, "a settled start looks at the file too");
    let why = "System.GC.ConserveMemory is set already (web.runtimeconfig.json)";
    assert_untouched(&under(&world, "dotnet:conserve", &words, &[]), why);
    let explained = printed(&output(&mut world.imas(["explain", words[0]])));
    assert!(explained.contains(&format!("dotnet:conserve is not offered: {why}")), "{explained}");
    let flags = ["bench", "-n", "1", "--with", "dotnet:conserve,glibc:arena1", "--"];
    let measured = output(world.imas(flags).args(words));
    let table = stdout(&measured);
    let parts: Vec<&str> = table.split_whitespace().collect(); // a long verdict is broken into lines
    assert!(parts.join(" ").contains("System.GC.ConserveMemory is set"), "{}", describe(&measured));

    let (dotnet, dll) = (like(&world, "dotnet", &["-DLIKE_DOTNET"]), world.work().join("web.dll"));
    succeeded(output(world.imas(["run", "--"]).arg(&dotnet).arg(&dll)));
    let explained = printed(&output(world.imas(["explain"]).arg(&dll)));
    assert!(explained.contains(&format!("dotnet:conserve is not offered: {why}")), "{explained}");
    set_in_file(&program, "");
    let explained = printed(&output(world.imas(["explain"]).arg(&dll)));
    assert!(explained.contains("dotnet:conserve: .NET that"), "{explained}");
    assert!(explained.contains("dotnet:workstation is not offered: the application has no"), "{explained}");
    // The SDK writes this text for a web application.
    let framework = r#""framework": { "name": "Microsoft.AspNetCore.App" }"#;
    let text = r#""configProperties": { "System.GC.Server": true }"#;
    let text = format!("{{ \"runtimeOptions\": {{ {framework}, {text} }} }}");
    std::fs::write(program.with_extension("runtimeconfig.json"), text).unwrap();
    let explained = printed(&output(world.imas(["explain"]).arg(&dll)));
    assert!(explained.contains("dotnet:workstation: .NET with one heap"), "{explained}");
}

#[test]
fn without_a_store_it_works_all_the_same() {
    let Some(node) = runtime("node") else { return skipped("node is not installed") };
    let world = World::new();
    let mut imas =
        world.imas(["run", "--store", "/proc/none/imas.db", "-v", "--candidate", "node:semi8", "--"]);
    let done = output(imas.arg(node).args(["-e", "console.log(1)"]));
    assert!(printed(&done) == "1\n" && stderr(&done).contains("under node:semi8"), "{}", describe(&done));
}

#[test]
fn the_list_says_for_whom_a_candidate_is() {
    let world = World::new();
    let listed = world.json(["list", "--json"]);
    let all = listed["candidates"].as_array().unwrap();
    let of = |name: &str| all.iter().find(|one| one["name"] == name).unwrap().clone();
    assert_eq!(of("go:gogc200")["runtime"]["runtime"], "go");
    assert!(of("jemalloc")["runtime"].is_null());
    let unbuilt: Vec<_> =
        all.iter().filter(|one| !one["runtime"].is_null() && one["available"] != true).collect();
    assert!(unbuilt.is_empty(), "{unbuilt:?}");
}
