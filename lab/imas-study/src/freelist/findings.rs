// SPDX-License-Identifier: Apache-2.0
//! The paper's findings (sections 3 to 5), judged by our runs.

use super::runs::Runs;
use super::walk::{Row, Walks};
use crate::band::Band;
use crate::band::{milliseconds, ratio, whole};
use crate::verdict::{Finding, Reproduction};

/// "Levels off": for the rest of the walk the median changes by at most this share.
const LEVEL: f64 = 0.15;
/// "Flattens": the list grows in the last 200 iterations by less than this share of its growth in the first
/// 200.
const FLAT: f64 = 0.5;
/// "Shorter in general": in at least this share of the seeds.
const MOST: f64 = 0.75;
/// "Slower before": by more than this factor.
const SETTLED_RATIO: f64 = 1.1;

pub(crate) fn findings(runs: &Runs) -> Vec<Finding> {
    let mut all = vec![first_block(runs), grows(&runs.plain), flattens(&runs.plain), shrinks(&runs.plain)];
    all.extend(level(&runs.merging, "merging", 400, ("about 30", 30.0), ("about 1,000", 1000.0)));
    all.extend(level(
        &runs.small_head,
        "8-byte headers",
        300,
        ("slightly above 20", 21.0),
        ("about 2,000", 2000.0),
    ));
    all.extend([shorter(runs), footprint(runs), faster(runs), settles(runs)]);
    all
}

fn free_blocks(row: &Row) -> f64 {
    row.free_blocks
}

fn mean_free_bytes(row: &Row) -> f64 {
    row.mean_free_bytes
}

/// Medians at every hundredth iteration.
fn hundreds(walks: &Walks, of: fn(&Row) -> f64) -> Vec<f64> {
    (0..=10).map(|i| walks.median_at(i * 100, of)).collect()
}

fn first_block(runs: &Runs) -> Finding {
    let ours: Vec<u64> = runs.footprints.iter().map(|f| f.first_free_bytes).collect();
    Finding {
        claim: "The first free block is 64 KiB less two headers".to_owned(),
        printed: "65,488 bytes with 24-byte headers".to_owned(),
        ours: ours.iter().map(u64::to_string).collect::<Vec<_>>().join(", ") + " bytes",
        verdict: Reproduction::holds(ours.starts_with(&[65_488, 65_488])),
        remark: "The third is the version with 8-byte headers: 64 KiB less 16.".to_owned(),
    }
}

fn grows(plain: &Walks) -> Finding {
    let medians = hundreds(plain, free_blocks);
    Finding {
        claim: "Without merging the free list grows all the time".to_owned(),
        printed: "a steady increase".to_owned(),
        ours: format!("1 to {} free blocks", whole(plain.band_at(1000, free_blocks))),
        verdict: Reproduction::holds(medians.is_sorted_by(|a, b| a < b)),
        remark: "Judged by the median at every hundredth iteration: each above the one before.".to_owned(),
    }
}

fn flattens(plain: &Walks) -> Finding {
    let at = |i| plain.median_at(i, free_blocks);
    let (early, late) = (at(200) - at(0), at(1000) - at(800));
    Finding {
        claim: "Without merging the growth pans out at the end".to_owned(),
        printed: "flatter at the end".to_owned(),
        ours: format!("+{early:.0} blocks in the first 200 iterations, +{late:.0} in the last"),
        verdict: Reproduction::holds(late < early * FLAT),
        remark: format!(
            "The list stops growing because requests are refused, not because it is in balance: {} of about 500 \
             are, and {} blocks are in use at the end.",
            whole(plain.band_at(1000, |r| r.refused)),
            whole(plain.band_at(1000, |r| r.used_blocks))
        ),
    }
}

fn shrinks(plain: &Walks) -> Finding {
    let medians = hundreds(plain, mean_free_bytes);
    Finding {
        claim: "Without merging the mean free block gets smaller all the time".to_owned(),
        printed: "a steady decrease".to_owned(),
        ours: format!("to {} bytes", whole(plain.band_at(1000, mean_free_bytes))),
        verdict: Reproduction::holds(medians.is_sorted_by(|a, b| a > b)),
        remark: "Judged by the median at every hundredth iteration: each below the one before.".to_owned(),
    }
}

/// A printed value in the paper's words, and the number that is judged.
type Worded<'a> = (&'a str, f64);

fn level(walks: &Walks, version: &str, from: usize, blocks: Worded<'_>, bytes: Worded<'_>) -> Vec<Finding> {
    vec![
        levels_off(walks, version, from),
        length(walks, version, from, blocks),
        size(walks, version, from, bytes),
    ]
}

