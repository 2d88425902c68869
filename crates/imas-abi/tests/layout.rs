// SPDX-License-Identifier: Apache-2.0
//! Compiles the headers of `abi/` with the C compiler and compares every offset, size and constant with the
//! mirror.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use imas_abi::{CatalogueEntry, CatalogueHeader, FileIdentity, IndexEntry, IndexHeader, MoreTrial};
use imas_abi::{Page, PageHeader, Sampled, SampledOp, Slot};

const HEADERS: [&str; 2] = ["imas_abi.h", "imas_index.h"];

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
        resident_kib_time, split_moments, split_reported, split_time, split_resident_kib_time, split_usable_kib_time,
        split_requested_kib_time, split_in_use_kib_time, split_cached_kib_time, split_dirty_kib_time, split_own_kib_time,
        forked, own_calls,
    ] }
    layout! {facts, "struct imas_sampled_op", SampledOp, [sampled, weight, ticks, histogram] }
    layout! {facts, "struct imas_sampled", Sampled, [
        op, size_histogram, live_bytes, live_samples, live_dropped, sample_interval_bytes, usable_bytes_256,
        requested_bytes_256, live_requested,
    ] }
    layout! {facts, "struct imas_slot", Slot, [tid, unused, calls, bytes_requested, refused, reserved] }
    layout! {facts, "struct imas_page", Page, [header, header_pad, sampled, sampled_pad, slot] }
    layout! {facts, "struct imas_index_header", IndexHeader, [
        magic, version, check, file_bytes, generation, catalogue_id, made_boot_ns, slots, entries, flags, reserved,
        boot_id, reserved2,
    ] }
    layout! {facts, "struct imas_index_entry", IndexEntry, [
        exe_dev, exe_ino, detail, detail_kind, uid, exe_mtime_ns, exe_bytes, candidate, trial_candidate, flags,
        trial_token, program_id, more_trials, check,
    ] }
    layout! {facts, "struct imas_more_trial", MoreTrial, [candidate, after] }
    layout! {facts, "struct imas_file_identity", FileIdentity, [dev, ino, bytes, mtime_ns] }
    layout! {facts, "struct imas_catalogue_header", CatalogueHeader, [
        magic, version, check, file_bytes, catalogue_id, count, daemon_uid, guard, hook, guard_identity, hook_identity,
        settings, settings_identity, reserved,
    ] }
    layout! {facts, "struct imas_catalogue_entry", CatalogueEntry, [
        name, library, identity, environment, yields_to, id, flags, reserved, check,
    ] }
    facts
}

macro_rules! constants {
    ($facts:ident, $($c:ident = $rust:path),* $(,)?) => {
        $( $facts.insert(stringify!($c).to_owned(), $rust.to_string()); )*
    };
}

fn numbers() -> Facts {
    use imas_abi::{detail_kind, entry_flag, index_flag, op, page_kind as kind, pass_reason as pass, state};
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
        IMAS_PASS_INTERFACE = pass::INTERFACE,
        IMAS_PASS_WRAPPED = pass::WRAPPED,
        IMAS_PASS_TOO_EARLY = pass::TOO_EARLY,
        IMAS_PASS_OWN_FILTER = pass::OWN_FILTER,
        IMAS_PASS_REASONS = pass::REASONS,
        IMAS_ANY_UID = imas_abi::ANY_UID,
        IMAS_FNV32_START = imas_abi::FNV32_START,
        IMAS_FNV32_PRIME = imas_abi::FNV32_PRIME,
        IMAS_FNV64_START = imas_abi::FNV64_START,
        IMAS_FNV64_PRIME = imas_abi::FNV64_PRIME,
        IMAS_INDEX_MAGIC = imas_abi::INDEX_MAGIC,
        IMAS_INDEX_VERSION = imas_abi::INDEX_VERSION,
        IMAS_INDEX_HEADER_BYTES = imas_abi::INDEX_HEADER_BYTES,
        IMAS_INDEX_ENTRY_BYTES = imas_abi::INDEX_ENTRY_BYTES,
        IMAS_INDEX_PROBES = imas_abi::INDEX_PROBES,
        IMAS_INDEX_DISABLED = index_flag::DISABLED,
        IMAS_DETAIL_NONE = detail_kind::NONE,
        IMAS_DETAIL_FILE = detail_kind::FILE,
        IMAS_DETAIL_TEXT = detail_kind::TEXT,
        IMAS_DETAIL_UNIT = detail_kind::UNIT,
        IMAS_DETAIL_NAME = detail_kind::NAME,
        IMAS_ENTRY_INTERPRETER = entry_flag::INTERPRETER,
        IMAS_ENTRY_JAVA = entry_flag::JAVA,
        IMAS_ENTRY_BY_UNIT = entry_flag::BY_UNIT,
        IMAS_ENTRY_FLIGHT = entry_flag::FLIGHT,
        IMAS_ENTRY_PID1 = entry_flag::PID1,
        IMAS_ENTRY_BY_NAME = entry_flag::BY_NAME,
        IMAS_KEY_BYTES = imas_abi::KEY_BYTES,
        IMAS_MORE_TRIALS = imas_abi::MORE_TRIALS,
        IMAS_CATALOGUE_MAGIC = imas_abi::CATALOGUE_MAGIC,
        IMAS_CATALOGUE_VERSION = imas_abi::CATALOGUE_VERSION,
        IMAS_CATALOGUE_ENTRY_BYTES = imas_abi::CATALOGUE_ENTRY_BYTES,
        IMAS_CATALOGUE_MAX = imas_abi::CATALOGUE_MAX,
        IMAS_CATALOGUE_LIBRARY_BYTES = imas_abi::CATALOGUE_LIBRARY_BYTES,
        IMAS_CATALOGUE_ENVIRONMENT_BYTES = imas_abi::CATALOGUE_ENVIRONMENT_BYTES,
        IMAS_CATALOGUE_YIELDS_BYTES = imas_abi::CATALOGUE_YIELDS_BYTES,
        IMAS_CANDIDATE_SYSTEM = imas_abi::CANDIDATE_SYSTEM,
        IMAS_CANDIDATE_HAS_SETTINGS = imas_abi::CANDIDATE_HAS_SETTINGS,
    );
    let lasting = u32::from(imas_abi::env::SETTINGS_LASTING);
    facts.insert("IMAS_SETTINGS_LASTING".to_owned(), lasting.to_string());
    facts
}

