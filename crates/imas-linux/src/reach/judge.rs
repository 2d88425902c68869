// SPDX-License-Identifier: Apache-2.0
//! The rule: a leak is what nothing leads to in looks one after the other, which is more at the end.
//!
//! A block that is freed or written later was no leak: something did lead to it, by a pointer that is hidden or was in
//! motion. So a class is not judged where more than a few of its lost blocks go away or change. A thread's registers cannot be read without a stop: as many structures
//! as these can hold are taken to be held by them, the ones that grow most.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::look::{BlockClass, LostBlock, Seen};

/// Registers that keep their value over a system call.
const REGISTERS: u64 = if cfg!(target_arch = "x86_64") { 6 } else { 11 };
/// Fewest lost structures of a leak beside those that registers may hold, or fewest bytes in a few.
const LEAST_HEADS: usize = 8;
const LEAST_LARGE: (usize, u64) = (2, 256 << 10);
/// Less new lost memory is no reason for a third look, bytes.
const LEAST_NEW: u64 = 2 << 10;
/// Factor above the growth of the middle structure from which one is not counted with the others.
const OUTLIER: u64 = 4;
/// Fewer looks show no leak.
const LEAST_LOOKS: usize = 3;
/// New lost blocks for each one that may go away.
const GONE: u64 = 8;
/// Lost memory that is no leak is named from here on, bytes.
const LEAST_NAMED: u64 = 64 << 10;

/// Leaked blocks of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeakedBlocks {
    pub(super) class: BlockClass,
    /// Blocks that nothing led to in the last two looks.
    pub(super) blocks: u64,
    /// Blocks among them that came between the first look and the second.
    pub(super) new: u64,
}

/// Result of two or more looks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// Classes that leak, the most bytes of new blocks first.
    pub(super) leaks: Vec<LeakedBlocks>,
    /// Bytes that nothing led to in all looks, and their blocks.
    pub(super) lost: (u64, u64),
    /// Why new lost blocks are not called a leak.
    pub(super) doubt: Option<JudgeDoubt>,
}

/// Reason why lost blocks are no leak for sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JudgeDoubt {
    /// Blocks like them are freed.
    Freed,
    /// A thread's registers may hold them.
    Registers,
}

/// Whether a third look is needed: there are lost blocks that were not there at the first.
pub(super) fn is_suspect(first: &Seen, second: &Seen) -> bool {
    let before: HashSet<Key> = first.lost.iter().map(key).collect();
    let new = second.lost.iter().filter(|block| !before.contains(&key(block)));
    new.map(|block| block.class.bytes()).sum::<u64>() >= LEAST_NEW
}

/// A block as it was: at this address, of this class, with these bytes.
type Key = (u64, BlockClass, u64);

fn key(block: &LostBlock) -> Key {
    (block.address, block.class, block.print)
}

/// Numbers of one class.
#[derive(Debug, Default)]
struct Counts {
    lost: u64,
    new: u64,
    /// Most lost blocks of one look that the next one has not.
    gone: u64,
}

impl Counts {
    /// Whether its lost blocks stay as they are, but for a few that were in motion.
    fn is_steady(&self) -> bool {
        self.gone * GONE <= self.new
    }
}

