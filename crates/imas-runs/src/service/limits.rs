// SPDX-License-Identifier: Apache-2.0
//! Settings of a user for the runs of one session, beside the definition of the service.

use std::time::Duration;

/// Limits of each run. The default sets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceLimits {
    /// Time limit from the start of the server to its end.
    pub timeout: Option<Duration>,
    /// A load that ends with an exit status other than 0, or whose requests fail, leaves the run valid.
    pub ignores_load_failure: bool,
    /// The server is kept on one CPU.
    pub one_cpu: bool,
}
