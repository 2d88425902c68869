// SPDX-License-Identifier: Apache-2.0
//! How runs end: hangs, processes that outlive the command, failures, limits, signals. Then candidates under which the command
//! behaves otherwise: they are flagged and not picked.

use std::path::Path;

use serde_json::Value;

use super::{behave, bench, picks, warnings};
use crate::support::{
    World, assert_hinted, assert_refused, build, candidate, describe, list, output, stderr, stdout,
    succeeded, text, wait_until,
};

#[test]
fn a_run_that_hangs_is_ended() {
    let world = World::new();
    let flags = ["-n", "2", "--timeout", "10", "--with", "hoard,mimalloc"];
    let (result, output) = bench(&world, &flags, &[&behave(&world), "1000", "hang", "hoard"]);
    assert!(output.status.success(), "{}", describe(&output));
    let notes = list(&result, "/notes");
    assert!(notes.iter().any(|note| note == "hoard: a run took too long and was ended"), "{result:#}");
    assert!(!picks(&result).contains(&"hoard"), "{result:#}");
    assert_eq!(list(candidate(&result, "mimalloc"), "/runs").len(), 2);
}

/// A server in the place of a command: the first run is limited, too, and the user learns what to do.
#[test]
fn a_command_that_never_ends_is_ended_by_the_time_of_all() {
    let world = World::new();
    let mut imas = world.imas(["bench", "-n", "1", "--trials", "0", "--max-time", "1"]);
    let ended = output(imas.args(["--", "sleep", "100000"]));
    assert_refused(&ended, "did not end within ");
    assert!(stderr(&ended).contains("--ready and --load measure a server"));
}

#[test]
fn a_long_first_run_has_a_hint_and_a_pipe_a_line_of_progress() {
    let world = World::new();
    let mut imas = world.imas(["bench", "-n", "1", "--trials", "0", "--timeout", "15", "--with", "hoard"]);
    let ended = output(imas.args(["--", "sleep", "100000"]));
    let told = stderr(&ended);
    assert!(told.contains("hint: the first run has not ended after 10 s"), "{}", describe(&ended));
    assert!(told.contains("imas: run 1 of 3: system, warm-up"), "{}", describe(&ended));
}

/// A candidate that hangs is not given the time limit in each of its runs. The others go on.
#[test]
fn a_candidate_under_which_it_hangs_is_named() {
    let world = World::new();
    world.add_library("hangs", &build::library("hangs", &world.work()), "version = '1'");
    let (csv, markdown) = (world.work().join("r.csv"), world.work().join("r.md"));
    let (csv, markdown) = (csv.to_string_lossy(), markdown.to_string_lossy());
    let exports = ["--export-csv", &*csv, "--export-markdown", &*markdown];
    let flags = [&["-n", "2", "--with", "hangs,mimalloc"][..], &exports].concat();
    let (result, output) = bench(&world, &flags, &[&behave(&world), "3000"]);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(candidate(&result, "hangs")["ineligible"], "hung", "{result:#}");
    assert_eq!(warnings(&result, "hangs-under")[0]["candidate"], "hangs");
    assert_eq!(warnings(&result, "exit-differs").len(), 0, "{result:#}");
    assert!(!picks(&result).contains(&"hangs"), "{result:#}");
    assert_eq!(list(candidate(&result, "mimalloc"), "/runs").len(), 2, "the others must be measured");
    assert!(std::fs::read_to_string(&*markdown).unwrap().contains("hangs under hangs"), "the page");
    assert!(std::fs::read_to_string(&*csv).unwrap().contains("hangs"));
    let explained = world.json(["explain", "behave", "--json"]);
    assert_eq!(text(&list(&explained, "/quarantined")[0], "/ended"), "hung", "{explained:#}");
}

/// A candidate whose malloc would take two minutes and a half in each run.
#[test]
fn a_candidate_under_which_it_takes_far_too_much_is_ended_and_quarantined() {
    let world = World::new();
    world.add_library("gluts", &build::library("gluts", &world.work()), "version = '1'");
    let flags = ["-n", "2", "--with", "gluts,mimalloc", "--timeout", "600"];
    let (result, output) = bench(&world, &flags, &[&behave(&world), "3000"]);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(candidate(&result, "gluts")["ineligible"], "excess", "{result:#}");
    assert_eq!(warnings(&result, "excess-under")[0]["candidate"], "gluts");
    assert!(!picks(&result).contains(&"gluts"), "{result:#}");
    assert_eq!(list(candidate(&result, "mimalloc"), "/runs").len(), 2, "the others must be measured");
    let explained = world.json(["explain", "behave", "--json"]);
    assert_eq!(text(&list(&explained, "/quarantined")[0], "/ended"), "excess", "{explained:#}");
}

