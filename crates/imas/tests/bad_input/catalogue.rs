// SPDX-License-Identifier: Apache-2.0
//! What a user may add to the catalogue, and what of it is not offered: each with file and line.

use std::path::{Path, PathBuf};

use crate::support::{World, build, candidate, lib_dir, list, output, said, stderr, stdout, text};
use crate::who;

/// The world's only added catalogue, with one entry on line 2 of it.
fn add(world: &World, entry: &str) {
    world.add_catalogue("mine.toml", &format!("schema = 1\n[[candidate]]\nname = \"mine\"\n{entry}\n"));
}

/// What `imas list` says of it: everything on standard error, and the row, if there is one.
fn listed(world: &World, entry: &str) -> (String, Option<serde_json::Value>) {
    add(world, entry);
    let listed = output(&mut world.imas(["list", "--json"]));
    assert!(listed.status.success(), "{}", said(&listed));
    let listing: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let row = list(&listing, "/candidates").iter().find(|row| row["name"] == "mine").cloned();
    assert_eq!(candidate(&listing, "mimalloc")["available"], true, "the rest is used: {listing:#}");
    (stderr(&listed), row)
}

fn library(path: &Path) -> String {
    format!("library = \"{}\"", path.display())
}

/// A library of the distribution; `make setup-test` installs it.
fn installed(soname: &str) -> PathBuf {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = folders.map(|folder| Path::new(folder).join(soname)).into_iter().find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{soname} is missing: run 'make setup-test'"))
}

#[test]
fn each_fault_of_an_entry_is_told_with_its_place() {
    let world = World::new();
    let foreign = world.work().join("libforeign.so");
    let mut bytes = std::fs::read(lib_dir().join("libimas.so")).unwrap();
    bytes[18] = 183; // EM_AARCH64
    if cfg!(target_arch = "aarch64") {
        bytes[18] = 62; // EM_X86_64
    }
    std::fs::write(&foreign, &bytes).unwrap();
    let words = world.work().join("libwords.so");
    std::fs::write(&words, "not a library").unwrap();
    let cases = [
        (library(Path::new("/no/such/libx.so")), "its library /no/such/libx.so is missing"),
        (library(&foreign), "built for another architecture"),
        (library(&words), "not a readable ELF file"),
        ("libary = \"/x.so\"".into(), "unknown field `libary`"),
        ("library = \"libx.so\"".into(), "relative path"),
        ("environment = { LD_AUDIT = \"x\" }".into(), "its environment may not set LD_AUDIT"),
        ("environment = { \"A=B\" = \"x\" }".into(), "'A=B' cannot be set"),
        ("withheld = \"too slow for us\"".into(), "withheld: too slow for us"),
    ];
    for (entry, says) in cases {
        let (said, row) = listed(&world, &entry);
        let line =
            said.lines().find(|line| line.starts_with("imas: warning: catalogue: ") && line.contains(says));
        let line = line.unwrap_or_else(|| panic!("{entry}: {said}"));
        assert!(line.contains("mine.toml:2: "), "{entry}: {line}");
        assert!(row.is_none_or(|row| row["available"] == false), "{entry}");
    }
    world.add_catalogue(
        "mine.toml",
        "schema = 1\n[[candidate]]\nname = \"two\"\n[[candidate]]\nname = \"two\"\n[[candidate]]\nname = \"hoard\"\n",
    );
    let said = stderr(&output(&mut world.imas(["list"])));
    assert!(said.contains("mine.toml:4: candidate 'two' is defined already: "), "{said}");
    assert!(said.contains("mine.toml:2\n"), "it names the first place: {said}");
    assert!(said.contains("mine.toml:6: candidate 'hoard' is defined already: "), "{said}");
}

/// jemalloc as it is, without glue, gives blocks of 8 bytes an alignment of 8: programs compiled for 16 would notice.
#[test]
fn a_library_that_breaks_the_contract_is_withheld() {
    let world = World::new();
    let (said, row) = listed(&world, &library(&installed("libjemalloc.so.2")));
    let row = row.unwrap();
    assert_eq!(row["available"], false, "{row:#}");
    let reason = text(&row, "/reason");
    assert!(reason.starts_with("withheld: it breaks malloc's contract: sizes: "), "{reason}");
    assert!(said.contains("mine.toml:2: candidate 'mine': withheld"), "{said}");
    let forced = output(world.imas(["run", "--candidate", "mine", "--"]).arg(who(&world)));
    assert_eq!(
        stdout(&forced),
        "libc\n",
        "the program is started untouched: {}",
        crate::support::said(&forced)
    );
}

