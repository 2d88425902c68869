// SPDX-License-Identifier: Apache-2.0
//! Reports of imasd about itself: `state/status.json` for everybody, `state/ineligible.json` for root, and
//! the index. imasd writes these types, `imas` reads them. A file of an older imasd lacks keys; they count as
//! not set.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use imas_exchange::AgentRecord;
use imas_linux::catalogue_table::CatalogueTable;
use imas_linux::index::{Index, offered};
use imas_linux::{files, process};
use serde::{Deserialize, Serialize};

/// The file for everybody, in the state folder.
const STATUS: &str = "status.json";
/// [`DaemonStatus::accounts`] where the kernel accounts for processes that end.
pub const ACCOUNTED: &str = "kernel";
/// Bytes of either file.
const MOST_BYTES: usize = 64 << 20;
/// The file for root, in the state folder.
const INELIGIBLE: &str = "ineligible.json";

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Everything that was counted since the start of imasd. Only grows.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct DaemonCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl std::ops::Add for DaemonCounters {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name.saturating_add(other.$name),)* }
            }
        }
    };
}

counters! {
    /// Trials stored.
    trials_stored,
    /// Ends of production starts stored.
    flights_stored,
    /// Pages dropped: their process ended before it was seen.
    dropped_unwitnessed,
    /// Pages dropped: they cannot be read as a page.
    dropped_damaged,
    /// Pages dropped: they name a process, program or candidate that is not the one seen.
    dropped_forged,
    /// Pages dropped: no trial of that name was on offer.
    dropped_unknown,
    /// Pages dropped: of another boot.
    dropped_stale,
    /// Pages dropped: their folder, or all together, had too many.
    dropped_too_many,
    /// Times the kernel's events came faster than they were read; everything is looked for then.
    events_lost,
    /// Processes not looked at because too many came at once.
    processes_overlooked,
    /// Programs not taken in because the number of programs is limited.
    programs_refused,
    /// Programs looked at and found ineligible.
    programs_left_alone,
    /// Programs forgotten because others of the same owner needed their place.
    programs_evicted,
    /// Windows of the lives of services stored.
    windows_stored,
    /// Crashes under a candidate.
    crashes,
    /// Looks at placed processes, for whether they hang.
    looks,
    /// Times the store failed to read or write.
    store_refusals,
    /// Processes trimmed from outside, by `[trim]`.
    trims_outside,
    /// Memory that these trims returned, MiB.
    trims_returned_mib,
    /// Memory of it that was taken back within minutes, MiB.
    trims_came_back_mib,
    /// CPU time that their looks and trims cost at most, ms.
    trims_spent_ms,
    /// Times an index was published.
    published,
    /// Messages to the fleet written into the exchange folder.
    fleet_written,
    /// Messages to the fleet dropped: too many waited.
    fleet_dropped,
    /// Statistics of the fleet taken over.
    fleet_received,
    /// Statistics of the fleet refused: not readable, or not of the program and machine that they were for.
    fleet_refused,
    /// Programs whose statistics were dropped, since the fleet has none of them any more.
    fleet_forgotten,
}

impl DaemonCounters {
    /// Names and values of the counters that are not 0, in alphabetical order.
    #[must_use]
    pub fn counted(&self) -> Vec<(String, u64)> {
        let values = serde_json::to_value(self).unwrap_or_default();
        let named = values.as_object().into_iter().flatten();
        named
            .filter_map(|(name, value)| Some((name.clone(), value.as_u64().filter(|count| *count > 0)?)))
            .collect()
    }
}

/// The state of imasd.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonStatus {
    /// Version of this format.
    pub schema: u32,
    /// Process id of imasd.
    pub pid: u32,
    /// When imasd started, clock ticks since boot.
    pub start_ticks: u64,
    /// Version of imasd.
    pub version: String,
    /// Path of imasd's store.
    pub store: String,
    /// Configuration file of imasd, whether the file exists or not; `imas ... --system` decides by the same
    /// file. Empty: not known.
    pub config: String,
    /// Seconds between two tests of one candidate, where its command line sets it in place of that file.
    pub retest_s: Option<f64>,
    /// `kernel` where the kernel reports process events, else `polling`.
    pub events: String,
    /// [`ACCOUNTED`] where imasd learns what the kernel accounts to processes that end, else why not. Empty: of an
    /// imasd that does not ask.
    pub accounts: String,
    /// Programs known.
    pub programs: usize,
    /// Trials on offer that no process has taken yet.
    pub trials_offered: usize,
    /// Processes that run a trial.
    pub trials_running: usize,
    /// Processes in production that are watched.
    pub flights_watched: usize,
    /// Why every program starts untouched, if so.
    pub emergency: Option<String>,
    /// How many programs are ineligible. Everybody may read this file; which programs they are is in another,
    /// for root.
    pub ineligible: usize,
    /// Programs whose work could not be counted the last time.
    pub work_troubles: Vec<WorkTrouble>,
    /// Processes that are not trimmed for a while, those with the longest pause first.
    pub trims_left_alone: Vec<LeftAloneProcess>,
    /// Counters of imasd.
    pub counters: DaemonCounters,
    /// How imasd takes part in a fleet, where it does.
    pub fleet: Option<FleetState>,
}

