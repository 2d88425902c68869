// SPDX-License-Identifier: Apache-2.0
//! What a host's policy makes of the statistics.

use imas_core::fleet_prior::{FleetPrior, FleetScatter};
use imas_core::stats::median;

use crate::group::COUNTED_HOSTS;
use crate::seats::{Seat, Seats};
use crate::statistics::{CandidateStatistics, FleetStatistics};

/// The prior of the program for hosts of the same environment.
pub fn prior(statistics: &FleetStatistics) -> FleetPrior {
    FleetPrior {
        hosts: statistics.hosts.hosts(),
        counted: statistics.hosts.hosts().min(COUNTED_HOSTS),
        scatter: scatter(&statistics.residual),
        candidates: statistics.candidates.iter().map(CandidateStatistics::known).collect(),
    }
}

/// Scatter of single runs, as medians over the groups. A liar can make it neither small nor large.
fn scatter(seats: &Seats) -> Option<FleetScatter> {
    let axis = |of: fn(Seat) -> f64| median(&seats.iter().map(of).collect::<Vec<f64>>());
    Some(FleetScatter {
        cpu: axis(|seat| seat.x)?,
        memory: axis(|seat| seat.y)?,
        freedom: seats.iter().map(|seat| f64::from(seat.count)).sum(),
    })
}
