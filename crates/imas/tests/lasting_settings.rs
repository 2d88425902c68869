// SPDX-License-Identifier: Apache-2.0
//! Settings of language runtimes in what lasts: units, images, pods.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runtimes::go_built;
use crate::support::{
    World, assert_hinted, assert_refused, build, describe, output, parsed, real, stderr, stdout, succeeded,
};

/// Prints the growth at which it collects, and which of its variables it sees.
const GO: &str = r#"package main

import (
	"fmt"
	"os"
	"runtime/debug"
)

func main() { fmt.Println(debug.SetGCPercent(-1), os.Getenv("GOGC"), os.Getenv("LD_PRELOAD")) }
"#;

fn installed(name: &str) -> Option<PathBuf> {
    let is_there = ["/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(name).exists());
    is_there.then(|| real(name))
}

/// An image with one service, whose program is a link to `program`.
struct Image {
    world: World,
    root: PathBuf,
}

impl Image {
    fn with(world: World, program: &Path, lines: &str) -> Self {
        let root = world.work().join("root");
        std::fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::fs::create_dir_all(root.join("usr/lib/systemd/system")).unwrap();
        std::os::unix::fs::symlink(program, root.join("usr/bin/web")).unwrap();
        let image = Self { world, root };
        image.set(lines);
        image
    }

    fn set(&self, lines: &str) {
        let unit = self.root.join("usr/lib/systemd/system/web.service");
        std::fs::write(unit, format!("[Service]\nExecStart=/usr/bin/web serve\n{lines}\n")).unwrap();
    }

    fn ask(&self, words: &[&str]) -> std::process::Output {
        output(self.world.imas(words).arg("--root").arg(&self.root))
    }

    fn apply(&self, candidate: &str, more: &[&str]) -> std::process::Output {
        self.ask(&[&["apply", "web", "--candidate", candidate, "--write"], more].concat())
    }

    fn drop_in(&self) -> Option<String> {
        std::fs::read_to_string(self.root.join("etc/systemd/system/web.service.d/50-imas.conf")).ok()
    }

    /// The variables of the drop-in, as systemd would set them.
    fn variables(&self) -> Vec<(String, String)> {
        let text = self.drop_in().unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.strip_prefix("Environment=\"")?.strip_suffix('"'));
        let pairs = lines.filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (name.into(), value.into())).collect()
    }
}

#[test]
fn a_unit_of_go_gets_a_variable_and_nothing_is_loaded() {
    let world = World::new();
    let Some(program) = go_built(&world, "web", &[], GO, "0") else {
        return imas_testing::skipped("the Go compiler is not installed");
    };
    let image = Image::with(world, &program, "Environment=OTHER=1");
    let done = image.apply("go:gogc200", &[]);
    assert!(done.status.success() && stderr(&done).contains("inherits GOGC"), "{}", describe(&done));
    assert_eq!(image.variables(), [("GOGC".to_owned(), "200".to_owned())]);
    let run = output(Command::new(&program).env_clear().envs(image.variables()));
    assert_eq!(stdout(&run), "200 200 \n");
    let again = image.apply("go:gogc200", &[]);
    assert!(
        stdout(&again).contains("already"),
        "its own drop-in is none of the user's: {}",
        describe(&again)
    );
    succeeded(image.apply("go:gogc50", &[]));
    assert_eq!(image.variables(), [("GOGC".to_owned(), "50".to_owned())]);
    assert!(image.ask(&["unapply", "web", "--write"]).status.success() && image.drop_in().is_none());
}

#[test]
fn what_the_user_set_in_a_unit_wins() {
    let world = World::new();
    let Some(program) = go_built(&world, "web", &[], GO, "0") else {
        return imas_testing::skipped("the Go compiler is not installed");
    };
    let image = Image::with(world, &program, "");
    std::fs::create_dir_all(image.root.join("etc/default")).unwrap();
    std::fs::write(image.root.join("etc/default/web"), "# GOGC=1\nGOMEMLIMIT=1GiB\n").unwrap();
    for (lines, says) in [
        ("Environment=GOGC=80", "GOGC is set already"),
        ("EnvironmentFile=-/etc/default/web", "GOMEMLIMIT is set already"),
        ("RootDirectory=/srv/jail", "RootDirectory=/srv/jail"),
    ] {
        image.set(lines);
        assert_refused(&image.apply("go:gogc200", &[]), says);
        assert_eq!(image.drop_in(), None);
    }
    image.set("");
    assert_hinted(&image.apply("go:limit", &[]), "no control group limits its memory");
    assert_hinted(&image.apply("node:semi8", &[]), "this is one of Go");
    image.set("MemoryMax=1G");
    assert!(image.apply("go:limit", &[]).status.success());
    let limit = ("GOMEMLIMIT".to_owned(), (1_073_741_824_u64 / 100 * 90).to_string());
    assert!(image.variables().contains(&limit), "{:?}", image.variables());
}

