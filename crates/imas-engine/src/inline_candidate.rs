// SPDX-License-Identifier: Apache-2.0
//! A candidate that is typed and not in the catalogue: an allocator with settings, such as
//! `jemalloc?narenas:1,dirty_decay_ms:1000`, or one whose program is trimmed from outside, such as `glibc:arena1+trims`.

mod settings;

use std::collections::BTreeMap;

use anyhow::Result;
use imas_cli::message::Hinted;
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};

use crate::candidates::nearest;
use crate::context::Context;
use settings::Settings;

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
    match settings::complaint(&candidate) {
        None => Ok(candidate),
        Some(complaint) => Err(Hinted::error(
            format!("{name}: {} does not take that: {complaint}", candidate.allocator),
            "check the values of the settings",
        )),
    }
}

/// The allocator in the catalogue, or glibc's malloc, which is there without a library.
fn base_of(base: &str, context: &Context) -> Result<CatalogueCandidate> {
    if base == settings::GLIBC {
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
}