#[test]
fn a_process_that_outlives_the_command_is_ended() {
    let world = World::new();
    let tree = build::program("tree", &world.work()).to_string_lossy().into_owned();
    let file = world.work().join("daemons").to_string_lossy().into_owned();
    let (result, output) =
        bench(&world, &["-n", "1", "--warmup", "0", "--with", "hoard"], &[&tree, "daemon", &file]);
    assert!(output.status.success(), "{}", describe(&output));
    let daemons = std::fs::read_to_string(&file).unwrap();
    assert_eq!(daemons.lines().count(), 4, "two measured and two counted runs: {daemons}");
    for pid in daemons.lines() {
        // Process ids are reused, so the executable is compared, too.
        let now = std::fs::read_link(Path::new("/proc").join(pid).join("exe"));
        assert!(!now.is_ok_and(|file| file == Path::new(&tree)), "{pid} still runs");
    }
    let notes = list(&result, "/notes");
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains("outlived the command")), "{result:#}");
}

#[test]
fn no_file_and_no_process_remains() {
    let world = World::new();
    bench(&world, &["-n", "1", "--with", "hoard"], &["sh", "-c", "true; true | cat"]);
    assert_eq!(world.page_files(), [""; 0]);
    assert!(world.trials().is_empty(), "a benchmark without a crash must store no trials");
}

/// The number of runs so far: the command adds a line to a file in each.
fn runs_made(world: &World) -> usize {
    std::fs::read_to_string(world.work().join("made")).unwrap_or_default().lines().count()
}

#[test]
fn a_command_that_fails_is_run_once() {
    let world = World::new();
    let failed =
        output(&mut world.imas(["bench", "--", "sh", "-c", "echo run >>made; echo why >&2; exit 9"]));
    assert_eq!((failed.status.code(), runs_made(&world)), (Some(1), 1), "{}", describe(&failed));
    assert_hinted(&failed, "fails under system: exit 9: why");
    assert_eq!(stdout(&failed), "", "no comparison may be printed");
}

/// Every third run fails, whoever it is of.
#[test]
fn a_program_that_fails_now_and_then_blames_no_candidate() {
    let world = World::new();
    let script = "echo run >>made; [ $(( $(wc -l <made) % 3 )) -ne 0 ] || { echo why >&2; exit 3; }";
    let words = ["bench", "-n", "3", "--trials", "0", "--with", "hoard,mimalloc", "--", "sh", "-c", script];
    let failed = output(&mut world.imas(words));
    assert_eq!(failed.status.code(), Some(1), "{}", describe(&failed));
    assert_hinted(&failed, "itself fails now and then");
    assert_eq!(stdout(&failed), "", "no candidate may be blamed");
    assert!(world.trials().is_empty(), "and nothing is stored");
}

/// The second run waits for the signal: nothing can be compared with one run.
#[test]
fn a_signal_before_the_first_comparison_compares_nothing() {
    let world = World::new();
    let script = "echo $$ >>made; [ $(wc -l <made) -lt 3 ] || exec sleep 600";
    let words = ["bench", "-n", "5", "--trials", "0", "--with", "hoard", "--", "sh", "-c", script];
    let mut command = world.imas(words);
    let child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("three runs", || runs_made(&world) == 3);
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", describe(&ended));
    assert!(
        stderr(&ended).contains("interrupted after 1 of 10 runs; nothing to compare"),
        "{}",
        describe(&ended)
    );
    assert_eq!(stdout(&ended), "", "{}", describe(&ended));
}

#[test]
fn a_time_limit_that_is_too_short_is_not_the_programs_fault() {
    let world = World::new();
    // Long enough for the shell to begin on a busy machine.
    let words = ["bench", "--timeout", "5.5", "--", "sh", "-c", "echo run >>made; sleep 60"];
    let ended = output(&mut world.imas(words));
    assert_eq!((ended.status.code(), runs_made(&world)), (Some(2), 1), "{}", describe(&ended));
    assert_hinted(&ended, "did not end within 5.5 s");
    assert_eq!(stdout(&ended), "", "no verdict may be printed");
    let none = output(&mut world.imas(["bench", "--timeout", "0", "--", "true"]));
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("must be above 0"), "{}", describe(&none));
}

