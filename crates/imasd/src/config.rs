// SPDX-License-Identifier: Apache-2.0
//! What the daemon is given: the definition of its command line, without side effects, and its configuration,
//! `/etc/imas/imasd.toml`, whose file need not exist: every key has a default. `imas` has the
//! same settings that decisions depend on ([`imas_engine::config`]); the others are the daemon's own. The installation is
//! the table of candidates that root approved, and their catalogue entries.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueHint};
use imas_core::profile::Policy;
use imas_engine::candidates::CandidateRules;
use imas_engine::config::Config as Rules;
use imas_engine::flags::RulesArgs;
use imas_engine::state::ProgramState;
use imas_engine::{amounts, folders};
use imas_linux::catalogue::{Catalogue, CatalogueCandidate};
use imas_linux::catalogue_table::{self, CatalogueTable, Owners};
use imas_linux::environment::Libraries;
use imas_store::daemon::Disabled;
use imas_store::samples::StoredProgram;
use imas_store::{Store, StoreError};
use serde::Deserialize;

use crate::fleet::FleetSettings;
use crate::trims::TrimSettings;

/// Notices programs, ingests their trials and publishes what each is to start under.
///
/// Runs as the user `imas`, started by systemd. It listens to no network. Programs read what it publishes by
/// themselves, once, at their start; without it they keep the last decision.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "imasd",
    version,
    max_term_width = 100,
    after_help = "Signals:\n  HUP   read configuration, exclusions and catalogue again\n  TERM  finish and end with 0\n\n'imas status' shows what it does; 'imas show --system' what it knows."
)]
pub(crate) struct Options {
    /// Folder with the catalogue and the index
    #[arg(long, default_value = imas_abi::RUN_FOLDER, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) run_dir: PathBuf,
    /// The store
    #[arg(long, default_value = "/var/lib/imas/imas.db", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) store: PathBuf,
    /// Folder with catalogue.toml [default: that of libimas.so in the approved catalogue]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) lib_dir: Option<PathBuf>,
    /// Configuration file; it need not exist
    #[arg(long, default_value = "/etc/imas/imasd.toml", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Seconds between two tests of one candidate, in place of the configuration's
    #[arg(long, value_name = "SECONDS", value_parser = imas_engine::amounts::seconds)]
    pub(crate) retest: Option<f64>,
    /// Serve one user's own tree of processes, without root: everything below the run folder is that user's
    #[arg(long)]
    pub(crate) user: bool,
    /// Look for new processes every few seconds, even where the kernel would report them
    #[arg(long)]
    pub(crate) poll: bool,
    /// Ingest what is finished, publish, and end
    #[arg(long)]
    pub(crate) once: bool,
}

/// The settings of the daemon.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Config {
    /// Settings that decisions depend on.
    pub(crate) rules: Rules,
    /// The daemon's own.
    pub(crate) own: Settings,
}

/// The settings that only the daemon has.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    /// A program is worth a trial once one of its processes has used this CPU time, seconds. A start under
    /// another allocator costs one more exec, about a millisecond: a hundredth of this.
    pub(crate) worth_cpu_s: f64,
    /// A program is also worth a trial once one of its processes has lived for this time, seconds: its memory
    /// counts then, whatever CPU it used.
    pub(crate) worth_life_s: f64,
    /// A process under trial that lives for this time, seconds, gives its sample then, and not at its end.
    pub(crate) sample_after_s: f64,
    /// A process under trial also gives its sample once it has made this number of malloc calls of all
    /// classes, if that comes first; absent: only time closes a sample.
    pub(crate) sample_after_operations: Option<u64>,
    /// Limit for the number of programs. The index and the daemon's memory grow with them.
    pub(crate) most_programs: usize,
    /// Limit for the pages in one user's folder.
    pub(crate) most_pages_of_user: usize,
    /// Limit for all pages.
    pub(crate) most_pages: usize,
    /// Pressure on memory from which it is short: 1 where tasks wait for it a tenth of the time, where a twentieth
    /// of it is left, or where a service uses 95 % of its limit; 0 from the beginning.
    pub(crate) short_at: f64,
    /// What a service holds is written down when it uses 95 % of its limit of memory.
    pub(crate) note_near_limits: bool,
    /// Running processes that are trimmed by themselves: which, and when.
    pub(crate) trim: TrimSettings,
    /// Part in a fleet: whether and how the host takes one.
    pub(crate) fleet: FleetSettings,
    /// Keys that neither part has.
    #[serde(flatten)]
    unknown: toml::Table,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            worth_cpu_s: 0.1,
            worth_life_s: 30.0,
            sample_after_s: 600.0,
            sample_after_operations: None,
            most_programs: 10_000,
            most_pages_of_user: 1_024,
            most_pages: 8_192,
            short_at: 1.0,
            note_near_limits: false,
            trim: TrimSettings::default(),
            fleet: FleetSettings::default(),
            unknown: toml::Table::new(),
        }
    }
}

