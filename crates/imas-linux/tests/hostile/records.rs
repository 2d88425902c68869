// SPDX-License-Identifier: Apache-2.0
//! Messages of the kernel, as an enemy would write them. Shared with `fuzz/`.

use imas_linux::taskstats::{Account, Message, message};

/// Reads the bytes as a message and adds the record up: whatever they are, nothing panics, and no figure is beyond what
/// is believed. What was found.
pub(crate) fn check(bytes: &[u8], family: u16) -> Option<Message> {
    let found = message(bytes, family);
    if let Some(Message::Ended(record)) = &found {
        let mut sum = Account::default();
        sum.add(record);
        sum.add(record);
        let memory = sum.memory();
        assert!(memory.resident() <= memory.resident_peak && memory.resident_peak <= 1 << 57, "{sum:?}");
        let usage = sum.usage(0.0);
        assert!(usage.user_s.is_finite() && usage.user_s >= 0.0, "{sum:?}");
        let _ = sum.ended();
    }
    found
}
