// SPDX-License-Identifier: Apache-2.0
//! What `imas advise` and `imas explain --pid` say of running programs of a language runtime.

use std::path::Path;

use serde_json::Value;

use crate::support::{World, list, output, parsed, piped, real, stdout, succeeded, wait_until};

/// Makes much that dies young and keeps nothing. Prints a letter then, and ends when its standard input is closed.
const WASTE: &str = r#"
public class Waste {
    static byte[] last;
    public static void main(String[] words) throws Exception {
        for (int i = 0; i < 60000; i++) last = new byte[50000];
        System.out.println("x");
        System.in.read();
    }
}
"#;

/// Whether [`WASTE`] was compiled: there may be no compiler.
fn compiled(world: &World) -> bool {
    if !Path::new("/usr/bin/javac").exists() {
        return false;
    }
    let source = world.work().join("Waste.java");
    std::fs::write(&source, WASTE).unwrap();
    succeeded(output(world.command(real("javac")).arg(&source)));
    true
}

fn json(world: &World, words: &[&str]) -> Value {
    parsed(&output(&mut world.imas(words)))
}

#[test]
fn a_jvm_that_holds_far_more_than_it_needs_is_advised_about() {
    let world = World::new();
    if !compiled(&world) {
        return imas_testing::skipped("javac is not installed");
    }
    let java = real("java");
    let start = |options: &[&str]| piped::start(world.command(&java).args(options).arg("Waste"));
    let of =
        |advice: &Value, pid: u32| list(advice, "/runtimes").iter().find(|row| row["pid"] == pid).cloned();
    let wasteful = start(&["-Xmn300m"]);
    let pid = wasteful.id();
    // On a busy machine the time for looks at processes may be over before its turn.
    let (mut row, mut page) = (None, String::new());
    wait_until("it is advised about", || {
        row = of(&json(&world, &["advise", "--json"]), pid);
        page = stdout(&output(&mut world.imas(["advise"])));
        row.is_some() && page.contains("left after the last collection")
    });
    let explained = json(&world, &["explain", "--json", "--pid", &pid.to_string()]);
    let text = stdout(&output(&mut world.imas(["explain", "--pid", &pid.to_string()])));
    piped::end(wasteful);
    let heap = &explained["runtime"]["jvm"];
    let bytes = |name: &str| heap[name].as_u64().unwrap_or_else(|| panic!("{explained:#}"));
    assert!(bytes("committed") > 200 << 20 && bytes("after_collection") < 50 << 20, "{explained:#}");
    assert!(bytes("collections") > 0 && explained["runtime"]["runtime"] == "jvm", "{explained:#}");
    assert!(text.contains("runtime: the JVM") && text.contains("left after the last of"), "{text}");
    let row = row.unwrap();
    assert!(row["candidates"][0].as_str().unwrap().ends_with("-lean"), "{row:#}");
    assert_eq!(row["jvm"]["committed"], heap["committed"]);
    assert!(page.contains("'imas run --candidate jvm:"), "{page}");

    let chosen = start(&["-Xmn300m", "-Xms400m", "-XX:+UseG1GC"]);
    let advice = json(&world, &["advise", "--json"]);
    let its_own = chosen.id();
    piped::end(chosen);
    assert_eq!(of(&advice, its_own), None, "its user has chosen");
}

#[test]
fn a_node_program_has_its_runtime_named() {
    if !Path::new("/usr/bin/node").exists() {
        return imas_testing::skipped("node is not installed");
    }
    let world = World::new();
    let script = "global.kept = Buffer.alloc(9e7, 1); console.log('x'); process.stdin.resume()";
    let node = piped::start(world.command(real("node")).args(["-e", script]));
    let pid = node.id();
    let explained = json(&world, &["explain", "--json", "--pid", &pid.to_string()]);
    let mut row = None;
    // There may be others, and on a busy machine the time for looks at processes may be over before its turn.
    wait_until("it is advised about", || {
        let advice = json(&world, &["advise", "--json"]);
        row = list(&advice, "/runtimes").iter().find(|row| row["pid"] == pid).cloned();
        row.is_some()
    });
    piped::end(node);
    assert_eq!(explained["runtime"]["runtime"], "node", "{explained:#}");
    let row: Value = row.unwrap();
    assert!(row["how"].as_str().unwrap().contains("node:semi1") && row["jvm"].is_null(), "{row:#}");
}

/// A process may map anything under the name of the JVM's counters.
#[test]
fn a_file_of_counters_that_lies_is_not_believed() {
    let world = World::new();
    let folder = world.work().join("hsperfdata_x");
    std::fs::create_dir(&folder).unwrap();
    let script = "import mmap, sys\nf = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0)\nprint('x', flush=True); sys.stdin.read()";
    let endless =
        [&[0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1][..], &[0; 16], &32_i32.to_ne_bytes(), &[0xff; 4100]].concat();
    for bytes in [endless, vec![b'x'; 1 << 20]] {
        let file = folder.join("1");
        std::fs::write(&file, bytes).unwrap();
        let python = piped::start(world.command(real("python3")).args(["-c", script]).arg(&file));
        let explained = json(&world, &["explain", "--json", "--pid", &python.id().to_string()]);
        piped::end(python);
        assert!(explained["runtime"]["jvm"].is_null(), "{explained:#}");
        assert_eq!(explained["runtime"]["runtime"], "cpython", "{explained:#}");
    }
}
