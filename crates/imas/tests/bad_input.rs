// SPDX-License-Identifier: Apache-2.0
//! Whatever is wrong with IMAS, its files or its surroundings: a clear message with a way out, and the program starts.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use support::{
    Running, World, assert_hinted, build, candidate, lib_dir, list, output, real, said, stderr, stdout, text,
    wait_until,
};

/// The program started as if IMAS did not exist, and something was said about why.
fn assert_started_untouched(output: &Output, says: &str) {
    assert_eq!((output.status.code(), stdout(output).as_str()), (Some(0), "libc\n"), "{}", said(output));
    let text = stderr(output);
    assert!(text.lines().any(|line| line.starts_with("imas: ") && line.contains(says)), "{}", said(output));
}

/// A program that tells what serves it.
fn who(world: &World) -> PathBuf {
    build::program("who", &world.work())
}

// ---- words ----------------------------------------------------------------------------------------------------

#[test]
fn unknown_words_are_refused() {
    let world = World::new();
    for words in
        [&["frobnicate"][..], &["show", "--frobnicate"], &["bench", "-n", "0", "--", "true"], &["bench"], &[]]
    {
        let output = output(&mut world.imas(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", said(&output));
        assert!(
            stderr(&output).contains("--help") || stderr(&output).contains("Usage"),
            "{words:?}: {}",
            said(&output)
        );
    }
    for (words, says) in [
        (&["pin", "true", "nonsense"][..], "nonsense: no such candidate"),
        (&["bench", "--with", "nonsense", "--", "true"], "nonsense: no such candidate"),
        (&["show", "true"], "nothing is known"),
        (&["explain", "99"], "nothing is known"),
        (&["show", "no-such-program"], "no-such-program: not found"),
        (&["pin", "no-such-program", "hoard"], "no-such-program: not found"),
        (&["bench", "--", "no-such-program"], "no-such-program: not found"),
        (&["bench", "--input", "/no/such/file", "--", "cat"], "/no/such/file"),
        (&["bench", "-n", "1", "--export-json", "/no/such/r.json", "--", "true"], "/no/such/r.json"),
    ] {
        let output = output(&mut world.imas(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", said(&output));
        assert_hinted(&output, says);
    }
}

#[test]
fn numbers_out_of_range_are_usage_errors() {
    let world = World::new();
    for number in ["-1", "nan", "inf", "1e300", "x"] {
        let bench = output(world.imas(["bench"]).arg(format!("--timeout={number}")).args(["--", "true"]));
        assert_eq!(bench.status.code(), Some(2), "--timeout={number}: {}", said(&bench));
    }
    for number in ["-1", "nan", "x"] {
        let run = output(world.imas(["run"]).arg(format!("--retest={number}")).args(["--", "true"]));
        assert_eq!(run.status.code(), Some(125), "--retest={number}: {}", said(&run));
    }
}

/// An unknown candidate is our trouble, not the program's.
#[test]
fn an_unknown_candidate_does_not_stop_the_program() {
    let world = World::new();
    let output = output(world.imas(["run", "--candidate", "nonsense", "--"]).arg(who(&world)));
    assert_started_untouched(&output, "nonsense: no such candidate");
    assert_hinted(&output, "nonsense");
}

#[test]
fn bytes_that_are_no_text_pass_through() {
    let world = World::new();
    let odd = OsStr::from_bytes(b"\xff\xfe a\nb");
    let folder = world.work().join(OsStr::from_bytes(b"folder \xff"));
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("cat it");
    std::fs::copy(real("printf"), &program).unwrap();
    world.configure("max_tests = 1\nretest_s = 0");
    for _ in 0..8 {
        let output = output(world.imas(["run", "--"]).arg(&program).arg("%s|").arg(odd).env("ODD", odd));
        assert_eq!(output.stdout, [odd.as_bytes(), b"|"].concat(), "{}", said(&output));
        assert!(output.status.success());
    }
    world.check(["show"]).success();
}

// ---- the store ------------------------------------------------------------------------------------------------

#[test]
fn a_corrupt_store_is_set_aside_and_kept() {
    let world = World::new();
    let program = who(&world);
    std::fs::create_dir_all(world.store_path().parent().unwrap()).unwrap();
    std::fs::write(world.store_path(), "this is no database\n".repeat(300)).unwrap();
    let started = world.start([&program]);
    assert_started_untouched(&started, "the store was damaged; it was renamed to");
    let folder = world.store_path().parent().unwrap().to_owned();
    let names: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(names.iter().any(|name| name.to_string_lossy().contains(".corrupt-")), "{names:?}");
    assert_eq!(world.trials().len(), 1, "the new store works");
}

/// Damage in the middle shows only when the page is read.
#[test]
fn a_store_damaged_inside_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    for _ in 0..8 {
        world.start([&program]);
    }
    world.trials();
    for kept in [0.3, 0.5, 0.9] {
        let bytes = std::fs::read(world.store_path()).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small file")]
        let length = (bytes.len() as f64 * kept) as usize;
        for (damage, bytes) in [
            ("cut", bytes[..length].to_vec()),
            ("zeroed", [&bytes[..length], &vec![0; bytes.len() - length][..]].concat()),
        ] {
            for suffix in ["-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{suffix}", world.store_path().display()));
            }
            std::fs::write(world.store_path(), &bytes).unwrap();
            let started = output(world.imas(["run", "--"]).arg(&program));
            assert!(started.status.success(), "{damage} {kept}: {}", said(&started));
            assert!(!stdout(&started).is_empty());
            let doctor = output(&mut world.imas(["doctor"]));
            assert!([Some(0), Some(1)].contains(&doctor.status.code()), "{damage} {kept}: {}", said(&doctor));
        }
    }
}

#[test]
fn a_store_that_cannot_be_opened_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    for place in [
        world.work(),
        PathBuf::from("/proc/no/imas.db"),
        PathBuf::from("/dev/full/imas.db"),
        PathBuf::from("/dev/null"),
    ] {
        let started = output(world.imas(["run", "--"]).arg(&program).env("IMAS_STORE", &place));
        assert_started_untouched(&started, "");
        assert_hinted(&started, "store");
        let shown = output(world.imas(["show"]).env("IMAS_STORE", &place));
        assert_eq!(shown.status.code(), Some(2), "{}", said(&shown));
        assert_hinted(&shown, "store");
    }
}

