// SPDX-License-Identifier: Apache-2.0
//! `imas-lab record` and `replay`: the malloc calls of one run of a command, made again under every candidate.

pub(crate) mod args;
mod file;
mod page;
pub(crate) mod record;
pub(crate) mod replay;
mod shown;
