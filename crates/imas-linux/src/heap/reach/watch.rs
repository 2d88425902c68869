// SPDX-License-Identifier: Apache-2.0
//! Several searches of one process compared: which blocks stay unreached, whether they become more, and which
//! reached ones do.

use std::collections::HashMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{HeapBlock, Reached, Search, Seen};

/// Kinds of blocks that are counted one by one; blocks of further ones count together.
const MOST_KINDS: usize = 1 << 16;
/// Kinds that are listed.
const LISTED: usize = 8;
/// So many blocks that stay unreached, and so many new ones, are no accident.
const LEAST_BLOCKS: u64 = 8;
/// So many bytes of new ones are none either, where they are fewer blocks.
const LEAST_BYTES: u64 = 256 << 10;
const FEW_BLOCKS: u64 = 3;
/// Growth of reached blocks that is worth a word, bytes.
const LEAST_GROWTH: u64 = 256 << 10;

/// Kind of block: its size, and the address in a file with which it begins.
type Kind = (u64, u64);

/// Searches until now.
#[derive(Debug, Default)]
pub struct Watch {
    /// Number of searches.
    searches: u8,
    begun: Option<Instant>,
    /// Unreached blocks of the last search in their order, with the number of searches in which each was unreached.
    unreached: Vec<(HeapBlock, u64, u8)>,
    /// What each kind had at the first search.
    first: HashMap<Kind, Sum>,
    first_bytes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    blocks: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What several searches found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Searches {
    /// Number of searches, and seconds from the first to the last.
    pub searches: u8,
    /// Seconds from the first search to the last.
    pub seconds: f64,
    /// Live bytes and blocks at the last one.
    pub live_bytes: u64,
    /// Live blocks at the last one.
    pub live_blocks: u64,
    /// Live bytes at the first one.
    pub live_bytes_before: u64,
    /// Bytes in blocks that were reached in none of the searches.
    pub lost_bytes: u64,
    /// Such blocks.
    pub lost_blocks: u64,
    /// Bytes that became unreached between the first search and the last and stayed so.
    pub more_lost_bytes: u64,
    /// Kinds of blocks that leak: more and more of them are unreached. The largest growth first.
    pub leaks: Vec<LostClass>,
    /// Kinds with the most bytes in other unreached blocks.
    pub lost: Vec<LostClass>,
    /// Kinds whose reached blocks became more. The largest growth first.
    pub grown: Vec<MoreBlocks>,
}

/// Unreached blocks of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LostClass {
    /// Bytes of one block, malloc's own included.
    pub block_bytes: u64,
    /// Address with which each begins; 0 where it is in no file.
    pub first_word: u64,
    /// The class of the blocks, where the address leads to one.
    pub class: Option<String>,
    /// Blocks that were unreached in all searches.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that became unreached after the first search.
    pub new_blocks: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Blocks that were unreached and are no longer.
    pub gone_blocks: u64,
    /// Blocks among them to which another unreached block points.
    pub held_blocks: u64,
}

/// Reached blocks of a kind that became more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoreBlocks {
    /// Bytes of one block, malloc's own included.
    pub block_bytes: u64,
    /// Address with which each begins; 0 where it is in no file.
    pub first_word: u64,
    /// The class of the blocks, where the address leads to one.
    pub class: Option<String>,
    /// Blocks at the first search.
    pub before: u64,
    /// Blocks at the last one.
    pub now: u64,
    /// Bytes that they have grown by.
    pub grown_bytes: u64,
}

impl LostClass {
    /// Whether more and more of them are unreached. What is under way in a register looks so for a moment: it goes
    /// as often as it comes.
    fn leaks(&self) -> bool {
        let is_many = self.blocks >= LEAST_BLOCKS && self.new_blocks >= LEAST_BLOCKS;
        let is_much =
            self.blocks >= FEW_BLOCKS && self.new_blocks >= FEW_BLOCKS && self.new_bytes >= LEAST_BYTES;
        (is_many || is_much) && self.new_blocks > 2 * self.gone_blocks
    }
}