#[test]
fn a_store_of_a_later_imas_is_left_alone() {
    let world = World::new();
    let program = who(&world);
    world.check(["show"]).success();
    let store = world.store_path();
    let set = output(world.command(real("sqlite3")).arg(&store).arg("PRAGMA user_version = 9999"));
    assert!(set.status.success(), "{}", said(&set));
    let started = world.start([&program]);
    assert_started_untouched(&started, "does not fit this version");
    let version = output(world.command(real("sqlite3")).arg(&store).arg("PRAGMA user_version"));
    assert_eq!(stdout(&version), "9999\n");
}

/// A process that holds the store for ever.
fn hold(world: &World) -> Running {
    let mut command = world.command(real("sqlite3"));
    command.arg("-batch").arg(world.store_path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().unwrap();
    let into = holder.stdin.as_mut().unwrap();
    into.write_all(b"BEGIN EXCLUSIVE; INSERT INTO exclusion VALUES ('/x', 1); SELECT 'held';\n").unwrap();
    into.flush().unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"held\n");
    Running(holder)
}

#[test]
fn a_locked_store_delays_but_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    assert!(world.start([&program]).status.success());
    let holder = hold(&world);
    let start = Instant::now();
    let started = world.start([&program]);
    assert_eq!((started.status.code(), stdout(&started).as_str()), (Some(0), "libc\n"), "{}", said(&started));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert!(stderr(&started).contains("locked"), "{}", said(&started));
    drop(holder);
    let trials = world.trials();
    assert_eq!(trials.len(), 1, "the finished trial was kept for later");
}

// ---- pages ----------------------------------------------------------------------------------------------------

/// The only page there is.
fn page(world: &World) -> PathBuf {
    let names = world.page_files();
    let [name] = &names[..] else { panic!("{names:?}") };
    world.pages().join(name)
}

