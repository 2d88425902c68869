// SPDX-License-Identifier: Apache-2.0
//! The verbs that show what is known and change nothing.

pub(crate) mod advise;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod growth;
pub(crate) mod heap_advice;
pub(crate) mod list;
pub(crate) mod process_memory;
pub(crate) mod report;
pub(crate) mod runtime;
pub(crate) mod show;
pub(crate) mod status;
