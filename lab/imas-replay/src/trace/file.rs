// SPDX-License-Identifier: Apache-2.0
//! The trace file (`docs/trace-format.md`).

use std::collections::HashSet;
use std::io::{BufReader, Bytes, Read, Seek, SeekFrom, Take, Write};

use serde::{Deserialize, Serialize};

use crate::trace::event::{Counts, Event, EventError, Numbering, Position};
use crate::trace::raw::{RawError, RawReader, Stop};

/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"IMASTRC\n";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Limit for the length of a header.
const HEADER_MOST: u32 = 16 << 20;
/// Limit for the number of live blocks. It is the range of the replayer's numbers, and no machine holds so
/// many.
pub const LIVE_MOST: usize = 1 << 26;
/// A small compressed frame may unpack to any length. What is read of it depends on its length in the file:
/// at most this many events, and [`EVENTS_OF_BYTE`] more for each byte of the frame. Recorded programs have
/// fewer than ten events for each byte.
const EVENTS_OF_ANY: u64 = 1 << 24;
const EVENTS_OF_BYTE: u64 = 256;
/// Most blocks that are alive at once. A reader holds at most 64 bytes for each.
const LIVE_OF_ANY: u64 = 1 << 22;
const LIVE_OF_BYTE: u64 = 8;
/// Higher levels save a tenth of the bytes and take several times as long.
const LEVEL: i32 = 6;

/// The header of a trace, stored as JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The machine's architecture.
    pub machine: String,
    /// When recording began, in seconds of the Unix epoch.
    pub began_unix_s: f64,
    /// CPU seconds of the whole tree, with the recorder's own; 0 if unknown.
    pub cpu_s: f64,
    /// Seconds from start to end; 0 if unknown.
    pub wall_s: f64,
    /// Exit status of the program, or 128 + signal.
    pub exit: i32,
    /// Number of processes without a record: the limit was reached, or the disk was full.
    pub left_out: u32,
    /// The processes, in the order in which they began.
    pub processes: Vec<TraceProcess>,
}

/// One process. After an exec the process counts as a new one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceProcess {
    /// Number of the process.
    pub number: u32,
    /// The number of the process that forked this one. None after exec and for the first process.
    pub parent: Option<u32>,
    /// When the process began: nanoseconds since the begin of the process that began first.
    pub began_ns: u64,
    /// The reason why recording ended before the process did.
    pub stop: Stop,
    /// Whether the process ran its exit handlers. It does not when it is killed or calls exec.
    pub ended: bool,
    /// Number of calls that were not recorded.
    pub lost: u64,
    /// Figures of the process.
    #[serde(flatten)]
    pub counts: Counts,
    /// Bytes of its events in the file.
    pub bytes: u64,
}

/// The reason why a file is not a trace.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum TraceError {
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("not a trace: it was not written by 'imas-lab record'")]
    Foreign,
    #[error("a trace of version {0}; this imas reads version {VERSION}")]
    Version(u32),
    #[error("its header is damaged")]
    Header,
    #[error("it is cut off")]
    Torn,
    #[error("it has no process {0}")]
    Process(u32),
    #[error("damaged: {0}")]
    Event(#[from] EventError),
}

/// A trace that is being written.
#[derive(Debug, Default)]
pub struct TraceWriter {
    processes: Vec<(TraceProcess, Vec<u8>)>,
}

impl TraceWriter {
    /// Adds the process of a raw file.
    ///
    /// # Errors
    /// When the file cannot be read or is no raw file.
    pub fn add(&mut self, raw: impl Read + Seek) -> Result<(), RawError> {
        let mut reader = RawReader::new(raw)?;
        let header = reader.header;
        let mut numbering = Numbering::new(header.page_bytes);
        let mut position = Position::default();
        let mut packed = zstd::Encoder::new(Vec::new(), LEVEL)?;
        let (mut events, mut bytes) = (Vec::new(), Vec::new());
        while let Some(word) = reader.read()? {
            events.clear();
            bytes.clear();
            numbering.word(word, &mut events);
            events.iter().for_each(|event| position.encode(event, &mut bytes));
            packed.write_all(&bytes)?;
        }
        let packed = packed.finish()?;
        let process = TraceProcess {
            number: header.number,
            parent: header.parent,
            began_ns: header.made_ns,
            stop: header.stop,
            ended: header.ended,
            lost: header.lost,
            counts: numbering.counts(),
            bytes: packed.len() as u64,
        };
        self.processes.push((process, packed));
        Ok(())
    }

    /// Makes the begins relative to the process that began first.
    fn count_from_the_first(&mut self) {
        let first = self.processes.iter().map(|(process, _)| process.began_ns).min().unwrap_or(0);
        self.processes.iter_mut().for_each(|(process, _)| process.began_ns -= first);
    }

    /// Writes the trace. `header` has all fields but the processes. Returns the complete header.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn write(mut self, header: TraceHeader, mut out: impl Write) -> std::io::Result<TraceHeader> {
        self.processes.sort_by_key(|(process, _)| process.number);
        self.count_from_the_first();
        let processes = self.processes.iter().map(|(process, _)| process.clone()).collect();
        let header = TraceHeader { processes, ..header };
        let json = serde_json::to_vec(&header)?;
        let length = u32::try_from(json.len()).ok().filter(|length| *length <= HEADER_MOST);
        let length = length.ok_or_else(|| std::io::Error::other("too many processes for one trace"))?;
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&json)?;
        for (_, packed) in &self.processes {
            out.write_all(packed)?;
        }
        out.flush()?;
        Ok(header)
    }
}

