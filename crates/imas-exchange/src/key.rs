// SPDX-License-Identifier: Apache-2.0
//! Which trials of different hosts are of the same program in the same environment.
//!
//! The environment's token has two versions: of four parts, and of five with the class of threads. Hosts
//! write the second one. The first one is read and folded as before, as another program.

use serde::{Deserialize, Serialize};

use crate::group::hash;

const LENGTH: usize = 26;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A program as every host names it: 26 characters of base 32 (a-z, 2-7), the first 130 bits of a SHA-256
/// over what identifies it. Paths and names do not leave the host.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[serde(try_from = "String", into = "String")]
pub struct ProgramKey(String);

/// Why a text is no key.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("not a key: {LENGTH} characters of a-z and 2-7 are expected")]
pub struct BadKey;

impl ProgramKey {
    /// The key of a program with this identity: `kind` names what the parts are (`build-id`, `package`,
    /// `script`).
    pub fn new(kind: &str, parts: &[&str]) -> Self {
        Self(letters(&hash(&[&[kind][..], parts].concat())))
    }

    /// The 26 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The first 130 bits, five a character.
fn letters(bytes: &[u8]) -> String {
    let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
    let letter = |at: usize| (0..5).fold(0, |value, i| value << 1 | usize::from(bit(5 * at + i)));
    (0..LENGTH).map(|at| char::from(ALPHABET[letter(at)])).collect()
}

impl TryFrom<String> for ProgramKey {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Self, BadKey> {
        let is_key = text.len() == LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte));
        if is_key { Ok(Self(text)) } else { Err(BadKey) }
    }
}

impl From<ProgramKey> for String {
    fn from(key: ProgramKey) -> Self {
        key.0
    }
}

/// Properties that must be equal for figures to be pooled.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Environment {
    /// Architecture as `uname -m` prints it.
    pub architecture: String,
    /// Size of a page in bytes.
    pub page_bytes: u32,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: String,
    /// CPUs that the program may use: the greatest power of two that is not above their number, at most 64.
    pub cpus: u32,
    /// How many threads of the program allocate; absent where an IMAS without such classes wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadsClass>,
}

/// How many threads of a program ever allocated.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[serde(rename_all = "lowercase")]
pub enum ThreadsClass {
    /// One: allocators need no locks.
    One,
    /// 2 to [`MOST_OF_FEW`].
    Few,
    /// More.
    Many,
}

/// Greatest number of threads that is few.
pub const MOST_OF_FEW: u32 = 8;

impl ThreadsClass {
    const ALL: [Self; 3] = [Self::One, Self::Few, Self::Many];

    /// The class of a number of threads; 0 is taken as 1.
    pub fn of(threads: u32) -> Self {
        match threads {
            0..=1 => Self::One,
            2..=MOST_OF_FEW => Self::Few,
            _ => Self::Many,
        }
    }

    /// The class that most runs are in; of two that as many are in, the greater one. None without runs.
    /// `runs` are numbers of threads, and how many runs had each.
    pub fn of_most(runs: &[(u32, u32)]) -> Option<Self> {
        let count = |class: Self| {
            runs.iter().filter(|run| Self::of(run.0) == class).map(|run| u64::from(run.1)).sum()
        };
        let counts: [u64; 3] = Self::ALL.map(count);
        Self::ALL
            .into_iter()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .max_by_key(|(_, count)| *count)
            .map(|it| it.0)
    }

    fn word(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Few => "few",
            Self::Many => "many",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.word() == word)
    }
}

impl Environment {
    /// A token of a subject, as `x86_64-4096-madvise-8-few`. What is not a letter, a digit or `_` becomes
    /// `_`.
    pub fn token(&self) -> String {
        let plain = |text: &str| -> String {
            text.chars().take(24).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
        };
        let Self { architecture, page_bytes, huge_pages, cpus, threads } = self;
        let begin = format!("{}-{page_bytes}-{}-{cpus}", plain(architecture), plain(huge_pages));
        threads.map_or_else(|| begin.clone(), |threads| format!("{begin}-{}", threads.word()))
    }

    /// The environment of a token; None where it is none.
    pub fn of_token(token: &str) -> Option<Self> {
        let mut parts = token.split('-');
        let environment = Self {
            architecture: parts.next()?.to_owned(),
            page_bytes: parts.next()?.parse().ok()?,
            huge_pages: parts.next()?.to_owned(),
            cpus: parts.next()?.parse().ok()?,
            threads: match parts.next() {
                Some(word) => Some(ThreadsClass::of_word(word)?),
                None => None,
            },
        };
        let is_whole = parts.next().is_none() && environment.token() == token;
        (is_whole && environment.is_plausible()).then_some(environment)
    }

