// SPDX-License-Identifier: Apache-2.0
//! Features of `imas bench` that users of hyperfine expect: columns, the number of runs, lines around them, several commands,
//! a baseline, and settings of allocators on the command line. Then `imas doctor --noise`, a real program compared with
//! itself: the figures depend on the machine, the form of the output does not.

use std::path::Path;
use std::process::Output;

use imas_testing::skipped;
use serde_json::Value;

use crate::support::{
    World, assert_hinted, assert_printed, assert_refused, build, candidate, describe, list, output, parsed,
    stderr, stdout, succeeded, text,
};

/// A program long enough for CPU time and memory to be measured.
const WORK: &str = "my @a = map { \"number $_\" } 1 .. 60000";

fn bench(world: &World, flags: &[&str], command: &[&str]) -> Output {
    output(world.imas(["bench", "--trials", "0"]).args(flags).arg("--").args(command))
}

fn read(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.work().join(name)).unwrap_or_default()
}

// ---- the table --------------------------------------------------------------------------------------------

#[test]
fn the_columns_are_those_that_were_named_and_sorted_by_one() {
    let world = World::new();
    let flags =
        ["-n", "3", "--with", "hoard,mimalloc", "--columns", "wall,user,system,peak", "--sort", "peak"];
    let output = succeeded(bench(&world, &flags, &["perl", "-e", WORK]));
    let printed = stdout(&output);
    let lines: Vec<&str> = printed.lines().skip_while(|line| !line.contains("candidate")).collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(head, ["candidate", "wall", "CPU", "user", "CPU", "system", "peak", "MiB"]);
    let rows = &lines[2..5];
    let peaks: Vec<f64> =
        rows.iter().map(|row| row.split_whitespace().last().unwrap().parse().unwrap()).collect();
    assert!(peaks.is_sorted(), "{printed}");
    assert!(peaks[2] > 1.0, "{printed}");
    let unknown = bench(&world, &["--columns", "speed"], &["true"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("there are wall, "), "{}", describe(&unknown));
}

/// Standard output on a terminal of that width, with these variables set.
fn on_a_terminal(world: &World, columns: u16, set: &str) -> Option<String> {
    let imas = crate::support::built("imas");
    let behave = build::program("behave", &world.work());
    let line = format!(
        "stty cols {columns} rows 30; {set} {} bench -n 3 --trials 0 --with hoard,glibc:arena1 -- {} 400000 2>errors",
        imas.display(),
        behave.display()
    );
    let mut script = world.command("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh");
    let ended = script.output().ok()?;
    let typed = String::from_utf8_lossy(&ended.stdout).replace('\r', "");
    assert!(typed.contains("candidate"), "{typed}");
    Some(typed)
}

#[test]
fn the_table_fits_the_terminal_and_is_coloured_only_there() {
    let world = World::new();
    for columns in [60, 100] {
        let Some(typed) = on_a_terminal(&world, columns, "NO_COLOR=1") else {
            return skipped("there is no script(1), which makes a terminal");
        };
        let table =
            typed.lines().skip_while(|line| !line.contains("candidate")).take_while(|line| !line.is_empty());
        for line in table {
            assert!(line.chars().count() <= columns.into(), "{columns}: {line:?}");
        }
        assert!(!typed.contains('\u{1b}'), "NO_COLOR: {typed:?}");
    }
    assert!(on_a_terminal(&world, 80, "").unwrap().contains("\u{1b}[1m"), "the head must be bold");
    let work = ["perl", "-e", WORK];
    let file = bench(&world, &["-n", "1", "--with", "hoard"], &work);
    assert!(!stdout(&file).contains('\u{1b}'), "a file must have no colours");
    let forced = bench(&world, &["-n", "1", "--with", "hoard", "--style", "color"], &work);
    assert!(stdout(&forced).contains('\u{1b}'), "{}", describe(&forced));
    let none = bench(&world, &["-n", "1", "--with", "hoard", "--style", "none"], &["true"]);
    assert_eq!(stdout(&none), "", "{}", describe(&none));
}

/// A command that is too short has one line, which says what was measured.
#[test]
fn a_command_that_is_too_short_has_one_line() {
    let world = World::new();
    for flags in [&["-n", "2"][..], &[]] {
        let mut imas = world.imas(["bench", "--with", "hoard"]);
        let made = succeeded(output(imas.args(flags).args(["--", "true"])));
        let told = stdout(&made);
        assert_eq!((told.lines().count(), stderr(&made).lines().count()), (1, 0), "{}", describe(&made));
        let is_said =
            told.starts_with("Too short to compare: a run takes ") && told.contains("give the program");
        assert!(is_said, "{}", describe(&made));
    }
    let explained = bench(&world, &["-n", "2", "--with", "hoard", "--verbose"], &["true"]);
    assert!(stdout(&explained).contains("candidate"), "-v has the table: {}", describe(&explained));
}

#[test]
fn a_command_that_cannot_be_started_ends_as_with_env() {
    let world = World::new();
    for verb in ["run", "bench"] {
        let missing = output(&mut world.imas([verb, "--", "no-such-program"]));
        assert_eq!(missing.status.code(), Some(127), "{verb}: {}", describe(&missing));
        let folder = output(world.imas([verb, "--"]).arg(world.work()));
        assert_eq!(folder.status.code(), Some(126), "{verb}: {}", describe(&folder));
    }
}

// ---- how a command is typed -------------------------------------------------------------------------------

#[test]
fn a_command_needs_no_dashes() {
    let world = World::new();
    let made = output(
        &mut world
            .imas(["bench", "--json", "-n", "1", "--trials", "0", "--with", "hoard", "perl", "-e", "1"]),
    );
    assert_eq!(parsed(&made)["command"], serde_json::json!(["perl", "-e", "1"]), "{}", describe(&made));
    let late = output(&mut world.imas(["bench", "perl", "--with", "hoard"]));
    assert_refused(&late, "--with comes after the command");
}

#[test]
fn a_line_in_one_word_is_sent_to_a_shell() {
    let world = World::new();
    for (line, shell) in [("sort x | uniq", "--shell sh"), ("sort x", "--shell none")] {
        let made = output(&mut world.imas(["bench", line]));
        assert_hinted(&made, line);
        assert!(stderr(&made).contains(shell), "{}", describe(&made));
    }
}

#[test]
fn the_second_table_is_printed_when_it_is_asked_for() {
    let world = World::new();
    let table = "Where the resident memory was";
    for (flag, is_there) in [("--ignore-failure", false), ("--where-memory-was", true)] {
        let flags = ["bench", "-n", "1", "--with", "hoard", flag, "--"];
        let made = output(world.imas(flags).args(["perl", "-e", WORK]));
        assert_eq!(stdout(&made).contains(table), is_there, "{}", describe(&made));
        assert_eq!(stdout(&made).contains("From 1 counted run of each"), is_there, "{}", describe(&made));
        assert!(stdout(&made).lines().all(|line| line.chars().count() <= 200), "{}", describe(&made));
    }
}

// ---- how many runs ----------------------------------------------------------------------------------------

#[test]
fn the_runs_end_when_they_are_settled_or_the_time_is_up() {
    let world = World::new();
    let behave = build::program("behave", &world.work()).to_string_lossy().into_owned();
    let auto = parsed(&bench(&world, &["--json", "--with", "hoard"], &[&behave, "20000"]));
    let (made, ended) = (auto["rounds"]["made"].as_u64().unwrap(), text(&auto, "/rounds/ended"));
    assert!((5..=30).contains(&made), "{made}");
    let wanted: &[&str] = if made == 30 { &["all-made"] } else { &["settled", "hopeless"] };
    assert!(wanted.contains(&ended), "{made}: {ended}");
    assert_eq!(
        list(candidate(&auto, "hoard"), "/runs").len() as u64,
        made,
        "every round that began must be complete"
    );

    let short =
        parsed(&bench(&world, &["--json", "--max-time", "0.001", "--with", "hoard"], &[&behave, "20000"]));
    assert_eq!((short["rounds"]["made"].as_u64(), text(&short, "/rounds/ended")), (Some(1), "max-time"));
    let fixed = parsed(&bench(&world, &["--json", "-n", "2", "--with", "hoard"], &[&behave, "20000"]));
    assert_eq!((fixed["rounds"]["made"].as_u64(), text(&fixed, "/rounds/ended")), (Some(2), "all-made"));
}

// ---- lines around the runs, several commands --------------------------------------------------------------

#[test]
fn lines_are_run_around_the_runs_and_the_session() {
    let world = World::new();
    let lines = ["--setup", "echo s >>log", "--prepare", "echo p >>log", "--conclude", "echo c >>log"];
    let flags =
        [&["-n", "2", "--warmup", "1", "--with", "hoard", "--cleanup", "echo e >>log"][..], &lines].concat();
    succeeded(bench(&world, &flags, &["sh", "-c", "echo r >>log"]));
    // A warm-up, and two rounds of two candidates.
    assert_eq!(read(&world, "log").replace('\n', ""), format!("s{}e", "prc".repeat(5)));
}

#[test]
fn a_line_that_fails_ends_it_and_cleans_up() {
    let world = World::new();
    let flags = ["-n", "2", "--prepare", "echo no such disk >&2; exit 3", "--cleanup", "echo e >>log"];
    let failed = bench(&world, &flags, &["sh", "-c", "echo r >>log"]);
    assert_refused(&failed, "--prepare failed");
    assert!(stderr(&failed).contains("no such disk"), "{}", describe(&failed));
    assert_eq!(read(&world, "log"), "e\n");
}

#[test]
fn several_commands_and_parameters_are_measured_one_after_the_other() {
    let world = World::new();
    let file = |name: &str| world.work().join(name).to_string_lossy().into_owned();
    let (all, csv, page) = (file("all.json"), file("all.csv"), file("all.md"));
    let exports = ["--export-json", &all, "--export-csv", &csv, "--export-markdown", &page];
    let parameters = ["--parameter-list", "word", "a,b", "--parameter-scan", "n", "1", "3", "-D", "2"];
    let flags = [&["-n", "1", "--shell", "none", "--with", "hoard"][..], &parameters, &exports].concat();
    let output = succeeded(bench(&world, &flags, &["echo {word} {n}"]));
    let results: Value = serde_json::from_str(&read(&world, "all.json")).unwrap();
    let commands: Vec<String> = list(&results, "/results")
        .iter()
        .map(|one| {
            list(one, "/command").iter().map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(commands, ["echo a 1", "echo a 3", "echo b 1", "echo b 3"]);
    assert_eq!(results["results"][3]["parameters"], serde_json::json!({ "word": "b", "n": "3" }));
    assert_eq!(read(&world, "all.csv").lines().count(), 1 + 4 * 2);
    assert!(read(&world, "all.csv").lines().last().unwrap().ends_with("echo b 3"));
    assert!(stdout(&output).contains("Under system, and what suits each:"), "{}", describe(&output));
    for name in ["all.json", "all.csv", "all.md"] {
        let text = read(&world, name);
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name} must end with one newline");
    }
    let shell = bench(
        &world,
        &["-n", "1", "--shell", "sh", "--with", "hoard", "--json"],
        &["echo x | cat >>log", "true"],
    );
    assert_eq!(list(&parsed(&shell), "/results").len(), 2);
    assert_eq!(read(&world, "log"), "x\n".repeat(3), "a warm-up and one run of each candidate");
    let wrong = bench(&world, &["--parameter-scan", "n", "3", "1"], &["true"]);
    assert_refused(&wrong, "no number from 3 to 1");
}

// ---- in CI ------------------------------------------------------------------------------------------------

/// Multiplies every figure of that name in the file by a factor.
fn scale(file: &Path, figure: &str, factor: f64) {
    let mut result: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for one in result["candidates"].as_array_mut().unwrap() {
        for run in one["runs"].as_array_mut().unwrap() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
            let scaled = (run[figure].as_f64().unwrap() * factor) as u64;
            run[figure] = scaled.into();
        }
    }
    std::fs::write(file, result.to_string()).unwrap();
}

#[test]
fn a_figure_that_has_grown_beyond_its_limit_fails_in_ci() {
    let world = World::new();
    let file = |name: &str| world.work().join(name).to_string_lossy().into_owned();
    let (old, junit, page) = (file("old.json"), file("junit.xml"), file("page.md"));
    let exports = ["--export-junit", &junit, "--export-markdown", &page];
    let fails = |life_s: &str| {
        // Uses the same memory each time.
        let work = format!("my $a = 'x' x 30_000_000; select undef, undef, undef, {life_s}");
        let command = ["perl", "-e", &work];
        succeeded(bench(&world, &["-n", "4", "--with", "mimalloc", "--export-json", &old], &command));
        let again = |rule: &str| {
            let flags = ["-n", "4", "--with", "mimalloc", "--baseline", &old, "--fail-if", rule];
            bench(&world, &[&flags[..], &exports].concat(), &command)
        };
        let passed = again("peak>500%");
        assert_eq!(passed.status.code(), Some(0), "{}", describe(&passed));
        assert!(read(&world, "junit.xml").contains("failures=\"0\""), "{}", read(&world, "junit.xml"));

        scale(Path::new(&old), "peak_bytes", 0.05);
        again("peak>50%")
    };
    // On a busy machine the memory of a short life may pass between two looks of the sampler.
    let has_failed = |_: &Output| read(&world, "junit.xml").contains("failures=\"2\"");
    let failed = ["0.3", "1", "3"].into_iter().map(fails).find(has_failed);
    let xml = read(&world, "junit.xml");
    let failed = failed.unwrap_or_else(|| panic!("{xml}"));
    assert_eq!(failed.status.code(), Some(1), "{}", describe(&failed));
    assert!(stdout(&failed).contains("FAILED"), "{}", describe(&failed));
    assert!(xml.contains("peak&gt;50% under mimalloc"), "{xml}");
    assert!(xml.ends_with('\n') && read(&world, "page.md").contains("- peak>50% under system"));
}

#[test]
fn a_baseline_that_does_not_fit_is_refused_before_anything_is_measured() {
    let world = World::new();
    let old = world.work().join("old.json").to_string_lossy().into_owned();
    succeeded(bench(&world, &["-n", "1", "--with", "hoard", "--export-json", &old], &["true"]));
    let refused = |flags: &[&str], why: &str| {
        let refused = bench(&world, flags, &["sh", "-c", "echo r >>log"]);
        assert_eq!(refused.status.code(), Some(2), "{}", describe(&refused));
        assert!(stderr(&refused).contains(why), "{}", describe(&refused));
    };
    refused(&["--baseline", &old, "--fail-if", "cpu>3%"], "no result of this command");
    refused(&["--baseline", "missing.json", "--fail-if", "cpu>3%"], "missing.json");
    refused(&["--baseline", &old, "--fail-if", "cpu>3"], "such as 'cpu>3%'");
    refused(&["--baseline", &old], "--fail-if");
    assert_eq!(read(&world, "log"), "");
}

/// The steps of docs/ci-example.yml that measure, as a runner executes them: `bash -e` in the folder of both
/// checkouts.
#[test]
fn the_example_for_ci_works() {
    let world = World::new();
    let example = std::fs::read_to_string(crate::support::workspace().join("docs/ci-example.yml")).unwrap();
    let steps = example.split("      - ").filter(|step| step.contains("imas bench"));
    // Fewer runs: what they show is not asked here.
    let scripts: Vec<String> = steps
        .map(|step| {
            step.split_once("run: |").unwrap().1.split("\n\n").next().unwrap().replace("-n 15", "-n 6")
        })
        .collect();
    assert_eq!(scripts.len(), 2, "{example}");
    for checkout in ["base", "change"] {
        std::fs::create_dir(world.work().join(checkout)).unwrap();
        crate::support::install(&crate::support::real("sort"), &world.work().join(checkout).join("program"));
    }
    let lines: String = (0..60_000u32).map(|n| format!("{}\n", n.wrapping_mul(2_654_435_761))).collect();
    std::fs::write(world.work().join("base/input.txt"), lines).unwrap();
    let folder = crate::support::built("imas").parent().unwrap().to_path_buf();
    let run = |script: &str| {
        let path = format!("{}:{}", folder.display(), crate::support::PATH);
        output(world.command("bash").args(["-e", "-c", script]).env("PATH", path))
    };
    let base = run(&scripts[0]);
    assert!(base.status.success() && world.work().join("old.json").exists(), "{}", describe(&base));
    // The same program twice: 1 where noise alone lies beyond a limit.
    let change = run(&scripts[1]);
    assert!(matches!(change.status.code(), Some(0 | 1)), "{}", describe(&change));
    assert!(stdout(&change).contains("against the baseline"), "{}", describe(&change));
    assert!(
        read(&world, "bench.xml").contains("<testcase") && read(&world, "bench.md").contains("| candidate")
    );
}

// ---- settings on the command line -------------------------------------------------------------------------

#[test]
fn an_allocator_is_measured_with_settings_of_the_command_line() {
    let world = World::new();
    let script = "tr '\\0' '\\n' </proc/$$/environ | grep -E '^(MALLOC_CONF|GLIBC_TUNABLES)=' >>seen; true";
    let flags = ["-n", "1", "--warmup", "0", "--json", "--with", "jemalloc?narenas:1,dirty_decay_ms:1000"];
    let flags = [&flags[..], &["--with", "glibc?mmap_threshold=65536"]].concat();
    let output = succeeded(bench(&world, &flags, &["sh", "-c", script]));
    let result = parsed(&output);
    let names: Vec<&str> = list(&result, "/candidates").iter().map(|one| text(one, "/name")).collect();
    assert_eq!(names, ["system", "jemalloc?narenas:1,dirty_decay_ms:1000", "glibc?mmap_threshold=65536"]);
    let seen = read(&world, "seen");
    assert!(seen.contains("MALLOC_CONF=dirty_decay_ms:1000,narenas:1\n"), "{seen}");
    assert!(seen.contains("glibc.malloc.mmap_threshold=65536"), "{seen}");
}

/// Once, as with every candidate that is named: nothing is stored of it.
#[test]
fn a_program_is_started_with_settings_of_the_command_line() {
    let world = World::new();
    let script = "tr '\\0' '\\n' </proc/$$/environ | grep -E '^(MALLOC_CONF|GLIBC_TUNABLES)='; grep -c libjemalloc.so /proc/$$/maps";
    let start = |candidate: &str| {
        output(&mut world.imas(["run", "--candidate", candidate, "--", "sh", "-c", script]))
    };
    let jemalloc = start("jemalloc?narenas:1");
    let seen = stdout(&jemalloc);
    assert!(
        seen.starts_with("MALLOC_CONF=narenas:1\n") && !seen.ends_with("\n0\n"),
        "{}",
        describe(&jemalloc)
    );
    let glibc = start("glibc?mmap_threshold=65536");
    assert_printed(&glibc, 1, "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=65536\n0\n");
    assert!(!world.store_path().exists() && world.page_files().is_empty());
    let wrong = start("jemalloc?narena:1");
    assert_hinted(&wrong, "narena is no setting");
    assert_eq!(stdout(&wrong), "0\n", "it is started untouched: {}", describe(&wrong));
}

/// Two commands must not be compared as one program: not by their names, nor by one value of a parameter.
#[test]
fn each_command_of_a_call_has_a_name_in_raw_runs() {
    let world = World::new();
    let names = |flags: &[&str], words: &[&str]| {
        let few = ["bench", "-n", "1", "--trials", "0", "--with", "mimalloc", "--export-runs", "-"];
        let runs = succeeded(output(world.imas(few).args(flags).arg("--").args(words)));
        let data = imas_core::raw_runs::data::read(&stdout(&runs));
        let mut names: Vec<String> = data.runs.into_iter().map(|run| run.program).collect();
        names.dedup();
        names
    };
    let one = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
    assert_eq!(names(&[], &["sh", "-c", one]), ["dash"]);
    let with = ["--parameter-list", "n", "20000,30000"];
    let many = one.replace("20000", "{n}");
    assert_eq!(names(&with, &["sh", "-c", &many]), ["dash n=20000", "dash n=30000"]);
    let other = one.replace("20000", "30000");
    assert_eq!(names(&["--shell", "sh"], &[one, &other]), [one, other.as_str()]);
    let named = ["--shell", "sh", "--name", "loop"];
    assert_eq!(names(&named, &[one, &other]), [format!("loop: {one}"), format!("loop: {other}")]);
}

#[test]
fn a_wrong_setting_is_rejected_with_the_known_ones() {
    let world = World::new();
    for (with, what, hint) in [
        ("jemalloc?narena:1", "narena is no setting", "did you mean narenas?"),
        ("jemalloc?narenas:many", "narenas cannot be many", "a number from 0 on"),
        ("glibc?thp:1", "thp is no setting", "hugetlb"),
        ("jemalloc?", "'' is no setting", "write settings as"),
        ("hoard?a:1", "no settings of hoard are known", "jemalloc"),
        ("jmalloc?narenas:1", "jmalloc: no such candidate", "did you mean jemalloc?"),
    ] {
        let refused = bench(&world, &["--with", with], &["true"]);
        assert_refused(&refused, what);
        assert!(stderr(&refused).contains(hint), "{with}: {}", describe(&refused));
    }
}

const ROWS: [&str; 7] = [
    "normalised user + system seconds",
    "user + system seconds, better of two",
    "user + system seconds",
    "elapsed seconds",
    "instructions",
    "page faults",
    "peak memory",
];

/// `imas doctor --noise MORE`, without an installation of allocators, which it does not need.
fn noise(world: &World, more: &[&str]) -> std::process::Output {
    let mut command = world.imas(["doctor", "--noise"]);
    output(command.args(more).env("IMAS_LIB_DIR", world.work().join("nothing")))
}

/// Appends a line and works a little.
fn work(world: &World) -> String {
    let made = world.work().join("made");
    format!("echo run >> {}; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done", made.display())
}

#[test]
fn the_page_names_every_measure_and_what_a_comparison_takes() {
    let world = World::new();
    let measured_here = succeeded(noise(&world, &["--pairs", "3", "--", "sh", "-c", &work(&world)]));
    let page = stdout(&measured_here);
    assert!(page.starts_with("sh against itself under system, 3 pairs\n"), "{page}");
    for row in ROWS {
        assert!(page.lines().any(|line| line.trim_start().starts_with(row)), "no {row}: {page}");
    }
    // Elapsed time is measurable everywhere: two figures and a number of pairs.
    let elapsed = page.lines().find(|line| line.trim_start().starts_with("elapsed seconds")).unwrap();
    let cells: Vec<&str> = elapsed.split_whitespace().collect();
    assert_eq!((cells.len(), cells[3], cells[5]), (7, "%", "%"), "{elapsed}");
    assert!(cells[2].parse::<f64>().unwrap() >= 0.0 && cells[6].parse::<u32>().unwrap() >= 2, "{elapsed}");
    assert!(page.contains("a difference of 3 % in CPU"), "{page}");
    let memory =
        page.lines().find(|line| line.starts_with("free memory: touching a GiB of it takes ")).unwrap();
    let stays = memory.ends_with("it stays here");
    assert!(stays || memory.contains("it returns to the host when it stays free"), "{memory}");
    // One run to fill the caches, then pairs. With several CPUs, as many pairs again, pinned to one CPU.
    let runs = std::fs::read_to_string(world.work().join("made")).unwrap().lines().count();
    assert!([1 + 6, 1 + 12].contains(&runs), "{runs} runs");
}

#[test]
fn json_has_the_same_figures() {
    let world = World::new();
    let pairs = ["--pairs", "6", "--json", "--", "sh", "-c"];
    let found = succeeded(noise(&world, &[&pairs[..], &[&work(&world)]].concat()));
    let found = parsed(&found);
    assert!(found["schema"] == 1 && found["pairs"] == 6 && found["difference"] == 0.03, "{found:#}");
    let steadiness = |name: &str| {
        let measures = list(&found, "/measures");
        let row = measures.iter().find(|row| text(row, "/measure") == name);
        row.unwrap_or_else(|| panic!("no {name} in {found:#}"))["steadiness"].clone()
    };
    for row in ROWS {
        steadiness(row);
    }
    let touch = |name: &str| found["first_touch"][name].as_f64().unwrap();
    assert!(0.0 < touch("least_s_per_gib") && touch("least_s_per_gib") <= touch("most_s_per_gib"));
    // Six pairs give three pairs of the better of two.
    for row in
        ["elapsed seconds", "user + system seconds", "user + system seconds, better of two", "page faults"]
    {
        let steady = steadiness(row);
        let figure = |name: &str| steady[name].as_f64().unwrap_or(f64::NAN);
        assert!(figure("variation") >= 0.0 && figure("paired") >= 0.0, "{row}: {steady}");
        assert!(steady["pairs_needed"].as_u64().is_some_and(|pairs| pairs >= 2), "{row}: {steady}");
    }
}

#[test]
fn a_failing_program_is_reported() {
    let world = World::new();
    let failing = noise(&world, &["--pairs", "3", "--", "sh", "-c", "echo no such table >&2; exit 7"]);
    assert!(failing.status.success(), "{}", describe(&failing));
    let what = |runs: u32| format!("sh: {runs} of {runs} runs failed, the last with exit 7: no such table");
    assert!([6, 12].iter().any(|&runs| stderr(&failing).contains(&what(runs))), "{}", describe(&failing));
    let fine = noise(&world, &["--pairs", "3", "--", "true"]);
    assert!(!stderr(&fine).contains("failed"), "{}", describe(&fine));
}

#[test]
fn bad_input_is_named() {
    let world = World::new();
    let missing = noise(&world, &["--", "no-such-program"]);
    assert_refused(&missing, "no-such-program: not found");
    let too_few = noise(&world, &["--pairs", "2", "--", "true"]);
    assert_eq!(too_few.status.code(), Some(2));
    assert!(stderr(&too_few).contains("2 is not in 3..=10000"), "{}", describe(&too_few));
    let alone = output(&mut world.imas(["doctor", "--pairs", "3"]));
    assert_eq!(alone.status.code(), Some(2));
    assert!(stderr(&alone).contains("--noise"), "{}", describe(&alone));
}