impl Settings {
    fn check(&self) -> Result<(), String> {
        if let Some(key) = self.unknown.keys().next() {
            return Err(format!("unknown key `{key}`"));
        }
        if self.sample_after_operations == Some(0) {
            return Err("sample_after_operations: at least 1, or leave it out".to_owned());
        }
        if self.sample_after_s == 0.0 {
            return Err("sample_after_s: above 0".to_owned());
        }
        if !(0.0..=1.0).contains(&self.short_at) {
            return Err(format!("short_at = {}: not a number from 0 to 1", self.short_at));
        }
        self.trim.check()?;
        self.fleet.check()?;
        let durations = [
            ("worth_cpu_s", self.worth_cpu_s),
            ("worth_life_s", self.worth_life_s),
            ("sample_after_s", self.sample_after_s),
        ];
        durations.into_iter().try_for_each(|(key, value)| amounts::check_seconds(key, value).map(|_| ()))
    }
}

impl Config {
    /// Reads the file; one that does not exist sets nothing.
    ///
    /// `is_machines`: it serves all users, so its commands must be root's or its own user's.
    pub(crate) fn read(file: &Path, is_machines: bool) -> Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => bail!("{}: {error}", file.display()),
        };
        let config = Self::parse(&text);
        let config = config.map_err(|why| anyhow::anyhow!("{}: {}", file.display(), why.trim_end()))?;
        Ok(if is_machines { config.without_foreign_commands(file) } else { config })
    }

    /// imasd runs the commands of its file, so it takes none from a file that others than its own user and
    /// root could change.
    fn without_foreign_commands(mut self, file: &Path) -> Self {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let me = rustix::process::geteuid().as_raw();
        if let Some(why) = imas_linux::trust::untrusted(&file, me).filter(|_| !self.rules.work.is_empty()) {
            tracing::warn!("'work' is not used: {why}");
            self.rules.work.clear();
        }
        self
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (rules, own) = Rules::parse_daemons(text)?;
        let own: Settings = own.try_into().map_err(|error| error.to_string())?;
        own.check()?;
        Ok(Self { rules, own })
    }

    /// The policy for the program.
    pub(crate) fn policy(&self, program: &StoredProgram) -> Policy {
        self.rules.policy(&RulesArgs::default(), &program.path, &program.detail)
    }
}

/// Table and catalogue as they were read together.
#[derive(Debug)]
pub(super) struct Installation {
    pub(super) table: CatalogueTable,
    pub(super) catalogue: Catalogue,
    changed: Option<SystemTime>,
}

