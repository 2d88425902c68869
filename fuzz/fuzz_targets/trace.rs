// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a trace, and as a raw file.
#![no_main]

use std::io::Cursor;

use imas_trace::file::{Trace, TraceWriter};
use imas_trace::program;
use libfuzzer_sys::fuzz_target;

/// A small frame may unpack to any length.
const EVENTS_MOST: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let _ = TraceWriter::default().add(Cursor::new(bytes));
    let Ok(mut trace) = Trace::open(Cursor::new(bytes)) else { return };
    let Some(number) = trace.header.processes.first().map(|process| process.number) else { return };
    let Ok(events) = trace.events(number) else { return };
    let Ok(ends) = program::last_events(events.take(EVENTS_MOST)) else { return };
    let Ok(events) = trace.events(number) else { return };
    let _ = program::write(events.take(EVENTS_MOST), &ends, 0, Cursor::new(Vec::new()));
});
