// SPDX-License-Identifier: Apache-2.0
//! Hostile bytes, in a raw file or in a trace, are rejected and have no other effect.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Cursor;

use imas_replay::trace::event::{Event, Function, Position};
use imas_replay::trace::file::{Trace, TraceHeader, TraceWriter};
use imas_replay::trace::{prediction, program, raw};
use proptest::prelude::*;

/// A raw file with these words, as it is left by a process that was killed before its first buffer was full.
fn raw_file(turns: u64, words: &[u64], body: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 4096 + 65536];
    file[..8].copy_from_slice(&raw::RAW_MAGIC.to_ne_bytes());
    file[8..12].copy_from_slice(&raw::VERSION.to_ne_bytes());
    file[32..40].copy_from_slice(&turns.to_ne_bytes());
    file[60..64].copy_from_slice(&4096_u32.to_ne_bytes());
    for (at, word) in words.iter().enumerate().take(8192) {
        file[4096 + at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
    }
    file.extend(body);
    file
}

fn word(kind: u64, address: u64, size: u64) -> u64 {
    1 << 63 | kind << 59 | size << 44 | address >> 4
}

fn trace_of(raw: &[u8]) -> Vec<u8> {
    let mut writer = TraceWriter::default();
    writer.add(Cursor::new(raw)).unwrap();
    let mut trace = Vec::new();
    writer.write(TraceHeader::default(), &mut trace).unwrap();
    trace
}

fn events(trace: &[u8]) -> Vec<Event> {
    let mut trace = Trace::open(Cursor::new(trace)).unwrap();
    trace.events(0).unwrap().map(Result::unwrap).collect()
}

#[test]
fn calls_become_numbered_events_without_addresses() {
    let (a, b) = (0x5555_0000_1000, 0x7fff_0000_2000);
    let words = [
        word(1, a, 100),
        word(2, b, 200),
        word(4, a, 0),
        word(5, a + 0x100, 150),
        word(6, 1 << 24, 0) & !(0x7FFF << 44),
        word(1, a, 0x7FFF),
        word(3, b, 0),
        word(3, 0x1230, 0),
        word(1, 0, 99),
    ];
    let trace = trace_of(&raw_file(0, &words, &[]));
    let made = |function, size| Event::Made { function, size, alignment: 0 };
    let want = [
        made(Function::Malloc, 100),
        made(Function::Calloc, 200),
        Event::Resized { block: 0, size: 150 },
        made(Function::Malloc, 1 << 20),
        Event::Freed { block: 1 },
    ];
    assert_eq!(events(&trace), want);
    let header = Trace::open(Cursor::new(&trace)).unwrap().header;
    let counts = header.processes[0].counts;
    assert_eq!((counts.calls, counts.blocks, counts.unknown, counts.refused), (5, 3, 1, 1));
}

#[test]
fn a_realloc_is_of_its_thread_and_an_address_is_free_for_others_meanwhile() {
    let (a, b) = (0x1000, 0x2000);
    let thread = |number: u64| 1 << 63 | 8 << 59 | number;
    let words = [
        word(1, a, 10),
        word(4, a, 0),
        thread(2),
        word(1, a, 20), // the first thread's realloc has freed this address
        thread(1),
        word(5, b, 30),
        word(3, a, 0),
        word(3, b, 0),
    ];
    let blocks: Vec<Event> = events(&trace_of(&raw_file(0, &words, &[])))
        .into_iter()
        .filter(|e| !matches!(e, Event::Thread(_)))
        .collect();
    assert_eq!(blocks[2], Event::Resized { block: 0, size: 30 });
    assert_eq!(blocks[3..], [Event::Freed { block: 1 }, Event::Freed { block: 0 }]);
}

#[test]
fn a_torn_raw_file_gives_what_is_whole_of_it() {
    let words = [word(1, 0x1000, 10), word(1, 0x2000, 20)];
    let whole = raw_file(0, &words, &[]);
    assert_eq!(events(&trace_of(&whole)).len(), 2);
    assert_eq!(events(&trace_of(&whole[..4096 + 8])).len(), 1, "cut off within the buffer");
    // The header promises a full buffer, but the file has none.
    assert!(events(&trace_of(&raw_file(1, &words, &[]))).len() <= 2);
    assert!(raw::RawReader::new(Cursor::new(&whole[..40])).is_err());
    assert!(raw::RawReader::new(Cursor::new(vec![7; 80_000])).is_err());
}

#[test]
fn a_torn_or_foreign_trace_is_rejected_with_the_reason() {
    let trace = trace_of(&raw_file(0, &[word(1, 0x1000, 10)], &[]));
    let why = |bytes: &[u8]| Trace::open(Cursor::new(bytes)).unwrap_err().to_string();
    assert!(why(b"").contains("not a trace"));
    assert!(why(&[b"PK\x03\x04".as_slice(), &[0; 40]].concat()).contains("not a trace"));
    assert!(why(&trace[..trace.len() - 1]).contains("cut off"));
    assert!(why(&trace[..30]).contains("cut off"));
    let mut newer = trace.clone();
    newer[8] = 2;
    assert!(why(&newer).contains("version 2"));
}

