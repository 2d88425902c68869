// SPDX-License-Identifier: Apache-2.0
//! Text in a field of fixed size, as C reads it: ended by NUL.

/// Copies the text into an empty field. `None` when the field has no room for it and one NUL.
pub(crate) fn put(field: &mut [u8], text: &[u8]) -> Option<()> {
    let has_room = text.len() < field.len();
    field.get_mut(..text.len()).filter(|_| has_room)?.copy_from_slice(text);
    Some(())
}

/// The text up to the first NUL.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).into_owned()
}