#[test]
fn an_application_of_net_is_looked_for_in_the_folder_of_its_unit() {
    let world = World::new();
    let program = world.work().join("dotnet");
    build::program_with("cc", "runtime_like", &["-DLIKE_DOTNET"], &program);
    let image = Image::with(world, &program, "");
    let folder = image.root.join("srv/web");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("web.dll"), "").unwrap();
    let file = folder.join("web.runtimeconfig.json");
    std::fs::write(&file, "{}").unwrap();
    let starts = "ExecStart=\nExecStart=/usr/bin/web web.dll --urls x\n";
    image.set(&format!("{starts}WorkingDirectory=-/srv/web"));
    let done = succeeded(image.apply("dotnet:conserve", &[]));
    assert!(stderr(&done).contains("wins over what the application"), "{}", describe(&done));
    assert_eq!(image.variables(), [("DOTNET_GCConserveMemory".to_owned(), "5".to_owned())]);
    assert!(image.ask(&["unapply", "web", "--write"]).status.success());
    let set = r#"{ "runtimeOptions": { "configProperties": { "System.GC.ConserveMemory": 0 } } }"#;
    std::fs::write(&file, set).unwrap();
    let refused = image.apply("dotnet:conserve", &[]);
    assert_hinted(&refused, "System.GC.ConserveMemory is set already (web.runtimeconfig.json)");
    image.set(starts);
    assert_hinted(&image.apply("dotnet:conserve", &[]), "runtimeconfig.json of its application is not found");
    assert_eq!(image.drop_in(), None);
}

#[test]
fn options_of_node_are_added_and_its_children_do_not_inherit_them() {
    let Some(node) = installed("node") else { return imas_testing::skipped("node is not installed") };
    let image = Image::with(World::new(), &node, "Environment=NODE_OPTIONS=--no-deprecation");
    let script = "console.log(process.env.NODE_OPTIONS, require('v8').getHeapStatistics().heap_size_limit)";
    let limit = |variables: &[(String, String)]| {
        let variables = variables.iter().cloned();
        let mut command = Command::new(&node);
        command.args(["-e", script]).env_clear().env("NODE_OPTIONS", "--no-deprecation").envs(variables);
        let run = output(&mut command);
        let said = stdout(&run);
        let (options, limit) = said.trim().split_once(' ').unwrap_or_else(|| panic!("{}", describe(&run)));
        assert_eq!(options, "--no-deprecation", "as it was");
        limit.parse::<u64>().unwrap()
    };
    assert!(image.apply("node:semi64", &[]).status.success());
    assert!(limit(&image.variables()) > limit(&[]), "{:?}", image.variables());
    image.set("ExecStart=\nExecStart=/usr/bin/web --max-semi-space-size=2 a.js");
    assert_hinted(&image.apply("node:semi8", &[]), "--max-semi-space-size=2 is given already (command line)");
}

#[test]
fn a_jvm_that_the_unit_starts_prints_nothing_of_its_settings() {
    let Some(java) = installed("java") else { return imas_testing::skipped("java is not installed") };
    let image = Image::with(World::new(), &java, "");
    let done = image.apply("jvm:serial", &[]);
    assert!(done.status.success(), "{}", describe(&done));
    let mut command = Command::new(&java);
    command.args(["-XX:+PrintFlagsFinal", "-version"]).env_clear().envs(image.variables());
    let run = output(&mut command);
    let is_on =
        |line: &str| [" UseSerialGC ", "= true", "command line"].iter().all(|part| line.contains(part));
    assert!(stdout(&run).lines().any(is_on), "{}", describe(&run));
    assert!(!stderr(&run).contains("Picked up"), "{}", describe(&run));
    assert!(image.ask(&["unapply", "web", "--write"]).status.success());
    image.set("Environment=\"JAVA_TOOL_OPTIONS=-XX:+UseG1GC\"");
    assert_hinted(&image.apply("jvm:serial", &[]), "-XX:+UseG1GC is given already (JAVA_TOOL_OPTIONS)");
}

