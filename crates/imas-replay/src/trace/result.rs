// SPDX-License-Identifier: Apache-2.0
//! The output of `imas-replayer`: a file of numbers.

/// First bytes of the file.
const MAGIC: u64 = 0x3153_5252_5241_4D49;
const HEADER: usize = 8;
/// Numbers of one look.
const PER_LOOK: usize = 8;

/// One replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replay {
    /// CPU seconds of the calls, without the looks at memory.
    pub cpu_s: f64,
    /// Calls that returned no block.
    pub refused: u64,
    /// Page faults of the calls and of the first writes to their blocks, without those that read the disk.
    pub faults: u64,
    /// Memory at each look of the program.
    pub looks: Vec<ReplayLook>,
}

/// Memory of the replay at one look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayLook {
    /// Resident anonymous bytes.
    pub bytes: u64,
    /// Bytes in live blocks of the program.
    pub live_bytes: u64,
    /// Bytes in large blocks that were not written, by class ([`crate::trace::touching`]).
    pub untouched: [u64; 4],
    /// Resident bytes in huge pages.
    pub huge_bytes: u64,
}

/// Reads a result file. None if it is not one, or if the replay did not finish.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Replay> {
    let numbers: Vec<u64> = bytes.as_chunks().0.iter().map(|number| u64::from_ne_bytes(*number)).collect();
    let header = numbers.get(..HEADER).filter(|header| header[0] == MAGIC && header[1] == 1)?;
    let count = usize::try_from(header[4]).ok()?;
    let looks = numbers[HEADER..].as_chunks::<PER_LOOK>().0;
    let looks = looks.get(..count)?;
    Some(Replay {
        cpu_s: header[2] as f64 / 1e9,
        refused: header[3],
        faults: header[5],
        looks: looks.iter().map(look).collect(),
    })
}

fn look(numbers: &[u64; PER_LOOK]) -> ReplayLook {
    let [bytes, live_bytes, a, b, c, d, huge_bytes, _] = *numbers;
    ReplayLook { bytes, live_bytes, untouched: [a, b, c, d], huge_bytes }
}