/// Redirected standard input is read once and given to every run.
#[test]
fn redirected_input_reaches_every_run() {
    let world = World::new();
    let file = world.work().join("lines");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    let words = ["bench", "-n", "2", "--trials", "0", "--with", "hoard", "--", "sh", "-c", "wc -l >>made"];
    succeeded(output(world.imas(words).stdin(std::fs::File::open(&file).unwrap())));
    let mut child = world.imas(words).stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"one\ntwo\n").unwrap();
    assert!(child.wait().unwrap().success());
    let made = std::fs::read_to_string(world.work().join("made")).unwrap();
    assert_eq!(
        made.lines().collect::<Vec<_>>(),
        ["2"; 10],
        "a warm-up and two rounds of two candidates, twice"
    );
}

/// The command's children end with it. The results so far are printed and written.
#[test]
fn a_signal_ends_the_run_and_keeps_what_was_measured() {
    let world = World::new();
    let json = world.work().join("r.json");
    // The sixth run, in the second round, waits for the signal. The others work long enough to be compared.
    let script = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; \
                  echo $$ >>made; [ $(wc -l <made) -lt 6 ] || exec sleep 600";
    let json_name = json.to_string_lossy().into_owned();
    let words = ["bench", "-n", "5", "--trials", "0", "--with", "hoard", "--export-json", &json_name];
    let mut command = world.imas(words);
    command.args(["--", "sh", "-c", script]).stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("six runs", || runs_made(&world) == 6);
    assert!(!json.exists(), "no empty file may exist during the runs");
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{}", describe(&ended));
    assert!(stdout(&ended).contains("hoard"), "{}", describe(&ended));
    let text = std::fs::read_to_string(&json).unwrap();
    assert!(text.ends_with('\n'));
    let result: Value = serde_json::from_str(&text).unwrap();
    let runs: usize = list(&result, "/candidates").iter().map(|one| list(one, "/runs").len()).sum();
    assert_eq!(runs, 4, "the completed runs");
    let made = std::fs::read_to_string(world.work().join("made")).unwrap();
    let last = made.lines().last().unwrap();
    let still = std::fs::read_to_string(format!("/proc/{last}/cmdline")).unwrap_or_default();
    assert!(!still.contains("sleep"), "{last} still runs");
}

/// A candidate that cannot be loaded is listed with the reason. The others are measured.
#[test]
fn an_unusable_candidate_is_listed_with_its_reason() {
    let world = World::new();
    let broken = world.work().join("libbroken.so");
    std::fs::write(&broken, "no library").unwrap();
    world.add_library("broken", &broken, "");
    let (result, output) = bench(&world, &["-n", "1", "--with", "broken,hoard"], &[&behave(&world), "1000"]);
    assert!(output.status.success(), "{}", describe(&output));
    let row = candidate(&result, "broken");
    assert_eq!(row["available"], false);
    assert!(text(row, "/reason").contains("ELF"), "{row:#}");
    assert_eq!(list(row, "/runs").len(), 0);
    assert_eq!(list(candidate(&result, "hoard"), "/runs").len(), 1);
}

#[test]
fn other_output_under_a_candidate_is_flagged_and_not_picked() {
    let world = World::new();
    let (behave, flags) = (behave(&world), ["-n", "3", "--with", "hoard,mimalloc"]);
    let (result, output) = bench(&world, &flags, &[&behave, "20000", "print", "mimalloc"]);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(candidate(&result, "mimalloc")["ineligible"], "output-differs");
    assert_eq!(candidate(&result, "hoard")["ineligible"], Value::Null);
    assert_eq!(warnings(&result, "output-differs")[0]["candidate"], "mimalloc");
    assert!(!picks(&result).contains(&"mimalloc"), "{result:#}");
}

#[test]
fn another_exit_under_a_candidate_is_flagged_and_not_picked() {
    let world = World::new();
    let (result, _) =
        bench(&world, &["-n", "3", "--with", "hoard"], &[&behave(&world), "20000", "exit3", "hoard"]);
    assert_eq!(candidate(&result, "hoard")["ineligible"]["exit-differs"]["exit"], 3);
    assert_eq!(warnings(&result, "exit-differs")[0]["exit"], 3);
    assert!(!picks(&result).contains(&"hoard"));
}

