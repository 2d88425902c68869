// SPDX-License-Identifier: Apache-2.0
//! A thread that looks at something again and again until it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A thread that looks until it is stopped, or dropped.
#[derive(Debug)]
pub struct Watcher<T> {
    stop: Arc<AtomicBool>,
    /// None once it was stopped.
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Watcher<T> {
    /// Starts the thread. `watch` returns soon after the flag is set; between two looks it parks.
    #[must_use]
    pub fn start(watch: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        Self { stop, thread: Some(std::thread::spawn(move || watch(&seen))) }
    }
}

impl<T> Watcher<T> {
    /// Ends the looking; what was seen. None where the thread panicked.
    #[must_use]
    pub fn stop(mut self) -> Option<T> {
        self.end()
    }

    fn end(&mut self) -> Option<T> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Relaxed);
        thread.thread().unpark();
        thread.join().ok()
    }
}

/// A run that could not be measured to its end must not leave threads that disturb the next.
impl<T> Drop for Watcher<T> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(stop: &AtomicBool) -> u32 {
        while !stop.load(Ordering::Relaxed) {
            std::thread::park();
        }
        7
    }

    #[test]
    fn a_stopped_watcher_has_an_answer_and_a_dropped_one_leaves_no_thread() {
        assert_eq!(Watcher::start(watch).stop(), Some(7));
        assert_eq!(Watcher::start(|_| -> u32 { panic!("a thread that fails") }).stop(), None);
        let watcher = Watcher::start(watch);
        let seen = Arc::clone(&watcher.stop);
        drop(watcher);
        assert_eq!(Arc::strong_count(&seen), 1, "the thread has ended");
    }
}
