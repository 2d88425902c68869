// SPDX-License-Identifier: Apache-2.0
//! The variables of a process, as the array that the kernel hands to a program: in their order, with a name
//! twice, with entries that have no `=`. A map would lose all of that.

use std::ffi::{CString, NulError, OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use crate::huge_pages::HugePages;

/// Variable that the command's `sigpipe.c` sets if SIGPIPE was ignored at its start. No program gets it.
pub const SIGPIPE_IGNORED: &str = "IMAS_SIGPIPE_IGNORED";
/// Name under which the command's `odd_entries.c` shows an entry that is no variable. No program gets it.
const ODD_ENTRY: &str = "IMAS_ODD_ENTRY";

/// Variables in the order of their entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables {
    /// Name and value; without a value an entry is one that has no `=` behind a name.
    entries: Vec<(OsString, Option<OsString>)>,
    /// Huge pages of the program beside its variables; None: as the machine is set.
    pub huge_pages: Option<HugePages>,
}

impl Variables {
    /// No variables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The variables that this process was started with.
    #[must_use]
    pub fn inherited() -> Self {
        let ours = std::env::vars_os().filter(|(name, _)| name != SIGPIPE_IGNORED);
        let entry = |(name, value): (OsString, OsString)| {
            if name == ODD_ENTRY { (value, None) } else { (name, Some(value)) }
        };
        Self { entries: ours.map(entry).collect(), huge_pages: None }
    }

    /// Value of the first entry of that name: the one that getenv finds.
    #[must_use]
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsString> {
        self.iter().find(|(found, _)| *found == name.as_ref()).map(|(_, value)| value)
    }

    /// Values of every entry of that name.
    pub fn values<'a>(&'a self, name: &'a OsStr) -> impl DoubleEndedIterator<Item = &'a OsString> {
        self.iter().filter(move |(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Whether there is an entry of that name.
    #[must_use]
    pub fn contains_key(&self, name: impl AsRef<OsStr>) -> bool {
        self.get(name).is_some()
    }

    /// Sets a value in the place of the first entry of that name, else behind all others. Returns the value
    /// that was there.
    pub fn insert(&mut self, name: OsString, value: OsString) -> Option<OsString> {
        let first = self.entries.iter_mut().find(|(found, old)| *found == name && old.is_some());
        match first {
            Some((_, old)) => old.replace(value),
            None => {
                self.entries.push((name, Some(value)));
                None
            }
        }
    }

    /// Sets every entry of that name to what `value` makes of its value. Returns the values that were there.
    pub fn replace_each(&mut self, name: &OsStr, value: impl Fn(&OsStr) -> OsString) -> Vec<OsString> {
        let all = self.entries.iter_mut().filter(|(found, _)| found == name);
        let replace = |(_, old): &mut (OsString, Option<OsString>)| {
            let new = value(old.as_deref()?);
            old.replace(new)
        };
        all.filter_map(replace).collect()
    }

    /// Adds an entry behind all others, whether the name is there already or not.
    pub fn push(&mut self, name: OsString, value: OsString) {
        self.entries.push((name, Some(value)));
    }

    /// Removes every entry of that name.
    pub fn remove(&mut self, name: impl AsRef<OsStr>) {
        self.retain(|found, _| found != name.as_ref());
    }

    /// Removes everything, entries without `=` too.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Keeps the variables for which `keep` is true, and all entries without `=`.
    pub fn retain(&mut self, mut keep: impl FnMut(&OsStr, &OsStr) -> bool) {
        self.entries.retain(|(name, value)| value.as_ref().is_none_or(|value| keep(name, value)));
    }

    /// Names and values, without the entries that have no `=`.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&OsString, &OsString)> {
        self.entries.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }

    /// Names, as often as they are there.
    pub fn keys(&self) -> impl Iterator<Item = &OsString> {
        self.iter().map(|(name, _)| name)
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The array for execve.
    ///
    /// # Errors
    /// When a value has a zero byte in it.
    pub fn array(&self) -> Result<Vec<CString>, NulError> {
        let text = |(name, value): &(OsString, Option<OsString>)| {
            let mut text = name.clone();
            if let Some(value) = value {
                text.push("=");
                text.push(value);
            }
            CString::new(text.into_vec())
        };
        self.entries.iter().map(text).collect()
    }
}

impl Extend<(OsString, OsString)> for Variables {
    fn extend<T: IntoIterator<Item = (OsString, OsString)>>(&mut self, pairs: T) {
        for (name, value) in pairs {
            self.insert(name, value);
        }
    }
}

/// Variables of these pairs, each name once: a later value replaces an earlier one.
impl FromIterator<(OsString, OsString)> for Variables {
    fn from_iter<T: IntoIterator<Item = (OsString, OsString)>>(pairs: T) -> Self {
        let mut variables = Self::new();
        variables.extend(pairs);
        variables
    }
}

impl<const N: usize> From<[(OsString, OsString); N]> for Variables {
    fn from(pairs: [(OsString, OsString); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl std::ops::Index<&OsStr> for Variables {
    type Output = OsString;

    /// # Panics
    /// When there is no variable of that name.
    #[expect(clippy::expect_used, reason = "as for a map")]
    fn index(&self, name: &OsStr) -> &OsString {
        self.get(name).expect("a variable of that name")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd() -> Variables {
        let entry = |name: &str, value: Option<&str>| (name.into(), value.map(OsString::from));
        Variables {
            huge_pages: None,
            entries: vec![
                entry("Z", Some("1")),
                entry("MODE", Some("first")),
                entry("no_equals_sign", None),
                entry("A", Some("2")),
                entry("MODE", Some("second")),
                entry("=x", None),
            ],
        }
    }

    fn texts(variables: &Variables) -> Vec<String> {
        variables.array().unwrap().iter().map(|text| text.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_array_is_the_one_that_was_there() {
        assert_eq!(texts(&odd()), ["Z=1", "MODE=first", "no_equals_sign", "A=2", "MODE=second", "=x"]);
        assert_eq!(odd().get("MODE").unwrap(), "first");
        assert!(!odd().contains_key("no_equals_sign"));
    }

    #[test]
    fn a_change_is_made_in_place() {
        let mut variables = odd();
        assert_eq!(variables.insert("MODE".into(), "new".into()), Some("first".into()));
        assert_eq!(variables.insert("B".into(), "3".into()), None);
        variables.remove("Z");
        assert_eq!(texts(&variables), ["MODE=new", "no_equals_sign", "A=2", "MODE=second", "=x", "B=3"]);
        let was =
            variables.replace_each(OsStr::new("MODE"), |old| [OsStr::new("x"), old].into_iter().collect());
        assert_eq!(was, ["new", "second"]);
        assert_eq!(texts(&variables)[..4], ["MODE=xnew", "no_equals_sign", "A=2", "MODE=xsecond"]);
    }
}
