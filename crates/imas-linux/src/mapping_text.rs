// SPDX-License-Identifier: Apache-2.0
//! Text of `maps` and `smaps`, whose paths a process in a container chooses.

use std::borrow::Cow;

use procfs::process::MemoryMaps;
use procfs::{FromRead as _, ProcResult};

/// Begin of the kernel's name for a segment of shared memory; its key follows, in hexadecimal.
const SEGMENT: &[u8] = b"/SYSV";
const KEY_BYTES: usize = 8;

/// The mappings in the text.
pub(crate) fn parsed(text: &[u8]) -> ProcResult<MemoryMaps> {
    MemoryMaps::from_read(&*with_sound_paths(text))
}

/// The text, in which no file has the begin of a segment's name: procfs panics where no key follows, and
/// reads nothing of a process where the key is no number.
fn with_sound_paths(text: &[u8]) -> Cow<'_, [u8]> {
    let mut sound = Cow::Borrowed(text);
    let mut begin = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let slash = line.iter().position(|byte| *byte == b'/');
        if let Some(slash) = slash.filter(|slash| is_false_segment(&line[*slash..])) {
            sound.to_mut()[begin + slash + 1] = b's';
        }
        begin += line.len() + 1;
    }
    sound
}

fn is_false_segment(path: &[u8]) -> bool {
    let key = path.strip_prefix(SEGMENT).map(|rest| rest.get(..KEY_BYTES));
    key.is_some_and(|key| !key.is_some_and(|key| key.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::process::MMapPath;

    #[test]
    fn a_file_with_the_begin_of_a_segments_name_is_a_file() {
        for name in ["/SYSV", "/SYSVa", "/SYSVabcdefg\u{e9}", "/SYSVnothexad (deleted)", "/SYSV/0123/4567"] {
            let text = format!(
                "10000000-10001000 rw-p 00000000 00:00 7          {name}\nRss: 8 kB\n\
                 20000000-20001000 rw-s 00000000 00:01 9          /SYSV0000abcd (deleted)\nRss: 12 kB\n"
            );
            let maps = parsed(text.as_bytes()).unwrap().0;
            let file = name.replacen("SYSV", "sYSV", 1);
            assert_eq!(maps[0].pathname, MMapPath::Path(file.into()), "{name}");
            assert_eq!(maps[1].pathname, MMapPath::Vsys(0xabcd), "{name}");
            assert_eq!([&maps[0], &maps[1]].map(|map| map.extension.map["Rss"]), [8 << 10, 12 << 10]);
        }
    }
}