fn levels_off(walks: &Walks, version: &str, from: usize) -> Finding {
    let medians: Vec<f64> = (from..=1000).map(|i| walks.median_at(i, free_blocks)).collect();
    let (least, most) = medians.iter().fold((f64::INFINITY, 0.0f64), |(l, m), &v| (l.min(v), m.max(v)));
    Finding {
        claim: format!("With {version} the free list is stable after about {from} iterations"),
        printed: format!("stable from iteration {from}"),
        ours: format!("median {least:.0} to {most:.0} from there to the end"),
        verdict: Reproduction::holds(most - least <= (most + least) * LEVEL),
        remark:
            "The median is stable after the first hundred already; a single walk goes on wandering with the \
                 number of live blocks."
                .to_owned(),
    }
}

fn length(walks: &Walks, version: &str, from: usize, (printed, value): Worded<'_>) -> Finding {
    let ours = Band::of(&walks.levels(from, free_blocks));
    let used = Band::of(&walks.levels(from, |r| r.used_blocks));
    Finding {
        claim: format!("With {version} the free list then has {printed} blocks"),
        printed: format!("{printed} blocks"),
        ours: format!("{} blocks", whole(ours)),
        verdict: judged(value, ours),
        remark: format!(
            "About half the number of used blocks, {}, which is a random walk around 40 (Knuth's fifty-percent \
             rule): the level is that of the walk.",
            whole(used)
        ),
    }
}

fn size(walks: &Walks, version: &str, from: usize, (printed, value): Worded<'_>) -> Finding {
    let ours = Band::of(&walks.levels(from, mean_free_bytes));
    Finding {
        claim: format!("With {version} the mean free block then has {printed} bytes"),
        printed: format!("{printed} bytes"),
        ours: format!("{} bytes", whole(ours)),
        verdict: judged(value, ours),
        remark: "Free memory over free blocks: it follows the number of live blocks of the one walk."
            .to_owned(),
    }
}

fn judged(printed: f64, ours: Option<Band>) -> Reproduction {
    ours.map_or(Reproduction::NotReproduced, |band| Reproduction::of_value(printed, band))
}

fn shorter(runs: &Runs) -> Finding {
    let large = runs.merging.levels(400, free_blocks);
    let small = runs.small_head.levels(400, free_blocks);
    let shorter = large.iter().zip(&small).filter(|(l, s)| s < l).count();
    #[expect(clippy::cast_precision_loss, reason = "a number of seeds")]
    let share = shorter as f64 / large.len().max(1) as f64;
    Finding {
        claim: "Smaller headers give a shorter free list and larger free blocks".to_owned(),
        printed: "20 against 30 blocks".to_owned(),
        ours: format!("a shorter list in {:.0} % of {} seeds", share * 100.0, large.len()),
        verdict: Reproduction::holds(share >= MOST),
        remark:
            "Both versions walk the same coin tosses here; the paper's had one walk each, and the difference \
                 between two walks is far larger than that of the headers."
                .to_owned(),
    }
}

fn footprint(runs: &Runs) -> Finding {
    let bytes =
        |version| runs.footprints.iter().find(|f| f.version == version).map_or(0, |f| f.footprint_bytes);
    let (large, small) = (bytes("merging"), bytes("small-head"));
    Finding {
        claim: "1,000 blocks of 16 bytes take 40 % less memory with small headers".to_owned(),
        printed: "40,000 against 24,000 bytes".to_owned(),
        ours: format!("{large} against {small} bytes"),
        verdict: Reproduction::holds((large, small) == (40_000, 24_000)),
        remark: "From the first header to the end of the last block, by address.".to_owned(),
    }
}

fn faster(runs: &Runs) -> Finding {
    let ours = Band::of(&runs.writing.ratios());
    let cache_kib = runs.footprints.first().map_or(0, |f| f.data_cache_bytes / 1024);
    Finding {
        claim: "Writing to blocks with small headers is faster, by a quarter".to_owned(),
        printed: "6 against 8 ms a session, ratio 0.75".to_owned(),
        ours: format!(
            "ratio {}; {} against {}",
            ratio(ours),
            milliseconds(runs.writing.settled(|s| s.small_header_ns)),
            milliseconds(runs.writing.settled(|s| s.large_header_ns))
        ),
        verdict: ours.map_or(Reproduction::NotReproduced, |band| Reproduction::of_ratio(0.75, band)),
        remark: format!(
            "To be expected where 40,000 bytes and the table of 8,000 exceed the first-level data cache and 24,000 \
             do not, as with 32 KiB; this machine's has {cache_kib} KiB (0: not known)."
        ),
    }
}

fn settles(runs: &Runs) -> Finding {
    let ours = Band::of(&runs.writing.warm_up());
    Finding {
        claim: "The time of a session settles after about 30 sessions".to_owned(),
        printed: "slower before session 30".to_owned(),
        ours: format!("first 30 sessions over the rest: {}", ratio(ours)),
        verdict: Reproduction::holds(ours.is_some_and(|b| b.median > SETTLED_RATIO)),
        remark: "A clock that was still speeding up would show it; nothing in the allocator does.".to_owned(),
    }
}
