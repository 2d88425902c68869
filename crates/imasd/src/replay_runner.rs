// SPDX-License-Identifier: Apache-2.0
//! Replays recorded starts when the machine is idle: one child process at a time, which the machine's own work stops.

use std::time::{Duration, Instant};

use imas_linux::conditions::pressure_pct;

use crate::learner::Learner;
use crate::replay::child::{ChildEnd, ChildPlaces, ReplayChild, StopReason};
use crate::replay::settings::ReplaySettings;

/// How often a child is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is looked for something to replay.
const LOOK_FOR_WORK: Duration = Duration::from_secs(5);
/// First pause after a child that the machine's own work has stopped; doubled each time.
const PAUSE: Duration = Duration::from_secs(60);
/// Longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Replays one recording at a time.
#[derive(Debug)]
pub(crate) struct ReplayRunner {
    settings: ReplaySettings,
    running: Option<ReplayChild>,
    next: Instant,
    pause: Duration,
    /// Children that were stopped by the machine's own work.
    pub(crate) stopped: u64,
    /// Why nothing is replayed now, although something waits.
    pub(crate) obstacle: Option<String>,
}

impl ReplayRunner {
    pub(crate) fn new(settings: ReplaySettings) -> Self {
        let next = Instant::now();
        Self { settings, running: None, next, pause: PAUSE, stopped: 0, obstacle: None }
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.running.is_some()
    }

    /// When it has work if nothing happens.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Looks at the child; begins the next replay where the machine is idle.
    pub(crate) fn turn(&mut self, now: Instant, learner: &mut Learner, places: &ChildPlaces<'_>) {
        if now < self.next {
            return;
        }
        let busy = pressure_pct().filter(|pressure| *pressure > self.settings.most_pressure);
        if self.running.is_some() {
            self.next = now + LOOK;
            self.look_at_child(now, busy.is_some(), learner);
        } else {
            self.next = now + LOOK_FOR_WORK;
            self.begin(busy, learner, places);
        }
    }

    fn look_at_child(&mut self, now: Instant, is_busy: bool, learner: &mut Learner) {
        let Some(child) = &mut self.running else { return };
        if child.age(now).as_secs_f64() > self.settings.limit_s {
            child.stop(StopReason::TimeLimit, now);
        } else if is_busy {
            child.stop(StopReason::Pressure, now);
        }
        let Some(end) = child.ended(now) else { return };
        let program = child.program;
        self.running = None;
        if end == ChildEnd::Stopped(StopReason::Pressure) {
            self.stopped += 1;
            self.next = now + self.pause;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            tracing::info!(PROGRAM_ID = program, "its replays were stopped: the machine has other work");
        } else {
            self.pause = PAUSE;
        }
        learner.replayed(program, &end, self.settings.limit_s);
    }

    fn begin(&mut self, busy: Option<f64>, learner: &mut Learner, places: &ChildPlaces<'_>) {
        self.obstacle = None;
        let Some(program) = learner.replay_due() else { return };
        if let Some(pressure) = busy {
            self.obstacle = Some(format!("the machine has other work: pressure {pressure:.0} %"));
            return;
        }
        if let Some(offers) = learner.recording_offers() {
            offers.remove_scratch();
        }
        match ReplayChild::start(program, places) {
            Ok(child) => {
                self.running = Some(child);
                self.next = Instant::now() + LOOK;
            }
            Err(error) => self.obstacle = Some(format!("no replay can be started: {error}")),
        }
    }
}
