// SPDX-License-Identifier: Apache-2.0
//! Identity of a program and of this machine in a fleet. No path and no name leaves the host: only hashes of
//! what is the same wherever the program is installed.

use std::io::Read as _;
use std::path::Path;

use imas_exchange::key::{class_of_cpus, of_subject};
use imas_exchange::{Environment, ProgramKey, ThreadsClass};
use imas_linux::index::{Executable, unit_of_detail};
use imas_linux::interpreter_target::Interpreter;
use imas_linux::program_file::ProgramFile;
use imas_store::samples::StoredProgram;
use imas_store::{RowId, Store, StoreError};
use sha2::{Digest as _, Sha256};

use crate::inspect::on_file;

/// Name of a script's hash, in the store.
const HASH: &str = "script-sha256";
/// A script, module or archive of more bytes is not read.
const MOST_BYTES: u64 = 16 << 20;

/// The key of a program whose executable is `executable` with that build id: the build id and the size of the
/// file; with an interpreter, also what the file holds that it is given; with a service, also its unit.
/// `None` where nothing says that two hosts have the same program: no build id, code on the command line, a
/// module whose file is not known.
#[must_use]
pub fn program_key(
    store: &Store,
    program: &StoredProgram,
    executable: Executable,
    build_id: &str,
) -> Option<ProgramKey> {
    if build_id.is_empty() {
        return None;
    }
    let bytes = executable.bytes.to_string();
    if Interpreter::of(Path::new(&program.path)).is_some() {
        let script = script_hash(store, program)?;
        return Some(ProgramKey::new("script", &[build_id, &bytes, &script]));
    }
    match (unit_of_detail(&program.detail), program.detail.as_str()) {
        (Some(unit), _) => Some(ProgramKey::new("unit", &[build_id, &bytes, unit])),
        (None, "") => Some(ProgramKey::new("build-id", &[build_id, &bytes])),
        (None, _) => None,
    }
}

/// The class of threads of a program, its executable being of that build: the one that most of its trials were in.
/// Without trials, the class of a process that was noticed (`noticed`), or the class under which the store has the fleet's
/// statistics of `key`, whichever is greater. `None` where nothing is known yet.
///
/// # Errors
/// When the store cannot be read.
pub fn threads_class(
    store: &Store,
    (program, build_id): (RowId, &str),
    key: &ProgramKey,
    noticed: Option<ThreadsClass>,
) -> Result<Option<ThreadsClass>, StoreError> {
    if let Some(class) = ThreadsClass::of_most(&store.threads_of_trials(program, build_id)?) {
        return Ok(Some(class));
    }
    let stored = store.statistics(program)?;
    let stored = stored.and_then(|stored| of_subject(&stored.subject)).filter(|(program, _)| program == key);
    let stored = stored.and_then(|(_, environment)| environment.threads);
    Ok(stored.max(noticed))
}

/// The environment of this machine, which has `cpus` processors, without a program's class of threads.
#[must_use]
pub fn environment(cpus: u32) -> Environment {
    let huge_pages = imas_linux::host::transparent_huge_pages();
    Environment {
        architecture: std::env::consts::ARCH.to_owned(),
        page_bytes: u32::try_from(imas_linux::host::page_bytes()).unwrap_or(u32::MAX),
        // A kernel without the setting has none.
        huge_pages: if huge_pages.is_empty() { "never".to_owned() } else { huge_pages },
        cpus: class_of_cpus(cpus as usize),
        threads: None,
    }
}

/// Hash of the file that an interpreter is given: a script, or an archive as `-jar FILE`.
fn script_hash(store: &Store, program: &StoredProgram) -> Option<String> {
    let path = Path::new(program.detail.strip_prefix("-jar ").unwrap_or(&program.detail));
    if path.is_relative() {
        return None;
    }
    let file = on_file(program.domain, path, ProgramFile::open).ok()?.ok()?;
    let about = Some(file.about().clone()).filter(|about| about.len() <= MOST_BYTES)?;
    if let Ok(Some(known)) = store.recall_of(path, &about, HASH) {
        return Some(known);
    }
    let hash = on_file(program.domain, path, move |_| hash_of(&file)).ok()??;
    let _ = store.remember_of(path, &about, HASH, &hash); // else it is read again
    Some(hash)
}

