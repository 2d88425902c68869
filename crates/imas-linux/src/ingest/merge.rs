// SPDX-License-Identifier: Apache-2.0
//! The pages of a process tree as one sample.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use imas_abi::{HEADER_BYTES, TRIAL_PAGE_BYTES};
use imas_core::Sample;
use imas_core::sample::{MemoryFigures, OpFigures, Usage};
use imas_core::split::Split;
use rustix::fs::{Mode, OFlags, open, openat};

use crate::ingest::parse::parse;
use crate::ingest::{MergeError, PageError, ParsedPage, ReadError};

/// Sums the pages of one trial up; the first is the root of the tree. Of one page it is
/// [`ParsedPage::to_sample`].
///
/// - Pages of processes that stood aside add nothing, unless all did: then it is the root's sample.
/// - Counts add. Mean times are weighted by calls, over the processes that timed any.
/// - Peaks of memory and of the resident set add, which is an upper bound: they need not have been at one
///   instant.
/// - Means of memory are weighted by each process's share of the tree's time (first start to last snapshot),
///   so that a thousand short children weigh what they held on average, not a thousand times that.
/// - No split of a tree in which forked children went on without exec: they would count their parent's blocks
///   again.
/// - CPU seconds, faults and switches add over the processes that came to write them.
/// - The end is the first crashed process's, else the root's.
/// - Where different objects served, `served` names them all, joined by commas, so that the sample is not
///   taken for one of its candidate.
///
/// # Errors
/// No page, pages of different trials, or sums beyond what can be stored.
pub fn merge(pages: &[ParsedPage]) -> Result<Sample, MergeError> {
    let root = pages.first().ok_or(MergeError::Empty)?;
    pages.iter().try_for_each(|page| same_trial(root, page))?;
    let counted: Vec<&ParsedPage> = pages.iter().filter(|page| page.pass_reason.is_none()).collect();
    let processes = u32::try_from(pages.len()).map_err(|_| MergeError::Overflow)?;
    if counted.is_empty() {
        return Ok(Sample { processes, ..root.to_sample() });
    }
    let samples: Vec<Sample> = counted.iter().map(|page| page.to_sample()).collect();
    let crash = counted.iter().map(|page| page.ended).find(|ended| ended.is_crash());
    Ok(Sample {
        ended: crash.unwrap_or(root.ended),
        pass_reason: None,
        served: served(&counted),
        processes,
        memory: match share_blocks(pages) {
            true => MemoryFigures { split: None, ..memory(&counted)? },
            false => memory(&counted)?,
        },
        wall_s: span_ns(&counted) as f64 / 1e9,
        ..sums(root, &samples)?
    })
}

fn same_trial(root: &ParsedPage, page: &ParsedPage) -> Result<(), MergeError> {
    if page.trial_id != root.trial_id {
        let (expected, found) = (root.trial_id.clone(), page.trial_id.clone());
        return Err(MergeError::OtherTrial { expected, found });
    }
    if (&page.candidate, page.kind, &page.boot_id) != (&root.candidate, root.kind, &root.boot_id) {
        return Err(MergeError::Contradiction(root.trial_id.clone()));
    }
    Ok(())
}

/// Whether blocks are counted by two processes: a child of fork has its parent's, and its allocator reports
/// them, until it replaces itself and has another page.
fn share_blocks(pages: &[ParsedPage]) -> bool {
    let process = |page: &ParsedPage| (page.pid, page.process_start_ticks);
    let replaced: HashSet<_> = pages.iter().filter(|page| !page.is_forked).map(process).collect();
    pages.len() > 1 && pages.iter().any(|page| page.is_forked && !replaced.contains(&process(page)))
}

/// The sum of those figures that simply add.
fn sums(root: &ParsedPage, samples: &[Sample]) -> Result<Sample, MergeError> {
    let count = |of: fn(&Sample) -> u64| add(samples.iter().map(of));
    let small = |of: fn(&Sample) -> u32| samples.iter().fold(0u32, |sum, s| sum.saturating_add(of(s)));
    Ok(Sample {
        malloc: operation(samples, |s| &s.malloc)?,
        realloc: operation(samples, |s| &s.realloc)?,
        memalign: operation(samples, |s| &s.memalign)?,
        free: operation(samples, |s| &s.free)?,
        bytes_requested: count(|s| s.bytes_requested)?,
        refused: count(|s| s.refused)?,
        rounding_bytes: count(|s| s.rounding_bytes)?,
        size_histogram: histogram(samples.iter().map(|s| &s.size_histogram[..]))?,
        live_dropped: count(|s| s.live_dropped)?,
        threads: small(|s| s.threads),
        forks: small(|s| s.forks),
        usage: usage(samples)?,
        ..root.to_sample()
    })
}

