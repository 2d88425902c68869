// SPDX-License-Identifier: Apache-2.0
//! Compiles `abi/imas_abi.h` with the C compiler and compares every offset, size and constant with the mirror.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use imas_abi::{Page, PageHeader, Sampled, SampledOp, Slot};

/// An expression in C, and the value that Rust gives it.
type Facts = BTreeMap<String, String>;

macro_rules! layout {
    ($facts:ident, $c:literal, $rust:ty, [$($field:ident),* $(,)?]) => {
        $facts.insert(format!("sizeof({})", $c), size_of::<$rust>().to_string());
        $facts.insert(format!("_Alignof({})", $c), align_of::<$rust>().to_string());
        let mut covered = 0;
        $(
            let size = size_of_field(|s: &$rust| &raw const s.$field);
            $facts.insert(format!("offsetof({}, {})", $c, stringify!($field)), offset_of!($rust, $field).to_string());
            $facts.insert(format!("sizeof((({} *)0)->{})", $c, stringify!($field)), size.to_string());
            covered += size;
        )*
        assert_eq!(covered, size_of::<$rust>(), "the list of fields of {} is complete", $c);
    };
}

fn size_of_field<S, F>(_: impl Fn(&S) -> *const F) -> usize {
    size_of::<F>()
}

fn layouts() -> Facts {
    let mut facts = Facts::new();
    layout! {facts, "struct imas_page_header", PageHeader, [
        magic, version, page_bytes, kind, pid, uid, armed, process_start_ticks, made_unix_ns, boot_id, trial_id,
        candidate, program, detail, build_id, state, pass_reason, clean_exit, exit_status, fatal_signal, fatal_code,
        forks, threads, served, ticks_start, ns_start, ticks_last, ns_last, empty_pair_ticks_256, snapshots,
        heap_bytes_sum, heap_bytes_peak, live_bytes_sum, live_bytes_peak, resident_bytes_sum, resident_bytes_peak,
        user_us, system_us, minor_faults, major_faults, max_rss_bytes, voluntary_switches, involuntary_switches,
    ] }
    layout! {facts, "struct imas_sampled_op", SampledOp, [sampled, weight, ticks, histogram] }
    layout! {facts, "struct imas_sampled", Sampled, [
        op, size_histogram, live_bytes, live_samples, live_dropped, sample_interval_bytes, usable_bytes_256,
        requested_bytes_256,
    ] }
    layout! {facts, "struct imas_slot", Slot, [tid, unused, calls, bytes_requested, refused, reserved] }
    layout! {facts, "struct imas_page", Page, [header, header_pad, sampled, sampled_pad, slot] }
    facts
}

macro_rules! constants {
    ($facts:ident, $($c:ident = $rust:path),* $(,)?) => {
        $( $facts.insert(stringify!($c).to_owned(), $rust.to_string()); )*
    };
}

