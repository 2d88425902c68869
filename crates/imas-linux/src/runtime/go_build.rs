// SPDX-License-Identifier: Apache-2.0
//! What the Go linker writes into each program: the section `.go.buildinfo`.

/// Bytes of the section that are looked at.
pub const GO_BUILD_BYTES: usize = 512;

const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Flags of the header: bit 1 says that the texts follow it. Before Go 1.18 pointers did.
const FLAGS_AT: usize = 15;
const TEXTS_FOLLOW: u8 = 2;
const TEXTS_AT: usize = 32;

/// Version of Go that made the program, such as `1.26.8`, from the beginning of the section. `None` if it is
/// no such section; `Some(None)` if it is one of an older Go.
#[must_use]
pub fn go_version(section: &[u8]) -> Option<Option<String>> {
    section.starts_with(MAGIC).then(|| version(section))
}

fn version(section: &[u8]) -> Option<String> {
    if section.get(FLAGS_AT)? & TEXTS_FOLLOW == 0 {
        return None;
    }
    // A varint; a version that needs two bytes for its length is none.
    let length = section.get(TEXTS_AT).filter(|length| **length < 0x80)?;
    let text = section.get(TEXTS_AT + 1..)?.get(..usize::from(*length))?;
    let text = std::str::from_utf8(text).ok()?.strip_prefix("go")?;
    super::is_version(text).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(flags: u8, version: &[u8]) -> Vec<u8> {
        let mut section = MAGIC.to_vec();
        section.extend([8, flags]);
        section.resize(TEXTS_AT, 0);
        section.push(u8::try_from(version.len()).unwrap());
        section.extend(version);
        section
    }

    #[test]
    fn the_version_is_read_where_it_is_written_out() {
        let read = |section: &[u8]| go_version(section);
        assert_eq!(read(&section(2, b"go1.26.8")), Some(Some("1.26.8".to_owned())));
        assert_eq!(read(&section(0, b"go1.16")), Some(None), "pointers");
        assert_eq!(read(b"\x7fELF"), None);
        assert_eq!(read(b""), None);
    }

    #[test]
    fn nonsense_is_no_version() {
        for bad in [&b"go\xff\xfe"[..], b"devel", b"go", b"go1.2; rm -rf", b"go1.2\n"] {
            assert_eq!(go_version(&section(2, bad)), Some(None), "{bad:?}");
        }
        let mut cut = section(2, b"go1.26.8");
        cut.truncate(TEXTS_AT + 4);
        assert_eq!(go_version(&cut), Some(None));
        let mut long = section(2, b"go1.26.8");
        long[TEXTS_AT] = 0xff;
        assert_eq!(go_version(&long), Some(None));
        assert_eq!(go_version(&section(2, b"")[..14]), Some(None));
    }
}
