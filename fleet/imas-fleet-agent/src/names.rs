// SPDX-License-Identifier: Apache-2.0
//! The names of stream, bucket, subjects and hosts on the server.
//!
//! A host publishes at `imas.t.1.PROGRAM.ENVIRONMENT.HOST`, and the server lets it use no other HOST. So a
//! reader sees whether a payload was sent by the host that it names. The fold depends on that: a group of
//! hosts keeps the figures of the one with the lowest hash, and a host that could choose its name freely
//! could be in every group. The price is a subject for each program and host that reported in the stream's
//! time, about 1 kB of memory on each server.

use imas_exchange::ProgramKey;

/// The stream of aggregates.
pub const STREAM: &str = "IMAS_AGGREGATES";
/// The bucket of statistics.
pub const BUCKET: &str = "IMAS_STATISTICS";
/// The stream below the bucket.
pub const BUCKET_STREAM: &str = "KV_IMAS_STATISTICS";
/// Begin of the subjects of aggregates. The number is the version of the payload.
pub const AGGREGATES: &str = "imas.t.1";
/// Begin of the subjects to which statistics are republished.
pub const DECISIONS: &str = "imas.d.1";
/// Begin of the subjects at which mergers publish that they live.
pub const MERGERS: &str = "imas.m.1";
/// The token of a host of this name on the bus: 26 characters that do not show the name.
pub fn host_token(name: &str) -> String {
    ProgramKey::new("host", &[name]).into()
}

/// Whether the text can be a host's token.
pub fn is_host_token(text: &str) -> bool {
    ProgramKey::try_from(text.to_owned()).is_ok()
}

/// Subject at which a host publishes an aggregate of `PROGRAM.ENVIRONMENT`.
pub fn aggregate_subject(subject: &str, host: &str) -> String {
    format!("{AGGREGATES}.{subject}.{host}")
}

/// Subjects of all aggregates of a host, as a filter.
pub fn subjects_of_host(host: &str) -> String {
    format!("{AGGREGATES}.*.*.{host}")
}

/// Subject at which the statistics of `PROGRAM.ENVIRONMENT` are written.
pub fn statistics_subject(subject: &str) -> String {
    format!("$KV.{BUCKET}.{subject}")
}

/// `PROGRAM.ENVIRONMENT` of a subject below `begin`; `None` where it is none of ours.
pub fn program_and_environment(begin: &str, subject: &str) -> Option<String> {
    let mut tokens = subject.strip_prefix(begin)?.strip_prefix('.')?.split('.');
    let (program, environment) = (tokens.next()?, tokens.next()?);
    is_subject(program, environment).then(|| format!("{program}.{environment}"))
}

/// `PROGRAM.ENVIRONMENT` and the host of an aggregate's subject; `None` where it is none of ours.
pub fn program_and_host(subject: &str) -> Option<(String, String)> {
    let host = subject.rsplit_once('.').map(|(_, host)| host).filter(|host| is_host_token(host))?;
    Some((program_and_environment(AGGREGATES, subject)?, host.to_owned()))
}

/// Whether the text is a subject as [`imas_exchange::key::subject`] makes it.
pub fn is_plain_subject(text: &str) -> bool {
    text.split_once('.').is_some_and(|(program, environment)| is_subject(program, environment))
}

fn is_subject(program: &str, environment: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    ProgramKey::try_from(program.to_owned()).is_ok()
        && (1..=80).contains(&environment.len())
        && environment.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_taken_apart_and_others_are_none_of_ours() {
        let key = host_token("x");
        let plain = format!("{key}.x86_64-4096-madvise-8");
        assert!(is_plain_subject(&plain));
        let sent = aggregate_subject(&plain, &key);
        assert_eq!(program_and_environment(AGGREGATES, &sent), Some(plain.clone()));
        assert_eq!(program_and_host(&sent), Some((plain.clone(), key.clone())));
        assert_eq!(program_and_host(&format!("{AGGREGATES}.{plain}.h1")), None);
        assert_eq!(program_and_environment(DECISIONS, &format!("imas.d.1.{plain}")), Some(plain.clone()));
        for wrong in ["imas.t.1.a.b.3", "imas.t.10.a.b", "", "imas.t.1"] {
            assert_eq!(program_and_environment(AGGREGATES, wrong), None, "{wrong}");
        }
        for wrong in [format!("{key}."), format!("{key}.*"), format!("{key}.a.b"), format!("{key}.>")] {
            assert!(!is_plain_subject(&wrong), "{wrong}");
        }
    }
}