/// The crash is flagged, and later `imas run` does not use that candidate for the program.
#[test]
fn a_crash_under_a_candidate_is_flagged_and_quarantined() {
    let world = World::new();
    let behave = behave(&world);
    let (result, output) =
        bench(&world, &["-n", "3", "--with", "hoard,tcmalloc"], &[&behave, "20000", "segv", "hoard"]);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(warnings(&result, "crash-under")[0]["candidate"], "hoard");
    assert!(!picks(&result).contains(&"hoard"));
    let explained = world.json(["explain", &behave, "--json"]);
    assert_eq!(text(&explained, "/quarantined/0/candidate"), "hoard");
    for _ in 0..8 {
        succeeded(world.start([behave.as_str(), "1000", "segv", "hoard"]));
    }
}

/// A script that runs `behave` with `act`. In a counted run, `behave` crashes under hoard. In a measured run
/// it crashes under none.
fn only_counted(world: &World, act: &str) -> String {
    let behave = behave(world);
    format!(
        "if grep -q '/libimas[.]so' /proc/$$/maps; then {act} {behave} 20000 segv hoard; else {act} {behave} 20000; fi; exit $?"
    )
}

/// Two cases: `behave` replaces the shell by exec, or it runs in a child and only the shell's exit status
/// shows the crash.
#[test]
fn a_crash_in_a_counted_run_alone_is_flagged_and_gives_no_figure() {
    let world = World::new();
    for (act, measured) in [("exec", 1), ("", 3)] {
        let script = only_counted(&world, act);
        let (result, output) =
            bench(&world, &["-n", "3", "--with", "hoard,mimalloc"], &["sh", "-c", &script]);
        assert!(output.status.success(), "{}", describe(&output));
        let (hoard, mimalloc) = (candidate(&result, "hoard"), candidate(&result, "mimalloc"));
        assert_eq!(hoard["ineligible"]["crashed"]["signal"], 11, "{act}: {hoard:#}");
        assert_eq!(warnings(&result, "crash-under")[0]["candidate"], "hoard");
        assert_eq!((&hoard["paper"], &mimalloc["ineligible"]), (&Value::Null, &Value::Null), "{act}");
        assert!(mimalloc["paper"]["ns_per_op"].as_f64().unwrap() > 0.0, "{mimalloc:#}");
        assert_eq!(list(hoard, "/runs").len(), measured, "{act}: before the counted one, or all");
    }
}

/// Candidate, kind and reason for exclusion of each exported run.
fn exported(file: &Path) -> Vec<(String, String, Option<String>)> {
    let data = imas_core::raw_runs::data::read(&std::fs::read_to_string(file).unwrap());
    assert!(data.unreadable.is_empty(), "{:?}", data.unreadable);
    data.runs
        .into_iter()
        .map(|run| {
            assert_eq!(run.ok, run.why.is_none(), "{run:?}");
            (run.candidate, format!("{:?}", run.kind), run.why)
        })
        .collect()
}

#[test]
fn exported_runs_say_which_of_them_do_not_count() {
    let world = World::new();
    let file = world.work().join("runs.jsonl");
    let runs = file.to_string_lossy().into_owned();
    let flags = ["-n", "3", "--with", "hoard,mimalloc", "--export-runs", &runs];
    bench(&world, &flags, &[&behave(&world), "20000", "print", "mimalloc"]);
    let lines = exported(&file);
    let whys = |name: &str, kind: &str| -> Vec<Option<String>> {
        lines.iter().filter(|line| line.0 == name && line.1 == kind).map(|line| line.2.clone()).collect()
    };
    assert_eq!(whys("mimalloc", "Measured"), vec![Some("output".to_owned()); 3], "{lines:?}");
    for name in ["system", "hoard"] {
        assert_eq!(whys(name, "Measured"), vec![None; 3], "{lines:?}");
        assert_eq!(whys(name, "Counted"), [None], "{lines:?}");
    }
}

#[test]
fn a_program_that_fails_under_system_is_reported_with_exit_status_one() {
    let world = World::new();
    let flags = ["-n", "2", "--ignore-failure", "--with", "hoard"];
    let (result, output) = bench(&world, &flags, &["sh", "-c", "echo why >&2; exit 9"]);
    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    assert_eq!(warnings(&result, "system-fails")[0]["exit"], 9);
    assert!(list(&result, "/notes").iter().any(|note| note == "the program says: why"), "{result:#}");
}

#[test]
fn output_that_never_repeats_is_not_compared() {
    let world = World::new();
    let command = ["sh", "-c", "echo $$; od -An -N8 -tx1 /dev/urandom"];
    let (result, _) = bench(&world, &["-n", "2", "--with", "hoard"], &command);
    assert_eq!(warnings(&result, "output-varies-by-itself").len(), 1, "{result:#}");
    assert_eq!(candidate(&result, "hoard")["ineligible"], Value::Null);
}
