// SPDX-License-Identifier: Apache-2.0
//! What an interpreter is given may be as long as a command line: 128 KiB a word. It is kept up to a length;
//! of more, the beginning for people, and hash and length, by which the hook finds the program.

use imas_linux::fnv::fnv64;
use imas_linux::index::Detail;

/// Kept as it is up to this length in bytes; what is shortened is longer, so that neither is taken for the
/// other.
const LONGEST: usize = 1024;

/// Between the beginning and the rest of a shortened text.
const CUT: &str = "... [";
/// Text between length and hash.
const BYTES: &str = " bytes, fnv64 ";

/// Detail and its text as they are kept.
pub(crate) fn kept(detail: Detail, text: String) -> (Detail, String) {
    let detail = match detail {
        Detail::Text(whole) if whole.len() > LONGEST => Detail::LongText([fnv64(&whole), whole.len() as u64]),
        other => other,
    };
    let key = match detail {
        Detail::LongText(key) => key,
        _ => [fnv64(text.as_bytes()), text.len() as u64],
    };
    let text = if text.len() > LONGEST { shortened(&text, key) } else { text };
    (detail, text)
}

fn shortened(text: &str, [hash, bytes]: [u64; 2]) -> String {
    // At the end of a character, and not below the limit.
    let end = (LONGEST..).find(|at| text.is_char_boundary(*at)).unwrap_or(LONGEST);
    format!("{}{CUT}{bytes}{BYTES}{hash:016x}]", text.get(..end).unwrap_or_default())
}

/// Hash and length of the text that was shortened to this one; `None` for what is no shortened text.
pub(crate) fn key_of_kept(text: &str) -> Option<[u64; 2]> {
    let text = text.strip_suffix(']').filter(|_| text.len() > LONGEST)?;
    let (_, rest) = text.rsplit_once(CUT)?;
    let (bytes, hash) = rest.split_once(BYTES)?;
    Some([u64::from_str_radix(hash, 16).ok()?, bytes.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Detail, String) {
        kept(Detail::Text(text.as_bytes().to_vec()), text.to_owned())
    }

    #[test]
    fn a_text_up_to_the_limit_is_kept_as_it_is() {
        for text in ["", "-m http.server", &"x".repeat(LONGEST)] {
            assert_eq!(of(text), (Detail::Text(text.as_bytes().to_vec()), text.to_owned()));
            assert_eq!(key_of_kept(text), None);
        }
    }

    #[test]
    fn a_longer_one_is_found_by_hash_and_length() {
        for long in ["x".repeat(LONGEST + 1), "é".repeat(60_000), format!("x{}", "é".repeat(LONGEST))] {
            let (detail, text) = of(&long);
            assert!(text.len() > LONGEST && text.len() < LONGEST + 100, "{}", text.len());
            assert_eq!(
                detail.key(),
                Detail::Text(long.clone().into_bytes()).key(),
                "as the hook looks it up"
            );
            assert_eq!(key_of_kept(&text).map(Detail::LongText), Some(detail));
        }
        let (one, other) = (of(&format!("{}a", "x".repeat(9999))), of(&format!("{}b", "x".repeat(9999))));
        assert_ne!(one, other);
        assert_ne!(one.1, other.1);
    }

    #[test]
    fn bytes_that_are_no_text_are_hashed_as_they_are() {
        let bytes = vec![0xff; 2000];
        let (detail, text) = kept(Detail::Text(bytes.clone()), String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(detail.key(), Detail::Text(bytes).key());
        assert_eq!(key_of_kept(&text).map(Detail::LongText), Some(detail));
    }
}