/// A sum that can be stored.
fn add(values: impl Iterator<Item = u64>) -> Result<u64, MergeError> {
    let sum = values.into_iter().try_fold(0u64, u64::checked_add);
    sum.filter(|&sum| i64::try_from(sum).is_ok()).ok_or(MergeError::Overflow)
}

fn operation(samples: &[Sample], of: fn(&Sample) -> &OpFigures) -> Result<OpFigures, MergeError> {
    let timed: Vec<&OpFigures> = samples.iter().map(of).filter(|op| op.sampled > 0).collect();
    // A timed call may not have been counted yet, so no weight is 0.
    let weight = |op: &OpFigures| op.calls.max(op.sampled) as f64;
    let weights: f64 = timed.iter().map(|op| weight(op)).sum();
    // From +0.0 on: the sum of no floats is -0.0.
    let mean_ns = timed.iter().fold(0.0, |sum, op| sum + op.mean_ns * (weight(op) / weights));
    Ok(OpFigures {
        calls: add(samples.iter().map(|s| of(s).calls))?,
        sampled: add(timed.iter().map(|op| op.sampled))?,
        mean_ns,
        histogram_ticks: histogram(samples.iter().map(|s| &of(s).histogram_ticks[..]))?,
        // One machine has one clock.
        ns_per_tick: timed.iter().map(|op| op.ns_per_tick).find(|ns| *ns > 0.0).unwrap_or(0.0),
    })
}

/// Bucket by bucket; a flight page has none.
fn histogram<'a>(histograms: impl Iterator<Item = &'a [u64]>) -> Result<Vec<u64>, MergeError> {
    histograms.into_iter().try_fold(Vec::new(), |mut sum: Vec<u64>, buckets| {
        sum.resize(sum.len().max(buckets.len()), 0);
        for (total, bucket) in sum.iter_mut().zip(buckets) {
            *total = add([*total, *bucket].into_iter())?;
        }
        Ok(sum)
    })
}

fn usage(samples: &[Sample]) -> Result<Option<Usage>, MergeError> {
    let usages: Vec<&Usage> = samples.iter().filter_map(|s| s.usage.as_ref()).collect();
    if usages.is_empty() {
        return Ok(None);
    }
    let count = |of: fn(&Usage) -> u64| add(usages.iter().map(|usage| of(usage)));
    Ok(Some(Usage {
        user_s: usages.iter().map(|usage| usage.user_s).sum(),
        system_s: usages.iter().map(|usage| usage.system_s).sum(),
        minor_faults: count(|u| u.minor_faults)?,
        major_faults: count(|u| u.major_faults)?,
        max_rss_bytes: count(|u| u.max_rss_bytes)?,
        voluntary_switches: count(|u| u.voluntary_switches)?,
        involuntary_switches: count(|u| u.involuntary_switches)?,
    }))
}

/// Nanoseconds from the first start to the last snapshot. The clock is one for the whole machine.
fn span_ns(pages: &[&ParsedPage]) -> u64 {
    let start = pages.iter().map(|page| page.clock.start_ns).min().unwrap_or(0);
    let last = pages.iter().map(|page| page.clock.last_ns).max().unwrap_or(0);
    last - start
}

fn memory(pages: &[&ParsedPage]) -> Result<MemoryFigures, MergeError> {
    let span_ns = span_ns(pages);
    let peak = |of: fn(&MemoryFigures) -> u64| add(pages.iter().map(|page| of(&page.memory)));
    let mean = |of: fn(&MemoryFigures) -> u64| {
        add(pages.iter().map(|page| {
            let life_ns = page.clock.last_ns - page.clock.start_ns;
            share(of(&page.memory), life_ns, span_ns)
        }))
    };
    Ok(MemoryFigures {
        snapshots: add(pages.iter().map(|page| page.memory.snapshots))?,
        heap_mean: mean(|m| m.heap_mean)?,
        heap_peak: peak(|m| m.heap_peak)?,
        live_mean: mean(|m| m.live_mean)?,
        live_peak: peak(|m| m.live_peak)?,
        resident_mean: mean(|m| m.resident_mean)?,
        resident_peak: peak(|m| m.resident_peak)?,
        resident_over_time: mean(|m| m.resident_over_time)?,
        split: split(pages, span_ns)?,
    })
}

