// SPDX-License-Identifier: Apache-2.0
//! Blocks that can be reached from the roots, and how the others hang together.
//!
//! All is conservative: an address anywhere in a block reaches it.

use std::collections::HashMap;
use std::ops::Range;

use super::blocks::{Block, Blocks};

/// Bytes of memory with one entry in the index of a heap.
const STEP_BITS: u32 = 12;

/// A walked heap with an index of its blocks.
#[derive(Debug)]
struct Span {
    memory: Range<u64>,
    blocks: Range<usize>,
    /// Index of the first block that begins in each step of memory, or behind it.
    first: Vec<u32>,
}

/// Blocks, found by addresses inside of them.
#[derive(Debug)]
pub(super) struct Graph<'b> {
    blocks: &'b Blocks,
    /// The heaps by address.
    spans: Vec<Span>,
}

impl<'b> Graph<'b> {
    pub(super) fn new(blocks: &'b Blocks) -> Self {
        let mut spans: Vec<Span> = blocks
            .walked
            .iter()
            .map(|walked| {
                let of_span = blocks.list.get(walked.blocks.clone()).unwrap_or(&[]);
                let first = if of_span.len() > 1 { firsts(&walked.memory, of_span) } else { vec![] };
                Span { memory: walked.memory.clone(), blocks: walked.blocks.clone(), first }
            })
            .collect();
        spans.sort_by_key(|span| span.memory.start);
        Self { blocks, spans }
    }

    /// Index of the block with an address.
    pub(super) fn block_at(&self, address: u64) -> Option<usize> {
        let after = self.spans.partition_point(|span| span.memory.start <= address);
        let span = self.spans.get(after.checked_sub(1)?)?;
        let list = self.blocks.list.get(span.blocks.clone())?;
        let step = usize::try_from((address - span.memory.start) >> STEP_BITS).ok()?;
        let bound = |step: usize, or: usize| span.first.get(step).map_or(or, |index| *index as usize);
        let (low, high) = (bound(step, 0).saturating_sub(1), bound(step + 1, list.len()).min(list.len()));
        let near = list.get(low..high)?;
        let found = (low + near.partition_point(|block| block.address <= address)).checked_sub(1)?;
        let block = list.get(found)?;
        // The program's part ends in the head of the next chunk; a large block's with its mapping.
        let is_in = (block.address..block.address + block.bytes()).contains(&(address + 8));
        (is_in || address == block.address).then_some(span.blocks.start + found)
    }

    /// Says for each block whether an address among the roots leads to it, directly or by other blocks.
    pub(super) fn marked(&self, roots: &[u64]) -> Vec<bool> {
        let mut marks = vec![false; self.blocks.list.len()];
        let mut open: Vec<u32> = vec![];
        for root in roots {
            self.mark(*root, &mut marks, &mut open);
            while let Some(index) = open.pop() {
                for address in self.blocks.words_of(index as usize) {
                    self.mark(*address, &mut marks, &mut open);
                }
            }
        }
        marks
    }

    fn mark(&self, address: u64, marks: &mut [bool], open: &mut Vec<u32>) {
        let Some(index) = self.block_at(address) else { return };
        if let Some(mark) = marks.get_mut(index).filter(|mark| !**mark) {
            *mark = true;
            open.extend(u32::try_from(index));
        }
    }

    /// Blocks without a mark by groups: as few blocks as can be, the heads, lead to all of them. The head of each by its
    /// index. Blocks that only lead to each other in a circle have one of them as head.
    pub(super) fn groups(&self, marks: &[bool]) -> HashMap<usize, usize> {
        let lost: Vec<usize> =
            (0..self.blocks.list.len()).filter(|at| marks.get(*at) == Some(&false)).collect();
        let mut done = HashMap::new();
        let mut finished = vec![];
        for index in &lost {
            self.walk_lost(*index, marks, &mut done, &mut finished);
        }
        // Who finished last is led to by none that finished before: the rule of strongly connected parts.
        let mut heads = HashMap::new();
        for head in std::mem::take(&mut finished).into_iter().rev() {
            self.walk_lost(head, marks, &mut heads, &mut finished);
        }
        heads
    }

    /// Walks from a lost block to all that it leads to, which are noted as seen from there. Each is `finished` behind
    /// those that it leads to.
    fn walk_lost(
        &self,
        from: usize,
        marks: &[bool],
        seen: &mut HashMap<usize, usize>,
        finished: &mut Vec<usize>,
    ) {
        if seen.contains_key(&from) {
            return;
        }
        seen.insert(from, from);
        let mut open = vec![(from, 0)];
        while let Some((index, next)) = open.pop() {
            let Some(address) = self.blocks.words_of(index).get(next) else {
                finished.push(index);
                continue;
            };
            open.push((index, next + 1));
            let other = self.block_at(*address).filter(|other| marks.get(*other) == Some(&false));
            if let Some(other) = other.filter(|other| !seen.contains_key(other)) {
                seen.insert(other, from);
                open.push((other, 0));
            }
        }
    }
}