/// A trace.
#[derive(Debug)]
pub struct Trace<R> {
    file: R,
    events_at: u64,
    /// The header.
    pub header: TraceHeader,
}

impl<R: Read + Seek> Trace<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When the file is not a trace, is of another version, is damaged, or is cut off.
    pub fn open(mut file: R) -> Result<Self, TraceError> {
        let mut start = [0; 16];
        file.read_exact(&mut start).map_err(|_| TraceError::Foreign)?;
        let number = |at: usize| {
            let bytes = start.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_le_bytes)
        };
        if start[..8] != MAGIC {
            return Err(TraceError::Foreign);
        }
        if number(8) != VERSION {
            return Err(TraceError::Version(number(8)));
        }
        let length = Some(number(12)).filter(|length| *length <= HEADER_MOST).ok_or(TraceError::Header)?;
        let mut json = Vec::new();
        (&mut file).take(length.into()).read_to_end(&mut json)?;
        if json.len() as u64 != u64::from(length) {
            return Err(TraceError::Torn);
        }
        let header: TraceHeader = serde_json::from_slice(&json).map_err(|_| TraceError::Header)?;
        let events_at = start.len() as u64 + u64::from(length);
        let trace = Self { file, events_at, header };
        trace.whole()
    }

    /// Checks for a file that is cut off. So it is rejected at once, and not after an hour of replay.
    fn whole(mut self) -> Result<Self, TraceError> {
        let sum = |sum: u64, process: &TraceProcess| sum.checked_add(process.bytes);
        let end = self.header.processes.iter().try_fold(self.events_at, sum).ok_or(TraceError::Header)?;
        if self.file.seek(SeekFrom::End(0))? < end {
            return Err(TraceError::Torn);
        }
        Ok(self)
    }

    /// The events of one process.
    ///
    /// # Errors
    /// When there is no such process or the file cannot be read.
    pub fn events(&mut self, number: u32) -> Result<Events<'_>, TraceError> {
        let processes = &self.header.processes;
        let at = processes.iter().position(|process| process.number == number);
        let at = at.ok_or(TraceError::Process(number))?;
        let before: u64 = processes[..at].iter().map(|process| process.bytes).sum();
        let bytes = processes[at].bytes;
        self.file.seek(SeekFrom::Start(self.events_at + before))?;
        Events::new((&mut self.file as &mut dyn Read).take(bytes))
    }
}

/// The compressed events of one process in the file.
type Packed<'a> = BufReader<Take<&'a mut dyn Read>>;

/// The events of one process. Each is checked: every block that it names is alive.
pub struct Events<'a> {
    bytes: Bytes<BufReader<zstd::Decoder<'static, Packed<'a>>>>,
    position: Position,
    live: HashSet<u64>,
    /// Events that may still come.
    left: u64,
    live_most: usize,
    is_over: bool,
}

impl std::fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("position", &self.position).finish_non_exhaustive()
    }
}

/// Limit for the window of a compressed frame. The highest level of compression uses 27.
const WINDOW_LOG_MOST: u32 = 27;

impl<'a> Events<'a> {
    fn new(packed: Take<&'a mut dyn Read>) -> Result<Self, TraceError> {
        let most = |any: u64, of_byte: u64| any.saturating_add(packed.limit().saturating_mul(of_byte));
        let left = most(EVENTS_OF_ANY, EVENTS_OF_BYTE);
        let live_most = usize::try_from(most(LIVE_OF_ANY, LIVE_OF_BYTE)).unwrap_or(LIVE_MOST).min(LIVE_MOST);
        let mut decoder = zstd::Decoder::new(packed)?.single_frame();
        decoder.window_log_max(WINDOW_LOG_MOST)?;
        let bytes = BufReader::with_capacity(1 << 16, decoder).bytes();
        let (position, live) = Default::default();
        Ok(Self { bytes, position, live, left, live_most, is_over: false })
    }

    fn read(&mut self) -> Result<Option<Event>, EventError> {
        let mut failed = false;
        let mut bytes = self.bytes.by_ref().map_while(|byte| byte.inspect_err(|_| failed = true).ok());
        let event = self.position.decode(&mut bytes);
        if failed {
            return Err(EventError::Packed);
        }
        if let Some(event) = event? {
            self.left = self.left.checked_sub(1).ok_or(EventError::Unpacked)?;
            self.check(&event)?;
            return Ok(Some(event));
        }
        Ok(None)
    }

    fn check(&mut self, event: &Event) -> Result<(), EventError> {
        let is_there = match event {
            Event::Made { .. } => self.live.insert(self.position.blocks - 1),
            Event::Freed { block } => self.live.remove(block),
            Event::Resized { block, .. } => self.live.contains(block),
            _ => true,
        };
        if self.live.len() > self.live_most {
            return Err(EventError::Live);
        }
        if is_there { Ok(()) } else { Err(EventError::Block) }
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, EventError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let event = self.read();
        self.is_over = !matches!(event, Ok(Some(_)));
        event.transpose()
    }
}
