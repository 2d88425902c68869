// SPDX-License-Identifier: Apache-2.0
//! The raw file of one process: the words of `abi/imas_record.h`.

use std::io::{Read, Seek, SeekFrom};

/// First bytes of the control file.
pub const CONTROL_MAGIC: u64 = 0x314C_5443_5241_4D49;
/// First bytes of a raw file.
pub const RAW_MAGIC: u64 = 0x3157_4152_5241_4D49;
/// Version of both.
pub const VERSION: u32 = 2;
/// Size of the control file.
pub const CONTROL_BYTES: usize = 4096;
/// Size of a raw file's header.
pub const HEADER_BYTES: u64 = 4096;
/// Size of a raw file's buffer, and of each full one.
pub const BUFFER_BYTES: u64 = 65_536;

const PHASE: u64 = 1 << 63;
const SIZE_SHIFT: u32 = 44;
const SIZE_MOST: u64 = 0x7FFF;
const BLOCK_MASK: u64 = (1 << SIZE_SHIFT) - 1;
const VALUE_MASK: u64 = (1 << 59) - 1;

/// The end of a recording before the program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingEnd {
    /// The recording has no end before the program's.
    Never,
    /// At this time, nanoseconds of `CLOCK_MONOTONIC_RAW`.
    At(u64),
    /// This number of nanoseconds after the first process of the recording has begun.
    After(u64),
}

/// The control file of a recording, as `imas-lab record` makes it.
#[must_use]
pub fn control(limit_bytes: u64, end: RecordingEnd) -> Vec<u8> {
    let (end_ns, window_ns) = match end {
        RecordingEnd::Never => (0, 0),
        RecordingEnd::At(ns) => (ns, 0),
        RecordingEnd::After(ns) => (0, ns),
    };
    let mut bytes = Vec::with_capacity(CONTROL_BYTES);
    bytes.extend(CONTROL_MAGIC.to_ne_bytes());
    bytes.extend(VERSION.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(limit_bytes.to_ne_bytes());
    bytes.extend(0_u64.to_ne_bytes());
    bytes.extend(end_ns.to_ne_bytes());
    bytes.extend(0_u64.to_ne_bytes());
    bytes.extend(window_ns.to_ne_bytes());
    bytes.resize(CONTROL_BYTES, 0);
    bytes
}

/// Number of processes without a raw file, read from the bytes of a control file.
#[must_use]
pub fn refused_files(control: &[u8]) -> u32 {
    number_32(control, 40).unwrap_or(0)
}

/// The reason why a process stopped recording before its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// Recording did not stop.
    #[default]
    None,
    /// The limit of the recording was reached.
    Limit,
    /// The time limit of the recording was reached.
    Time,
    /// The raw file could not be written.
    File,
    /// The process entered a seccomp sandbox.
    Sandbox,
    /// The process uses another malloc than libc's.
    Unfit,
}

impl Stop {
    fn of(code: u32) -> Self {
        let stops = [Self::None, Self::Limit, Self::Time, Self::File, Self::Sandbox, Self::Unfit];
        usize::try_from(code).ok().and_then(|code| stops.get(code)).copied().unwrap_or(Self::File)
    }
}

/// The header of a raw file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawHeader {
    /// Number of the process, from 0 in the order of the recording.
    pub number: u32,
    /// The number of the process that forked this one.
    pub parent: Option<u32>,
    /// When the file was made: nanoseconds of `CLOCK_MONOTONIC_RAW`.
    pub made_ns: u64,
    /// Number of full buffers after the first one.
    pub turns: u64,
    /// The reason why recording stopped.
    pub stop: Stop,
    /// Calls that were not recorded.
    pub lost: u64,
    /// The process ran its exit handlers.
    pub ended: bool,
    /// Page size in bytes. Resident memory is counted in pages.
    pub page_bytes: u64,
}

/// The reason why a file is not a raw file.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file has another format.
    #[error("not a raw file of this version of imas")]
    Foreign,
}

/// The meaning of one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawWord {
    /// malloc and the aligned functions: address and size. Address 0: the call failed.
    Malloc(u64, u64),
    /// calloc: address and size.
    Calloc(u64, u64),
    /// free: address. Written before the call.
    Free(u64),
    /// realloc: old address. Written before the call.
    ReallocOf(u64),
    /// realloc: new address and size. Written after the call.
    Realloc(u64, u64),
    /// Alignment and function of the next word.
    Aligned(u64),
    /// The thread that makes the next calls.
    Thread(u64),
    /// The current thread ends.
    ThreadEnd,
    /// Nanoseconds since the recording began.
    Time(u64),
    /// Resident pages.
    Resident(u64),
    /// CPU nanoseconds.
    Cpu(u64),
}