fn age(file: &Path) {
    let opened = std::fs::File::options().write(true).open(file).unwrap();
    opened.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

#[test]
fn damaged_pages_are_set_aside_with_a_message() {
    let world = World::new();
    let program = who(&world);
    world.start([&program]);
    let good = std::fs::read(page(&world)).unwrap();
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    let hostile: [(&str, Vec<u8>); 7] = [
        ("empty", vec![]),
        ("garbage", b"garbage\n".repeat(2048)),
        ("cut", good[..good.len() / 2].to_vec()),
        ("long", [&good[..], b"x"].concat()),
        ("magic", changed(0, 0)),
        ("version", changed(8, 200)),
        ("kind", changed(16, 9)),
    ];
    for (name, bytes) in &hostile {
        let file = world.pages().join(format!("{name}.page"));
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        age(&file);
    }
    let started = world.start([&program]);
    assert_eq!(stdout(&started), "libc\n", "{}", said(&started));
    for (name, bytes) in &hostile {
        let aside = world.pages().join(format!("{name}.page.damaged"));
        assert_eq!(&std::fs::read(&aside).unwrap(), bytes, "{name} is kept as it was");
        assert!(stderr(&started).contains(&format!("{name}.page.damaged")), "{name}: {}", said(&started));
    }
    let quiet = world.start([&program]);
    assert_eq!(stderr(&quiet), "", "said once");
    let doctor = world.json(["doctor", "--json"]);
    let pages = list(&doctor, "/findings").iter().find(|finding| finding["what"] == "trial pages").unwrap();
    assert_eq!(pages["state"], "note");
    assert!(text(pages, "/says").contains("7 damaged"), "{pages:#}");
    assert_eq!(world.trials().len(), 3, "the good pages were stored all the same");
}

/// Things that are no files must neither block nor be followed.
#[test]
fn what_is_no_file_is_not_read_as_a_page() {
    let world = World::new();
    let program = who(&world);
    world.start([&program]);
    world.trials();
    let pages = world.pages();
    std::fs::create_dir(pages.join("folder.page")).unwrap();
    symlink("/etc/passwd", pages.join("link.page")).unwrap();
    symlink("/dev/zero", pages.join("device.page")).unwrap();
    symlink("/no/such/file", pages.join("dangling.page")).unwrap();
    let made = output(world.command("mkfifo").arg(pages.join("pipe.page")));
    assert!(made.status.success());
    let start = Instant::now();
    let started = world.start([&program]);
    assert!(started.status.success() && start.elapsed() < Duration::from_secs(10), "{}", said(&started));
    assert!(stdout(&started).starts_with("libc"), "{}", said(&started));
    assert_eq!(world.trials().len(), 2);
    assert!(Path::new("/etc/passwd").is_file());
}

/// A page in the name of another user, or that says so, is nobody's evidence.
#[test]
fn a_page_of_somebody_else_is_not_believed() {
    let world = World::new();
    let program = who(&world);
    world.start([&program]);
    let file = page(&world);
    let mut bytes = std::fs::read(&file).unwrap();
    // Bytes 24 to 27: the user.
    bytes[24..28].copy_from_slice(&12_345_u32.to_ne_bytes());
    std::fs::write(&file, bytes).unwrap();
    age(&file);
    let started = world.start([&program]);
    assert!(stderr(&started).contains("could not be read"), "{}", said(&started));
    assert_eq!(world.trials().len(), 1);
}

#[test]
fn a_folder_of_pages_that_others_reach_is_refused() {
    let world = World::new();
    let program = who(&world);
    std::fs::create_dir(world.pages()).unwrap();
    std::fs::set_permissions(world.pages(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let started = world.start([&program]);
    assert_started_untouched(&started, "not a folder of this user with mode 0700");
    std::fs::remove_dir(world.pages()).unwrap();
    std::fs::write(world.pages(), "a file").unwrap();
    assert_started_untouched(&world.start([&program]), "not a folder of this user");
}

// ---- disks ----------------------------------------------------------------------------------------------------

/// Runs imas with a file system of `options` mounted at a folder, seen by nobody else; `None` where mounting is not allowed.
fn with_mount(options: &str, folder: &Path, mut imas: Command) -> Option<Output> {
    let script = "mount -t tmpfs -o \"$1\" imas-test \"$2\" || exit 77; shift 2; exec \"$@\"";
    let arguments: Vec<_> =
        std::iter::once(imas.get_program()).chain(imas.get_args()).map(OsStr::to_owned).collect();
    let environment: Vec<_> =
        imas.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    for namespace in [&["-m"][..], &["-r", "-m"]] {
        let mut command = Command::new("unshare");
        command.args(namespace).args(["sh", "-c", script, "sh", options]).arg(folder).args(&arguments);
        let output = output(command.env_clear().envs(environment.iter().cloned()).stdin(Stdio::null()));
        let refused = output.status.code() == Some(77) || stderr(&output).contains("unshare");
        if !refused {
            return Some(output);
        }
    }
    let _ = imas.stdin(Stdio::null());
    #[expect(clippy::print_stderr, reason = "a test that could not test must say so")]
    {
        eprintln!("not tested: mounting is not allowed here");
    }
    None
}

#[test]
fn a_full_disk_for_pages_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    let mut imas = world.imas(["run", "--retest", "0", "--"]);
    imas.arg(&program);
    if let Some(started) = with_mount("size=4k,mode=700", world.runtime(), imas) {
        assert_started_untouched(&started, "no trial page: ");
        assert!(stderr(&started).contains("No space left"), "{}", said(&started));
    }
}

#[test]
fn a_full_or_read_only_disk_for_the_store_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    let folder = world.store_path().parent().unwrap().to_owned();
    std::fs::create_dir_all(&folder).unwrap();
    for options in ["size=4k", "size=16k", "size=40k", "size=64k", "ro"] {
        let mut imas = world.imas(["run", "--retest", "0", "--"]);
        imas.arg(&program);
        let Some(started) = with_mount(options, &folder, imas) else { return };
        assert_eq!(
            (started.status.code(), stdout(&started).as_str()),
            (Some(0), "libc\n"),
            "{options}: {}",
            said(&started)
        );
        assert!(stderr(&started).contains("store"), "{options}: {}", said(&started));
    }
}

/// A finished trial that cannot be stored stays where it is until it can.
#[test]
fn no_sample_is_lost_to_a_full_disk() {
    let world = World::new();
    let program = who(&world);
    assert!(world.start([&program]).status.success());
    let kept = page(&world);
    let folder = world.store_path().parent().unwrap().to_owned();
    for options in ["size=4k", "size=40k", "size=100k", "ro"] {
        if with_mount(options, &folder, world.imas(["show"])).is_none() {
            return;
        }
        assert!(kept.exists(), "{options}");
    }
    assert_eq!(world.trials().len(), 1);
    assert!(!kept.exists());
}

// ---- programs that cannot be helped ---------------------------------------------------------------------------

/// Started untouched by `run`, with the reason under -v; refused with a hint by `bench`.
fn assert_left_alone(world: &World, program: &Path, status: i32, why: &str) {
    for arguments in [&["run", "-v", "--retest", "0"][..], &["run", "-v", "--candidate", "hoard"]] {
        for _ in 0..2 {
            let started = output(world.imas(arguments).arg("--").arg(program));
            assert_eq!(started.status.code(), Some(status), "{why}: {}", said(&started));
            assert!(!stdout(&started).contains("hoard"), "{why}: {}", said(&started));
            assert!(stderr(&started).contains(why), "{why}: {}", said(&started));
            assert!(!stderr(&started).contains("ld.so"), "{why}: {}", said(&started));
        }
    }
    assert_eq!(world.page_files(), [""; 0], "{why}");
    let bench = output(world.imas(["bench", "-n", "1", "--"]).arg(program));
    assert_eq!(bench.status.code(), Some(2), "{why}: {}", said(&bench));
    assert_hinted(&bench, why);
}

#[test]
fn programs_that_cannot_be_helped_are_left_alone() {
    let world = World::new();
    let made = |name: &str, compiler: &str, flags: &[&str]| {
        build::program_with(compiler, "plain", flags, &world.work().join(name))
    };
    assert_left_alone(&world, &made("static", "cc", &["-static"]), 0, "statically linked");
    assert_left_alone(&world, &made("static-pie", "cc", &["-static-pie"]), 0, "statically linked");
    assert_left_alone(&world, &made("asan", "cc", &["-fsanitize=address"]), 0, "sanitizer");
    assert_left_alone(
        &world,
        &made("static-asan", "cc", &["-fsanitize=address", "-static-libasan"]),
        0,
        "malloc of its own",
    );
    assert_left_alone(&world, &made("tsan", "cc", &["-fsanitize=thread"]), 0, "sanitizer");
    assert_left_alone(&world, &made("musl", "musl-gcc", &[]), 0, "not glibc");
    assert_left_alone(&world, &made("own", "cc", &["-DOWN_MALLOC", "-rdynamic"]), 0, "malloc of its own");
    let privileged = made("privileged", "cc", &[]);
    std::fs::set_permissions(&privileged, std::fs::Permissions::from_mode(0o4755)).unwrap();
    assert_left_alone(&world, &privileged, 0, "raised privileges");
}

/// Needs neither a 32-bit library nor a kernel that runs it: started, it ends with 7 or is refused as without us.
#[test]
fn a_32_bit_program_is_left_alone() {
    let world = World::new();
    let program =
        build::program_with("cc", "small", &["-m32", "-nostdlib", "-static"], &world.work().join("small"));
    match output(&mut world.command(&program)).status.code() {
        Some(7) => assert_left_alone(&world, &program, 7, "another architecture"),
        _ => panic!("this kernel runs no 32-bit programs"),
    }
}

#[test]
fn file_capabilities_are_raised_privileges() {
    let world = World::new();
    let program = build::program("plain", &world.work());
    let set = output(world.command(real("setcap")).arg("cap_net_raw+ep").arg(&program));
    if set.status.success() {
        assert_left_alone(&world, &program, 0, "raised privileges");
    }
}

/// The hook and the guard stand aside where only the loaded process shows why.
#[test]
fn limits_on_address_space_are_respected() {
    let world = World::new();
    let program = who(&world);
    world.configure("candidates = [\"mimalloc\", \"jemalloc\"]\nmax_tests = 2\nretest_s = 0");
    for _ in 0..6 {
        let mut shell = world.command("sh");
        shell.args(["-c", "ulimit -v 4000000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_imas"), "run", "--"]);
        let started = output(shell.arg(&program));
        assert!(started.status.success() && stderr(&started).is_empty(), "{}", said(&started));
    }
    let trials = world.trials();
    assert!(!trials.is_empty());
    assert!(trials.iter().all(|t| t.sample.pass_reason.as_deref() == Some("rlimit-as")), "{trials:#?}");
}

