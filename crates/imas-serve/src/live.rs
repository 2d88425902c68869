// SPDX-License-Identifier: Apache-2.0
//! The running processes, looked at when somebody asks for them, and not more often than every two seconds.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_engine::flags::Places;
use imas_engine::live::ProcessObserver;
use imas_engine::live::snapshot::LiveSnapshot;

/// A look that is younger is shown again.
const YOUNG: Duration = Duration::from_secs(2);

/// Looks at the processes.
pub(crate) struct Live(Mutex<Looks>);

struct Looks {
    observer: ProcessObserver,
    last: Option<(Instant, Arc<LiveSnapshot>)>,
}

impl Live {
    /// Live data at which nobody has looked yet.
    pub(crate) fn new(places: &Places, run_dir: &Path) -> Result<Self> {
        let observer = ProcessObserver::beside(places, run_dir)?;
        Ok(Self(Mutex::new(Looks { observer, last: None })))
    }

    /// The processes as they are now, or were two seconds ago.
    pub(crate) fn now(&self) -> Result<Arc<LiveSnapshot>> {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, last)) = &looks.last
            && at.elapsed() < YOUNG
        {
            return Ok(Arc::clone(last));
        }
        let look = Arc::new(looks.observer.look()?);
        looks.last = Some((Instant::now(), Arc::clone(&look)));
        Ok(look)
    }
}
