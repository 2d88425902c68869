// SPDX-License-Identifier: Apache-2.0
//! `imas bench --quick`: one recorded run, its replays, and live runs of what they find promising.

use std::process::Output;

use crate::bench::{behave, names};
use crate::support::{
    World, assert_refused, build, describe, input, json, list, output, parsed, stderr, succeeded, text,
};
use serde_json::Value;

const FOUR: &str = "jemalloc,mimalloc,tcmalloc,hoard";

fn quick(world: &World, flags: &[&str], command: &[&str]) -> Output {
    output(world.imas(["bench", "--quick", "-n", "1", "--with", FOUR]).args(flags).arg("--").args(command))
}

fn answer(world: &World, flags: &[&str], command: &[&str]) -> (Value, Output) {
    let output = quick(world, &[&["--json"], flags].concat(), command);
    (parsed(&output), output)
}

/// Nothing was predicted for this reason, and every candidate was measured.
fn assert_whole(answer: &Value, output: &Output, why: &str) {
    assert!(text(answer, "/quick/fallback").contains(why), "{answer:#}");
    assert!(stderr(output).contains(why), "{}", describe(output));
    assert!(stderr(output).contains("every candidate is measured"), "{}", describe(output));
    assert_eq!(names(answer).len(), 5, "{answer:#}");
    assert!(list(answer, "/quick/predicted").is_empty(), "{answer:#}");
}

#[test]
fn a_real_program_has_its_prediction_and_its_measurement() {
    let world = World::new();
    let sql = input("work.sql").to_string_lossy().into_owned();
    let (answer, output) = answer(&world, &["--input", &sql], &["sqlite3", ":memory:"]);
    assert!(output.status.success(), "{}", describe(&output));
    let predicted = list(&answer, "/quick/predicted");
    assert_eq!(predicted.len(), 4, "{answer:#}");
    for one in predicted {
        for figure in ["cpu", "memory", "peak"] {
            let ratio: Vec<f64> = list(one, &format!("/ratio/{figure}"))
                .iter()
                .map(|number| number.as_f64().unwrap())
                .collect();
            assert!(ratio[0] <= ratio[1] && ratio[1] <= ratio[2] && ratio[2] < 20.0, "{one:#}");
        }
    }
    let chosen: Vec<&str> =
        predicted.iter().filter(|one| one["is_measured"] == true).map(|one| text(one, "/name")).collect();
    assert!((1..=2).contains(&chosen.len()), "{answer:#}");
    assert_eq!(names(&answer)[1..], chosen[..], "{answer:#}");
    assert_eq!(names(&answer)[0], "system", "{answer:#}");
    for one in list(&answer, "/candidates") {
        assert_eq!(list(one, "/runs").len(), 1, "{one:#}");
    }
    assert_eq!((text(&answer, "/quick/objective"), &answer["quick"]["fallback"]), ("balanced", &Value::Null));
    assert!(answer["quick"]["recorded"]["calls"].as_u64().unwrap() > 10_000, "{answer:#}");
}

#[test]
fn the_table_has_both() {
    let world = World::new();
    let output = succeeded(quick(&world, &["--objective", "memory"], &[&behave(&world), "200000"]));
    let text = crate::support::stdout(&output);
    assert!(text.contains("beside each prediction the live figure"), "{text}");
    assert!(text.contains("the predicted score (memory)"), "{text}");
    assert_eq!(std::fs::read_dir(world.work()).unwrap().count(), 1, "only the program itself");
}

#[test]
fn rounds_end_by_themselves_from_the_third_on() {
    let world = World::new();
    let program = behave(&world);
    let command = ["bench", "--quick", "--with", FOUR, "--json", "--", &program, "200000"];
    let answer = json(&output(&mut world.imas(command)));
    assert_eq!(answer["quick"]["fallback"], Value::Null, "{answer:#}");
    let (made, ended) = (answer["rounds"]["made"].as_u64().unwrap(), text(&answer, "/rounds/ended"));
    let wanted: &[&str] = if made == 30 { &["all-made"] } else { &["settled", "hopeless", "unlikely"] };
    assert!((3..=30).contains(&made) && wanted.contains(&ended), "{made}: {ended}");
}

#[test]
fn a_program_that_dies_while_recorded_is_measured_whole() {
    let world = World::new();
    // The first run is the recorded one.
    let script = "if test -e recorded; then exec \"$0\" 20000; fi; : >recorded; \"$0\" 20000; kill -9 $$";
    let (answer, output) = answer(&world, &[], &["sh", "-c", script, &behave(&world)]);
    assert!(output.status.success(), "{}", describe(&output));
    assert_whole(&answer, &output, "ended by signal 9 while it was recorded");
}

#[test]
fn a_static_program_behind_a_shell_is_measured_whole() {
    let world = World::new();
    let made = build::program_with("cc", "behave", &["-static", "-Wno-error"], &world.work().join("static"));
    let (answer, output) = answer(&world, &[], &["sh", "-c", "\"$0\" 400000; true", &made.to_string_lossy()]);
    assert!(output.status.success(), "{}", describe(&output));
    assert_whole(&answer, &output, "or in static ones, which cannot be recorded");
}

#[test]
fn a_trace_at_its_limit_is_no_ground_for_a_choice() {
    let world = World::new();
    let (answer, output) = answer(&world, &["--trace-limit", "300K"], &[&behave(&world), "200000"]);
    assert!(output.status.success(), "{}", describe(&output));
    assert_whole(&answer, &output, "--trace-limit raises it");
}

#[test]
fn two_candidates_need_no_choice() {
    let world = World::new();
    let command = ["bench", "--quick", "-n", "1", "--with", "hoard,jemalloc", "--json", "--"];
    let output = output(world.imas(command).args([&behave(&world), "20000"]));
    let answer = parsed(&output);
    assert!(text(&answer, "/quick/fallback").contains("no more than 2"), "{answer:#}");
    assert_eq!(names(&answer).len(), 3, "{answer:#}");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let world = World::new();
    let refused = |flags: &[&str], what: &str| assert_refused(&quick(&world, flags, &["true"]), what);
    refused(&["--ready", "tcp:1", "--load", "true"], "--quick is for a command");
    refused(&["--baseline", "old.json", "--fail-if", "cpu>3%"], "--baseline compares every candidate");
    refused(&["--objective", "latency"], "--objective latency is for a server");
}
