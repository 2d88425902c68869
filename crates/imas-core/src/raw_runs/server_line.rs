// SPDX-License-Identifier: Apache-2.0
//! Runs of servers as an older IMAS wrote them: one flat object, with `service` in place of `program`.

use serde::Deserialize;

use crate::pace::Pace;
use crate::run::RawRun;
use crate::server_run::ServerRun;

/// A line of that form.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(super) struct ServerLine {
    service: String,
    candidate: String,
    round: u32,
    at_s: f64,
    took_s: f64,
    cpu_s: (f64, f64),
    pace: Option<Pace>,
    load1: Option<f64>,
    #[serde(flatten)]
    server: ServerRun,
}

impl ServerLine {
    /// The run; None if the line names no service or no candidate.
    pub(super) fn run(self) -> Option<RawRun> {
        let is_one = !self.service.is_empty() && !self.candidate.is_empty();
        let run = RawRun {
            program: self.service,
            candidate: self.candidate,
            round: self.round,
            at_s: self.at_s,
            wall_s: self.took_s,
            user_s: self.cpu_s.0,
            system_s: self.cpu_s.1,
            pace: self.pace,
            load1: self.load1,
            ..RawRun::default()
        };
        is_one.then(|| run.with_server(self.server))
    }
}
