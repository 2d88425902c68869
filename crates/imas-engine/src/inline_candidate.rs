// SPDX-License-Identifier: Apache-2.0
//! A candidate that is typed and not in the catalogue: an allocator with settings, such as
//! `jemalloc?narenas:1,dirty_decay_ms:1000`.

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

/// Whether the name has settings in it.
#[must_use]
pub fn has_settings(name: &str) -> bool {
    name.contains(SIGN)
}

/// The candidates among these names that have settings in them.
///
/// # Errors
/// When an allocator or a setting is not known, or a value is wrong; the error lists what is known.
pub fn inline_candidates(names: &[String], context: &Context) -> Result<Vec<CatalogueCandidate>> {
    names.iter().filter(|name| has_settings(name)).map(|name| inline_candidate(name, context)).collect()
}

/// The candidate of a name with settings in it.
///
/// # Errors
/// Likewise.
pub fn inline_candidate(name: &str, context: &Context) -> Result<CatalogueCandidate> {
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
        give_back: settings::gives_back(&pairs).unwrap_or(base.give_back),
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
