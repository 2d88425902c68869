// SPDX-License-Identifier: Apache-2.0
//! What a program is to the fleet.

use imas_exchange::{Environment, ProgramKey};

/// A program as the fleet names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FleetProgram {
    /// The program alone.
    pub(crate) key: ProgramKey,
    /// Environment of the program: this machine, and how many threads of the program allocate.
    pub(crate) environment: Environment,
    /// Subject of messages: the program in that environment.
    pub(crate) subject: String,
}
