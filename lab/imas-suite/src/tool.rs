// SPDX-License-Identifier: Apache-2.0
//! A program of a language registry.

/// A program of a language registry that has to be installed into the suite's own folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tool {
    /// pip, npm or cargo.
    pub registry: &'static str,
    /// The requirement, in the syntax of that registry's client.
    pub wanted: String,
}