/// A command `work` of the settings that gave no number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkTrouble {
    /// The program, as the settings name it.
    pub program: String,
    /// Why the command gave no number, in words.
    pub why: String,
}

/// A process that took its pages back after a trim, and is left alone for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftAloneProcess {
    /// Id of the process.
    pub pid: u32,
    /// Memory that it had given back, MiB.
    pub returned_mib: u64,
    /// Memory of it that it took back within minutes, MiB.
    pub came_back_mib: u64,
    /// Time from the trim for which it is left alone, seconds.
    pub pause_s: u64,
}

/// How imasd takes part in a fleet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetState {
    /// Name of this host in the fleet.
    pub host: String,
    /// The folder through which it exchanges files with the agent.
    pub exchange: String,
    /// Messages that wait for the agent.
    pub waiting: usize,
    /// Bytes of these messages.
    pub waiting_bytes: u64,
    /// Messages that wait in the store, since the folder cannot be written.
    pub unwritten: usize,
    /// Programs that the fleet is asked about.
    pub wanted: usize,
    /// Whether the agent runs and is connected with the fleet.
    pub connected: bool,
    /// Why the exchange folder cannot be used, if so.
    pub trouble: Option<String>,
    /// The agent's record of itself, if it has written one.
    pub agent: Option<serde_json::Map<String, serde_json::Value>>,
}

impl FleetState {
    /// The agent's record; None where there is none, or it is not one that an agent writes.
    #[must_use]
    pub fn agent_record(&self) -> Option<AgentRecord> {
        serde_json::from_value(serde_json::Value::Object(self.agent.clone()?)).ok()
    }
}

impl DaemonStatus {
    /// The state of the imasd whose folder is `run_dir`, if it runs.
    #[must_use]
    pub fn read(run_dir: &Path) -> Option<Self> {
        let text = files::read_plain(&run_dir.join("state").join(STATUS), MOST_BYTES).ok()?;
        let status: Self = serde_json::from_slice(&text).ok()?;
        process::is_running(status.pid, status.start_ticks).then_some(status)
    }

    /// Replaces the file in the state folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, state: &Path) -> std::io::Result<()> {
        let beside = state.join(format!("{STATUS}.new"));
        std::fs::write(&beside, serde_json::to_vec(self)?)?;
        std::fs::rename(&beside, state.join(STATUS))
    }
}

/// A program that imasd does not test, and the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IneligibleProgram {
    /// Path of its executable.
    pub path: String,
    /// `everybody` or the uid.
    pub domain: String,
    /// Why the program is ineligible.
    pub reason: String,
}

impl IneligibleProgram {
    /// The ineligible programs that imasd has written down. Empty for users other than root, who may not read
    /// the file.
    #[must_use]
    pub fn read_all(run_dir: &Path) -> Vec<Self> {
        let text = files::read_plain(&run_dir.join("state").join(INELIGIBLE), MOST_BYTES).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Replaces the file in the state folder. It is for root alone: what a user runs concerns no other user
    /// business.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_all(programs: &[Self], state: &Path) -> std::io::Result<()> {
        let beside = state.join(format!("{INELIGIBLE}.new"));
        let _ = std::fs::remove_file(&beside); // of an imasd that was killed; it would keep its mode
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec(programs)?)?;
        std::fs::rename(&beside, state.join(INELIGIBLE))
    }
}

// Publications of imasd, and why they may have no effect.