#[test]
fn what_is_no_program_of_the_runtime_gets_nothing() {
    let world = World::new();
    let impostor = world.work().join("java");
    std::fs::write(&impostor, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&impostor, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let image = Image::with(world, &impostor, "");
    std::fs::remove_file(image.root.join("usr/bin/web")).unwrap();
    std::fs::write(image.root.join("usr/bin/web"), "\x7fELF but java in name alone").unwrap();
    let refused = image.apply("jvm:serial", &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", describe(&refused));
    std::fs::copy("/bin/true", image.root.join("usr/bin/web")).unwrap();
    assert_eq!(image.drop_in(), None);
    let followed = image.apply("go:gogc50", &[]);
    assert!(followed.status.success(), "{}", describe(&followed));
    assert!(stderr(&followed).contains("what it starts"), "{}", describe(&followed));
    assert_eq!(image.variables(), [("GOGC".to_owned(), "50".to_owned())]);
    // Programs that it starts might get the unit's words and variables: with two collectors a JVM does not
    // start.
    assert!(image.ask(&["unapply", "web", "--write"]).status.success());
    image.set("Environment=\"CATALINA_OPTS=-server -XX:+UseG1GC\"");
    let refused = image.apply("jvm:serial", &[]);
    assert_hinted(&refused, "-XX:+UseG1GC is given already, in the unit's words");
    assert_eq!(image.drop_in(), None);
}

/// The scripts of Tomcat, Kafka and their kind end in `exec java`, or start it as a child.
#[test]
fn a_start_script_hands_the_settings_on_unless_it_gives_others() {
    let world = World::new();
    let script = world.work().join("start.sh");
    let write = |text: &str| {
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    write("#!/bin/sh\n# not -XX:+UseG1GC\nexec java -XX:+PrintFlagsFinal -version\n");
    let image = Image::with(world, &script, "");
    let done = image.apply("jvm:serial", &[]);
    assert!(done.status.success(), "{}", describe(&done));
    assert!(stderr(&done).contains("what it starts gets the settings"), "{}", describe(&done));
    let java = installed("java");
    for text in ["exec java -XX:+PrintFlagsFinal -version", "java -XX:+PrintFlagsFinal -version & wait $!"] {
        if java.is_none() {
            imas_testing::skipped("java is not installed");
            break;
        }
        write(&format!("#!/bin/sh\n{text}\n"));
        let run = output(Command::new(&script).envs(image.variables()));
        let is_on = |line: &str| line.contains(" UseSerialGC ") && line.contains("= true");
        assert!(stdout(&run).lines().any(is_on), "{text}: {}", describe(&run));
    }
    // A pipe among the words is not waited for.
    let pipe = image.world.work().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    image.set(&format!("ExecStart=\nExecStart=/usr/bin/web {}", pipe.display()));
    assert!(image.apply("jvm:serial", &[]).status.success());
    image.set("");
    for given in
        ["JAVA_OPTS=\"-server -XX:+UseG1GC\"", "KAFKA=-XX:+UseG1GC", "exec java -XX:+UseG1GC -version"]
    {
        assert!(image.ask(&["unapply", "web", "--write"]).status.success(), "{given}");
        write(&format!("#!/bin/sh\n{given}\n"));
        let refused = image.apply("jvm:serial", &[]);
        assert_hinted(&refused, "-XX:+UseG1GC is given already");
        assert_eq!(image.drop_in(), None, "{given}");
        write("#!/bin/sh\nexec java -version\n");
        assert!(image.apply("jvm:serial", &[]).status.success(), "{given}");
    }
}

#[test]
fn an_image_gets_variables_alone_where_no_library_is_needed() {
    let world = World::new();
    let formats = [
        ("dockerfile", "# go:gogc50\nENV GOGC=\"50\"\n"),
        ("compose", "# go:gogc50\nservices:\n  app:\n    environment:\n      GOGC: \"50\"\n"),
    ];
    for (format, expected) in formats {
        let got = output(&mut world.imas(["env", "--candidate", "go:gogc50", "--format", format]));
        assert_eq!(stdout(&got), expected, "{}", describe(&got));
        assert!(stderr(&got).contains("inherits GOGC"), "{}", describe(&got));
    }
    let pod =
        stdout(&output(&mut world.imas(["env", "--candidate", "jvm:serial", "--format", "kubernetes"])));
    assert!(pod.contains("name: JAVA_TOOL_OPTIONS\n              value: \"-XX:+UseSerialGC\"\n"), "{pod}");
    assert!(!pod.contains("volume") && !pod.contains("LD_PRELOAD"), "{pod}");
    let set = output(world.imas(["env", "--candidate", "go:gogc50"]).env("GOGC", "70"));
    assert_hinted(&set, "GOGC is set already");
    let limit = output(&mut world.imas(["env", "--candidate", "go:limit", "--format", "dockerfile"]));
    assert_hinted(&limit, "memory limit of the container");
    world.add_settings_of_python(Some("libjemalloc.so"));
    let python = output(&mut world.imas(["env", "--candidate", "cpython:own", "--format", "dockerfile"]));
    assert!(stdout(&python).contains("libimas-settings.so"), "{}", describe(&python));
}

#[test]
fn a_bundle_of_settings_has_no_library() {
    let world = World::new();
    let folder = world.work().join("bundle");
    let made = output(world.imas(["bundle", "node:semi8", "--out"]).arg(&folder));
    assert!(made.status.success() && !stderr(&made).contains("musl"), "{}", describe(&made));
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|one| one.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["README", "imas.env"]);
    let lines = std::fs::read_to_string(folder.join("imas.env")).unwrap();
    assert_eq!(lines, "NODE_OPTIONS=--max-semi-space-size=8\n");
    let other = world.work().join("python");
    world.add_settings_of_python(Some("libjemalloc.so"));
    let words = ["bundle", "cpython:own", "--json", "--out"];
    let made = output(world.imas(words).arg(&other));
    let document = parsed(&made);
    assert_eq!(document["environment"]["IMAS_SETTINGS"], "+PYTHONMALLOC", "{document:#}");
    assert!(other.join("libimas-settings.so").is_file() && other.join("libjemalloc.so").is_file());
}
