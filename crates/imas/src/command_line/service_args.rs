// SPDX-License-Identifier: Apache-2.0
//! Arguments of `advise`, `apply`, `unapply`, `trim` and `env`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use imas_engine::amounts::{duration, image_reference, size};
use imas_engine::flags::JsonArgs;

use crate::command_line::man;

/// At the end of `imas apply --help` and `imas unapply --help`, and of their man pages.
const JSON_DOCUMENT: &str = "With --json, standard output is one document, and messages go to standard error:\n\
\x20 {\"schema\": 1, \"services\": [...]}, each service with\n\
\x20 unit       its name with its suffix\n\
\x20 candidate  of the drop-in that is written or taken away, or null\n\
\x20 drop_in    path of the file\n\
\x20 change     add, replace, remove, or none: it is as wished, or left alone\n\
\x20 diff       the change as 'diff -u' prints it\n\
\x20 written    true: the change was made; false: it would be made with --write\n\
\x20 watch_s    how long the service is watched, seconds, or null\n\
\x20 restarted  whether the service was restarted\n\
\x20 problem    why the service was left alone or what failed, or null\n\n\
Where the command fails (exit status 2), there is no document.";

/// At the end of `imas apply --help` and of its man page.
const SETTINGS_OF_A_UNIT: &str = "Candidates that are settings of a language runtime (jvm:serial, go:gogc200, node:semi8 and others: 'imas list' says for whom) become \
variables of the unit, where its program has that runtime and takes them. What the unit sets itself wins: the candidate is not offered \
then, and a message says why. Programs of Go and .NET hand the variables on to what they start. A JVM of 17 and \
later gets its flags inside and prints nothing of them; one before 17 gets JAVA_TOOL_OPTIONS and prints \"Picked up JAVA_TOOL_OPTIONS\" at each \
start. Settings by that variable are written where --candidate names them, and never by --auto or unasked.";

#[derive(Debug, Clone, Args)]
#[command(after_long_help = format!("{SETTINGS_OF_A_UNIT}\n\n{JSON_DOCUMENT}"))]
#[command(group(ArgGroup::new("what").required(true).args(["unit", "auto"])))]
pub(crate) struct ApplyArgs {
    /// The service, as systemctl names it
    #[arg(value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    /// Every running service for whose program a better candidate than system is settled, or that holds much
    /// free memory while nothing is settled: shows them, and with --write changes and watches each
    #[arg(long, conflicts_with_all = ["candidate", "root"])]
    pub(crate) auto: bool,
    /// Write it, restart the service and watch it for this time (24h, 30m); take it back if the service fails
    /// more often or takes more memory than before [default with --auto: 24h]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "root")]
    pub(crate) watch: Option<f64>,
    /// This candidate, as 'imas list' names it (jemalloc, go:gogc200), or an allocator with settings as
    /// 'jemalloc?narenas:1' [default: what was learned about the unit's program]
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(man::candidates))]
    pub(crate) candidate: Option<String>,
    /// What the service starts in turn gets the settings of a language runtime too. An allocator it always gets
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) how: WriteArgs,
}

#[derive(Debug, Args)]
#[command(after_long_help = JSON_DOCUMENT)]
#[command(group(ArgGroup::new("what").required(true).args(["unit", "all"])))]
pub(crate) struct UnapplyArgs {
    /// The service, as systemctl names it
    #[arg(value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    /// Every service that `imas apply` changed
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) how: WriteArgs,
}

/// At the end of `imas trim --help` and of its man page.
const TRIM_DOCUMENT: &str = "Of each process on glibc's malloc, one waiting thread stands still for a few milliseconds, calls malloc_trim(0), and goes on as before. The other threads never stop. A process is left alone, with the reason, where that is not safe. \
Its owner may do this, and root; where kernel.yama.ptrace_scope is 1 or more, as on Ubuntu, root alone.\n\n\
With --json, standard output is one document:\n\
\x20 {\"schema\": 1, \"returned_bytes\": SUM, \"processes\": [...]}, each process with\n\
\x20 pid, program, unit, candidate\n\
\x20 returnable_bytes   what a trim would return, by a look into its heaps before, or null\n\
\x20 returned_bytes     what it gave back\n\
\x20 took_ms            time of the trim itself\n\
\x20 thread, stood_ms   the thread that stood still, and for how long; null where it was left alone\n\
\x20 why                why nothing was given back, or null\n\n\
Exit status 1: no process gave anything back.";