    /// Whether a host could report this environment.
    pub fn is_plausible(&self) -> bool {
        let is_word = |text: &str| {
            (1..=24).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
        };
        let is_page = self.page_bytes.is_power_of_two() && (1 << 10..=1 << 24).contains(&self.page_bytes);
        let is_class = self.cpus.is_power_of_two() && self.cpus <= 64;
        is_word(&self.architecture) && is_word(&self.huge_pages) && is_page && is_class
    }
}

/// The class of a number of CPUs, as [`Environment::cpus`].
pub fn class_of_cpus(cpus: usize) -> u32 {
    let cpus = u32::try_from(cpus.clamp(1, 64)).unwrap_or(64);
    1 << cpus.ilog2()
}

/// The subject of a program in an environment, `PROGRAM.ENVIRONMENT`.
pub fn subject(program: &ProgramKey, environment: &Environment) -> String {
    format!("{}.{}", program.as_str(), environment.token())
}

/// Program and environment of a subject; None where it is none.
pub fn of_subject(subject: &str) -> Option<(ProgramKey, Environment)> {
    let (program, token) = subject.split_once('.')?;
    Some((ProgramKey::try_from(program.to_owned()).ok()?, Environment::of_token(token)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_the_alphabet_and_read_back() {
        let key = ProgramKey::new("build-id", &["0123abcd"]);
        assert_eq!(ProgramKey::try_from(key.as_str().to_owned()), Ok(key.clone()));
        assert_ne!(key, ProgramKey::new("script", &["0123abcd"]));
        assert_ne!(ProgramKey::new("a", &["bc", "d"]), ProgramKey::new("a", &["b", "cd"]));
        assert_eq!(ProgramKey::try_from("../../etc/passwd".to_owned()), Err(BadKey));
    }

    #[test]
    fn letters_are_base_32_of_rfc_4648() {
        assert!(letters(b"foobar").starts_with("mzxw6ytboi"));
    }

    fn environment(huge_pages: &str, threads: Option<ThreadsClass>) -> Environment {
        let (architecture, huge_pages) = ("x86_64".into(), huge_pages.into());
        Environment { architecture, page_bytes: 4096, huge_pages, cpus: 8, threads }
    }

    #[test]
    fn a_subject_reads_back() {
        let program = ProgramKey::new("build-id", &["ab"]);
        let subject = subject(&program, &environment("madvise", Some(ThreadsClass::Few)));
        assert!(subject.ends_with(".x86_64-4096-madvise-8-few"), "{subject}");
        assert_eq!(of_subject(&subject), Some((program, environment("madvise", Some(ThreadsClass::Few)))));
        let wrong = ["-8", "-few", "4096"].into_iter().zip(["-7", "-some", "04096"]);
        let wrong: Vec<String> = wrong.map(|(part, to)| subject.replace(part, to)).collect();
        for bad in wrong.iter().map(String::as_str).chain(["", ".", "a.b", &format!("{subject}-few")]) {
            assert_eq!(of_subject(bad), None, "{bad}");
        }
    }

    #[test]
    fn keys_without_a_class_of_threads_are_read_as_programs_of_their_own() {
        let program = ProgramKey::new("build-id", &["ab"]);
        let before = format!("{}.x86_64-4096-madvise-8", program.as_str());
        let read = of_subject(&before).unwrap();
        assert_eq!((read.1.threads, subject(&read.0, &read.1)), (None, before));
        let text = r#"{"architecture":"x86_64","page_bytes":4096,"huge_pages":"madvise","cpus":8}"#;
        assert_eq!(serde_json::from_str::<Environment>(text).unwrap(), read.1);
        assert_eq!(serde_json::to_string(&read.1).unwrap(), text);
        let now = environment("madvise", Some(ThreadsClass::Many));
        let text = serde_json::to_string(&now).unwrap();
        assert!(text.contains(r#""threads":"many""#), "{text}");
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), now);
    }

    #[test]
    fn classes_of_threads() {
        use ThreadsClass::{Few, Many, One};
        assert_eq!([0, 1, 2, 8, 9, u32::MAX].map(ThreadsClass::of), [One, One, Few, Few, Many, Many]);
        assert_eq!(ThreadsClass::of_most(&[]), None);
        assert_eq!(ThreadsClass::of_most(&[(1, 3), (2, 1), (8, 1)]), Some(One));
        assert_eq!(ThreadsClass::of_most(&[(1, 2), (4, 1), (5, 1)]), Some(Few));
        assert_eq!(ThreadsClass::of_most(&[(1, 2), (40, 1), (50, 2)]), Some(Many));
    }

    #[test]
    fn classes_of_cpus() {
        assert_eq!([0, 1, 2, 3, 12, 64, 500].map(class_of_cpus), [1, 1, 2, 2, 8, 64, 64]);
    }

    #[test]
    fn a_subject_is_two_tokens() {
        let subject = subject(&ProgramKey::new("build-id", &["ab"]), &environment("ma d.v>*", None));
        assert_eq!(subject.split('.').count(), 2);
        assert!(subject.ends_with(".x86_64-4096-ma_d_v__-8"), "{subject}");
    }
}
