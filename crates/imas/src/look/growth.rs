// SPDX-License-Identifier: Apache-2.0
//! `imas explain PID --for TIME` and `--leaks`: which part of a process's memory grows meanwhile and at what rate, and
//! whether that is a leak, in one sentence.
//!
//! Parts are compared by what the kernel counts. For leaks glibc's heaps are searched ([`imas_linux::reach`]).

use std::time::{Duration, Instant};

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::table;
use imas_engine::memory_look::parts::owner_words;
use imas_engine::memory_look::verdict::MemoryVerdict;
use imas_linux::heap::figures::NotReadable;
use imas_linux::memory_parts::{self, MemoryParts, Owner};
use imas_linux::reach::{self, GrownBlocks, LeakAnswer, LeakSearch};
use imas_linux::runtime::Runtime;
use serde::Serialize;

/// Time between the first look and the second unless the user names another.
const USUAL: Duration = Duration::from_secs(9);
/// Time after which what was in motion at the second look has come to rest.
const SETTLE: Duration = Duration::from_millis(1500);
/// Growth below this, in bytes and in parts of the whole, is no growth.
const LEAST_LIVE: (u64, u64) = (64 << 10, 500);
const LEAST_PART: (u64, u64) = (256 << 10, 200);
/// Time that sees slow growth, seconds.
const LONG_S: f64 = 60.0;
/// Lost memory that does not grow is named from here on, bytes.
const LEAST_LOST: u64 = 64 << 10;
/// Sizes of blocks in a sentence.
const NAMED_SIZES: usize = 3;

/// Kind of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GrowthKind {
    /// Blocks that nothing points to become more.
    Leak,
    /// Blocks that the program still points to become more.
    Reached,
    /// A part beside glibc's blocks grows.
    Elsewhere,
    /// Nothing grows, and much of the heaps is free.
    Fragmentation,
    /// Nothing grows.
    Steady,
    /// Something could not be read, or allows no answer.
    NotKnown,
}

/// One part that has changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GrownPart {
    pub(crate) owner: Owner,
    pub(crate) what: &'static str,
    /// Resident and swapped bytes now.
    pub(crate) bytes: u64,
    /// Change since the first look, bytes.
    pub(crate) grown: i64,
    /// Change as a rate, bytes a minute.
    pub(crate) a_minute: f64,
}

/// Answer for a time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Growth {
    pub(crate) verdict: GrowthKind,
    /// The verdict in words.
    pub(crate) sentence: String,
    /// Time between the looks, seconds.
    pub(crate) seconds: f64,
    /// Parts that have changed, the most grown first.
    pub(crate) parts: Vec<GrownPart>,
    /// Search for leaks; absent where none was asked for, or none was possible.
    pub(crate) search: Option<LeakSearch>,
    /// Why none was possible.
    pub(crate) not_searched: Option<String>,
}

/// Findings about a process in a time.
pub(crate) struct Watched {
    before: MemoryParts,
    after: MemoryParts,
    seconds: f64,
    search: Option<LeakAnswer>,
}

/// Facts by the look at the same process, which has words for its heap.
#[derive(Debug, Clone)]
pub(crate) struct LookedAt {
    pub(crate) pid: u32,
    /// Verdict on its heap.
    pub(crate) verdict: MemoryVerdict,
    /// Words for a trim of it, where one is worth a word.
    pub(crate) trim: Option<String>,
    pub(crate) runtime: Option<Runtime>,
}

/// Watches a process for a time, and searches for `leaks` where asked.
pub(crate) fn watch(pid: u32, (leaks, time): (bool, Option<Duration>)) -> Option<Watched> {
    if !leaks && time.is_none() {
        return None;
    }
    let time = time.unwrap_or(USUAL);
    let first = leaks.then(|| answer(reach::begin(pid)));
    let (before, begun) = (parts(pid), Instant::now());
    std::thread::sleep(time);
    let (after, seconds) = (parts(pid), begun.elapsed().as_secs_f64());
    let search = first.map(|first| first.and_then(|_| to_the_end(pid)));
    Some(Watched { before, after, seconds, search })
}

