// SPDX-License-Identifier: Apache-2.0
//! A candidate that is typed and not in the catalogue: an allocator with settings, such as
//! `jemalloc?narenas:1,dirty_decay_ms:1000`, or one whose program is trimmed from outside, such as `glibc:arena1+trims`.
//! Then the settings of allocators that can be typed, and how each is given to a program.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use ValueKind::{Count, Flag, Signed, Word};
use anyhow::Result;
use imas_cli::message::Hinted;
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};

use crate::candidates::nearest;
use crate::context::Context;

/// Sign between the allocator and its settings.
const SIGN: char = '?';

/// End of the name of a candidate whose program is trimmed from outside while it runs.
pub const TRIMS: &str = "+trims";

/// Whether a typed candidate has this name.
#[must_use]
pub fn is_typed(name: &str) -> bool {
    name.contains(SIGN) || name.ends_with(TRIMS)
}

/// The typed candidates among these names.
///
/// # Errors
/// When an allocator or a setting is not known, or a value is wrong; the error lists what is known.
pub fn inline_candidates(names: &[String], context: &Context) -> Result<Vec<CatalogueCandidate>> {
    names.iter().filter(|name| is_typed(name)).map(|name| inline_candidate(name, context)).collect()
}

/// The typed candidate of that name.
///
/// # Errors
/// Likewise.
pub fn inline_candidate(name: &str, context: &Context) -> Result<CatalogueCandidate> {
    match name.strip_suffix(TRIMS) {
        Some(base) => trimmed(name, base, context),
        None => with_settings(name, context),
    }
}

/// A trim reaches glibc's malloc alone.
fn trimmed(name: &str, base: &str, context: &Context) -> Result<CatalogueCandidate> {
    let of = match base.contains(SIGN) {
        true => with_settings(base, context)?,
        false => context.candidate(base)?.clone(),
    };
    if of.library.is_some() || of.runtime.is_some() {
        return Err(Hinted::error(
            format!("{name}: trims from outside reach glibc's malloc alone, and {base} is another candidate"),
            "system+trims and glibc:arena1+trims are such candidates",
        ));
    }
    let summary = format!("{base}, trimmed from outside while the program runs");
    Ok(CatalogueCandidate {
        name: name.to_owned(),
        summary,
        default: false,
        service_default: false,
        trims: true,
        ..of
    })
}

fn with_settings(name: &str, context: &Context) -> Result<CatalogueCandidate> {
    let (base, typed) = name.split_once(SIGN).unwrap_or((name, ""));
    let base = base_of(base, context)?;
    let settings = Settings::of(&base.allocator).ok_or_else(|| {
        Hinted::error(
            format!("{name}: no settings of {} are known", base.allocator),
            format!("settings are known of {}", Settings::allocators().join(", ")),
        )
    })?;
    let pairs = pairs(name, typed)?;
    check(name, &pairs, &settings)?;
    let withheld = imas_linux::catalogue::withheld(&base);
    let mut environment = base.environment.clone();
    settings.set(&pairs, &mut environment);
    let candidate = CatalogueCandidate {
        name: name.to_owned(),
        summary: format!("{} with settings of the command line", base.name),
        environment,
        default: false,
        withheld: withheld.map(|why| why.trim_start_matches("withheld: ").to_owned()),
        ..base
    };
    match complaint(&candidate) {
        None => Ok(candidate),
        Some(complaint) => Err(Hinted::error(
            format!("{name}: {} does not take that: {complaint}", candidate.allocator),
            "check the values of the settings",
        )),
    }
}

/// The allocator in the catalogue, or glibc's malloc, which is there without a library.
fn base_of(base: &str, context: &Context) -> Result<CatalogueCandidate> {
    if base == GLIBC {
        let system = context.candidate(SYSTEM)?.clone();
        return Ok(CatalogueCandidate { allocator: base.to_owned(), name: base.to_owned(), ..system });
    }
    context.candidate(base).cloned()
}

/// `a:1,b:2`, or with `=`.
fn pairs<'a>(name: &str, typed: &'a str) -> Result<BTreeMap<&'a str, &'a str>> {
    let pair = |word: &'a str| {
        let (key, value) = word.split_once([':', '=']).unwrap_or((word, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '|');
        let is_plain = !key.is_empty() && !value.is_empty() && format!("{key}{value}").chars().all(plain);
        is_plain.then_some((key, value)).ok_or_else(|| {
            Hinted::error(
                format!("{name}: '{word}' is no setting"),
                "write settings as 'jemalloc?narenas:1,dirty_decay_ms:1000'",
            )
        })
    };
    typed.split(',').map(pair).collect()
}

