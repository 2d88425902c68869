// SPDX-License-Identifier: Apache-2.0
//! Is IMAS active in this process? Which allocator serves it, and who set that, in words.

use std::path::Path;

use imas_linux::catalogue::SYSTEM;
use imas_linux::environment::{GUARD, HOOK};
use imas_linux::library_name::{CLibrary, former_path};
use imas_linux::running::Running;
use imas_linux::serving::candidate::RealCandidates;
use imas_linux::serving::chooser::{Choice, Chooser};
use serde::Serialize;

/// The answer for one process.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Active {
    is_active: bool,
    by: Chooser,
    /// The candidate or file that serves; absent where neither is visible.
    allocator: Option<String>,
    /// The answer as one line.
    pub(crate) sentence: String,
}

impl Active {
    pub(crate) fn of(running: &Running, candidates: &RealCandidates) -> Self {
        let candidate = running.name_of_candidate(candidates);
        let choice = Choice::of(running);
        let mut active = match (choice.by, &choice.file) {
            (by @ (Chooser::Trial | Chooser::Guard), _) => Self::ours(by, candidate),
            (Chooser::Unknown, _) => Self::unknown(),
            (by, Some(file)) => Self::of_a_file(running, (by, file), choice.preloader),
            (_, None) => Self::of_the_c_library(running, candidate),
        };
        if running.files().has_replaced_library() {
            active.sentence +=
                "; libraries of it were replaced since, and it keeps the former ones until it starts again";
        }
        active
    }

    fn ours(by: Chooser, candidate: Option<&str>) -> Self {
        let serves = candidate.unwrap_or("glibc's malloc, as 'system' or with settings,");
        let how = match by {
            Chooser::Trial => format!("in a trial ({HOOK} counts its calls)"),
            _ => format!("set by IMAS for production ({GUARD})"),
        };
        let sentence = format!("is IMAS active here: yes, {serves} serves, {how}");
        Self { is_active: true, by, allocator: candidate.map(str::to_owned), sentence }
    }

    fn unknown() -> Self {
        let sentence =
            "is IMAS active here: no, and what serves is not known: a file of the process does not answer"
                .to_owned();
        Self { is_active: false, by: Chooser::Unknown, allocator: None, sentence }
    }

    fn of_a_file(running: &Running, (by, file): (Chooser, &Path), preloader: Option<&str>) -> Self {
        let how = match preloader {
            Some(preloader) => format!("preloaded by {preloader} and not by IMAS"),
            None if file == former_path(&running.program.path) => "the program's own allocator".to_owned(),
            None => "which the program has loaded itself".to_owned(),
        };
        let sentence = format!("is IMAS active here: no, {} serves, {how}", file.display());
        Self { is_active: false, by, allocator: Some(file.display().to_string()), sentence }
    }

    fn of_the_c_library(running: &Running, candidate: Option<&str>) -> Self {
        let has_glibc = running.files().c_library() == Some(CLibrary::Glibc);
        let serves = match candidate {
            _ if !has_glibc => {
                "the program is static, or its C library is not glibc: nothing is preloaded".into()
            }
            None | Some(SYSTEM) => "glibc's malloc serves, and nothing was set".to_owned(),
            Some(settings) => {
                format!("glibc's malloc serves, with settings of its environment as {settings} has")
            }
        };
        let sentence = format!("is IMAS active here: no, {serves}");
        let allocator = candidate.filter(|_| has_glibc).map(str::to_owned);
        Self { is_active: false, by: Chooser::CLibrary, allocator, sentence }
    }
}