/// Sums of means, weighted as memory is, over the processes that took samples; reported only if all of
/// them did.
fn split(pages: &[&ParsedPage], span_ns: u64) -> Result<Option<Split>, MergeError> {
    let looked: Vec<(Split, u64)> = pages
        .iter()
        .filter_map(|page| Some((page.memory.split?, page.clock.last_ns - page.clock.start_ns)))
        .collect();
    if looked.is_empty() {
        return Ok(None);
    }
    let mean = |of: &dyn Fn(&Split) -> u64| {
        add(looked.iter().map(|(split, life_ns)| share(of(split), *life_ns, span_ns)))
    };
    let splits: Vec<Split> = looked.iter().map(|(split, _)| *split).collect();
    add(splits.iter().map(|split| split.moments))?; // more than can be stored is refused, not cut
    Split::combined(&splits, mean).map(Some)
}

/// value * life / span, rounded down; the value itself when no time passed at all.
fn share(value: u64, life_ns: u64, span_ns: u64) -> u64 {
    let share = (u128::from(value) * u128::from(life_ns)).checked_div(u128::from(span_ns));
    share.map_or(value, |share| u64::try_from(share).unwrap_or(value))
}

/// Processes that died before they found out are silent.
fn served(pages: &[&ParsedPage]) -> String {
    let names = pages.iter().map(|page| page.served.as_str()).filter(|name| !name.is_empty());
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

/// Facts about a page that the reader knows beforehand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedPage {
    /// Uid that the page must be of, by the file's owner and by the page's header.
    pub uid: u32,
    /// Now, seconds since the epoch: no page was made later.
    pub now_unix_s: f64,
}

/// A link in place of the page is refused, and a pipe or device in its place does not block and opens no
/// terminal.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Reads the page at `path`. Links in the directories above it are followed: where those are not one's own,
/// use
/// [`read_page_at`].
///
/// # Errors
/// See [`ReadError`].
pub fn read_page_file(path: &Path, expected: &ExpectedPage) -> Result<ParsedPage, ReadError> {
    let fd = open(path, FLAGS, Mode::empty()).map_err(std::io::Error::from)?;
    read(&File::from(fd), expected)
}

/// Reads the page `name` in the open directory `dir`, where no link can lead elsewhere.
///
/// # Errors
/// See [`ReadError`]; [`ReadError::Name`] when `name` is a path.
pub fn read_page_at(dir: impl AsFd, name: &OsStr, expected: &ExpectedPage) -> Result<ParsedPage, ReadError> {
    if name.as_bytes().contains(&b'/') {
        return Err(ReadError::Name);
    }
    let fd = openat(dir, name, FLAGS, Mode::empty()).map_err(std::io::Error::from)?;
    read(&File::from(fd), expected)
}

/// The bytes of the file at `path`, where that may be a page of the user.
///
/// # Errors
/// When it cannot be read, or is none.
pub(crate) fn page_bytes(path: &Path, uid: u32) -> std::io::Result<Vec<u8>> {
    let file = File::from(open(path, FLAGS, Mode::empty())?);
    bytes(&file, uid).map_err(|_| rustix::io::Errno::INVAL.into())
}

fn read(file: &File, expected: &ExpectedPage) -> Result<ParsedPage, ReadError> {
    page_of_bytes(&bytes(file, expected.uid)?, expected)
}

fn bytes(file: &File, uid: u32) -> Result<Vec<u8>, ReadError> {
    let size = size(&file.metadata()?, uid)?;
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The page in the bytes of a file of its user.
///
/// # Errors
/// See [`ReadError`].
pub(crate) fn page_of_bytes(bytes: &[u8], expected: &ExpectedPage) -> Result<ParsedPage, ReadError> {
    let page = parse(bytes)?;
    owned_by(page.uid, expected.uid)?;
    Ok(page.not_after(expected.now_unix_s))
}

/// Size of a file that may be read as a page.
fn size(metadata: &Metadata, uid: u32) -> Result<usize, ReadError> {
    if !metadata.is_file() {
        return Err(ReadError::NotRegular);
    }
    if metadata.nlink() != 1 {
        return Err(ReadError::Links(metadata.nlink()));
    }
    owned_by(metadata.uid(), uid)?;
    let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    if [HEADER_BYTES, TRIAL_PAGE_BYTES].contains(&size) {
        Ok(size)
    } else {
        Err(PageError::Size(size).into())
    }
}

fn owned_by(found: u32, expected: u32) -> Result<(), ReadError> {
    if found == expected { Ok(()) } else { Err(ReadError::Owner { found, expected }) }
}