/// What IMAS adds must not be the drop too much.
#[test]
fn an_environment_as_large_as_can_be_still_starts() {
    let world = World::new();
    let filled = |command: &mut Command, kilobytes: usize, bytes: usize| {
        for i in 0..kilobytes / 100 {
            command.env(format!("FILL{i}"), "x".repeat(100 << 10));
        }
        command.env("REST", "x".repeat(kilobytes % 100 * 1024 + bytes));
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let fits = |size: usize| filled(world.command("true").args(["run", "--"]), size >> 10, size & 1023);
    let (mut small, mut large) = (100 << 10, 8 << 20);
    assert!(fits(small) && !fits(large));
    while large - small > 1 {
        let middle = (small + large) / 2;
        if fits(middle) { small = middle } else { large = middle }
    }
    // The name of imas itself is longer than that of `true`, and `run --` goes away: some way below, nothing may fail.
    for below in [300, 400, 600, 900, 1500] {
        let size = small - below;
        for _ in 0..2 {
            assert!(
                filled(world.imas(["run", "--retest", "0", "--"]).arg("true"), size >> 10, size & 1023),
                "{below} below"
            );
        }
    }
}

// ---- catalogue, configuration, installation -------------------------------------------------------------------

#[test]
fn a_broken_catalogue_entry_is_named_and_the_rest_is_used() {
    let world = World::new();
    world.add_catalogue("a.toml", "schema = 1\n[[candidate\n");
    world.add_catalogue("b.toml", "schema = 7\n");
    world.add_catalogue(
        "c.toml",
        "schema = 1\n[[candidate]]\nname = \"Bad Name\"\n[[candidate]]\nname = \"hoard\"\n\
         [[candidate]]\nname = \"typo\"\nlibary = \"x\"\n[[candidate]]\nname = \"sly\"\nenvironment = { LD_PRELOAD = \"x\" }\n\
         [[candidate]]\nname = \"gone\"\nlibrary = \"/no/such/libgone.so\"\n",
    );
    world.add_catalogue("ignored.txt", "not looked at");
    let listed = output(&mut world.imas(["list", "--json"]));
    assert!(listed.status.success(), "{}", said(&listed));
    let listing: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let problems: Vec<_> = list(&listing, "/problems").iter().map(|p| p.as_str().unwrap()).collect();
    for (problem, place) in
        problems.iter().zip(["a.toml:2", "b.toml", "c.toml:2", "c.toml:4", "c.toml:6", "c.toml:9"])
    {
        assert!(problem.contains(place), "{place}: {problem}");
        assert!(
            stderr(&listed).contains(&format!("imas: warning: catalogue: {problem}")),
            "{}",
            said(&listed)
        );
    }
    assert_eq!(problems.len(), 6, "{problems:?}");
    assert_eq!(candidate(&listing, "gone")["available"], false);
    assert!(text(candidate(&listing, "gone"), "/reason").contains("missing"));
    assert_eq!(candidate(&listing, "hoard")["available"], true);
    let started = output(world.imas(["run", "--candidate", "hoard", "--"]).arg(who(&world)));
    assert!(stdout(&started).starts_with("hoard "), "{}", said(&started));
    let doctor = output(&mut world.imas(["doctor"]));
    assert_eq!(doctor.status.code(), Some(1), "{}", said(&doctor));
    assert!(stdout(&doctor).contains("hint: correct or remove the entry"), "{}", said(&doctor));
}

#[test]
fn a_candidate_whose_library_is_missing_is_never_given() {
    let world = World::new();
    let program = who(&world);
    world.add_catalogue(
        "gone.toml",
        "schema = 1\n[[candidate]]\nname = \"gone\"\nlibrary = \"/no/such/libgone.so\"\n",
    );
    world.configure("candidates = [\"gone\"]\nmax_tests = 1\nretest_s = 0");
    for _ in 0..4 {
        let started = world.start([&program]);
        assert_eq!(
            (stdout(&started).as_str(), stderr(&started).as_str()),
            ("libc\n", ""),
            "{}",
            said(&started)
        );
    }
    assert!(world.trials().iter().all(|trial| trial.sample.candidate == "system"));
    let forced = output(world.imas(["run", "--candidate", "gone", "--"]).arg(&program));
    assert_started_untouched(&forced, "gone: its library is missing");
    let pinned = output(world.imas(["pin"]).arg(&program).arg("gone"));
    assert_eq!(pinned.status.code(), Some(2));
    assert_hinted(&pinned, "gone cannot be used here");
}

#[test]
fn a_bad_configuration_is_named_and_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    for text in [
        "retests_s = 1",
        "max_tests = \"five\"",
        "[[[",
        "candidates = [1]",
        "retest_s = nan",
        "retest_s = -1",
    ] {
        world.configure(text);
        let started = output(world.imas(["run", "--"]).arg(&program));
        assert_started_untouched(&started, "imas.toml");
        assert_hinted(&started, "imas.toml");
        let shown = output(&mut world.imas(["show"]));
        assert_eq!(shown.status.code(), Some(2), "{text}: {}", said(&shown));
        assert!(stderr(&shown).contains("imas.toml"), "{text}: {}", said(&shown));
    }
    world.configure("candidates = [\"nonsense\"]");
    let doctor = output(&mut world.imas(["doctor"]));
    assert!(stdout(&doctor).contains("nonsense"), "{}", said(&doctor));
}