impl Watch {
    /// Adds a search, which was begun at that moment. Returns what all of them found.
    pub fn add(&mut self, search: &Search, begun: Instant) -> Searches {
        self.searches = self.searches.saturating_add(1);
        let seconds = begun.saturating_duration_since(*self.begun.get_or_insert(begun)).as_secs_f64();
        let kinds = kinds(&search.blocks);
        let mut reach = Searches { searches: self.searches, seconds, ..Searches::default() };
        (reach.live_blocks, reach.live_bytes) = sum_of(search.blocks.iter().map(|seen| seen.block.bytes));
        if self.searches == 1 {
            self.first_bytes = reach.live_bytes;
        }
        reach.live_bytes_before = self.first_bytes;
        let classes = self.classes(search);
        for class in classes.values() {
            reach.lost_blocks += class.blocks;
            reach.lost_bytes = reach.lost_bytes.saturating_add(class.bytes);
            reach.more_lost_bytes = reach.more_lost_bytes.saturating_add(class.new_bytes);
        }
        let (mut leaks, mut lost): (Vec<_>, Vec<_>) = classes.into_values().partition(LostClass::leaks);
        // What nothing points to comes before what it holds.
        leaks.sort_by_key(|class| {
            (2 * class.held_blocks > class.blocks + class.new_blocks, u64::MAX - class.new_bytes)
        });
        lost.retain(|class| class.blocks > 0);
        lost.sort_by_key(|class| std::cmp::Reverse(class.bytes));
        leaks.truncate(LISTED);
        lost.truncate(LISTED);
        reach.grown = self.grown(&kinds);
        (reach.leaks, reach.lost) = (leaks, lost);
        if self.searches == 1 {
            self.first = kinds;
        }
        reach
    }

    /// Unreached blocks by their kind; those of this search are kept for the next one.
    fn classes(&mut self, search: &Search) -> HashMap<Kind, LostClass> {
        let mut classes: HashMap<Kind, LostClass> = HashMap::new();
        let before = std::mem::take(&mut self.unreached);
        let mut earlier = before.iter().peekable();
        let all = self.searches;
        let mut now: Vec<&Seen> = search.blocks.iter().filter(|seen| seen.reach != Reached::Yes).collect();
        now.sort_unstable_by_key(|seen| seen.block);
        for seen in now {
            while let Some((block, word, _)) = earlier.next_if(|(block, ..)| *block < seen.block) {
                class(&mut classes, (block.bytes, *word)).gone_blocks += 1;
            }
            let was = earlier.next_if(|(block, word, _)| *block == seen.block && *word == seen.word);
            let times = was.map_or(1, |(.., times)| times.saturating_add(1));
            let class = class(&mut classes, (seen.block.bytes, seen.word));
            class.held_blocks += u64::from(seen.reach == Reached::FromLost);
            // Of three searches and more, the last one alone proves nothing of a block.
            if times == all {
                class.blocks += 1;
                class.bytes = class.bytes.saturating_add(seen.block.bytes);
            } else if times > 1 || all == 2 {
                class.new_blocks += 1;
                class.new_bytes = class.new_bytes.saturating_add(seen.block.bytes);
            }
            self.unreached.push((seen.block, seen.word, times));
        }
        for (block, word, _) in earlier {
            class(&mut classes, (block.bytes, *word)).gone_blocks += 1;
        }
        classes
    }

    fn grown(&self, kinds: &HashMap<Kind, Sum>) -> Vec<MoreBlocks> {
        if self.searches < 2 {
            return vec![];
        }
        let more = |(kind, now): (&Kind, &Sum)| {
            let before = self.first.get(kind).copied().unwrap_or_default();
            let grown_bytes = now.bytes.saturating_sub(before.bytes);
            let (block_bytes, first_word) = *kind;
            let (before, now) = (before.blocks, now.blocks);
            let one = MoreBlocks { block_bytes, first_word, class: None, before, now, grown_bytes };
            (grown_bytes >= LEAST_GROWTH / 4).then_some(one)
        };
        let mut grown: Vec<MoreBlocks> = kinds.iter().filter_map(more).collect();
        grown.sort_by_key(|one| std::cmp::Reverse(one.grown_bytes));
        grown.truncate(LISTED);
        grown
    }
}

/// What several searches mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Growth {
    /// Blocks that nothing points to become more.
    Leak,
    /// Blocks become more, and are reached.
    Reached,
    /// Nothing grows, and a part is unreached.
    Unreached,
    /// Nothing grows.
    None,
}

