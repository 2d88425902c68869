// SPDX-License-Identifier: Apache-2.0
//! Transparent huge pages (THP) of one program, as a candidate or part of one: prctl(2) before its start. Nothing is loaded,
//! so static programs and those of other C libraries can have it, too. Children inherit it.

use std::io;

use imas_trim::huge_pages::{self, ADVISED, NONE};
use serde::{Deserialize, Serialize};

/// File with the machine's mode.
const MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Huge pages that a program is to have, unlike others of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// No huge pages.
    Off,
    /// Huge pages that it asks for by madvise(2).
    Advised,
}

impl HugePages {
    /// Why it would change nothing on this machine, or cannot be had.
    #[must_use]
    pub fn obstacle(self) -> Option<String> {
        let modes = std::fs::read_to_string(MODE).unwrap_or_default();
        self.obstacle_in(&modes).map(str::to_owned).or_else(|| {
            let refused = Kept::of(Some(self)).err()?;
            Some(format!("the kernel refuses it ({refused}): Linux 6.18 has it"))
        })
    }

    fn obstacle_in(self, modes: &str) -> Option<&'static str> {
        let mode = modes.split('[').nth(1).and_then(|rest| rest.split(']').next());
        match (mode, self) {
            (Some("always"), _) | (Some("madvise"), Self::Off) => None,
            (Some("madvise"), Self::Advised) => {
                Some("the machine gives huge pages only where they are asked for")
            }
            (Some(_), _) => Some("the machine gives no huge pages"),
            (None, _) => Some("the kernel has no transparent huge pages"),
        }
    }

    /// The value of `MemoryTHP=` in a unit of systemd.
    #[must_use]
    pub fn of_systemd(self) -> &'static str {
        match self {
            Self::Off => "disable",
            Self::Advised => "madvise",
        }
    }
}

/// While it exists, this process has the huge pages of a program that it starts, and hands them on by fork and exec.
#[derive(Debug)]
pub(crate) struct Kept {
    before: Option<i32>,
}

impl Kept {
    /// None leaves this process as it is.
    pub(crate) fn of(wanted: Option<HugePages>) -> io::Result<Self> {
        let Some(wanted) = wanted else { return Ok(Self { before: None }) };
        let before = huge_pages::now();
        huge_pages::set(match wanted {
            HugePages::Off => NONE,
            HugePages::Advised => ADVISED,
        })?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.before.map(huge_pages::set); // it was so before
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::*;
    use crate::start_program::{ChildSetup, ProgramStart};
    use crate::variables::Variables;

    #[test]
    fn it_is_offered_where_the_mode_of_the_machine_lets_it_act() {
        let (always, madvise, never) = ("[always] madvise never", "always [madvise] never", "a b [never]");
        assert_eq!(HugePages::Off.obstacle_in(always), None);
        assert_eq!(HugePages::Advised.obstacle_in(always), None);
        assert_eq!(HugePages::Off.obstacle_in(madvise), None, "it acts on programs that ask for them");
        for (of, modes) in [(HugePages::Advised, madvise), (HugePages::Off, never), (HugePages::Off, "")] {
            assert!(of.obstacle_in(modes).is_some(), "{of:?} {modes}");
        }
    }

    /// Status of a program that ends with what PR_GET_THP_DISABLE (42) says.
    fn status(wanted: Option<HugePages>) -> Option<i32> {
        let mut variables = Variables::inherited();
        variables.huge_pages = wanted;
        let asks = "import ctypes, sys; sys.exit(10 + ctypes.CDLL(None).prctl(42, 0, 0, 0, 0))";
        let argv = ["python3", "-c", asks].map(OsString::from);
        let start = ProgramStart { file: Path::new("/usr/bin/python3"), argv: &argv, variables: &variables };
        start.spawn(&ChildSetup::default()).and_then(|child| child.wait()).ok()?.code()
    }

    #[test]
    fn a_child_has_it_and_the_next_one_does_not() {
        if !Path::new("/usr/bin/python3").exists() {
            return imas_testing::skipped("python3 is not installed");
        }
        let own = Some(10 + huge_pages::now());
        assert_eq!(status(Some(HugePages::Off)), Some(11));
        assert_eq!(status(None), own, "it is put back");
        if Kept::of(Some(HugePages::Advised)).is_err() {
            return imas_testing::skipped("this kernel has no PR_THP_DISABLE_EXCEPT_ADVISED");
        }
        assert_eq!(status(Some(HugePages::Advised)), Some(13));
        assert_eq!(status(None), own);
    }
}