/// An installation like the built one, of which parts can be broken.
fn installation(folder: &Path) -> PathBuf {
    let to = folder.join("lib");
    std::fs::create_dir_all(to.join("allocators")).unwrap();
    let files = ["libimas.so", "libimas-guard.so", "catalogue.toml"].map(PathBuf::from).into_iter();
    let libraries = std::fs::read_dir(lib_dir().join("allocators")).unwrap().flatten();
    let libraries = libraries.map(|entry| Path::new("allocators").join(entry.file_name()));
    for file in files.chain(libraries.filter(|file| file.extension().is_some_and(|e| e == "so"))) {
        std::fs::copy(lib_dir().join(&file), to.join(&file)).unwrap();
    }
    to
}

fn damage(file: &Path, how: &str) {
    let whole = std::fs::read(file).unwrap();
    match how {
        "removed" => std::fs::remove_file(file).unwrap(),
        "emptied" => std::fs::write(file, "").unwrap(),
        "cut" => std::fs::write(file, &whole[..5000]).unwrap(),
        _ => std::fs::write(file, "x".repeat(whole.len())).unwrap(),
    }
}

#[test]
fn a_broken_installation_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    let missing = output(world.imas(["run", "--"]).arg(&program).env("IMAS_LIB_DIR", "/no/such/folder"));
    assert_started_untouched(&missing, "no catalogue.toml in /no/such/folder");
    assert_hinted(&missing, "no catalogue.toml");
    let listed = output(world.imas(["list"]).env("IMAS_LIB_DIR", "/no/such/folder"));
    assert_eq!(listed.status.code(), Some(2));
    assert_hinted(&listed, "no catalogue.toml");

    for part in ["libimas.so", "libimas-guard.so", "allocators/libhoard.so"] {
        // Without hoard the others go on; without what is ours nothing does.
        let is_right = |served: &str| match part.contains("hoard") {
            true => !served.starts_with("hoard"),
            false => served == "libc\n",
        };
        for how in ["removed", "emptied", "cut", "garbled"] {
            let folder = tempfile::tempdir_in(world.work()).unwrap();
            let lib = installation(folder.path());
            damage(&lib.join(part), how);
            for arguments in [&["run", "--candidate", "hoard"][..], &["run", "--retest", "0"]] {
                for _ in 0..2 {
                    let started =
                        output(world.imas(arguments).arg("--").arg(&program).env("IMAS_LIB_DIR", &lib));
                    assert_eq!(started.status.code(), Some(0), "{part} {how}: {}", said(&started));
                    assert!(is_right(&stdout(&started)), "{part} {how}: {}", said(&started));
                }
            }
            let doctor = output(world.imas(["doctor"]).env("IMAS_LIB_DIR", &lib));
            assert!(
                stdout(&doctor).contains(part.rsplit('/').next().unwrap())
                    || stdout(&doctor).contains("hoard"),
                "{part} {how}: {}",
                said(&doctor)
            );
        }
    }
}