impl Growth {
    /// Answer by what was watched.
    pub(crate) fn of(watched: Watched, look: &LookedAt) -> Self {
        let Watched { before, after, seconds, search } = watched;
        let is_gone = !before.is_empty() && after.is_empty();
        let parts = if is_gone { vec![] } else { changed(&before, &after, seconds) };
        let (verdict, sentence) = match (&search, is_gone) {
            (_, true) => (GrowthKind::NotKnown, "not known: it has ended meanwhile".to_owned()),
            (None, false) => of_parts(&parts, &after, seconds, Some(look.pid)),
            (Some(search), false) => with_search(look, search.as_ref(), (&parts, &after, seconds)),
        };
        let collects = look.runtime.is_some_and(collects);
        let is_garbage = collects && matches!(verdict, GrowthKind::Reached | GrowthKind::Elsewhere);
        let garbage = if is_garbage {
            "; or garbage that its runtime has not collected yet: look for longer"
        } else {
            ""
        };
        let sentence = sentence + garbage;
        let not_searched = search.as_ref().and_then(|search| search.as_ref().err().map(ToString::to_string));
        Self { verdict, sentence, seconds, parts, search: search.and_then(Result::ok), not_searched }
    }
}

/// The parts of a process; none where it has ended.
fn parts(pid: u32) -> MemoryParts {
    memory_parts::of(pid).map(|memory| memory.parts).unwrap_or_default()
}

/// Whether unused memory of the runtime stays until a collector runs.
fn collects(runtime: Runtime) -> bool {
    !matches!(runtime, Runtime::Cpython | Runtime::Php)
}

/// The looks after the first.
fn to_the_end(pid: u32) -> LeakAnswer {
    loop {
        let search = answer(reach::go_on(pid))?;
        if search.is_done {
            return Ok(search);
        }
        std::thread::sleep(SETTLE);
    }
}

fn answer(answer: std::io::Result<LeakAnswer>) -> LeakAnswer {
    answer.unwrap_or_else(|error| Err(NotReadable::of(&error)))
}

fn changed(before: &MemoryParts, after: &MemoryParts, seconds: f64) -> Vec<GrownPart> {
    let bytes = |parts: &MemoryParts, owner: &Owner| {
        parts.get(owner).map_or(0, |part| part.resident.saturating_add(part.swapped))
    };
    let mut parts: Vec<GrownPart> = after
        .keys()
        .map(|owner| {
            let (old, bytes) = (bytes(before, owner), bytes(after, owner));
            let grown = bytes.cast_signed().saturating_sub(old.cast_signed());
            let a_minute = grown as f64 * 60.0 / seconds.max(0.001);
            GrownPart { owner: *owner, what: owner_words(*owner), bytes, grown, a_minute }
        })
        .filter(|part| part.grown != 0)
        .collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.grown));
    parts
}

/// Whether so much of a whole is growth.
fn is_much(grown: u64, whole: u64, (least, part): (u64, u64)) -> bool {
    grown >= least.max(whole / part)
}

/// Parts that grow enough to be named.
fn growing<'a>(parts: &'a [GrownPart], after: &MemoryParts) -> Vec<&'a GrownPart> {
    let whole: u64 = after.values().map(|part| part.resident).sum();
    let is_one =
        |part: &&GrownPart| u64::try_from(part.grown).is_ok_and(|grown| is_much(grown, whole, LEAST_PART));
    parts.iter().filter(is_one).collect()
}

/// `unsearched` is the process whose heaps nobody has searched yet.
fn of_parts(
    parts: &[GrownPart],
    after: &MemoryParts,
    seconds: f64,
    unsearched: Option<u32>,
) -> (GrowthKind, String) {
    let growing = growing(parts, after);
    if growing.is_empty() {
        let whole: u64 = after.values().map(|part| part.resident).sum();
        let unseen = unseen((whole, LEAST_PART), seconds);
        return (GrowthKind::Steady, format!("does not grow in {seconds:.0} s{unseen}"));
    }
    let words: Vec<_> =
        growing.iter().map(|part| format!("{} by {}", part.what, rate(part.a_minute))).collect();
    let kind = match growing[0].owner {
        Owner::Malloc => GrowthKind::NotKnown,
        _ => GrowthKind::Elsewhere,
    };
    let hint = unsearched.filter(|_| kind == GrowthKind::NotKnown);
    let hint = hint
        .map_or_else(String::new, |pid| format!("; a leak or a cache: 'imas explain {pid} --leaks' says"));
    (kind, format!("grows: {}{hint}", words.join(", ")))
}

