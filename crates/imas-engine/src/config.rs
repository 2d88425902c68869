// SPDX-License-Identifier: Apache-2.0
//! The configuration files: `/etc/imas/imas.toml`, then `$XDG_CONFIG_HOME/imas/imas.toml`; the later wins key
//! by key.
//!
//! Last, programs that nobody is to change unasked: `packaging/exclusions.toml`, each row with its reason and its
//! evidence.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_cli::message::{self, Hinted};
use imas_core::Policy;
use imas_core::adaptive::Objective;
use imas_core::adaptive::settings::{self, ByProgram, Overrides};
use imas_core::paper::Limits;
use serde::Deserialize;

use crate::amounts;
use crate::daemon_status::DaemonStatus;
use crate::flags::{MemoryLimit, PolicyName, RulesArgs};
use crate::folders::{self, xdg};

/// The daemon's own file, unless its status names another.
const DAEMONS_FILE: &str = "/etc/imas/imasd.toml";

/// The keys of [`Config`]; the daemon's file has others beside them.
const KEYS: [&str; 6] = ["policy", "retest_s", "max_tests", "candidates", "overrides", "program"];

/// The settings that decisions depend on, of `imas` and of `imasd` alike. A flag wins over an environment
/// variable, that over a file.
#[derive(Debug, Clone, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Seconds between two tests of one candidate.
    pub retest_s: Option<f64>,
    /// Tests of each candidate under policy `paper`; `adaptive` stops by itself.
    pub max_tests: Option<u32>,
    /// Candidates that are tested, in place of the catalogue's default set.
    pub candidates: Option<Vec<String>>,
    /// The rules to decide by.
    pub policy: Option<PolicyName>,
    /// Objective and limits of every program that has no settings of its own.
    #[serde(default)]
    pub overrides: Overrides,
    /// Objective and limits of single programs, by path of the program or its script, or by unit.
    #[serde(default)]
    pub program: ByProgram,
    /// Commands that print how much work a program has done, by the same names as `program`.
    #[serde(skip)]
    pub work: BTreeMap<String, String>,
}

impl Config {
    /// The policy for the program at `path` with script `detail`: flags win over the program's own settings,
    /// those over the general ones.
    #[must_use]
    pub fn policy(&self, flags: &RulesArgs, path: &str, detail: &str) -> Policy {
        let configured = settings::of_program(self.overrides, &self.program, path, detail);
        let flagged = Overrides {
            objective: flags.objective.map(Objective::from),
            max_memory_mib: flags.max_memory.and_then(MemoryLimit::mebibytes),
            max_memory: flags.max_memory.and_then(MemoryLimit::more),
            max_cpu: flags.max_cpu,
            ..Overrides::default()
        };
        match flags.policy.or(self.policy).unwrap_or(PolicyName::Adaptive) {
            PolicyName::Paper => Policy::Paper,
            PolicyName::Adaptive => Policy::Adaptive(flagged.or(configured).settings()),
        }
    }

    /// Reads the files that exist.
    ///
    /// # Errors
    /// When one is wrong; the error names it.
    pub fn read() -> Result<Self> {
        let mut config = Self::default();
        for file in files() {
            config = config.overridden_by(Self::read_file(&file, Self::parse)?);
        }
        Ok(config)
    }

    /// Settings by which imasd decides: those keys of its own file that a decision depends on. The status of
    /// an imasd that runs below `run_dir` names that file, and the waiting time that its command line set.
    ///
    /// # Errors
    /// When the file is wrong; the error names it.
    pub fn of_the_daemon(run_dir: &Path) -> Result<Self> {
        let status = DaemonStatus::read(run_dir).unwrap_or_default();
        let file = if status.config.is_empty() { DAEMONS_FILE } else { &status.config };
        let file = Path::new(file);
        if std::fs::metadata(file).is_ok_and(|about| !about.is_file()) {
            return Err(Hinted::error(
                format!("{}: not a file", file.display()),
                "imasd names it as its configuration in state/status.json: 'systemctl restart imasd' has it written anew",
            ));
        }
        let config = Self::read_file(file, |text| Ok(Self::parse_daemons(text)?.0))?;
        Ok(Self { retest_s: status.retest_s.or(config.retest_s), ..config })
    }