#[derive(Debug, Args)]
#[command(after_long_help = TRIM_DOCUMENT)]
#[command(group(ArgGroup::new("meant").required(true).args(["what", "all"])))]
pub(crate) struct TrimArgs {
    /// A process, a service as systemctl names it (all processes of its control group), or a container by its id (at least
    /// 12 digits)
    #[arg(value_name = "PID|UNIT|CONTAINER")]
    pub(crate) what: Option<String>,
    /// Every process that this user may trim
    #[arg(long)]
    pub(crate) all: bool,
    /// Leave those alone that have less to give back (0: none); without this 1M, with --all 32M
    #[arg(long, value_name = "SIZE", value_parser = size_or_none)]
    pub(crate) at_least: Option<u64>,
    /// Write a timer of systemd that trims the service each so often (at least a minute; --at-least is 32M then), or take
    /// it away: off
    #[arg(long, value_name = "TIME|off", value_parser = every, requires = "what", conflicts_with = "json")]
    pub(crate) every: Option<TrimEvery>,
    /// With --every: do it; without this only what would be done is shown
    #[arg(long, requires = "every")]
    pub(crate) write: bool,
    /// With --every: work on the system below this folder, an image for example; nothing is started
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "every")]
    pub(crate) root: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// How often a service is trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrimEvery {
    Off,
    Seconds(u64),
}

fn every(text: &str) -> Result<TrimEvery, String> {
    if text == "off" {
        return Ok(TrimEvery::Off);
    }
    match duration(text)?.as_secs() {
        0..60 => Err("less than a minute: what is free now is often wanted again".to_owned()),
        seconds => Ok(TrimEvery::Seconds(seconds)),
    }
}

fn size_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { size(text) }
}

/// How far to go.
#[derive(Debug, Clone, Args)]
pub(crate) struct WriteArgs {
    /// Do it; without this only what would be done is shown
    #[arg(long)]
    pub(crate) write: bool,
    /// Restart the service as well, if it runs
    #[arg(long, requires = "write", conflicts_with = "root")]
    pub(crate) now: bool,
    /// Work on the system below this folder, an image for example; nothing is reloaded
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// Form of the lines that set an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For `eval "$(imas env ...)"` in a POSIX shell
    Sh,
    /// A drop-in for a unit file
    Systemd,
    /// Lines for a Dockerfile
    Dockerfile,
    /// A service of a compose file
    Compose,
    /// A patch for a Deployment
    Kubernetes,
}

/// At the end of the help of `imas env` and `imas bundle`, and of their man pages.
pub(crate) const SETTINGS_OF_AN_IMAGE: &str = "Candidates that are settings of a language runtime (jvm:serial, go:gogc200, node:semi8 and others: 'imas list' says for whom) need no \
library, unless one of your own has an allocator beside them. They are variables alone, for any image, one with musl too. What the program \
starts inherits them. The image is not looked at: whether its runtime takes the settings, and whether the image sets the same variables, \
is for you to see. Settings that follow the memory limit (go:limit, node:limit) are refused, because the limit is the container's.";

#[derive(Debug, Args)]
#[command(after_long_help = SETTINGS_OF_AN_IMAGE)]
#[command(group(ArgGroup::new("what").required(true).args(["program", "candidate"])))]
pub(crate) struct EnvArgs {
    /// What was learned about this program: a path, a name found in PATH, or the number that `imas show`
    /// prints
    #[arg(value_name = "PROGRAM", add = ArgValueCompleter::new(man::programs))]
    pub(crate) program: Option<OsString>,
    /// This candidate, as 'imas list' names it (jemalloc, go:gogc200), or an allocator with settings as
    /// 'jemalloc?narenas:1'
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(man::candidates))]
    pub(crate) candidate: Option<String>,
    /// Form of the lines
    #[arg(long, value_enum, default_value_t = Format::Sh)]
    pub(crate) format: Format,
    /// Name of the compose service or of the container in the pod
    #[arg(long, default_value = "app", value_name = "NAME", value_parser = container_name)]
    pub(crate) name: String,
    /// For Kubernetes: an image that holds the libraries at its root, in place of the node's own folder
    #[arg(long, value_name = "REFERENCE", value_parser = image_reference)]
    pub(crate) image: Option<String>,
    /// With the paths of a bundle of 'imas bundle' that will be found there, in place of this installation's
    #[arg(long, value_name = "DIR", value_parser = whole_path)]
    pub(crate) bundle: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// A time with its unit, in seconds.
fn time(text: &str) -> Result<f64, String> {
    let wrong = || "a number with s, m, h or d, as in 24h".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let factor = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(wrong()),
    };
    imas_engine::amounts::seconds_above_0(number).map(|number| number * factor).map_err(|_| wrong())
}

/// A path from the root on, which the loader can be given.
pub(crate) fn whole_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let plain = path.is_absolute() && !text.contains([' ', ':', '$', ';', '\t', '\n']);
    plain.then_some(path).ok_or_else(|| "use a path from / on, without spaces, ':' and '$'".to_owned())
}

/// A name that is plain in YAML.
fn container_name(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let fits = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(good);
    if fits { Ok(text.to_owned()) } else { Err("use letters, digits, '-', '_' and '.'".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_needs_its_unit() {
        assert_eq!((time("24h"), time("90s"), time("0.5d")), (Ok(86400.0), Ok(90.0), Ok(43200.0)));
        for bad in ["", "h", "24", "-1h", "0h", "1w", "1\u{e9}"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