/// Spaces everywhere but where LD_PRELOAD cannot have them.
#[test]
fn a_world_of_spaces() {
    let world = World::named("imas test, with spaces ");
    let program = world.work().join("who is it");
    std::fs::rename(who(&world), &program).unwrap();
    world.configure("max_tests = 1\nretest_s = 0");
    let served: Vec<_> = (0..6).map(|_| stdout(&world.start([&program]))).collect();
    let begins = served.iter().map(|name| name.split([' ', '\n']).next().unwrap()).collect::<Vec<_>>();
    assert_eq!(begins, ["libc", "libc", "jemalloc", "tcmalloc", "hoard", "mimalloc"]);
    let trials = world.trials();
    assert_eq!(trials.len(), 6);
    assert!(trials.iter().all(|trial| trial.sample.pass_reason.is_none() && trial.sample.malloc.calls > 0));
    // An installation with spaces cannot be preloaded: said, and the program starts.
    let lib = installation(&world.work());
    let started =
        output(world.imas(["run", "--candidate", "hoard", "--"]).arg(&program).env("IMAS_LIB_DIR", &lib));
    assert_started_untouched(&started, "a path with a space");
    let trial = output(world.imas(["run", "--retest", "0", "--"]).arg(&program).env("IMAS_LIB_DIR", &lib));
    assert_eq!((trial.status.code(), stdout(&trial).as_str()), (Some(0), "libc\n"), "{}", said(&trial));
}

