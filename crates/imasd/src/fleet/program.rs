// SPDX-License-Identifier: Apache-2.0
//! What a program is to the fleet.

use imas_fleet::ProgramKey;

/// A program as the fleet names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FleetProgram {
    /// The program alone.
    pub(crate) key: ProgramKey,
    /// The program in the environment of this machine.
    pub(crate) subject: String,
}