fn firsts(memory: &Range<u64>, blocks: &[Block]) -> Vec<u32> {
    let steps = usize::try_from((memory.end - memory.start) >> STEP_BITS).unwrap_or(0) + 1;
    let mut first = Vec::with_capacity(steps + 1);
    let mut index = 0;
    for step in 0..=steps as u64 {
        let begin = memory.start + (step << STEP_BITS);
        while blocks.get(index).is_some_and(|block| block.address < begin) {
            index += 1;
        }
        first.push(u32::try_from(index).unwrap_or(u32::MAX));
    }
    first
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reach::blocks::Walked;

    /// Blocks of 64 bytes in a row from an address on, each with the addresses of its words.
    fn blocks(words: &[&[u64]]) -> Blocks {
        let mut blocks = Blocks::default();
        for (at, words) in words.iter().enumerate() {
            blocks.push_made(BEGIN + 64 * at as u64 + 16, 4, words);
        }
        let memory = BEGIN..BEGIN + 64 * words.len() as u64 + 16;
        blocks.walked.push(Walked { memory, blocks: 0..words.len() });
        blocks
    }

    const BEGIN: u64 = 0x10000;

    fn user(index: u64) -> u64 {
        BEGIN + 64 * index + 16
    }

    #[test]
    fn a_block_is_reached_by_any_address_inside_it() {
        let blocks = blocks(&[&[], &[], &[]]);
        let graph = Graph::new(&blocks);
        let found = [user(1), user(1) + 55, user(1) + 56, user(2), user(0) - 1, user(3), 0, u64::MAX - 8];
        let found = found.map(|address| graph.block_at(address));
        assert_eq!(found, [Some(1), Some(1), None, Some(2), None, None, None, None]);
    }

    #[test]
    fn what_no_root_leads_to_is_lost_cycles_too() {
        // 0 leads to 1 by an address inside; 2 and 3 lead to each other, and 4 to a block that is reached.
        let blocks = blocks(&[&[user(1) + 8], &[], &[user(3)], &[user(2)], &[user(0)], &[]]);
        let graph = Graph::new(&blocks);
        let marks = graph.marked(&[user(0)]);
        assert_eq!(marks, [true, true, false, false, false, false]);
        let groups = graph.groups(&marks);
        let heads: std::collections::BTreeSet<_> = groups.values().collect();
        assert_eq!((groups.len(), heads.len(), groups[&2]), (4, 3, groups[&3]));
        assert_eq!((groups[&4], groups[&5]), (4, 5));
    }

    #[test]
    fn a_list_has_one_head_and_lost_blocks_that_share_one_have_one_each() {
        let list = blocks(&[&[user(1)], &[user(2)], &[user(3)], &[]]);
        let heads = Graph::new(&list).groups(&[false; 4]);
        assert!(heads.values().all(|head| *head == 0), "{heads:?}");
        // The other way round, as a list grows at its front.
        let list = blocks(&[&[], &[user(0)], &[user(1)], &[user(2)]]);
        let heads = Graph::new(&list).groups(&[false; 4]);
        assert!(heads.values().all(|head| *head == 3), "{heads:?}");
        let shared = blocks(&[&[user(3)], &[user(3)], &[user(3)], &[]]);
        let heads = Graph::new(&shared).groups(&[false; 4]);
        assert_eq!([0, 1, 2].map(|index| heads[&index]), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn marks_are_what_a_slow_search_finds(
            edges in prop::collection::vec(prop::collection::vec((0usize..40, 0u64..56), 0..4), 1..40),
            roots in prop::collection::vec(0u64..40, 0..4),
        ) {
            let words: Vec<Vec<u64>> =
                edges.iter().map(|to| to.iter().map(|(at, inside)| user(*at as u64) + inside).collect()).collect();
            let blocks = blocks(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let graph = Graph::new(&blocks);
            let marks = graph.marked(&roots.iter().map(|root| user(*root)).collect::<Vec<_>>());
            let mut slow = vec![false; edges.len()];
            for _ in 0..=edges.len() {
                for index in 0..edges.len() {
                    let is_reached = slow[index] || roots.contains(&(index as u64));
                    slow[index] = is_reached;
                    for (to, _) in edges[index].iter().filter(|_| is_reached) {
                        if let Some(mark) = slow.get_mut(*to) {
                            *mark = true;
                        }
                    }
                }
            }
            prop_assert_eq!(marks, slow);
        }
    }
}
