// SPDX-License-Identifier: Apache-2.0
//! Mirror of `abi/imas_abi.h` (the trial page and the environment through which a launcher speaks to the hook
//! and the guard) and of `abi/imas_index.h` (index and catalogue table). No logic: `imas_linux::ingest` judges
//! what a page says, the launcher fills one in.
//!
//! The names are the header's, without their prefix. `tests/layout.rs` compiles the header and compares
//! every offset, size and constant with this crate, so that the two cannot drift apart.
//!
//! All integers are in the machine's byte order: a page never leaves the machine it was written on.

mod constants;
mod index;
mod page;

pub use constants::{detail_kind, entry_flag, env, index_flag, op, page_kind, pass_reason, state};
pub use index::*;
pub use page::*;