    fn read_file(file: &Path, parse: fn(&str) -> Result<Self, String>) -> Result<Self> {
        folders::check(file)?;
        let read = match std::fs::read_to_string(file) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.to_string()),
        };
        let config = read.map_err(|why| {
            Hinted::error(
                format!("{}: {}", file.display(), why.trim_end()),
                "correct the file, or move it away: every key has a default",
            )
        })?;
        // /proc/self belongs to the effective user.
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
        Ok(if is_root { config.without_foreign_commands(file) } else { config })
    }

    /// Root runs the commands of the settings. So root takes none from a file that others could change, such
    /// as a user's own file under sudo.
    fn without_foreign_commands(mut self, file: &Path) -> Self {
        if let Some(why) = imas_linux::trust::untrusted(file, 0).filter(|_| !self.work.is_empty()) {
            message::warning(&format!("{}: 'work' is not used: {why}", file.display()));
            self.work.clear();
        }
        self
    }

    /// The daemon's file as the settings that decisions depend on, and a table of all other keys.
    ///
    /// # Errors
    /// When the file is no TOML or such a setting is wrong; the message says which.
    pub fn parse_daemons(text: &str) -> Result<(Self, toml::Table), String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let (common, own): (toml::Table, toml::Table) =
            table.into_iter().partition(|(key, _)| KEYS.contains(&key.as_str()));
        Ok((Self::of_table(common)?, own))
    }

    fn of_table(mut table: toml::Table) -> Result<Self, String> {
        let work = take_work(&mut table)?;
        let config: Self = table.try_into().map_err(|error| error.to_string())?;
        Self { work, ..config }.checked()
    }

    /// The command of the program at `path` with that detail (script, module, unit) that prints a counter of
    /// its work.
    #[must_use]
    pub fn work(&self, path: &str, detail: &str) -> Option<String> {
        self.work.get(detail).or_else(|| self.work.get(path)).cloned()
    }

    /// The file's text as settings, or what is wrong with it.
    fn parse(text: &str) -> Result<Self, String> {
        let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        if take_work(&mut table)?.is_empty() {
            // From the text itself: an error then has its line.
            return toml::from_str::<Self>(text).map_err(|error| error.to_string())?.checked();
        }
        Self::of_table(text.parse().map_err(|error: toml::de::Error| error.to_string())?)
    }

    /// The settings, if each is in its range, with the paths of programs resolved.
    fn checked(self) -> Result<Self, String> {
        if let Some(retest_s) = self.retest_s {
            amounts::check_seconds("retest_s", retest_s)?;
        }
        settings::check(self.overrides, &self.program)?;
        let program = imas_linux::program::by_real_path(self.program);
        Ok(Self { program, work: imas_linux::program::by_real_path(self.work), ..self })
    }

    fn overridden_by(self, later: Self) -> Self {
        Self {
            retest_s: later.retest_s.or(self.retest_s),
            max_tests: later.max_tests.or(self.max_tests),
            candidates: later.candidates.or(self.candidates),
            policy: later.policy.or(self.policy),
            overrides: later.overrides.or(self.overrides),
            program: joined(self.program, later.program),
            work: self.work.into_iter().chain(later.work).collect(),
        }
    }

    /// The paper's limits with what was configured.
    #[must_use]
    pub fn limits(&self, retest_flag: Option<f64>) -> Limits {
        let paper = Limits::default();
        Limits {
            max_tests: self.max_tests.unwrap_or(paper.max_tests),
            retest_s: retest_flag.or(self.retest_s).unwrap_or(paper.retest_s),
        }
    }
}

/// Takes the key `work` out of the tables of programs: a command, where all other keys are what a policy goes
/// by.
fn take_work(table: &mut toml::Table) -> Result<BTreeMap<String, String>, String> {
    let programs = table.get_mut("program").and_then(toml::Value::as_table_mut).into_iter().flatten();
    let mut commands = BTreeMap::new();
    for (name, settings) in programs {
        match settings.as_table_mut().and_then(|settings| settings.remove("work")) {
            None => {}
            Some(toml::Value::String(command)) => drop(commands.insert(name.clone(), command)),
            Some(_) => return Err(format!("[program.'{name}']: work: a command, in quotes")),
        }
    }
    Ok(commands)
}

fn joined(mut first: ByProgram, later: ByProgram) -> ByProgram {
    for (path, overrides) in later {
        let earlier = first.get(&path).copied().unwrap_or_default();
        first.insert(path, overrides.or(earlier));
    }
    first
}

/// The files in the order of reading.
#[must_use]
pub fn files() -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("/etc/imas/imas.toml")];
    files.extend(xdg("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("imas/imas.toml")));
    files
}

/// The list that this build carries.
const DEFAULT: &str = include_str!("../../../packaging/exclusions.toml");
/// Rows that the machine's operator adds.
const ADDED: &str = "/etc/imas/exclusions.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    #[serde(default)]
    exclude: Vec<Row>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// File names of executables; `*` at the end or the beginning stands for anything.
    names: Vec<String>,
    /// Why these executables are left alone.
    reason: String,
    /// Source of that, for people.
    #[serde(rename = "evidence")]
    _evidence: String,
}