/// The slower growth that a look over this time cannot see, with the one that does; empty after a long one.
fn unseen((whole, (least, part)): (u64, (u64, u64)), seconds: f64) -> String {
    if seconds >= LONG_S {
        return String::new();
    }
    let slowest = rate(least.max(whole / part) as f64 * 60.0 / seconds.max(0.001));
    format!(" (below {slowest} nothing is seen in this time: --for {LONG_S:.0}s sees slower growth)")
}

fn with_search(
    look: &LookedAt,
    search: Result<&LeakSearch, &NotReadable>,
    (parts, after, seconds): (&[GrownPart], &MemoryParts, f64),
) -> (GrowthKind, String) {
    let (kind, of_parts) = of_parts(parts, after, seconds, None);
    let search = match search {
        Ok(search) => search,
        Err(reason) => return (GrowthKind::NotKnown, format!("not known: {reason}; its memory {of_parts}")),
    };
    if let Some(answer) = of_blocks(search) {
        return answer;
    }
    let others = growing(parts, after).iter().any(|part| part.owner != Owner::Malloc);
    if others && kind == GrowthKind::Elsewhere {
        return (kind, format!("{of_parts}; no leak was seen in glibc's heaps"));
    }
    still(look, search)
}

/// A leak, or blocks that grow; `None` where neither was seen.
fn of_blocks(search: &LeakSearch) -> Option<(GrowthKind, String)> {
    let [before, now] = search.live;
    let grown = now.saturating_sub(before);
    if !search.leaks.is_empty() {
        let rate = rate(search.leaked_a_second() * 60.0);
        let blocks = blocks_words(&search.leaks);
        let words = format!(
            "leak: {rate} in {blocks} that nothing points to{}; no allocator helps",
            of(&search.leaks)
        );
        return Some((GrowthKind::Leak, words));
    }
    if let Some(doubt) = &search.doubt {
        return Some((GrowthKind::NotKnown, format!("not known: {doubt}")));
    }
    if search.unwalked > (now + search.free) / 2 {
        let words = "not known: most of its heaps could not be walked, they change too fast";
        return Some((GrowthKind::NotKnown, words.to_owned()));
    }
    let is_growing = is_much(grown, before, LEAST_LIVE);
    is_growing.then(|| {
        let rate = rate(grown as f64 * 60.0 / search.seconds.max(0.001));
        let blocks = match search.grown.as_slice() {
            [] => String::new(),
            grown => format!(", most in {}{}", blocks_words(grown), of(grown)),
        };
        (GrowthKind::Reached, format!("grows, and is reached: a cache or a list ({rate}{blocks})"))
    })
}

/// Words for blocks that do not grow.
fn still(look: &LookedAt, search: &LeakSearch) -> (GrowthKind, String) {
    let lost = match search.lost_bytes {
        bytes if bytes < LEAST_LOST => String::new(),
        bytes => format!(
            "; {} in {} that nothing points to: lost once, or their pointers are hidden",
            megabytes(bytes),
            counted(search.lost_blocks, "block")
        ),
    };
    let held = search.live[1].saturating_add(search.free).max(1);
    let share = u128::from(search.free) * 100 / u128::from(held);
    if look.verdict == MemoryVerdict::Fragmentation {
        let trim = look.trim.as_ref().map_or_else(String::new, |trim| format!(", {trim}"));
        let words = format!("does not grow; {share} % is free: fragmentation{trim}{lost}");
        return (GrowthKind::Fragmentation, words);
    }
    let unseen = unseen((search.live[0], LEAST_LIVE), search.seconds);
    let words = format!("does not grow in {:.0} s: no leak was seen{lost}{unseen}", search.seconds);
    (GrowthKind::Steady, words)
}

/// Sizes of the classes with the most bytes.
fn blocks_words(classes: &[GrownBlocks]) -> String {
    let mut sizes: Vec<u64> = classes.iter().map(|class| class.block_bytes).collect();
    sizes.dedup();
    let more = if sizes.len() > NAMED_SIZES { " and other" } else { "" };
    let sizes: Vec<_> = sizes.iter().take(NAMED_SIZES).map(u64::to_string).collect();
    format!("blocks of {}{more} bytes", sizes.join(", "))
}