impl Installation {
    /// Reads the approved table and, from the folder of its hook unless another is named, the catalogue.
    pub(super) fn read(run_dir: &Path, lib_dir: Option<&Path>) -> Result<Self> {
        let path = run_dir.join(catalogue_table::FILE_NAME);
        let changed = changed(&path);
        let table = CatalogueTable::read(&path).context("the approved catalogue")?;
        let hook = table.libraries().hook;
        let folder = lib_dir.or_else(|| hook.parent()).unwrap_or_else(|| Path::new("/"));
        let catalogue = Catalogue::read(&folders::catalogues_of_machine(folder));
        for problem in catalogue.problems() {
            tracing::warn!(PROBLEM = %problem, "the catalogue has an entry that cannot be used");
        }
        Ok(Self { table, catalogue, changed })
    }

    /// Writes the table of a user's own tree, where the user is who approves.
    pub(super) fn write_own(run_dir: &Path, lib_dir: &Path) -> Result<()> {
        let me = nix::unistd::geteuid().as_raw();
        let libraries = Libraries::plain(lib_dir);
        let catalogue = Catalogue::read(&folders::catalogues_of_machine(lib_dir));
        let path = run_dir.join(catalogue_table::FILE_NAME);
        let owners = Owners { trusted: me, daemon: me };
        let candidates: Vec<_> = catalogue.all().cloned().collect();
        let written = catalogue_table::write_catalogue_table(&path, &candidates, &libraries, owners)?;
        for refusal in written.refused {
            tracing::info!(CANDIDATE = refusal.candidate, "not offered: {}", refusal.why);
        }
        Ok(())
    }

    /// Whether the table on disk is another one by now.
    pub(super) fn is_outdated(&self, run_dir: &Path) -> bool {
        changed(&run_dir.join(catalogue_table::FILE_NAME)) != self.changed
    }

    /// Reads the state of a program, with the candidates that it may get here.
    pub(super) fn state_of(
        &self,
        store: &Store,
        program: (StoredProgram, &str),
        configured: Option<&[String]>,
        disabled: &[Disabled],
    ) -> Result<ProgramState, StoreError> {
        let is_usable = |candidate: &CatalogueCandidate| self.table.id_of(&candidate.name).is_some();
        let rules =
            CandidateRules { catalogue: &self.catalogue, configured, disabled, is_usable: &is_usable };
        ProgramState::read(store, program.0, program.1, &rules)
    }