fn strings() -> Facts {
    use imas_abi::env;
    let pairs = [
        ("IMAS_ENV_PAGE", env::PAGE),
        ("IMAS_ENV_SETTINGS", env::SETTINGS),
        ("IMAS_ENV_JVM_FLAGS", env::JVM_FLAGS),
        ("IMAS_ENV_JVM_YIELDS", env::JVM_YIELDS),
        ("IMAS_ENV_FOLLOW", env::FOLLOW),
        ("IMAS_ENV_TREE", env::TREE),
        ("IMAS_ENV_ALONE", env::ALONE),
        ("IMAS_ENV_WAS", env::WAS),
        ("IMAS_ENV_UNSET", env::UNSET),
        ("IMAS_ENV_PAD", env::PAD),
        ("IMAS_ENV_DISABLE", env::DISABLE),
        ("IMAS_ENV_RUN", env::RUN),
        ("IMAS_ENV_PLACED", env::PLACED),
        ("IMAS_RUN_FOLDER", imas_abi::RUN_FOLDER),
    ];
    pairs.map(|(c, rust)| (c.to_owned(), rust.to_owned())).into()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../abi")
}

/// A C program that prints every fact as `expression=value`.
fn source(numbers: &Facts, strings: &Facts) -> String {
    let mut source = "#include <stdio.h>\n".to_owned();
    for header in HEADERS {
        writeln!(source, "#include \"{header}\"").unwrap();
    }
    source += "int main(void) {\n";
    for name in numbers.keys() {
        writeln!(source, "    printf(\"%s=%llu\\n\", \"{name}\", (unsigned long long)({name}));").unwrap();
    }
    for name in strings.keys() {
        writeln!(source, "    printf(\"%s=%s\\n\", \"{name}\", {name});").unwrap();
    }
    source + "    return 0;\n}\n"
}

/// The layout according to the C compiler.
fn compiled(source: &str) -> Facts {
    let dir = tempfile::tempdir().unwrap();
    let (c, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&c, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder());
    assert!(command.arg("-o").arg(&binary).arg(&c).status().unwrap().success(), "the headers compile");
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

/// Every constant of the headers is in the lists above.
#[test]
fn no_constant_of_the_headers_is_forgotten() {
    let text = HEADERS.map(|header| std::fs::read_to_string(folder().join(header)).unwrap()).concat();
    let known: Vec<String> = numbers().into_keys().chain(strings().into_keys()).collect();
    let defined = text.lines().filter_map(|line| line.strip_prefix("#define ")?.split_whitespace().next());
    let enumerated = text.split(" = ").filter_map(|before| before.split_whitespace().next_back());
    let names: Vec<&str> =
        defined.chain(enumerated).filter(|name| name.starts_with("IMAS_") && !name.ends_with("_H")).collect();
    assert!(names.len() >= 75, "{names:?}");
    for name in names {
        assert!(known.iter().any(|k| k == name), "{name} is in the header, not in the mirror");
    }
}