/// Class of the first blocks that have one.
fn of(classes: &[GrownBlocks]) -> String {
    let found = classes.iter().take(NAMED_SIZES).find_map(|class| class.of.as_ref());
    found.map_or_else(String::new, |of| match &of.class {
        Some(class) => format!(" (class {class} of {})", of.file),
        None => format!(" (their first word leads into {})", of.file),
    })
}

fn megabytes(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        small if small < 1.0 => format!("{:.0} kB", small * 1e3),
        large => format!("{large:.1} MB"),
    }
}

fn rate(bytes_a_minute: f64) -> String {
    match bytes_a_minute / 1e6 {
        small if small < 0.1 => format!("{:.0} kB/min", small * 1e3),
        middle if middle < 10.0 => format!("{middle:.1} MB/min"),
        large => format!("{large:.0} MB/min"),
    }
}

/// The answer as a page: the sentence, and a table of what has changed.
pub(crate) fn page(growth: &Growth) -> String {
    let mut rows: Vec<Vec<String>> = vec![];
    let search = growth.search.as_ref();
    let classes = search.map_or(&[][..], |search| match search.leaks.as_slice() {
        [] => &search.grown,
        leaks => leaks,
    });
    let is_leak = growth.verdict == GrowthKind::Leak;
    if matches!(growth.verdict, GrowthKind::Leak | GrowthKind::Reached) {
        rows.extend(classes.iter().map(|class| {
            let what = if is_leak { "nothing points to" } else { "malloc" };
            let of = of(std::slice::from_ref(class));
            let words = format!("blocks of {} bytes, {what}: {} now{of}", class.block_bytes, class.blocks);
            let seconds = search.map_or(1.0, |search| search.seconds);
            vec![signed(class.new_bytes as f64 * 60.0 / seconds.max(0.001)), words]
        }));
    }
    let is_shown = |part: &&GrownPart| part.grown.unsigned_abs() >= LEAST_PART.0;
    rows.extend(
        growth.parts.iter().filter(is_shown).map(|part| vec![signed(part.a_minute), part.what.to_owned()]),
    );
    let mut page = format!("{}\n", growth.sentence);
    if !rows.is_empty() {
        page.push('\n');
        page.push_str(&table::plain(&["MB/min", "what has changed"], rows.into_iter()));
    }
    page + "\n"
}

fn signed(bytes_a_minute: f64) -> String {
    format!("{:+.2}", bytes_a_minute / 1e6)
}

#[cfg(test)]
mod tests {
    use imas_linux::memory_parts::OwnedBytes;
    use imas_linux::reach::ObjectClass;

    use super::*;

    const MB: u64 = 1_000_000;

    fn owned(of: &[(Owner, u64)]) -> MemoryParts {
        of.iter()
            .map(|(owner, resident)| (*owner, OwnedBytes { resident: *resident, ..OwnedBytes::default() }))
            .collect()
    }

    fn said(
        search: Result<&LeakSearch, &NotReadable>,
        before: &[(Owner, u64)],
        after: &[(Owner, u64)],
    ) -> (GrowthKind, String) {
        let after = owned(after);
        with_search(
            &looked(MemoryVerdict::Fragmentation),
            search,
            (&changed(&owned(before), &after, 6.0), &after, 6.0),
        )
    }

    fn looked(verdict: MemoryVerdict) -> LookedAt {
        let trim = Some("'imas trim 7' returns them now".to_owned());
        LookedAt { pid: 7, verdict, trim, runtime: None }
    }

    fn session() -> GrownBlocks {
        GrownBlocks {
            block_bytes: 272,
            blocks: 900,
            bytes: 272 * 900,
            new_blocks: 441,
            new_bytes: 441 * 272,
            of: Some(ObjectClass { file: "libapp.so".into(), class: Some("Session".into()) }),
        }
    }

