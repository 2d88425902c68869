// SPDX-License-Identifier: Apache-2.0
//! Small free blocks that their neighbours take for used (fastbins): only the arena's lists name them.

use std::collections::HashSet;

use super::arena::Arena;
use super::layout::{ALIGNMENT, USER};
use super::stop::Stop;
use super::window::Window;

/// Most blocks of one arena. Those beyond count as live.
const MOST: usize = 1 << 18;

/// Addresses of the blocks. A list that is changed meanwhile is taken as far as it makes sense.
pub(super) fn of(arena: &Arena, window: &mut Window<'_>) -> HashSet<u64> {
    let mut blocks = HashSet::new();
    for head in &arena.fastbins {
        let mut at = *head;
        while at != 0 && at.is_multiple_of(ALIGNMENT) && blocks.len() < MOST && blocks.insert(at) {
            match next(at, window) {
                Ok(next) => at = next,
                Err(_) => break,
            }
        }
    }
    blocks
}

/// The next one of the list: the pointer is hidden by its own address (`PROTECT_PTR`).
fn next(at: u64, window: &mut Window<'_>) -> Result<u64, Stop> {
    let place = at.wrapping_add(USER);
    Ok(window.word(place)? ^ (place >> 12))
}