/// The rows, ready to be asked.
#[derive(Debug)]
pub struct Exclusions {
    rows: Vec<Row>,
}

impl Exclusions {
    /// The built-in list and what the operator added.
    ///
    /// # Errors
    /// When the operator's file cannot be read or is no list of exclusions.
    pub fn read() -> Result<Self> {
        let mut rows = parse(DEFAULT).context("the built-in exclusions")?;
        match std::fs::read_to_string(ADDED) {
            Ok(text) => rows.extend(parse(&text).context(ADDED)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(ADDED),
        }
        Ok(Self { rows })
    }

    /// Why the executable is left alone.
    #[must_use]
    pub fn reason(&self, executable: &Path) -> Option<&str> {
        let name = executable.file_name()?.to_str()?;
        let row = self.rows.iter().find(|row| row.names.iter().any(|pattern| matches(pattern, name)))?;
        Some(&row.reason)
    }
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let file: File = toml::from_str(text)?;
    anyhow::ensure!(file.schema == 1, "schema {} is not known, only 1 is", file.schema);
    Ok(file.exclude)
}

fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) if pattern.len() >= 2 => name.contains(&pattern[1..pattern.len() - 1]),
        (Some(end), _) => name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        _ => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::ObjectiveName;

    #[test]
    fn later_files_and_flags_win_key_by_key() {
        let first: Config = toml::from_str("retest_s = 60\nmax_tests = 3").unwrap();
        let second: Config = toml::from_str("retest_s = 0").unwrap();
        let both = first.overridden_by(second);
        assert_eq!((both.limits(None).retest_s, both.limits(None).max_tests), (0.0, 3));
        assert_eq!(both.limits(Some(5.0)).retest_s, 5.0);
        assert_eq!(Config::default().limits(None), Limits::default());
    }

    #[test]
    fn the_sample_names_keys_that_exist_with_their_defaults() {
        let sample = include_str!("../../../packaging/etc/imas.toml").lines();
        let keys =
            sample.filter_map(|line| line.strip_prefix('#').filter(|key| !key.starts_with([' ', '#'])));
        let config = Config::parse(&keys.collect::<Vec<_>>().join("\n")).unwrap();
        assert_eq!(config.policy, Some(PolicyName::Adaptive));
        assert_eq!((config.retest_s, config.max_tests), (Some(3600.0), Some(5)));
        assert_eq!(config.limits(None), Limits::default());
        assert_eq!((config.candidates.is_some(), config.program.len()), (true, 2));
    }

    #[test]
    fn a_programs_own_overrides_win_over_the_general_ones_and_flags_over_both() {
        let text = "[overrides]\nobjective = 'memory'\nmax_memory_mib = 100\n[program.'/bin/x']\nobjective = 'cpu'\n";
        let config = Config::parse(text).unwrap();
        let settings = |flags: RulesArgs, path| match config.policy(&flags, path, "") {
            Policy::Adaptive(settings) => settings,
            Policy::Paper => panic!("not asked for"),
        };
        let own = settings(RulesArgs::default(), "/bin/x");
        assert_eq!((own.objective, own.max_memory_bytes), (Objective::Cpu, Some(100 << 20)));
        assert_eq!(settings(RulesArgs::default(), "/bin/y").objective, Objective::Memory);
        let flags = RulesArgs { objective: Some(ObjectiveName::Balanced), ..RulesArgs::default() };
        assert_eq!(settings(flags, "/bin/x").objective, Objective::Balanced);
        let paper = RulesArgs { policy: Some(PolicyName::Paper), ..RulesArgs::default() };
        assert_eq!(config.policy(&paper, "/bin/x", ""), Policy::Paper);
        assert!(Config::parse("[overrides]\ncpu_margin = 2").is_err());
        assert!(Config::parse("[program.x]\nobjektive = 'cpu'").is_err());
    }

    #[test]
    fn the_daemons_file_is_split_into_what_decisions_depend_on_and_the_rest() {
        let text = "worth_cpu_s = 1\nretest_s = 60\npolicy = 'paper'\n[overrides]\nobjective = 'cpu'\n[program.'unit x.service']\nmax_memory_mib = 5\n";
        let (config, own) = Config::parse_daemons(text).unwrap();
        assert_eq!(own.keys().collect::<Vec<_>>(), ["worth_cpu_s"]);
        assert_eq!((config.retest_s, config.policy), (Some(60.0), Some(PolicyName::Paper)));
        assert_eq!(config.overrides.objective, Some(Objective::Cpu));
        assert_eq!(config.program["unit x.service"].max_memory_mib, Some(5));
        for bad in ["nan", "1e300"] {
            assert!(
                Config::parse_daemons(&format!("retest_s = {bad}")).is_err(),
                "{bad}, as imas.toml refuses it"
            );
        }
    }

    #[test]
    fn the_running_daemon_names_its_file() {
        let run = tempfile::tempdir().unwrap();
        let file = run.path().join("other.toml");
        std::fs::write(&file, "retest_s = 60\nmax_tests = 3").unwrap();
        std::fs::create_dir(run.path().join("state")).unwrap();
        let read = |config: &Path, retest_s: Option<f64>| {
            let pid = std::process::id();
            let start_ticks = imas_linux::process::start_ticks(pid).unwrap();
            let status = serde_json::json!({"pid": pid, "start_ticks": start_ticks, "config": config, "retest_s": retest_s});
            std::fs::write(run.path().join("state/status.json"), status.to_string()).unwrap();
            Config::of_the_daemon(run.path())
        };
        let limits = read(&file, None).unwrap().limits(None);
        assert_eq!((limits.retest_s, limits.max_tests), (60.0, 3));
        assert_eq!(read(&file, Some(0.0)).unwrap().limits(None).retest_s, 0.0, "its command line wins");
        let absent = read(&run.path().join("no.toml"), None).unwrap();
        assert_eq!(absent, Config::default(), "it need not exist");
        assert!(read(run.path(), None).unwrap_err().to_string().contains("not a file"));
    }

    #[test]
    fn the_work_of_a_program_is_counted_by_a_command() {
        let unit = "[program.'unit x.service']\nwork = 'cat /run/x'\nobjective = 'memory'\n";
        let config = Config::parse(&format!("{unit}[program.'/bin/sh']\nwork = 'true'")).unwrap();
        assert_eq!(config.work("/bin/y", "unit x.service").as_deref(), Some("cat /run/x"));
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(config.work(shell.to_str().unwrap(), "").as_deref(), Some("true"), "by its real path");
        assert_eq!(config.work("/bin/y", ""), None);
        assert_eq!(config.program["unit x.service"].objective, Some(Objective::Memory));
        assert!(Config::parse("[program.'/bin/y']\nwork = 5").unwrap_err().contains("work: a command"));
        let (daemons, _) = Config::parse_daemons(unit).unwrap();
        assert_eq!(daemons.work.len(), 1);
    }

    #[test]
    fn root_takes_no_command_from_a_file_that_others_may_change() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("imas.toml");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        let config = || Config::parse("retest_s = 5\n[program.'unit x.service']\nwork = 'true'\n").unwrap();
        let cleared = config().without_foreign_commands(&file);
        assert_eq!((cleared.work.len(), cleared.retest_s), (0, Some(5.0)));
        // Root alone may change this file on any machine that runs these tests.
        assert_eq!(config().without_foreign_commands(Path::new("/usr/bin/env")), config());
    }

    #[test]
    fn a_misspelt_key_is_an_error() {
        assert!(Config::parse("retests = 60").is_err());
    }

    #[test]
    fn a_waiting_time_is_a_number_of_seconds() {
        for bad in ["nan", "inf", "-1", "1e300", "'60'"] {
            assert!(Config::parse(&format!("retest_s = {bad}")).is_err(), "{bad}");
        }
        assert_eq!(Config::parse("retest_s = 0").unwrap().retest_s, Some(0.0));
    }

    #[test]
    fn the_built_in_list_is_sound_and_gives_reasons() {
        let exclusions = Exclusions { rows: parse(DEFAULT).unwrap() };
        for left_alone in
            ["/usr/lib/systemd/systemd-journald", "/usr/bin/dpkg", "/usr/sbin/sshd", "/usr/bin/su"]
        {
            assert!(exclusions.reason(Path::new(left_alone)).is_some(), "{left_alone}");
        }
        for served in [
            "/usr/bin/python3.11",
            "/usr/bin/sqlite3",
            "/usr/sbin/nginx",
            "/usr/lib/postgresql/15/bin/postgres",
        ] {
            assert_eq!(exclusions.reason(Path::new(served)), None, "{served}");
        }
        assert!(exclusions.rows.iter().all(|row| row.reason.len() > 10 && row._evidence.len() > 3));
    }

    #[test]
    fn a_star_stands_for_anything() {
        assert!(
            matches("a*", "abc") && matches("*c", "abc") && matches("*b*", "abc") && matches("abc", "abc")
        );
        assert!(!matches("b*", "abc") && !matches("*b", "abc") && !matches("ab", "abc"));
    }
}
