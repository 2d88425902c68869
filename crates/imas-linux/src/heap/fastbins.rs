// SPDX-License-Identifier: Apache-2.0
//! Small free blocks that their neighbours take for used (fastbins): only the arena's lists name them.

use std::collections::HashSet;

use super::arena::Arena;
use super::layout::{ALIGNMENT, Layout, USER};
use super::stop::Stop;
use super::window::Window;

/// Most blocks of one arena. Those beyond count as live.
const MOST: usize = 1 << 18;

/// Addresses of the blocks. A list that is changed meanwhile is taken as far as it makes sense.
pub(super) fn of(arena: &Arena, layout: &Layout, window: &mut Window<'_>) -> HashSet<u64> {
    let mut blocks = HashSet::new();
    for head in &arena.fastbins {
        let mut at = *head;
        while at != 0 && at.is_multiple_of(ALIGNMENT) && blocks.len() < MOST && blocks.insert(at) {
            match next(at, layout, window) {
                Ok(next) => at = next,
                Err(_) => break,
            }
        }
    }
    blocks
}

/// The next one of the list: the pointer may be hidden by its own address.
fn next(at: u64, layout: &Layout, window: &mut Window<'_>) -> Result<u64, Stop> {
    let place = at.wrapping_add(USER);
    let hidden_by = if layout.hides_pointers { place >> 12 } else { 0 };
    Ok(window.word(place)? ^ hidden_by)
}