/// Reads the words of a raw file.
#[derive(Debug)]
pub struct RawReader<R> {
    file: R,
    /// The header.
    pub header: RawHeader,
    chunk: Vec<u8>,
    at: usize,
    left: u64,
    /// Set in the last buffer: the phase bit of its valid words.
    phase: Option<u64>,
    large: Option<u64>,
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn number_32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

fn number_64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

fn header(bytes: &[u8]) -> Option<RawHeader> {
    let is_ours = number_64(bytes, 0)? == RAW_MAGIC && number_32(bytes, 8)? == VERSION;
    let (number, parent) = (number_32(bytes, 12)?, number_32(bytes, 16)?);
    is_ours.then_some(RawHeader {
        number,
        parent: Some(parent).filter(|parent| *parent != number),
        made_ns: number_64(bytes, 24)?,
        turns: number_64(bytes, 32)?,
        stop: Stop::of(number_32(bytes, 40)?),
        lost: number_64(bytes, 48)?,
        ended: number_32(bytes, 56)? == 1,
        page_bytes: number_32(bytes, 60)?.into(),
    })
}

impl<R: Read + Seek> RawReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When the file cannot be read or is no raw file.
    pub fn new(mut file: R) -> Result<Self, RawError> {
        let mut bytes = [0; 64];
        file.read_exact(&mut bytes).map_err(|_| RawError::Foreign)?;
        let mut header = header(&bytes).ok_or(RawError::Foreign)?;
        let body = file.seek(SeekFrom::End(0))?.saturating_sub(HEADER_BYTES + BUFFER_BYTES);
        // A damaged file may promise more buffers than it has.
        header.turns = header.turns.min(body / BUFFER_BYTES);
        file.seek(SeekFrom::Start(HEADER_BYTES + BUFFER_BYTES))?;
        let left = header.turns;
        Ok(Self { file, header, chunk: Vec::new(), at: 0, left, phase: None, large: None })
    }

    /// Reads the next buffer: first the full ones, then the last one, which is partly filled.
    fn refill(&mut self) -> Result<bool, RawError> {
        if self.phase.is_some() {
            return Ok(false);
        }
        if self.left == 0 {
            self.phase = Some(if self.header.turns.is_multiple_of(2) { PHASE } else { 0 });
            self.file.seek(SeekFrom::Start(HEADER_BYTES))?;
        } else {
            self.left -= 1;
        }
        self.chunk.clear();
        (&mut self.file).take(BUFFER_BYTES).read_to_end(&mut self.chunk)?;
        self.at = 0;
        Ok(true)
    }

    fn next_word(&mut self) -> Result<Option<u64>, RawError> {
        loop {
            if let Some(word) = number_64(&self.chunk, self.at) {
                self.at += 8;
                let is_end = self.phase.is_some_and(|phase| word & PHASE != phase);
                return Ok(Some(word).filter(|_| !is_end));
            }
            if !self.refill()? {
                return Ok(None);
            }
        }
    }

    /// The next word with a meaning. None at the end. Unknown kinds of words are skipped.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&mut self) -> Result<Option<RawWord>, RawError> {
        while let Some(word) = self.next_word()? {
            let value = word & VALUE_MASK;
            if word >> 59 & 15 == 6 {
                self.large = Some(value);
            } else if let Some(word) = self.word(word) {
                return Ok(Some(word));
            }
        }
        Ok(None)
    }

    fn word(&mut self, word: u64) -> Option<RawWord> {
        let (value, block) = (word & VALUE_MASK, (word & BLOCK_MASK) << 4);
        let size = word >> SIZE_SHIFT & SIZE_MOST;
        let kind = word >> 59 & 15;
        let size = if size == SIZE_MOST { self.large.take().unwrap_or(size) } else { size };
        let event = match kind {
            1 => RawWord::Malloc(block, size),
            2 => RawWord::Calloc(block, size),
            3 => RawWord::Free(block),
            4 => RawWord::ReallocOf(block),
            5 => RawWord::Realloc(block, size),
            7 => RawWord::Aligned(value),
            8 => RawWord::Thread(value),
            9 => RawWord::ThreadEnd,
            10 => RawWord::Time(value),
            11 => RawWord::Resident(value),
            12 => RawWord::Cpu(value),
            _ => return None,
        };
        Some(event)
    }
}