fn numbers() -> Facts {
    use imas_abi::{op, page_kind as kind, pass_reason as pass, state};
    let mut facts = Facts::new();
    constants!(
        facts,
        IMAS_PAGE_MAGIC = imas_abi::PAGE_MAGIC,
        IMAS_PAGE_VERSION = imas_abi::PAGE_VERSION,
        IMAS_HEADER_BYTES = imas_abi::HEADER_BYTES,
        IMAS_SAMPLED_BYTES = imas_abi::SAMPLED_BYTES,
        IMAS_SLOT_BYTES = imas_abi::SLOT_BYTES,
        IMAS_OWN_SLOTS = imas_abi::OWN_SLOTS,
        IMAS_SHARED_SLOTS = imas_abi::SHARED_SLOTS,
        IMAS_SLOTS = imas_abi::SLOTS,
        IMAS_TRIAL_PAGE_BYTES = imas_abi::TRIAL_PAGE_BYTES,
        IMAS_CANDIDATE_BYTES = imas_abi::CANDIDATE_BYTES,
        IMAS_SERVED_BYTES = imas_abi::SERVED_BYTES,
        IMAS_BOOT_ID_BYTES = imas_abi::BOOT_ID_BYTES,
        IMAS_TRIAL_ID_BYTES = imas_abi::TRIAL_ID_BYTES,
        IMAS_PROGRAM_BYTES = imas_abi::PROGRAM_BYTES,
        IMAS_DETAIL_BYTES = imas_abi::DETAIL_BYTES,
        IMAS_BUILD_ID_BYTES = imas_abi::BUILD_ID_BYTES,
        IMAS_LATENCY_BUCKETS = imas_abi::LATENCY_BUCKETS,
        IMAS_SIZE_BUCKETS = imas_abi::SIZE_BUCKETS,
        IMAS_WEIGHT_ONE = imas_abi::WEIGHT_ONE,
        IMAS_OPS = imas_abi::OPS,
        IMAS_OP_MALLOC = op::MALLOC,
        IMAS_OP_REALLOC = op::REALLOC,
        IMAS_OP_MEMALIGN = op::MEMALIGN,
        IMAS_OP_FREE = op::FREE,
        IMAS_PAGE_TRIAL = kind::TRIAL,
        IMAS_PAGE_FLIGHT = kind::FLIGHT,
        IMAS_STATE_ARMED = state::ARMED,
        IMAS_STATE_ENTERED = state::ENTERED,
        IMAS_STATE_ACTIVE = state::ACTIVE,
        IMAS_STATE_TRIAL = state::TRIAL,
        IMAS_STATE_PASS = state::PASS,
        IMAS_PASS_NONE = pass::NONE,
        IMAS_PASS_DISABLED = pass::DISABLED,
        IMAS_PASS_OWN_MALLOC = pass::OWN_MALLOC,
        IMAS_PASS_SECCOMP = pass::SECCOMP,
        IMAS_PASS_RLIMIT_AS = pass::RLIMIT_AS,
        IMAS_PASS_LD_AUDIT = pass::LD_AUDIT,
        IMAS_PASS_VALGRIND = pass::VALGRIND,
        IMAS_PASS_SANITIZER = pass::SANITIZER,
        IMAS_PASS_NO_ALLOCATOR = pass::NO_ALLOCATOR,
        IMAS_PASS_PAGE = pass::PAGE,
        IMAS_PASS_NOT_THE_PROGRAM = pass::NOT_THE_PROGRAM,
        IMAS_PASS_PID1 = pass::PID1,
        IMAS_PASS_REASONS = pass::REASONS,
    );
    facts
}

fn strings() -> Facts {
    use imas_abi::env;
    let pairs = [
        ("IMAS_ENV_PAGE", env::PAGE),
        ("IMAS_ENV_FOLLOW", env::FOLLOW),
        ("IMAS_ENV_TREE", env::TREE),
        ("IMAS_ENV_WAS", env::WAS),
        ("IMAS_ENV_UNSET", env::UNSET),
        ("IMAS_ENV_DISABLE", env::DISABLE),
    ];
    pairs.map(|(c, rust)| (c.to_owned(), rust.to_owned())).into()
}

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../abi/imas_abi.h")
}

/// A C program that prints every fact as `expression=value`.
fn source(numbers: &Facts, strings: &Facts) -> String {
    let mut source = "#include <stdio.h>\n#include \"imas_abi.h\"\nint main(void) {\n".to_owned();
    for name in numbers.keys() {
        writeln!(source, "    printf(\"%s=%llu\\n\", \"{name}\", (unsigned long long)({name}));").unwrap();
    }
    for name in strings.keys() {
        writeln!(source, "    printf(\"%s=%s\\n\", \"{name}\", {name});").unwrap();
    }
    source + "    return 0;\n}\n"
}

/// What the C compiler says.
fn compiled(source: &str) -> Facts {
    let dir = tempfile::tempdir().unwrap();
    let (c, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&c, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(header().parent().unwrap());
    assert!(command.arg("-o").arg(&binary).arg(&c).status().unwrap().success(), "the header compiles");
    let output = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    output.lines().map(|line| pair(line).unwrap()).collect()
}

#[test]
fn the_mirror_is_the_header() {
    let mut facts = layouts();
    facts.extend(numbers());
    let strings = strings();
    let c = compiled(&source(&facts, &strings));
    facts.extend(strings);
    for (name, rust) in &facts {
        assert_eq!(Some(rust), c.get(name), "{name}");
    }
    assert_eq!(facts.len(), c.len());
}

/// Every constant of the header stands in the lists above.
#[test]
fn no_constant_of_the_header_is_forgotten() {
    let text = std::fs::read_to_string(header()).unwrap();
    let known: Vec<String> = numbers().into_keys().chain(strings().into_keys()).collect();
    let defined = text.lines().filter_map(|line| line.strip_prefix("#define ")?.split_whitespace().next());
    let enumerated = text.split(" = ").filter_map(|before| before.split_whitespace().next_back());
    let names: Vec<&str> =
        defined.chain(enumerated).filter(|name| name.starts_with("IMAS_") && *name != "IMAS_ABI_H").collect();
    assert!(names.len() >= 45, "{names:?}");
    for name in names {
        assert!(known.iter().any(|k| k == name), "{name} is in the header, not in the mirror");
    }
}
