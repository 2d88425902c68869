// SPDX-License-Identifier: Apache-2.0
//! The `main` of a helper: what it answers beside the files of processes ([`crate::foreign_process`]). It is here that the
//! names of others are looked up.

use std::io::{ErrorKind, Result};

use crate::foreign_process::{self, Answers, Finding, OwnAnswer};
use crate::{arenas, mapped_files, named_memory, resident};
use crate::{foreign_file, process_trim, running, running_runtime, serving};

/// Must be called first in `main`. Does a helper's work if this process was started as one, and returns true at its
/// end. Otherwise [`foreign_process::read`] starts a helper when it needs one.
#[must_use]
pub fn help_if_asked() -> bool {
    help_if_asked_with(|_| Err(ErrorKind::Unsupported.into()))
}

/// Does a helper's work, as [`help_if_asked`], and gives this answer to [`foreign_process::ask`]. Must be called first in
/// `main`.
#[must_use]
pub fn help_if_asked_with(own: OwnAnswer) -> bool {
    foreign_process::help_if_asked_with(&Answers { own, finding: found_out, named: foreign_file::text_of })
}

fn found_out(finding: Finding, pid: u32) -> Result<Vec<u8>> {
    match finding {
        Finding::Program => running::program_text(pid),
        Finding::Chooser => serving::chooser::text_of(pid),
        Finding::Runtime => running_runtime::text_of(pid),
        Finding::TrimFromOutside => process_trim::outside_text_of(pid),
        Finding::MappedFiles => mapped_files::text_of(pid),
        Finding::Resident => resident::text_of(pid),
        Finding::Arenas => arenas::text_of(pid),
        Finding::NamedMemory => named_memory::text_of(pid),
    }
}
