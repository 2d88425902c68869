// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a trace, and as a raw file. Run it with a limit of memory (fuzz/README.md): nothing else here
//! bounds what a small file unpacks to.
#![no_main]

use std::io::Cursor;

use imas_replay::trace::file::{Trace, TraceWriter};
use imas_replay::trace::program;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = TraceWriter::default().add(Cursor::new(bytes));
    let Ok(mut trace) = Trace::open(Cursor::new(bytes)) else { return };
    let Some(number) = trace.header.processes.first().map(|process| process.number) else { return };
    let Ok(events) = trace.events(number) else { return };
    let Ok(ends) = program::last_events(events) else { return };
    let Ok(events) = trace.events(number) else { return };
    let _ = program::write(events, &ends, 0, Cursor::new(Vec::new()));
});