/// Judges the lost blocks of three or more looks one after the other. To the `covered` ones a wider rule has found a
/// pointer, and they are as they were; `threads` is the number of the process's threads.
pub(super) fn judge(looks: &[Vec<LostBlock>], covered: &[LostBlock], threads: u64) -> Judged {
    let covered: HashSet<Key> = covered.iter().map(key).collect();
    let sets: Vec<HashSet<Key>> = looks.iter().map(|lost| lost.iter().map(key).collect()).collect();
    let Some((first, later)) = sets.split_first() else { return Judged::default() };
    let mut counts: BTreeMap<BlockClass, Counts> = BTreeMap::new();
    let mut judged = Judged::default();
    for (one, next) in sets.iter().zip(later) {
        let mut gone: BTreeMap<BlockClass, u64> = BTreeMap::new();
        let is_gone = |key: &&Key| !next.contains(key) && !covered.contains(key);
        one.iter().filter(is_gone).for_each(|key| *gone.entry(key.1).or_default() += 1);
        for (class, gone) in gone {
            let of_class = counts.entry(class).or_default();
            of_class.gone = of_class.gone.max(gone);
        }
    }
    let mut new: Vec<&LostBlock> = vec![];
    let stayed = |key: &Key| later.iter().all(|set| set.contains(key));
    for block in looks.last().into_iter().flatten().filter(|block| stayed(&key(block))) {
        let of_class = counts.entry(block.class).or_default();
        of_class.lost += 1;
        if first.contains(&key(block)) {
            judged.lost = (judged.lost.0 + block.class.bytes(), judged.lost.1 + 1);
        } else {
            of_class.new += 1;
            new.push(block);
        }
    }
    let (steady, freed): (Vec<_>, Vec<_>) =
        new.iter().partition(|block| counts.get(&block.class).is_some_and(Counts::is_steady));
    let sum = |blocks: &[&LostBlock]| blocks.iter().map(|block| block.class.bytes()).sum::<u64>();
    if sum(&freed) >= LEAST_NAMED {
        judged.doubt = Some(JudgeDoubt::Freed);
    }
    let leaked = beyond_registers(&steady, REGISTERS.saturating_mul(threads));
    if leaked.is_empty() && sum(&steady) >= LEAST_NAMED {
        judged.doubt = Some(JudgeDoubt::Registers);
    }
    if looks.len() >= LEAST_LOOKS {
        judged.leaks = by_class(&leaked, &counts);
    }
    judged
}

/// New lost blocks that registers cannot hold: no few of them lead to all.
fn beyond_registers<'a>(new: &[&'a LostBlock], held: u64) -> Vec<&'a LostBlock> {
    let mut grown: HashMap<u64, u64> = HashMap::new();
    for block in new {
        *grown.entry(block.head).or_default() += block.class.bytes();
    }
    let mut heads: Vec<(u64, u64)> = grown.into_iter().map(|(head, bytes)| (bytes, head)).collect();
    heads.sort_unstable_by(|one, other| other.cmp(one));
    let rest = heads.get(usize::try_from(held).unwrap_or(usize::MAX)..).unwrap_or(&[]);
    let bytes: u64 = rest.iter().map(|(bytes, _)| bytes).sum();
    let is_enough = rest.len() >= LEAST_HEADS || rest.len() >= LEAST_LARGE.0 && bytes >= LEAST_LARGE.1;
    let Some((middle, _)) = rest.get(rest.len() / 2).filter(|_| is_enough) else { return vec![] };
    let usual: HashSet<u64> =
        heads.iter().filter(|(bytes, _)| *bytes <= middle * OUTLIER).map(|(_, head)| *head).collect();
    new.iter().filter(|block| usual.contains(&block.head)).copied().collect()
}