    /// The candidate of that name.
    pub(super) fn find(&self, name: &str) -> Option<&CatalogueCandidate> {
        self.catalogue.find(name)
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|about| about.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use imas_core::adaptive::Objective;

    use crate::trims::{TrimOf, TrimWhen};

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn the_man_page_has_every_option_and_default() {
        let page = include_str!("../imasd.8").replace('\\', "");
        for argument in Options::command().get_arguments() {
            let long = argument.get_long().unwrap();
            assert!(page.contains(&format!("--{long}")), "--{long}");
            for default in argument.get_default_values() {
                assert!(page.contains(&*default.to_string_lossy()), "{default:?}");
            }
        }
    }

    #[test]
    fn commands_of_a_file_that_others_may_change_are_not_run() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("imasd.toml");
        std::fs::write(&file, "retest_s = 5\n[program.'unit x.service']\nwork = 'true'\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        let read = |is_machines| Config::read(&file, is_machines).unwrap().rules;
        assert_eq!((read(true).work.len(), read(true).retest_s), (0, Some(5.0)));
        assert_eq!(read(false).work.len(), 1, "the user's own daemon");
    }

    #[test]
    fn the_sample_names_keys_that_exist_with_their_defaults() {
        let sample = include_str!("../../../packaging/etc/imasd.toml").lines();
        let keys =
            sample.filter_map(|line| line.strip_prefix('#').filter(|key| !key.starts_with([' ', '#'])));
        let config = Config::parse(&keys.collect::<Vec<_>>().join("\n")).unwrap();
        let absent = Config::default();
        assert_eq!(config.rules.limits(None), absent.rules.limits(None));
        assert_eq!((config.rules.candidates.is_some(), config.rules.program.len()), (true, 1));
        let calls = Some(10_000_000);
        let fleet = FleetSettings { enabled: true, ..FleetSettings::default() };
        let trim = TrimSettings {
            when: Some(TrimWhen::Pressure),
            every: Some("10m".into()),
            of: TrimOf::Listed,
            units: ["mariadb.service".to_owned()].into(),
            ..TrimSettings::default()
        };
        let note_near_limits = true;
        let shown = Settings { sample_after_operations: calls, note_near_limits, fleet, trim, ..absent.own };
        assert_eq!(config.own, shown);
    }

    #[test]
    fn settings_of_the_fleet_are_checked_and_a_mistake_is_named() {
        let error = |text: &str| Config::parse(text).unwrap_err();
        assert!(!Config::parse("[fleet]\nshare = 0.1").unwrap().own.fleet.enabled);
        assert!(error("[fleet]\nshare = 5").contains("share = 5: not a number from 0 to 1"));
        assert!(error("[fleet]\nshare = nan").contains("share"));
        assert!(error("[fleet]\nexchange = 'fleet'").contains("a whole path"));
        assert!(error("[fleet]\nenable = true").contains("unknown key `enable`"));
        for key in
            ["servers = ['tls://a:4222']", "credentials = 'host.creds'", "tenant = 'imas'", "merge = true"]
        {
            let why = error(&format!("[fleet]\nenabled = true\n{key}"));
            let name = key.split(' ').next().unwrap();
            assert!(
                why.contains(&format!("[fleet] {name}: ")) && why.contains("/etc/imas/fleet.toml"),
                "{why}"
            );
        }
        assert!(
            error("[fleet]\nenabled = 1").contains("enabled")
                || error("[fleet]\nenabled = 1").contains("bool")
        );
    }

    #[test]
    fn a_section_of_an_earlier_version_has_no_effect() {}

    #[test]
    fn overrides_are_those_of_the_program() {
        let text = "[overrides]\nobjective = 'memory'\n[program.'unit nginx.service']\nobjective = 'cpu'\nmax_memory_mib = 7";
        let config = Config::parse(text).unwrap();
        let program = |detail: &str| StoredProgram {
            id: 1,
            domain: imas_store::samples::Domain::Everybody,
            path: "/usr/sbin/nginx".into(),
            detail: detail.into(),
        };
        let of = |detail| match config.policy(&program(detail)) {
            Policy::Adaptive(settings) => (settings.objective, settings.max_memory_bytes),
            Policy::Paper => panic!("not asked for"),
        };
        assert_eq!(of("unit nginx.service"), (Objective::Cpu, Some(7 << 20)));
        assert_eq!(of(""), (Objective::Memory, None));
    }

    #[test]
    fn a_missing_file_is_the_defaults_and_a_misspelt_key_an_error() {
        assert_eq!(Config::read(Path::new("/nonexistent/imasd.toml"), true).unwrap(), Config::default());
        assert!(Config::parse("retests_s = 1").unwrap_err().contains("retests_s"));
        assert!(Config::parse("worth_cpu_s = '1'").unwrap_err().contains("worth_cpu_s"));
        assert!(Config::parse("worth_cpu_s = -1").is_err() && Config::parse("retest_s = 1e10").is_err());
        assert!(
            Config::parse("sample_after_s = 1e300").is_err()
                && Config::parse("sample_after_s = nan").is_err()
        );
        assert!(Config::parse("sample_after_s = 0").unwrap_err().contains("above 0"));
        assert!(Config::parse("short_at = 2").unwrap_err().contains("from 0 to 1"));
        assert!(Config::parse("sample_after_operations = 0").unwrap_err().contains("at least 1"));
        assert!(Config::parse("[overrides]\nmax_memory_mib = 0").unwrap_err().contains("at least 1"));
        assert!(Config::parse("[program.nginx]\nobjective = 'cpu'").unwrap_err().contains("whole path"));
        assert_eq!(Config::parse("retest_s = 0").unwrap().rules.limits(None).retest_s, 0.0);
        assert_eq!(Config::default().rules.limits(Some(5.0)).retest_s, 5.0);
    }
}