#[test]
fn a_library_that_keeps_the_contract_is_offered() {
    let world = World::new();
    let copy = world.work().join("libmine.so");
    std::fs::copy(lib_dir().join("allocators/libmimalloc.so"), &copy).unwrap();
    let (said, row) = listed(&world, &library(&copy));
    assert_eq!((said.as_str(), row.unwrap()["available"].as_bool()), ("", Some(true)));
}

/// One whose child hangs after fork, whose realloc loses bytes, ...: here one that crashes at once.
#[test]
fn a_library_that_crashes_is_withheld() {
    let world = World::new();
    let source = world.work().join("x.c");
    std::fs::write(
        &source,
        "#include <stdlib.h>\nvoid *memalign(size_t a, size_t n) { (void)a; (void)n; abort(); }\n",
    )
    .unwrap();
    let made = world.work().join("libcrash.so");
    let compiled = output(world.command("cc").args(["-shared", "-fPIC", "-o"]).arg(&made).arg(&source));
    assert!(compiled.status.success(), "{}", said(&compiled));
    let (_, row) = listed(&world, &library(&made));
    let row = row.unwrap();
    assert!(text(&row, "/reason").contains("contract: "), "{row:#}");
    assert!(text(&row, "/reason").contains("signal: 6"), "{row:#}");
}

#[test]
fn what_failed_the_conformance_kit_is_not_offered_until_it_passes() {
    let world = World::new();
    let lib = world.work().join("lib");
    std::fs::create_dir_all(lib.join("allocators")).unwrap();
    for file in [
        "libimas.so",
        "libimas-guard.so",
        "catalogue.toml",
        "allocators/libhoard.so",
        "allocators/libmimalloc.so",
    ] {
        std::fs::copy(lib_dir().join(file), lib.join(file)).unwrap();
    }
    let note = lib.join("allocators/libmimalloc.so.withheld");
    std::fs::write(&note, "mimalloc:keep\tforks (trial): child-works: status 0xb\n").unwrap();
    let rows = || {
        let listed = output(world.imas(["list", "--json"]).env("IMAS_LIB_DIR", &lib));
        serde_json::from_slice::<serde_json::Value>(&listed.stdout).unwrap()
    };
    let listing = rows();
    assert_eq!(candidate(&listing, "mimalloc")["available"], true);
    let keep = candidate(&listing, "mimalloc:keep");
    assert_eq!(
        text(keep, "/reason"),
        "withheld: it failed conformance: forks (trial): child-works: status 0xb"
    );
    std::fs::remove_file(&note).unwrap();
    assert_eq!(candidate(&rows(), "mimalloc:keep")["available"], true);
}

/// The distribution's libraries, behind their glue: offered where they are installed and keep the contract, each known by its build.
#[test]
fn what_the_distribution_brings_is_a_candidate() {
    let world = World::new();
    let listing = world.json(["list", "--json"]);
    for (name, soname) in [
        ("distro-jemalloc", "libjemalloc.so.2"),
        ("distro-tcmalloc", "libtcmalloc_minimal.so.4"),
        ("distro-tbb", "libtbbmalloc.so.2"),
    ] {
        let real = installed(soname);
        let row = candidate(&listing, name);
        assert_eq!(row["available"], true, "{row:#}");
        assert!(text(row, "/version").contains("build "), "{row:#}");
        // It serves, it is not only mapped; and a trial of it counts.
        let started = output(world.imas(["run", "--candidate", name, "--"]).arg(who(&world)));
        assert_eq!(stdout(&started), format!("{name} installed\n"), "{}", said(&started));
        let maps = output(
            world.imas(["run", "--candidate", name, "--", "cat", "/proc/self/maps"]).env("LC_ALL", "C"),
        );
        let file = std::fs::canonicalize(&real).unwrap();
        assert!(stdout(&maps).contains(&*file.to_string_lossy()), "{name}: {}", said(&maps));
    }
    let program = build::program("who", &world.work());
    world.configure("candidates = [\"distro-jemalloc\"]\nmax_tests = 1\nretest_s = 0");
    let served: Vec<_> = (0..3).map(|_| stdout(&world.start([&program]))).collect();
    assert!(served.contains(&"distro-jemalloc installed\n".to_owned()), "{served:?}");
    let trials = world.trials();
    let trial = trials.iter().find(|trial| trial.sample.candidate == "distro-jemalloc").unwrap();
    assert!(trial.allocator_version.starts_with("build "), "{trial:?}");
    let shown = world.json(["show", &program.to_string_lossy(), "--json"]);
    let row = list(&shown, "/candidates").iter().find(|row| row["name"] == "distro-jemalloc").unwrap();
    // So few calls that often none is among the timed ones; then the trial is shown as left out for that reason.
    let untimed = row["left_out"].as_array().unwrap().iter().filter(|left| left["why"] == "nothing-timed");
    assert_eq!(row["summary"]["count"].as_u64().unwrap() + untimed.count() as u64, 1, "{shown:#}");
}
