// SPDX-License-Identifier: Apache-2.0
//! What a host's policy makes of the statistics.

use imas_core::fleet_prior::{FleetCandidate, FleetPrior, FleetScatter, GroupDifference};
use imas_core::stats::median;

use crate::group::HEARD;
use crate::seats::{Seat, Seats};
use crate::statistics::{CandidateStatistics, FleetStatistics};

/// The prior of the program for hosts of the same environment.
pub fn prior(statistics: &FleetStatistics) -> FleetPrior {
    FleetPrior {
        hosts: statistics.hosts.hosts(),
        heard: statistics.hosts.hosts().min(HEARD),
        scatter: scatter(&statistics.residual),
        candidates: statistics.candidates.iter().map(candidate).collect(),
    }
}

fn candidate(statistics: &CandidateStatistics) -> FleetCandidate {
    FleetCandidate {
        name: statistics.name.clone(),
        version: statistics.version.clone(),
        groups: statistics.pairs.iter().map(|seat| GroupDifference { cpu: seat.x, memory: seat.y }).collect(),
        void_groups: statistics.void.len(),
        crashed_groups: statistics.crashed.len(),
    }
}

/// Medians over the groups; a liar can make it neither small nor large.
fn scatter(seats: &Seats) -> Option<FleetScatter> {
    let axis = |of: fn(Seat) -> f64| median(&seats.iter().map(of).collect::<Vec<f64>>());
    Some(FleetScatter {
        cpu: axis(|seat| seat.x)?,
        memory: axis(|seat| seat.y)?,
        freedom: seats.iter().map(|seat| f64::from(seat.count)).sum(),
    })
}
