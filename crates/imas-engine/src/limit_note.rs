// SPDX-License-Identifier: Apache-2.0
//! A note on a service whose memory came near the limit of its control group: what its largest process held. imasd writes it
//! before the kernel may kill the service (`note_near_limits`), and `imas explain UNIT` shows it, also when the service is
//! gone.

use std::fmt::Write as _;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use imas_cli::format::size;
use imas_core::printable::{self, counted};
use imas_linux::control_group::{self, NearLimit};
use imas_linux::running_runtime::{RunningRuntime, name_of_candidate};
use imas_linux::serving::RealCandidates;
use imas_linux::{files, host, process, running};
use serde::{Deserialize, Serialize};

use crate::memory_look::{AboutProcess, ProcessLook};

/// Share of the limit from which a service may soon be killed.
pub const NEAR: f64 = 0.95;
/// Folder of the notes, below the folder of imasd's state.
const FOLDER: &str = "near-limits";
/// Most parts of the memory that a note has, and most bytes of a note that is read.
const MOST_PARTS: usize = 8;
const MOST_BYTES: usize = 64 << 10;
/// Most notes that are kept, the newest: `systemd-run` gives each service a name of its own.
const MOST_NOTES: usize = 500;
/// End of the name of a service.
const SERVICE: &str = ".service";

/// A note.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitNote {
    /// Version of the document.
    pub schema: u32,
    /// The service, as systemd names it.
    pub unit: String,
    /// Time of the look, seconds since 1970.
    pub at_unix_s: f64,
    /// Share of the limit that was in use.
    pub used: f64,
    /// Number of processes of the service.
    pub processes: usize,
    /// The largest process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// The verdict on its memory, in words.
    pub sentence: String,
    /// Its largest parts, the largest first.
    pub parts: Vec<NotedPart>,
}

/// A part of the memory of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotedPart {
    /// Resident and swapped bytes.
    pub bytes: u64,
    /// Kind of the memory, for people.
    pub what: String,
}

impl LimitNote {
    /// Looks at the largest process of the group. None where there is none, or it is not ours to look at.
    #[must_use]
    pub fn of(group: &NearLimit, candidates: &RealCandidates) -> Option<Self> {
        let unit = unit_of(group)?.to_owned();
        let pids = control_group::processes(&group.folder);
        let pid = pids.iter().copied().max_by_key(|pid| process::anonymous_bytes(*pid))?;
        let running = running::one(pid)?;
        let runtime = RunningRuntime::of(&running);
        let of = runtime.as_ref().map(|runtime| runtime.found.runtime);
        let on = name_of_candidate(&running, candidates, || of);
        let look = ProcessLook::at(AboutProcess::of(&running, runtime.as_ref(), on)).ok()?;
        let answer = look.answer(candidates);
        let part = |part: &crate::memory_look::parts::MemoryPart| NotedPart {
            bytes: part.resident_bytes.saturating_add(part.swapped_bytes),
            what: part.what.clone(),
        };
        Some(Self {
            schema: 1,
            unit,
            at_unix_s: host::now_unix_s(),
            used: group.used,
            processes: pids.len(),
            pid,
            program: running.program.to_string(),
            sentence: answer.sentence,
            parts: answer.parts.iter().take(MOST_PARTS).map(part).collect(),
        })
    }

    /// Writes the note in place of the former one of the service. `state` is the folder of imasd's state. Others than its
    /// user and root do not see it: it tells what a service of another user holds.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, state: &Path) -> std::io::Result<()> {
        let file = file(state, &self.unit).ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
        let folder = state.join(FOLDER);
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(&folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        files::replace(&file, &serde_json::to_vec(self)?)?;
        keep_newest(&folder, MOST_NOTES);
        Ok(())
    }