fn check(name: &str, pairs: &BTreeMap<&str, &str>, settings: &Settings) -> Result<()> {
    for (key, value) in pairs {
        let Some(kind) = settings.kind(key) else {
            let meant = nearest(key, settings.names());
            let meant = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
            let known: Vec<&str> = settings.names().collect();
            return Err(Hinted::error(
                format!("{name}: {key} is no setting that is known of {}", settings.allocator()),
                format!("{meant}known are {}", known.join(", ")),
            ));
        };
        if !kind.accepts(value) {
            return Err(Hinted::error(
                format!("{name}: {key} cannot be {value}"),
                format!("it is {}", kind.what()),
            ));
        }
    }
    Ok(())
}

/// glibc's malloc has settings and no entry of its own in the catalogue.
const GLIBC: &str = "glibc";

/// Type of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// A number from 0 on.
    Count,
    /// A number; -1 has a meaning of its own.
    Signed,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl ValueKind {
    pub(super) fn accepts(self, value: &str) -> bool {
        match self {
            Count => value.parse::<u64>().is_ok(),
            Signed => value.parse::<i64>().is_ok_and(|number| number >= -1),
            Flag => ["true", "false"].contains(&value),
            Word(words) => words.contains(&value),
        }
    }

    pub(super) fn what(self) -> String {
        match self {
            Count => "a number from 0 on".to_owned(),
            Signed => "a number from 0 on, or -1".to_owned(),
            Flag => "true or false".to_owned(),
            Word(words) => format!("one of {}", words.join(", ")),
        }
    }
}

/// How settings reach the allocator.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// `GLIBC_TUNABLES=glibc.malloc.KEY=VALUE:...`
    Tunables,
    /// `MALLOC_CONF=KEY:VALUE,...`
    Conf,
    /// `PREFIX_KEY=VALUE` each.
    Variables(&'static str),
}

type SettingKinds = &'static [(&'static str, ValueKind)];

const ON_GLIBC: SettingKinds = &[
    ("arena_max", Count),
    ("arena_test", Count),
    ("hugetlb", Count),
    ("mmap_max", Count),
    ("mmap_threshold", Count),
    ("mxfast", Count),
    ("tcache_count", Count),
    ("tcache_max", Count),
    ("tcache_unsorted_limit", Count),
    ("top_pad", Count),
    ("trim_threshold", Count),
];

const ON_JEMALLOC: SettingKinds = &[
    ("background_thread", Flag),
    ("cache_oblivious", Flag),
    ("dirty_decay_ms", Signed),
    ("dss", Word(&["disabled", "primary", "secondary"])),
    ("lg_extent_max_active_fit", Count),
    ("lg_tcache_max", Count),
    ("max_background_threads", Count),
    ("metadata_thp", Word(&["disabled", "auto", "always"])),
    ("muzzy_decay_ms", Signed),
    ("narenas", Count),
    ("oversize_threshold", Count),
    ("percpu_arena", Word(&["disabled", "percpu", "phycpu"])),
    ("retain", Flag),
    ("tcache", Flag),
    ("tcache_max", Count),
    ("thp", Word(&["default", "always", "never"])),
];

const ON_MIMALLOC: SettingKinds = &[
    ("allow_large_os_pages", Count),
    ("allow_thp", Count),
    ("arena_eager_commit", Count),
    ("arena_purge_mult", Count),
    ("arena_reserve", Count),
    ("disallow_arena_alloc", Count),
    ("generic_collect", Count),
    ("purge_decommits", Count),
    ("purge_delay", Signed),
    ("reserve_huge_os_pages", Count),
    ("use_numa_nodes", Count),
];

const ON_TCMALLOC: SettingKinds = &[
    ("aggressive_decommit", Count),
    ("disable_memory_release", Count),
    ("heap_limit_mb", Count),
    ("max_total_thread_cache_bytes", Count),
    ("release_rate", Count),
    ("skip_mmap", Count),
    ("skip_sbrk", Count),
    ("transfer_num_obj", Count),
];

const ALL: [(&str, Way, SettingKinds); 8] = [
    (GLIBC, Way::Tunables, ON_GLIBC),
    ("jemalloc", Way::Conf, ON_JEMALLOC),
    ("distro-jemalloc", Way::Conf, ON_JEMALLOC),
    ("mimalloc", Way::Variables("MIMALLOC_"), ON_MIMALLOC),
    ("mimalloc2", Way::Variables("MIMALLOC_"), ON_MIMALLOC),
    ("distro-mimalloc", Way::Variables("MIMALLOC_"), ON_MIMALLOC),
    ("tcmalloc", Way::Variables("TCMALLOC_"), ON_TCMALLOC),
    ("distro-tcmalloc", Way::Variables("TCMALLOC_"), ON_TCMALLOC),
];

