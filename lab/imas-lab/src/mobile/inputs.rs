// SPDX-License-Identifier: Apache-2.0
//! Inputs of the use case: three pages, five pictures and a video, made once and the same every time.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};

/// Number of pages, as in the paper.
pub(super) const PAGES: u32 = 3;
/// Number of pictures, as in the paper.
pub(super) const PICTURES: u32 = 5;
/// Length of the video in seconds, as in the paper.
pub(super) const VIDEO_S: u32 = 15;
const WIDTH: u32 = 1600;
const HEIGHT: u32 = 1200;

/// Paths of the inputs.
pub(super) struct Inputs {
    pub(super) folder: PathBuf,
    pub(super) video: PathBuf,
}

/// Makes what is not there yet; the video only when there is a program to play it.
pub(super) fn make(folder: &Path, ffmpeg: Option<&Path>) -> Result<Inputs> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for number in 1..=PAGES {
        put(&folder.join(format!("page{number}.html")), || Ok(page(number).into_bytes()))?;
    }
    for number in 1..=PICTURES {
        put(&folder.join(format!("picture{number}.bmp")), || Ok(picture(number)))?;
    }
    let video = folder.join("video.avi");
    if let Some(ffmpeg) = ffmpeg {
        put(&video, || encoded(ffmpeg, folder))?;
    }
    Ok(Inputs { folder: folder.to_owned(), video })
}

/// Whole or not at all: a kill must not leave half a file for the next time.
fn put(path: &Path, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    let new = path.with_extension("new");
    std::fs::write(&new, make()?)
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| path.display().to_string())
}

/// Text, a table, drawings, pictures and a script that builds and drops elements; its title changes once all
/// of it is loaded.
fn page(number: u32) -> String {
    let mut random = StdRng::seed_from_u64(u64::from(number));
    let mut text = format!(
        "<!doctype html><html><head><meta charset=utf-8><title>page {number}</title></head><body><h1>Page {number}</h1>"
    );
    for _ in 0..60 {
        text.push_str("<p>");
        for _ in 0..random.random_range(30..120) {
            let length = random.random_range(2..11);
            text.extend((0..length).map(|_| char::from(random.random_range(b'a'..=b'z'))));
            text.push(' ');
        }
        text.push_str("</p>");
    }
    text.push_str("<table>");
    for row in 0..200 {
        let _ = write!(
            text,
            "<tr><td>{row}<td>{}<td>{}</tr>",
            random.random_range(0..9999),
            random.random_range(0..9999)
        );
    }
    text.push_str("</table><svg width=600 height=400>");
    for _ in 0..400 {
        let mut at = || random.random_range(0..600);
        let _ = write!(text, "<circle cx={} cy={} r={} fill='#{:03x}'/>", at(), at(), at() % 40, at());
    }
    text.push_str("</svg>");
    for picture in 1..=2 {
        let _ = write!(text, "<img src=picture{}.bmp width=400>", (number + picture) % PICTURES + 1);
    }
    text.push_str(
        "<script>const all=[];for(let i=0;i<2e4;i++){const e=document.createElement('div');e.textContent='item '+i;all.push(e)}\
         document.body.append(...all.slice(0,500));window.onload=()=>{document.title+=' loaded'}</script></body></html>",
    );
    text
}

/// A BMP of 24 bits: gradients with noise, so that it is no flat colour.
fn picture(number: u32) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(u64::from(number) << 8);
    // A row of 1600 pixels of 3 bytes is a multiple of four already.
    let bytes = WIDTH * HEIGHT * 3;
    let mut file = Vec::with_capacity(bytes as usize + 54);
    file.extend_from_slice(b"BM");
    for word in [bytes + 54, 0, 54, 40, WIDTH, HEIGHT, 1 | 24 << 16, 0, bytes, 2835, 2835, 0, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let noise = random.random_range(0..16);
            let channel = |a: u32| u8::try_from((a + noise) % 256).unwrap_or(0);
            file.extend([channel(x * number / 8), channel(y / 4), channel((x + y) / 8)]);
        }
    }
    file
}

fn encoded(ffmpeg: &Path, folder: &Path) -> Result<Vec<u8>> {
    let made = folder.join("made.avi");
    let source = format!("testsrc2=size=1280x720:rate=25:duration={VIDEO_S}");
    let output = Command::new(ffmpeg)
        .args(["-v", "error", "-nostdin", "-y", "-f", "lavfi", "-i", &source])
        .args(["-c:v", "mpeg4", "-q:v", "4", "-threads", "1", "-flags", "+bitexact", "-fflags", "+bitexact"])
        .arg(&made)
        .stdin(Stdio::null())
        .output()?;
    anyhow::ensure!(
        output.status.success(),
        "the video could not be made: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let bytes = std::fs::read(&made)?;
    std::fs::remove_file(&made)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_whole_and_pages_end() {
        let picture = picture(1);
        assert_eq!(picture.len(), 54 + (WIDTH * HEIGHT * 3) as usize);
        assert_eq!(&picture[..2], b"BM");
        assert!(page(1).ends_with("</html>") && page(1) != page(2) && page(1) == page(1));
    }
}
