// SPDX-License-Identifier: Apache-2.0
//! The heap of a running JVM, from the counters that it keeps in `/tmp/hsperfdata_USER/PID` and has mapped: nothing is
//! attached to. The file is the process's own and may hold anything.
//!
//! - `counters`: the format of the file
//! - `file`: where it is, and whose

mod counters;
mod file;

use serde::{Deserialize, Serialize};

use counters::Counters;
pub(crate) use file::{MOST_BYTES, of_process};

/// Heap of a JVM, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JvmHeap {
    /// The collector, as the JVM names it.
    pub collector: String,
    /// Collections so far.
    pub collections: u64,
    /// Memory that the JVM holds for the heap; parts of it may not be resident.
    pub committed: u64,
    /// What was left after the last collection, with garbage in the old generation: what lives is not more.
    pub after_collection: u64,
    /// Memory for the descriptions of classes.
    pub classes: u64,
}

impl JvmHeap {
    /// The heap that the bytes of such a file tell of. None where they are no counters, or those of a collector
    /// without two generations.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let counters = Counters::read(bytes)?;
        // What else is called so has no space for new objects alone, and what is left there after a collection lives.
        if counters.text("sun.gc.generation.0.space.0.name")? != "eden" {
            return None;
        }
        let number = |name: &str| counters.number(name);
        let (young, old) = (number("sun.gc.generation.0.capacity")?, number("sun.gc.generation.1.capacity")?);
        let survivors =
            [1, 2].map(|space| number(&format!("sun.gc.generation.0.space.{space}.used")).unwrap_or(0));
        let tenured = number("sun.gc.generation.1.space.0.used")?;
        let collections = (0..3).filter_map(|one| number(&format!("sun.gc.collector.{one}.invocations")));
        Some(Self {
            collector: counters.text("sun.gc.policy.name")?,
            collections: collections.fold(0, u64::saturating_add),
            committed: young.saturating_add(old),
            after_collection: survivors.into_iter().fold(tenured, u64::saturating_add),
            classes: number("sun.gc.metaspace.capacity").unwrap_or(0),
        })
    }

    /// Whether it holds four times of what was left after a collection.
    #[must_use]
    pub fn is_mostly_free(&self) -> bool {
        self.collections > 0 && self.after_collection < self.committed / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_after_a_collection_is_without_the_space_for_new_objects() {
        let bytes = counters::tests::file(&[
            ("sun.gc.policy.name", Err("GarbageFirst")),
            ("sun.gc.generation.0.space.0.name", Err("eden")),
            ("sun.gc.generation.0.capacity", Ok(300)),
            ("sun.gc.generation.0.space.0.used", Ok(290)),
            ("sun.gc.generation.0.space.1.used", Ok(0)),
            ("sun.gc.generation.0.space.2.used", Ok(8)),
            ("sun.gc.generation.1.capacity", Ok(100)),
            ("sun.gc.generation.1.space.0.used", Ok(20)),
            ("sun.gc.collector.0.invocations", Ok(3)),
            ("sun.gc.collector.1.invocations", Ok(1)),
        ]);
        let heap = JvmHeap::from_bytes(&bytes).unwrap();
        assert_eq!((heap.collector.as_str(), heap.collections), ("GarbageFirst", 4));
        assert_eq!((heap.committed, heap.after_collection), (400, 28));
        assert!(heap.is_mostly_free());
        assert!(!JvmHeap { collections: 0, ..heap.clone() }.is_mostly_free(), "nothing is known yet");
        assert!(!JvmHeap { after_collection: 100, ..heap }.is_mostly_free());
    }

    #[test]
    fn other_collectors_and_nonsense_tell_nothing() {
        let other = counters::tests::file(&[("sun.gc.generation.0.space.0.name", Err("heap"))]);
        assert_eq!(JvmHeap::from_bytes(&other), None);
        assert_eq!(JvmHeap::from_bytes(b""), None);
    }
}