fn by_class(leaked: &[&LostBlock], counts: &BTreeMap<BlockClass, Counts>) -> Vec<LeakedBlocks> {
    let mut new: BTreeMap<BlockClass, u64> = BTreeMap::new();
    for block in leaked {
        *new.entry(block.class).or_default() += 1;
    }
    let blocks = |class: BlockClass| counts.get(&class).map_or(0, |of_class| of_class.lost);
    let mut classes: Vec<_> =
        new.into_iter().map(|(class, new)| LeakedBlocks { class, blocks: blocks(class), new }).collect();
    classes.sort_by_key(|leaked| std::cmp::Reverse(leaked.new * leaked.class.bytes()));
    classes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLASS: BlockClass = BlockClass { units: 17, kind: 3 };

    fn lost(addresses: impl IntoIterator<Item = u64>) -> Vec<LostBlock> {
        addresses
            .into_iter()
            .map(|address| LostBlock { address, class: CLASS, head: address, print: 0 })
            .collect()
    }

    fn of_one_head(addresses: impl IntoIterator<Item = u64>, head: u64) -> Vec<LostBlock> {
        lost(addresses).into_iter().map(|block| LostBlock { head, ..block }).collect()
    }

    #[test]
    fn what_nothing_leads_to_and_grows_is_a_leak() {
        let judged = judge(&[lost(0..100), lost(0..150), lost(0..160)], &[], 1);
        assert_eq!(judged.leaks, [LeakedBlocks { class: CLASS, blocks: 150, new: 50 }]);
        assert_eq!((judged.lost, judged.doubt), ((100 * 272, 100), None));
        assert!(judge(&[lost(0..100), lost(0..150)], &[], 1).leaks.is_empty(), "two looks are too few");
    }

    #[test]
    fn what_does_not_grow_is_none() {
        let judged = judge(&[lost(0..100), lost(0..100), lost(0..100)], &[], 1);
        assert_eq!((judged.leaks, judged.lost.1, judged.doubt), (vec![], 100, None));
    }

    #[test]
    fn blocks_in_motion_are_none() {
        let judged = judge(&[lost(0..100), lost(200..300), lost(400..500)], &[], 1);
        assert_eq!((judged.leaks, judged.doubt), (vec![], None));
    }

    /// A cache whose pointers are hidden: 13 of 100 are new, and as many were freed.
    #[test]
    fn blocks_that_are_freed_are_none() {
        let judged = judge(&[lost(0..10_000), lost(1300..11_300), lost(1310..11_310)], &[], 1);
        assert_eq!((judged.leaks, judged.doubt), (vec![], Some(JudgeDoubt::Freed)));
    }

    /// A leak of 40 MB in a program whose heap lies at low addresses: the third look takes a number at any byte for a
    /// pointer, and 400 of 10,000 blocks have one.
    #[test]
    fn blocks_that_a_wider_rule_covers_are_not_freed() {
        let (covered, rest) = (lost(0..400), 400..10_360);
        let looks = [lost(0..10_000), lost(0..10_360), lost(rest.clone()), lost(rest)];
        assert_eq!(judge(&looks, &[], 1).doubt, Some(JudgeDoubt::Freed));
        let judged = judge(&looks, &covered, 1);
        assert_eq!((judged.leaks[0].new, judged.doubt), (360, None));
    }

    /// Places of blocks that are freed and used again, by a list that was torn in all looks.
    #[test]
    fn blocks_that_are_written_are_none() {
        let written = |print| -> Vec<LostBlock> {
            lost(0..2000)
                .into_iter()
                .map(|block| LostBlock { print: print * (block.address % 2), ..block })
                .collect()
        };
        let judged = judge(&[vec![], written(1), written(2), written(3)], &[], 1);
        assert_eq!((judged.leaks, judged.doubt), (vec![], Some(JudgeDoubt::Freed)));
    }

    #[test]
    fn a_list_that_a_register_may_hold_is_none() {
        let looks = [of_one_head(0..100, 7), of_one_head(0..5000, 8), of_one_head(0..5010, 9)];
        let judged = judge(&looks, &[], 1);
        assert_eq!((judged.leaks, judged.doubt), (vec![], Some(JudgeDoubt::Registers)));
        // A leak beside it is one.
        let with = |at: usize, count: u64| [looks[at].clone(), lost(100_000..100_000 + count)].concat();
        let judged = judge(&[with(0, 0), with(1, 50), with(2, 50)], &[], 1);
        assert_eq!(judged.leaks[0].new, 50);
    }

    #[test]
    fn as_many_blocks_as_registers_hold_are_none() {
        let threads = 8;
        let judged = |new: u64| judge(&[vec![], lost(0..new), lost(0..new)], &[], threads).leaks.len();
        assert_eq!([judged(8 * 6 + 7), judged(8 * 11 + 8)], [0, 1]);
    }

    proptest! {
        #[test]
        fn what_is_called_a_leak_was_lost_in_two_looks_and_not_in_the_first(
            looks in prop::collection::vec(prop::collection::btree_set(0u64..300, 0..300), 3),
            threads in 0u64..4,
        ) {
            let [one, two, three] = [0, 1, 2].map(|at| lost(looks[at].iter().copied()));
            let judged = judge(&[one.clone(), two, three], &[], threads);
            let new = looks[1].iter().filter(|at| looks[2].contains(at) && !looks[0].contains(at)).count() as u64;
            let gone = looks[0].iter().filter(|at| !looks[1].contains(at)).count() as u64;
            for leak in &judged.leaks {
                prop_assert!(leak.new <= new && gone * GONE <= new && leak.new <= leak.blocks);
            }
            prop_assert!(judge(&[one.clone(), one.clone(), one], &[], threads).leaks.is_empty());
        }
    }
}