/// Hexadecimal.
fn hash_of(file: &ProgramFile) -> Option<String> {
    let mut text = vec![];
    file.file().take(MOST_BYTES).read_to_end(&mut text).ok()?;
    Some(Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::sample::PageKind;
    use imas_core::{Sample, TrialRecord};
    use imas_store::fleet::StoredStatistics;
    use imas_store::samples::Domain;

    const FILE: Executable = Executable { dev: 1, ino: 2, mtime_ns: 3, bytes: 4 };

    fn key(store: &Store, path: &str, detail: &str, build_id: &str) -> Option<ProgramKey> {
        let program =
            StoredProgram { id: 1, domain: Domain::Everybody, path: path.into(), detail: detail.into() };
        program_key(store, &program, FILE, build_id)
    }

    #[test]
    fn the_same_program_has_one_key_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("imas.db")).unwrap();
        let of = |path, detail| key(&store, path, detail, "ab");
        assert!(of("/bin/x", "").is_some());
        assert_eq!(of("/bin/x", ""), of("/opt/y", ""));
        assert_ne!(of("/bin/x", ""), of("/bin/x", "unit x.service"));
        assert_ne!(of("/bin/x", ""), key(&store, "/bin/x", "", "cd"));
        assert_eq!(key(&store, "/bin/x", "", ""), None);
        let program =
            StoredProgram { id: 1, domain: Domain::Everybody, path: "/bin/x".into(), detail: String::new() };
        let larger = Executable { bytes: 5, ..FILE };
        assert_ne!(of("/bin/x", ""), program_key(&store, &program, larger, "ab"), "the build id was copied");
    }

    #[test]
    fn an_interpreted_program_is_what_its_script_says() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("imas.db")).unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let of = |detail: &str| key(&store, "/usr/bin/python3", detail, "ab");
        for (name, text) in [("a", "1"), ("b", "1"), ("c", "2")] {
            std::fs::write(path(name), text).unwrap();
        }
        assert!(of(&path("a")).is_some());
        assert_eq!((of(&path("a")), of(&path("a"))), (of(&path("b")), of(&path("a"))));
        assert_ne!(of(&path("a")), of(&path("c")));
        assert_eq!(of(&format!("-jar {}", path("a"))), of(&path("a")));
        for unknown in ["", "-c #af63dc4c8601ec8c", "-m http.server", "a", "/no/such/script", "/dev/zero"] {
            assert_eq!(of(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_class_of_threads_is_that_of_most_trials_else_what_is_seen_or_stored() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("imas.db")).unwrap();
        let id = store.program("/bin/x", "").unwrap().id;
        let key = ProgramKey::new("build-id", &["ab"]);
        let class = |noticed: Option<u32>| {
            threads_class(&store, (id, "ab"), &key, noticed.map(ThreadsClass::of)).unwrap()
        };
        assert_eq!((class(None), class(Some(4))), (None, Some(ThreadsClass::Few)));
        let environment = Environment { threads: Some(ThreadsClass::Many), ..environment(2) };
        let stored = |key: &ProgramKey| {
            let subject = imas_exchange::key::subject(key, &environment);
            store
                .set_statistics(id, &StoredStatistics { subject, statistics: "{}".into(), known_s: 0.0 })
                .unwrap();
        };
        stored(&ProgramKey::new("build-id", &["another"]));
        assert_eq!(class(None), None, "statistics of an earlier build");
        stored(&key);
        assert_eq!(class(Some(1)), Some(ThreadsClass::Many));
        let trial = |name: &str, threads, kind| {
            let sample = Sample { trial_id: name.into(), threads, kind, ..Sample::default() };
            let record = TrialRecord { sample, build_id: "ab".into(), ..TrialRecord::default() };
            store.add_trial(id, &record).unwrap();
        };
        (0..5).for_each(|at| trial(&format!("flight {at}"), 40, PageKind::Flight));
        assert_eq!(class(None), Some(ThreadsClass::Many), "production starts count no threads");
        trial("a", 0, PageKind::Trial);
        trial("b", 1, PageKind::Trial);
        trial("c", 2, PageKind::Trial);
        assert_eq!(class(Some(40)), Some(ThreadsClass::One));
        assert_eq!(threads_class(&store, (id, "cd"), &key, None).unwrap(), Some(ThreadsClass::Many));
    }

    #[test]
    fn this_machine_is_an_environment() {
        let environment = environment(6);
        assert_eq!(environment.cpus, 4);
        assert!(environment.page_bytes >= 4096 && !environment.huge_pages.is_empty());
    }
}