#[test]
fn no_home_is_no_reason_not_to_start() {
    let world = World::new();
    let mut imas = world.imas(["run", "--"]);
    imas.arg(who(&world))
        .env_clear()
        .env("IMAS_LIB_DIR", lib_dir())
        .env("PATH", support::PATH)
        .env("HOME", "relative");
    let started = output(imas.env("XDG_RUNTIME_DIR", world.runtime()));
    assert!(started.status.success(), "{}", said(&started));
}

/// A reader that goes away is no error.
#[test]
fn a_closed_pipe_is_quiet() {
    let world = World::new();
    let mut imas =
        world.imas(["list", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(imas.stdout.take());
    let output = imas.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{}", said(&output));
}

/// The program is in the store's way: the start waits for nobody who is gone.
#[test]
fn a_killed_imas_leaves_no_lock() {
    let world = World::new();
    let program = who(&world);
    for _ in 0..10 {
        let mut imas =
            world.imas(["run", "--retest", "0", "--"]).arg(&program).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(3));
        let _ = imas.kill();
        let _ = imas.wait();
    }
    let start = Instant::now();
    let started = world.start([&program]);
    assert!(started.status.success() && stderr(&started).is_empty(), "{}", said(&started));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    wait_until("the pages", || {
        world.trials();
        world.page_files().is_empty()
    });
    let explained = world.json(["explain", &program.to_string_lossy(), "--json"]);
    assert_eq!(
        list(&explained, "/quarantined").len(),
        0,
        "a start that was killed is nobody's crash: {explained:#}"
    );
}