impl Searches {
    /// What it means.
    #[must_use]
    pub fn growth(&self) -> Growth {
        let grown = self.live_bytes.saturating_sub(self.live_bytes_before);
        let is_growing = grown >= LEAST_GROWTH && grown >= self.live_bytes_before / 100;
        let is_much = self.lost_bytes >= 1 << 20 && self.lost_bytes >= self.live_bytes / 20;
        match () {
            () if !self.leaks.is_empty() => Growth::Leak,
            () if is_growing => Growth::Reached,
            () if is_much => Growth::Unreached,
            () => Growth::None,
        }
    }
}

fn class(classes: &mut HashMap<Kind, LostClass>, kind: Kind) -> &mut LostClass {
    let kind = if classes.len() < MOST_KINDS || classes.contains_key(&kind) { kind } else { (0, 0) };
    let (block_bytes, first_word) = kind;
    classes.entry(kind).or_insert_with(|| LostClass { block_bytes, first_word, ..LostClass::default() })
}

fn kinds(blocks: &[Seen]) -> HashMap<Kind, Sum> {
    let mut kinds: HashMap<Kind, Sum> = HashMap::new();
    for seen in blocks.iter().filter(|seen| seen.reach == Reached::Yes) {
        let kind = (seen.block.bytes, seen.word);
        let kind = if kinds.len() < MOST_KINDS || kinds.contains_key(&kind) { kind } else { (0, 0) };
        kinds.entry(kind).or_default().add(seen.block.bytes);
    }
    kinds
}

fn sum_of(bytes: impl Iterator<Item = u64>) -> (u64, u64) {
    bytes.fold((0, 0), |(count, sum), bytes| (count + 1, sum.saturating_add(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::figures::HeapFigures;

    fn search(blocks: impl IntoIterator<Item = (u64, u64, Reached)>) -> Search {
        let seen = blocks.into_iter().map(|(address, bytes, reach)| Seen {
            block: HeapBlock { address, bytes },
            word: 0,
            reach,
        });
        Search { figures: HeapFigures::default(), mapped: 0, blocks: seen.collect() }
    }

    fn lost(addresses: std::ops::Range<u64>) -> impl Iterator<Item = (u64, u64, Reached)> {
        addresses.map(|at| (at * 64, 64, Reached::No))
    }

    fn watched(searches: &[Search]) -> Searches {
        let mut watch = Watch::default();
        let begun = Instant::now();
        searches.iter().map(|search| watch.add(search, begun)).last().unwrap()
    }

    #[test]
    fn a_leak_grows_and_stays() {
        let found = watched(&[search(lost(0..100)), search(lost(0..120))]);
        assert_eq!((found.growth(), found.lost_blocks, found.leaks[0].new_blocks), (Growth::Leak, 100, 20));
        let once = watched(&[search(lost(0..100)), search(lost(0..100))]);
        assert_eq!((once.leaks.len(), once.lost_blocks, once.lost_bytes), (0, 100, 6400));
    }

    #[test]
    fn what_is_under_way_in_a_register_is_no_leak() {
        let moving = |step: u64| search(lost(0..20).chain(lost(1000 + step * 30..1030 + step * 30)));
        assert!(watched(&[moving(0), moving(1)]).leaks.is_empty());
        // A burst that only the last of three searches has seen.
        let burst = [search(lost(0..20)), search(lost(0..20)), search(lost(0..90))];
        assert!(watched(&burst).leaks.is_empty());
        let grows = [search(lost(0..20)), search(lost(0..40)), search(lost(0..60))];
        assert_eq!(watched(&grows).leaks[0].new_blocks, 20);
    }

    #[test]
    fn a_cache_that_grows_is_reached() {
        let cache = |count: u64| search((0..count).map(|at| (at * 1024, 1024, Reached::Yes)));
        let found = watched(&[cache(1000), cache(2000)]);
        assert_eq!(
            (found.growth(), found.grown[0].before, found.grown[0].now),
            (Growth::Reached, 1000, 2000)
        );
        assert_eq!(watched(&[cache(1000), cache(1001)]).growth(), Growth::None);
    }
}
