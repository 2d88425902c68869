// SPDX-License-Identifier: Apache-2.0
//! Variables as they were before IMAS changed them: its own notes say what was there (`abi/imas_abi.h`).

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use imas_abi::env::{ALONE, FOLLOW, JVM_FLAGS, JVM_YIELDS, PAD, PAGE, SETTINGS, TREE, UNSET, WAS};

use crate::user_preloads;
use crate::variables::Variables;

/// The variables with what the notes say in place of ours, and without the notes.
#[must_use]
pub fn undone(changed: &Variables) -> Variables {
    let mut variables = changed.clone();
    let unset = changed.get(UNSET).cloned().unwrap_or_default();
    for name in unset.as_bytes().split(|&byte| byte == b':') {
        variables.remove(OsStr::from_bytes(name));
    }
    for name in changed.keys() {
        noted(name).into_iter().for_each(|name| variables.remove(name));
    }
    // A name may have had several entries.
    for (name, value) in changed.iter().filter_map(|(note, value)| Some((noted(note)?, value))) {
        variables.push(name.to_owned(), value.clone());
    }
    variables.retain(|name, _| !is_ours(name));
    variables
}

/// Name of the variable whose former value a note of that name has.
fn noted(name: &OsStr) -> Option<&OsStr> {
    name.as_bytes().strip_prefix(WAS.as_bytes()).map(OsStr::from_bytes)
}

/// The variables without those that a start above with `--follow` set for its children: its allocator would
/// serve behind our libraries, in a trial of another candidate too. An LD_PRELOAD that is set anew stays.
pub(crate) fn unfollowed(inherited: &Variables) -> Cow<'_, Variables> {
    let is_followed = inherited.get(FOLLOW).is_some_and(|value| value == "1");
    match is_followed && user_preloads::begins_with_ours(inherited) {
        true => Cow::Owned(undone(inherited)),
        false => Cow::Borrowed(inherited),
    }
}

/// Whether it is a variable that launchers above us left for their own process.
pub(crate) fn is_ours(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let exact = [PAGE, FOLLOW, ALONE, TREE, UNSET, PAD, SETTINGS, JVM_FLAGS, JVM_YIELDS];
    exact.iter().any(|ours| bytes == ours.as_bytes()) || bytes.starts_with(WAS.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        let mut variables = Variables::new();
        pairs.iter().for_each(|(name, value)| variables.push(name.into(), value.into()));
        variables
    }

    #[test]
    fn what_a_start_above_set_for_its_children_is_undone() {
        let above = variables(&[
            ("LD_PRELOAD", "/l/libimas-guard.so:/l/je.so:/x.so"),
            ("CONF", "a"),
            ("HOME", "/h"),
            ("IMAS_WAS_LD_PRELOAD", "/x.so"),
            ("IMAS_UNSET", "CONF"),
            ("IMAS_FOLLOW", "1"),
        ]);
        assert_eq!(*unfollowed(&above), variables(&[("HOME", "/h"), ("LD_PRELOAD", "/x.so")]));
        let anew = variables(&[("LD_PRELOAD", "/y.so"), ("IMAS_UNSET", "LD_PRELOAD"), ("IMAS_FOLLOW", "1")]);
        assert_eq!(*unfollowed(&anew), anew);
    }
}