/// Why no program goes by the index now, though one is there.
#[must_use]
pub fn ineffective(run_dir: &Path) -> Option<String> {
    if run_dir.join("disabled").exists() {
        return Some(format!("{0} exists; to go on: rm {0}", run_dir.join("disabled").display()));
    }
    if is_full(&run_dir.join("state/u")) {
        return Some(
            "the place for programs' pages, state/u, is full; 'du' there says whose they are".to_owned(),
        );
    }
    let index = Index::read(&run_dir.join("state/index")).ok()?;
    let facts = index.facts();
    if facts.disabled {
        return Some("the daemon has disabled its index".to_owned());
    }
    let boot_id = process::boot_id().ok()?;
    if facts.boot_id != boot_id {
        return Some(format!(
            "the index is of boot {}, and programs see boot {boot_id}; to mend it: imas system boot",
            facts.boot_id
        ));
    }
    let table = CatalogueTable::read(&run_dir.join("catalogue")).ok()?;
    let other = "the index is of another catalogue than the approved one; imasd mends it within seconds";
    (table.id() != facts.catalogue_id).then(|| other.to_owned())
}

fn is_full(folder: &Path) -> bool {
    let room = nix::sys::statvfs::statvfs(folder);
    room.is_ok_and(|room| room.blocks_available() == 0 || (room.files() > 0 && room.files_available() == 0))
}

/// Candidate in production and candidates on trial, by the daemon's number of the program.
#[must_use]
pub fn published(run_dir: &Path) -> BTreeMap<u64, (String, Option<String>)> {
    let table = CatalogueTable::read(&run_dir.join("catalogue")).ok();
    let index = Index::read(&run_dir.join("state/index")).ok();
    let (Some(table), Some(index)) = (table, index) else { return BTreeMap::new() };
    let names: BTreeMap<u16, String> = table.names().collect();
    let name = |id: u16| names.get(&id).cloned().unwrap_or_else(|| "system".to_owned());
    let of_entry = |entry: &imas_abi::IndexEntry| {
        let trials: Vec<_> = offered(entry).map(|trial| name(trial.candidate)).collect();
        let trial = (!trials.is_empty()).then(|| trials.join(", "));
        (entry.program_id, (name(entry.candidate), trial))
    };
    index.entries().map(of_entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_an_older_daemon_is_read() {
        let run = tempfile::tempdir().unwrap();
        std::fs::create_dir(run.path().join("state")).unwrap();
        let pid = std::process::id();
        let start_ticks = imas_linux::process::start_ticks(pid).unwrap();
        let old = format!(
            r#"{{"schema":1,"pid":{pid},"start_ticks":{start_ticks},"version":"0.1","programs":3,
                "gone_since":true,"counters":{{"crashes":2,"published":1}}}}"#
        );
        std::fs::write(run.path().join("state/status.json"), old).unwrap();
        let status = DaemonStatus::read(run.path()).unwrap();
        assert_eq!((status.programs, status.retest_s, status.config.as_str()), (3, None, ""));
        let counted = [("crashes".to_owned(), 2), ("published".to_owned(), 1)];
        assert_eq!(status.counters.counted(), counted);
        let ended = DaemonStatus { start_ticks: start_ticks + 1, ..status };
        ended.write(&run.path().join("state")).unwrap();
        assert_eq!(DaemonStatus::read(run.path()), None, "it has ended");
    }

    #[test]
    fn the_keys_on_disk_are_those_that_scripts_read() {
        let status = serde_json::to_value(DaemonStatus::default()).unwrap();
        let keys: Vec<_> = status.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "accounts config counters emergency events fleet flights_watched ineligible pid programs \
                        retest_s schema start_ticks store trials_offered trials_running trims_left_alone version \
                        work_troubles";
        assert_eq!(keys, expected.split_whitespace().collect::<Vec<_>>());
        assert_eq!(status["counters"].as_object().unwrap().len(), 27);
    }

    #[test]
    fn ineligible_programs_are_for_root_alone() {
        use std::os::unix::fs::PermissionsExt;
        let run = tempfile::tempdir().unwrap();
        std::fs::create_dir(run.path().join("state")).unwrap();
        let program =
            IneligibleProgram { path: "/bin/x".into(), domain: "1000".into(), reason: "static".into() };
        IneligibleProgram::write_all(std::slice::from_ref(&program), &run.path().join("state")).unwrap();
        assert_eq!(IneligibleProgram::read_all(run.path()), [program]);
        let mode = std::fs::metadata(run.path().join("state/ineligible.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
