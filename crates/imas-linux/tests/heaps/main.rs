// SPDX-License-Identifier: Apache-2.0
//! What is read of the heaps of other processes, compared with what glibc says of itself in them and with what
//! `malloc_trim(0)` then returned.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod subject;

use imas_linux::heap::figures::HeapFigures;
use imas_linux::process_heaps;
use subject::Subject;

/// A figure may be off by so many bytes, or by a twentieth.
const MOST_OFF: u64 = 1 << 20;

fn assert_near(what: &str, found: u64, expected: u64) {
    let off = found.abs_diff(expected);
    assert!(off <= MOST_OFF.max(expected / 20), "{what}: {found}, expected {expected}, off by {off}");
}

fn looked_at(subject: &Subject) -> HeapFigures {
    process_heaps::of(subject.pid()).unwrap()
}

/// Compares with mallinfo2, then with what a trim returns.
fn compare(mut subject: Subject) {
    let found = looked_at(&subject);
    let [free, live, held] = subject.says();
    println!("mallinfo2: free {free}, live {live}, held {held}; {found:#?}");
    assert!(!found.is_estimate(), "{found:?}");
    assert_near("free", found.bytes.all_free(), free);
    assert_near("live", found.bytes.live + found.bytes.cached, live);
    assert_near("held", found.held, held);
    let [before, after] = subject.trims().map(|kib| kib << 10);
    println!("returnable {}, returned {}", found.bytes.returnable, before - after);
    assert_near("returnable", found.bytes.returnable, before - after);
    let again = looked_at(&subject);
    assert!(again.bytes.returnable < MOST_OFF, "all was returned: {again:?}");
}

#[test]
fn one_thread() {
    compare(Subject::of_c(&["0", "120000"]));
}

#[test]
fn many_threads() {
    compare(Subject::of_c(&["12", "15000"]));
}

#[test]
fn arenas_of_several_heaps() {
    let subject = Subject::of_c(&["2", "120000"]);
    let found = looked_at(&subject);
    assert!(found.largest.iter().any(|arena| arena.heaps > 1), "{found:#?}");
}

#[test]
fn an_interpreter_with_threads() {
    compare(Subject::of_python());
}

/// Each look at a heap that changes gives figures that fit together, or none.
#[test]
fn a_heap_that_changes_is_read_or_refused() {
    let mut subject = Subject::of_c(&["4", "40000"]);
    subject.works();
    let looks: Vec<_> = (0..30).map(|_| process_heaps::of(subject.pid())).collect();
    let read: Vec<_> = looks.iter().flatten().collect();
    for look in &looks {
        match look {
            Ok(found) => assert!(found.read * 2 > found.held, "{found:?}"),
            Err(reason) => assert!(reason.0.contains("too fast"), "{reason}"),
        }
    }
    println!("{} of {} looks came to an end", read.len(), looks.len());
    assert!(read.len() > 15, "{looks:?}");
}