/// The settings of one allocator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    allocator: &'static str,
    way: Way,
    known: SettingKinds,
}

impl Settings {
    pub(super) fn of(allocator: &str) -> Option<Self> {
        let (allocator, way, known) = *ALL.iter().find(|(name, _, _)| *name == allocator)?;
        Some(Self { allocator, way, known })
    }

    pub(super) fn allocators() -> Vec<&'static str> {
        ALL.iter().map(|(name, _, _)| *name).collect()
    }

    pub(super) fn allocator(&self) -> &'static str {
        self.allocator
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.known.iter().map(|(name, _)| *name)
    }

    pub(super) fn kind(&self, key: &str) -> Option<ValueKind> {
        self.known.iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind)
    }

    /// Adds the pairs to the environment; what the candidate in the catalogue has set already is kept, and
    /// the pairs win.
    pub(super) fn set(&self, pairs: &BTreeMap<&str, &str>, environment: &mut BTreeMap<String, String>) {
        match self.way {
            Way::Tunables => {
                let pairs = pairs.iter().map(|(key, value)| format!("glibc.malloc.{key}={value}"));
                append(environment, "GLIBC_TUNABLES", ":", pairs.collect());
            }
            Way::Conf => {
                let pairs = pairs.iter().map(|(key, value)| format!("{key}:{value}"));
                append(environment, "MALLOC_CONF", ",", pairs.collect());
            }
            Way::Variables(prefix) => {
                let pairs = pairs.iter().map(|(key, value)| (key.to_ascii_uppercase(), value));
                environment.extend(pairs.map(|(key, value)| (format!("{prefix}{key}"), (*value).to_owned())));
            }
        }
    }
}

/// The last of several values counts, for glibc and for jemalloc.
fn append(environment: &mut BTreeMap<String, String>, variable: &str, sign: &str, pairs: Vec<String>) {
    let before = environment.remove(variable);
    let all: Vec<String> = before.into_iter().chain(pairs).collect();
    environment.insert(variable.to_owned(), all.join(sign));
}

/// Complaint of the allocator itself about its settings when a program starts under it: jemalloc names what
/// it does not take.
fn complaint(candidate: &CatalogueCandidate) -> Option<String> {
    let library = candidate.library.as_ref().filter(|library| library.is_file())?;
    let mut start = Command::new("/bin/true");
    start.env_clear().envs(&candidate.environment).env("LD_PRELOAD", library).stdin(Stdio::null());
    let ended = start.output().ok()?;
    let text = String::from_utf8_lossy(&ended.stderr);
    let line = text.lines().find(|line| line.contains("Invalid conf")).map(|line| line.trim().to_owned());
    line.or_else(|| (!ended.status.success()).then(|| format!("a program ends with {}", ended.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_pairs() {
        let read = pairs("x", "a:1,b=two").unwrap();
        assert_eq!(read, BTreeMap::from([("a", "1"), ("b", "two")]));
        for wrong in ["", "a", "a:", ":1", "a:1,,b:2", "a:1 LD_PRELOAD=x", "a:$HOME"] {
            assert!(pairs("x", wrong).is_err(), "{wrong}");
        }
    }

    fn set(allocator: &str, before: &[(&str, &str)], pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let mut environment: BTreeMap<String, String> = before.iter().map(owned).collect();
        Settings::of(allocator).unwrap().set(&pairs.iter().copied().collect(), &mut environment);
        environment
    }

    #[test]
    fn each_allocator_gets_settings_in_its_own_format() {
        let glibc = set("glibc", &[], &[("arena_max", "1"), ("top_pad", "0")]);
        assert_eq!(glibc["GLIBC_TUNABLES"], "glibc.malloc.arena_max=1:glibc.malloc.top_pad=0");
        let jemalloc = set("jemalloc", &[("MALLOC_CONF", "narenas:4")], &[("narenas", "1")]);
        assert_eq!(jemalloc["MALLOC_CONF"], "narenas:4,narenas:1", "the last one counts");
        let mimalloc = set("mimalloc", &[("MIMALLOC_PURGE_DELAY", "0")], &[("purge_delay", "-1")]);
        assert_eq!(mimalloc["MIMALLOC_PURGE_DELAY"], "-1");
        assert!(Settings::of("hoard").is_none());
    }

    #[test]
    fn values_are_of_their_kind() {
        assert!(Count.accepts("65536") && !Count.accepts("-1") && !Count.accepts("64k"));
        assert!(Signed.accepts("-1") && !Signed.accepts("-2"));
        assert!(Flag.accepts("true") && !Flag.accepts("1"));
        assert!(Word(&["auto"]).accepts("auto") && Word(&["a", "b"]).what().ends_with("a, b"));
    }
}
