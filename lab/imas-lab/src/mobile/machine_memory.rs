// SPDX-License-Identifier: Apache-2.0
//! The whole machine's memory at one instant: free, available, and the free blocks of each order.

use procfs::{Current, Meminfo, ProcResult};

/// Figures of `/proc/meminfo` and `/proc/buddyinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MachineMemory {
    /// Bytes in no use at all.
    pub(super) free_bytes: u64,
    /// Bytes that programs could have without swapping.
    pub(super) available_bytes: u64,
    /// All bytes less the available ones.
    pub(super) used_bytes: u64,
    /// Free blocks of `2^order` pages, by order, over all nodes and zones. Empty where the kernel does not
    /// say.
    pub(super) blocks: Vec<u64>,
}

impl MachineMemory {
    /// Looks now.
    ///
    /// # Errors
    /// When `/proc/meminfo` cannot be read or does not say what is available (Linux before 3.14).
    pub(super) fn now() -> ProcResult<Self> {
        let memory = Meminfo::current()?;
        let available = memory.mem_available.ok_or(procfs::ProcError::Incomplete(None))?;
        Ok(Self {
            free_bytes: memory.mem_free,
            available_bytes: available,
            used_bytes: memory.mem_total.saturating_sub(available),
            blocks: blocks(&std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default()),
        })
    }
}

/// Sums over the lines `Node N, zone NAME COUNT...`.
fn blocks(text: &str) -> Vec<u64> {
    let mut sums: Vec<u64> = Vec::new();
    for line in text.lines() {
        let Some((_, zone)) = line.split_once("zone") else { continue };
        let counts = zone.split_whitespace().skip(1).filter_map(|count| count.parse::<u64>().ok());
        for (order, count) in counts.enumerate() {
            match sums.get_mut(order) {
                Some(sum) => *sum += count,
                None => sums.push(count),
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_summed_over_zones() {
        let text = "Node 0, zone      DMA      1      2      3 \nNode 0, zone   Normal     10     20     30    40 \n";
        assert_eq!(blocks(text), [11, 22, 33, 40]);
        assert!(blocks("nothing of the kind\n").is_empty());
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = MachineMemory::now().unwrap();
        assert!(memory.free_bytes > 0 && memory.available_bytes > 0 && memory.used_bytes > 0);
    }
}
