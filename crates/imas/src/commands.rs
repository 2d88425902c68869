// SPDX-License-Identifier: Apache-2.0
//! What several commands need to know of a program's executable.

use anyhow::{Context as _, Result};
use imas_linux::elf::Unfit;
use imas_linux::program::Command as ProgramCommand;
use imas_store::Store;
use serde::{Deserialize, Serialize};

/// What was found in an executable; remembered in the store until the file changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Executable {
    /// Why nothing may be preloaded into it, as a sentence.
    pub(crate) unfit: Option<String>,
    /// Hexadecimal; empty if it has none.
    pub(crate) build_id: String,
}

/// Reads the executable, or remembers what was read.
pub(crate) fn inspect(command: &ProgramCommand, store: Option<&Store>) -> Result<Executable> {
    const KIND: &str = "executable, its allocator's interface";
    let file = &command.program.path;
    // Privileges hang on the script as well as on the interpreter: not a fact of one file.
    if command.privileged {
        return Ok(Executable { unfit: Some(Unfit::Privileged.why().to_owned()), build_id: String::new() });
    }
    if let Some(known) = store.and_then(|store| store.recall(file, KIND).ok().flatten()) {
        return Ok(known);
    }
    let (elf, unfit) = command.inspect().with_context(|| file.display().to_string())?;
    let found = Executable {
        unfit: unfit.map(|unfit| unfit.why().to_owned()),
        build_id: elf.build_id.unwrap_or_default(),
    };
    if let Some(store) = store {
        let _ = store.remember(file, KIND, &found); // only costs reading it again
    }
    Ok(found)
}
