// SPDX-License-Identifier: Apache-2.0
//! The page of what the store holds: picks and figures are those of `imas show`.

use anyhow::Result;
use imas_engine::program_view::state;
use imas_engine::section::{notes, section};
use imas_report::html::{ProgramSection, ReportPage};
use imas_store::Store;
use imas_store::samples::StoredProgram;

use crate::command_line::cli::{ReportArgs, RulesArgs};
use crate::stored::profile::find;
use imas_engine::context::Context;

pub(super) fn page(args: &ReportArgs, context: &Context) -> Result<ReportPage> {
    let store = crate::stored::harvest::view(context)?;
    let programs = match &args.program {
        Some(word) => vec![find(&store, word)?],
        None => store.programs()?,
    };
    let title = match (&args.program, programs.first()) {
        (Some(_), Some(program)) => program.to_string(),
        _ => "Memory allocators: what IMAS knows".to_owned(),
    };
    let programs = programs.into_iter().map(|program| of_program(context, &store, program));
    Ok(ReportPage { title, notes: notes(), programs: programs.collect::<Result<_>>()? })
}

fn of_program(context: &Context, store: &Store, program: StoredProgram) -> Result<ProgramSection> {
    section(store, &state(context, store, program, &RulesArgs::of_environment())?)
}
