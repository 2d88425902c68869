// SPDX-License-Identifier: Apache-2.0
//! Bytes that C reads and writes too: the hash of `abi/imas_index.h`, FNV-1a (G. Fowler, L. C. Noll, P. Vo), as
//! `hook/fnv.h` has it; and text in a field of fixed size, ended by NUL.

/// The 64-bit hash, of keys and texts.
#[must_use]
pub fn fnv64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(imas_abi::FNV64_START, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(imas_abi::FNV64_PRIME)
    })
}

/// The 32-bit hash, of records with their check sum zero.
pub(super) fn fnv32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(imas_abi::FNV32_START, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(imas_abi::FNV32_PRIME)
    })
}

/// Copies the text into an empty field. `None` when the field has no room for it and one NUL.
pub(super) fn put(field: &mut [u8], text: &[u8]) -> Option<()> {
    let has_room = text.len() < field.len();
    field.get_mut(..text.len()).filter(|_| has_room)?.copy_from_slice(text);
    Some(())
}

/// The text up to the first NUL.
pub(super) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test vectors of the authors.
    #[test]
    fn the_hash_has_the_published_values() {
        assert_eq!((fnv32(b""), fnv32(b"a"), fnv32(b"foobar")), (0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968));
        assert_eq!(fnv64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv64(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
