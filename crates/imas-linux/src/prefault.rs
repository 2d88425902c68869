// SPDX-License-Identifier: Apache-2.0
//! Prefaults free memory before a run is measured: touches it, so that the host provides it, and frees it.
//!
//! A virtual machine may give free memory back to its host (free page reporting, a balloon) some seconds
//! after it was freed. The program that touches such memory first waits for the host, in its own CPU time and
//! by chance: forty times as long for a huge page on the machine where this was found (docs/decisions/0015).
//! So free memory is touched first and freed again, and the kernel hands that out before other. Where nothing
//! is given back it costs less than half a second a gigabyte.

use std::time::Duration;

use memmap2::{Advice, MmapMut};

use crate::conditions::room_bytes;
use crate::pace::cpu_ns;

/// Bytes that every run is assumed to take beyond its heap.
const SPARE: u64 = 64 << 20;
/// Bytes that a program is assumed to take that was not seen yet.
const UNSEEN: u64 = 256 << 20;
/// Most of what is available that is taken for a moment: other processes need memory too.
const SHARE: u64 = 4;
/// More is not worth the wait before every run, whatever the program takes.
const MOST: u64 = 4 << 30;
/// The smallest page of any machine.
const PAGE: usize = 4096;
/// Pause before the touch that shows the cost: longer than the two seconds after which Linux reports free
/// pages.
const PAUSE: Duration = Duration::from_secs(3);
/// Bytes that are touched to see what it costs.
const LOOK: u64 = 64 << 20;

/// Cost of touching free memory for the first time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Touch {
    /// Bytes that were touched.
    pub bytes: u64,
    /// Seconds of CPU time: waiting for the host counts, being interrupted by another process does not.
    pub seconds: f64,
}

impl Touch {
    /// Seconds a GiB.
    #[must_use]
    pub fn s_per_gib(&self) -> f64 {
        self.seconds / self.bytes as f64 * (1_u64 << 30) as f64
    }
}

/// Bytes to touch for a program that took at most `peak_bytes` so far (0: not seen yet).
#[must_use]
pub fn enough_for(peak_bytes: u64) -> u64 {
    if peak_bytes == 0 { UNSEEN } else { peak_bytes.saturating_add(peak_bytes / 2).saturating_add(SPARE) }
}

/// Touches that amount of free memory, or a quarter of what this process may still take where that is less, 4
/// GiB at most, and frees it. None when there is none.
pub fn prefault(bytes: u64) -> Option<Touch> {
    touch(bytes.min(MOST).min(room_bytes() / SHARE))
}

/// Touches a little free memory that had the time to go back to the host; takes three seconds. None when
/// there is none to be had.
#[must_use]
pub fn prefault_after_a_while() -> Option<Touch> {
    std::thread::sleep(PAUSE);
    prefault(LOOK)
}

fn touch(bytes: u64) -> Option<Touch> {
    let length = usize::try_from(bytes).ok().filter(|&length| length >= PAGE)?;
    let mut memory = MmapMut::map_anon(length).ok()?;
    let _ = memory.advise(Advice::HugePage); // a kernel without them: small pages will do
    let start = cpu_ns()?;
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    Some(Touch { bytes, seconds: (cpu_ns()? - start) as f64 / 1e9 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_a_half_times_the_memory_is_touched() {
        assert_eq!(enough_for(0), UNSEEN);
        assert_eq!(enough_for(100 << 20), (150 << 20) + SPARE);
        assert_eq!(enough_for(u64::MAX), u64::MAX);
    }

    #[test]
    fn the_asked_size_is_touched_and_never_more_than_exists() {
        assert_eq!(prefault(0), None);
        let touch = prefault(1 << 20).unwrap();
        assert_eq!(touch.bytes, 1 << 20);
        assert!(touch.s_per_gib() > 0.0);
        assert_eq!(super::touch(u64::MAX), None);
    }
}