    #[test]
    fn the_words_are_of_the_issue() {
        let steady =
            LeakSearch { looks: 2, is_done: true, seconds: 6.0, live: [50 * MB; 2], ..LeakSearch::default() };
        let same = [(Owner::Malloc, 60 * MB)];
        let leak = LeakSearch { leaks: vec![session()], ..steady.clone() };
        assert_eq!(
            said(Ok(&leak), &same, &same),
            (
                GrowthKind::Leak,
                "leak: 1.2 MB/min in blocks of 272 bytes that nothing points to (class Session of libapp.so); no \
                 allocator helps"
                    .into()
            )
        );
        let cache = LeakSearch { live: [50 * MB, 51 * MB], grown: vec![session()], ..steady.clone() };
        let (kind, words) = said(Ok(&cache), &same, &same);
        assert!(
            kind == GrowthKind::Reached
                && words.starts_with(
                    "grows, and is reached: a cache or a list (10 MB/min, most in blocks of 272 bytes"
                ),
            "{words}"
        );
        let free = LeakSearch { free: 40 * MB, live: [60 * MB; 2], ..steady.clone() };
        let fragmentation = "does not grow; 40 % is free: fragmentation, 'imas trim 7' returns them now";
        assert_eq!(said(Ok(&free), &same, &same), (GrowthKind::Fragmentation, fragmentation.into()));
        let doubt = LeakSearch { doubt: Some("why".into()), ..cache };
        assert_eq!(said(Ok(&doubt), &same, &same), (GrowthKind::NotKnown, "not known: why".into()));
        let lost = LeakSearch { lost_bytes: 3 * MB, lost_blocks: 1000, ..steady.clone() };
        let (kind, words) = still(&looked(MemoryVerdict::Live), &lost);
        assert!(
            kind == GrowthKind::Steady
                && words.contains("3.0 MB in 1000 blocks that nothing points to: lost once"),
            "{words}"
        );
    }

    /// What the look calls small, or full of data, is no fragmentation here.
    #[test]
    fn the_look_decides_what_fragmentation_is_and_slow_growth_has_its_bound() {
        let half = LeakSearch { seconds: 9.0, live: [MB; 2], free: 2 * MB, ..LeakSearch::default() };
        let (kind, words) = still(&looked(MemoryVerdict::Small), &half);
        assert_eq!(kind, GrowthKind::Steady);
        let bound = "does not grow in 9 s: no leak was seen (below 0.4 MB/min nothing is seen in this time: --for 60s \
                     sees slower growth)";
        assert_eq!(words, bound);
        let long = LeakSearch { seconds: 60.0, ..half };
        assert_eq!(still(&looked(MemoryVerdict::Small), &long).1, "does not grow in 60 s: no leak was seen");
        let (_, words) = of_parts(&[], &owned(&[(Owner::Malloc, 600 * MB)]), 6.0, Some(7));
        assert!(words.contains("does not grow in 6 s (below 30 MB/min nothing"), "{words}");
    }

    #[test]
    fn a_part_beside_the_heaps_is_named_and_a_search_that_was_not_possible_too() {
        let steady =
            LeakSearch { looks: 2, is_done: true, seconds: 6.0, live: [50 * MB; 2], ..LeakSearch::default() };
        let (before, after) = ([(Owner::Anonymous, 60 * MB)], [(Owner::Anonymous, 61 * MB)]);
        let (kind, words) = said(Ok(&steady), &before, &after);
        assert_eq!(kind, GrowthKind::Elsewhere);
        assert_eq!(words, "grows: other private memory by 10 MB/min; no leak was seen in glibc's heaps");
        let (kind, words) = said(Err(&NotReadable("its C library is musl".into())), &before, &after);
        assert_eq!(kind, GrowthKind::NotKnown);
        assert_eq!(
            words,
            "not known: its C library is musl; its memory grows: other private memory by 10 MB/min"
        );
        let after = owned(&[(Owner::Malloc, 61 * MB)]);
        let changed = changed(&owned(&[(Owner::Malloc, 60 * MB)]), &after, 6.0);
        let alone = of_parts(&changed, &after, 6.0, Some(7)).1;
        assert!(alone.ends_with("a leak or a cache: 'imas explain 7 --leaks' says"), "{alone}");
        assert_eq!(of_parts(&[], &after, 6.0, Some(7)).0, GrowthKind::Steady);
        let refused = NotReadable("its C library is musl".into());
        let (_, words) = said(Err(&refused), &[(Owner::Malloc, 60 * MB)], &[(Owner::Malloc, 61 * MB)]);
        assert!(words.starts_with("not known: ") && !words.contains("--leaks"), "it was asked: {words}");
    }
}