    /// The note of a service; `run_dir` is imasd's. None without one, or where it is no note.
    ///
    /// # Errors
    /// When the folder may not be looked into.
    pub fn read(run_dir: &Path, unit: &str) -> std::io::Result<Option<Self>> {
        let state = run_dir.join("state");
        let Some(file) = file(&state, unit) else { return Ok(None) };
        match std::fs::symlink_metadata(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let bytes = files::read_plain(&file, MOST_BYTES).unwrap_or_default();
        Ok(serde_json::from_slice(&bytes).ok().filter(|note: &Self| note.unit == unit))
    }

    /// The note as a page of a terminal; `when` is its time.
    #[must_use]
    pub fn text(&self, when: &str) -> String {
        let name = |text: &str| printable::name(text).into_owned();
        let mut text = format!(
            "{}: near its limit of memory at {when} ({:.0} % of it, {})\n{}\n{} (pid {}) held:\n",
            name(&self.unit),
            self.used * 100.0,
            counted(self.processes, "process"),
            name(&self.sentence),
            name(&self.program),
            self.pid
        );
        for part in self.parts.iter().take(MOST_PARTS) {
            let _ = writeln!(text, "  {}: {}", size(part.bytes as f64), name(&part.what)); // a String takes everything
        }
        text
    }
}

/// Removes the oldest files of a folder beyond `most`. What cannot be removed now is so at the next note.
fn keep_newest(folder: &Path, most: usize) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut notes: Vec<_> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    notes.sort_unstable();
    for (_, oldest) in &notes[..notes.len().saturating_sub(most)] {
        let _ = std::fs::remove_file(oldest);
    }
}

/// The service of a group of the machine.
fn unit_of(group: &NearLimit) -> Option<&str> {
    group.folder.file_name()?.to_str().filter(|name| name.ends_with(SERVICE))
}

/// File of the service's note. None for what is no name of a service.
fn file(state: &Path, unit: &str) -> Option<PathBuf> {
    let is_name = unit.ends_with(SERVICE) && unit.len() < 256 && !unit.contains('/');
    is_name.then(|| state.join(FOLDER).join(format!("{unit}.json")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_largest_process_of_the_service_is_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("web.service");
        std::fs::create_dir(&folder).unwrap();
        let group = NearLimit { folder: folder.clone(), used: 0.96 };
        assert_eq!(LimitNote::of(&group, &RealCandidates::default()), None, "no process");
        std::fs::write(folder.join("cgroup.procs"), format!("4194303\n{}\n", std::process::id())).unwrap();
        let note = LimitNote::of(&group, &RealCandidates::default()).unwrap();
        assert_eq!((note.unit.as_str(), note.pid, note.processes), ("web.service", std::process::id(), 2));
        assert!(!note.sentence.is_empty() && note.parts[0].bytes > 0, "{note:?}");
        let user = NearLimit { folder: place.path().join("app.slice"), ..group };
        assert_eq!(LimitNote::of(&user, &RealCandidates::default()), None, "no service");
    }

    #[test]
    fn a_note_is_found_by_its_service_alone() {
        let run = tempfile::tempdir().unwrap();
        let state = run.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let own =
            NearLimit { folder: Path::new("/sys/fs/cgroup/system.slice/web.service").into(), used: 0.97 };
        assert_eq!(unit_of(&own), Some("web.service"));
        let part = |what: &str| NotedPart { bytes: 50 << 20, what: what.to_owned() };
        let note = LimitNote {
            schema: 1,
            unit: "web.service".into(),
            at_unix_s: 60.0,
            used: 0.97,
            processes: 3,
            pid: 7,
            program: "/usr/bin/web\u{1b}[2J".into(),
            sentence: "will be killed".into(),
            parts: vec![part("live blocks"), part("page cache")],
        };
        note.write(&state).unwrap();
        note.write(&state).unwrap();
        let mode = std::fs::metadata(state.join(FOLDER)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(LimitNote::read(run.path(), "web.service").unwrap().as_ref(), Some(&note));
        let text = note.text("noon");
        assert!(text.contains("97 % of it, 3 processes") && text.contains("50 MiB: live blocks"), "{text}");
        assert!(!text.contains('\u{1b}'), "a program has no say about the terminal: {text}");

        for other in ["mail.service", "../web.service", "web", ""] {
            assert_eq!(LimitNote::read(run.path(), other).unwrap(), None, "{other}");
        }
        let of_another = LimitNote { unit: "mail.service".into(), ..note.clone() };
        let file = state.join(FOLDER).join("web.service.json");
        for bytes in [serde_json::to_vec(&of_another).unwrap(), b"{}".to_vec(), vec![b'['; 100_000]] {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(LimitNote::read(run.path(), "web.service").unwrap(), None);
        }
        let newest = LimitNote { unit: "new.service".into(), ..note.clone() };
        newest.write(&state).unwrap();
        std::fs::File::open(&file).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        keep_newest(&state.join(FOLDER), 1);
        assert!(!file.exists() && LimitNote::read(run.path(), "new.service").unwrap().is_some());
        let outside = LimitNote { unit: "../../web.service".into(), ..note };
        assert!(outside.write(&state).is_err());
    }
}