/// A trace whose one process has these events again and again.
fn repeated(events: &[Event], times: usize) -> Vec<u8> {
    let (mut position, mut bytes) = (Position::default(), vec![]);
    for _ in 0..times {
        events.iter().for_each(|event| position.encode(event, &mut bytes));
    }
    let packed = zstd::encode_all(Cursor::new(bytes), 6).unwrap();
    let mut trace = trace_of(&raw_file(0, &[], &[]));
    let mut header = Trace::open(Cursor::new(&trace)).unwrap().header;
    header.processes[0].bytes = packed.len() as u64;
    let json = serde_json::to_vec(&header).unwrap();
    trace.truncate(12);
    trace.extend(u32::try_from(json.len()).unwrap().to_le_bytes());
    trace.extend(json);
    trace.extend(packed);
    trace
}

/// The replay program of a trace, and its bytes.
fn prepared(trace: &[u8]) -> Result<Vec<u8>, String> {
    let mut trace = Trace::open(Cursor::new(trace)).map_err(|error| error.to_string())?;
    let ends = program::last_events(trace.events(0).map_err(|error| error.to_string())?);
    let mut out = Cursor::new(Vec::new());
    let events = trace.events(0).map_err(|error| error.to_string())?;
    program::write(events, &ends.map_err(|error| error.to_string())?, 0, &mut out)
        .map_err(|error| error.to_string())?;
    Ok(out.into_inner())
}

#[test]
fn a_block_that_is_resized_to_nothing_stays_alive_in_the_replay() {
    let made = Event::Made { function: Function::Malloc, size: 8, alignment: 0 };
    let events = [made, Event::Resized { block: 0, size: 0 }, Event::Freed { block: 0 }];
    let program = prepared(&repeated(&events, 1)).unwrap();
    let words: Vec<u64> = program[64..].as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    assert_eq!(words, [1_u64 << 60 | 8, 4 << 60 | 1, 3 << 60, 11 << 60]);
}

#[test]
fn a_small_trace_that_unpacks_to_very_many_events_is_refused() {
    let ended = repeated(&[Event::ThreadEnded(7)], 20_000_000);
    let made = repeated(&[Event::Made { function: Function::Malloc, size: 8, alignment: 0 }], 5_000_000);
    assert!(ended.len().max(made.len()) < 20_000, "{} {}", ended.len(), made.len());
    assert!(prepared(&ended).unwrap_err().contains("too many events"));
    assert!(prepared(&made).unwrap_err().contains("alive at once"));
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (any::<u64>(), any::<bool>()).prop_map(|(size, zeroed)| Event::Made {
            function: if zeroed { Function::Calloc } else { Function::Malloc },
            size,
            alignment: 0,
        }),
        (any::<u64>(), any::<u64>()).prop_map(|(size, alignment)| Event::Made {
            function: Function::AlignedAlloc,
            size,
            alignment,
        }),
        (1..u32::MAX).prop_map(Event::Thread),
        (1..u32::MAX).prop_map(Event::ThreadEnded),
        any::<u64>().prop_map(|bytes| Event::Resident { bytes, cpu_ns: 5 }),
    ]
}

proptest! {
    #[test]
    fn events_are_read_as_they_were_written(events in proptest::collection::vec(any_event(), 0..50)) {
        let (mut position, mut bytes) = (Position::default(), Vec::new());
        events.iter().for_each(|event| position.encode(event, &mut bytes));
        let (mut position, mut bytes) = (Position::default(), bytes.into_iter());
        let read: Vec<Event> = std::iter::from_fn(|| position.decode(&mut bytes).unwrap()).collect();
        prop_assert_eq!(read, events);
    }

    #[test]
    fn no_arguments_cause_a_panic(words in proptest::collection::vec(any::<u64>(), 0..300), turns in 0..4_u64, body in 0..200_000_usize) {
        let words: Vec<u64> = words.iter().map(|word| word | 1 << 63).collect();
        let trace = trace_of(&raw_file(turns, &words, &vec![0xA5; body]));
        let mut trace = Trace::open(Cursor::new(trace)).unwrap();
        let ends = program::last_events(trace.events(0).unwrap()).unwrap();
        let mut out = Cursor::new(Vec::new());
        let made = program::write(trace.events(0).unwrap(), &ends, 0, &mut out);
        if let Ok(made) = made {
            prop_assert_eq!(out.into_inner().len() as u64, 64 + 8 * made.words);
        }
    }

    #[test]
    fn no_damage_to_a_trace_breaks_anything(at in 0..400_usize, value in any::<u8>()) {
        let words: Vec<u64> = (1..60).map(|n| word(1, n * 4096, n)).chain((1..60).map(|n| word(3, n * 4096, 0))).collect();
        let mut bytes = trace_of(&raw_file(0, &words, &[]));
        let at = at % bytes.len();
        bytes[at] = value;
        if let Ok(mut trace) = Trace::open(Cursor::new(bytes))
            && let Ok(events) = trace.events(0)
        {
            prop_assert!(events.take(1000).count() <= 1000);
        }
    }

    #[test]
    fn a_replay_program_is_bounded_by_the_trace(events in proptest::collection::vec(any_event(), 1..6), times in 1..20_000_usize) {
        let trace = repeated(&events, times);
        if let Ok(program) = prepared(&trace) {
            prop_assert!(program.len() as u64 <= 24 * ((1 << 24) + 256 * trace.len() as u64));
        }
    }

    #[test]
    fn no_bytes_are_a_result_by_accident(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(prediction::parse_result(&bytes).is_none());
    }
}
