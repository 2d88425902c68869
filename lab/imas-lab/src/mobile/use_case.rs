// SPDX-License-Identifier: Apache-2.0
//! One iteration of the use case under one candidate: browser, pictures, gallery, video; memory before,
//! running and idle.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Variables;
use imas_linux::measure;

use super::browser::Browser;
use super::inputs::{Inputs, PAGES, PICTURES, VIDEO_S};
use super::machine_memory::MachineMemory;
use super::parts::Apps;
use super::server::Files;
use super::spoken::Spoken;
use super::start::{self, seen};

/// Time between two pages and between two pictures of the gallery.
const INTERVAL: Duration = Duration::from_millis(300);
/// Time that the kernel gets to take back what ended processes had.
const SETTLE: Duration = Duration::from_millis(500);
/// The video is played five times as fast as it was made to be seen, again and again: memory is looked at
/// once it was through.
const PLAY_RATE: &str = "5";

/// Figures of an iteration, and the allocator that served each program.
#[derive(Debug, Default)]
pub(super) struct UseCaseFacts {
    pub(super) figures: BTreeMap<String, f64>,
    pub(super) served: BTreeMap<String, String>,
}

/// Programs, inputs and file server that an iteration uses.
pub(super) struct UseCase<'a> {
    pub(super) apps: &'a Apps,
    pub(super) inputs: &'a Inputs,
    pub(super) files: &'a Files,
}

impl UseCase<'_> {
    /// Runs everything, looks at memory, ends everything, looks again. Whatever fails, nothing goes on
    /// running.
    pub(super) fn iteration(
        &self,
        candidate: &CatalogueCandidate,
        variables: &Variables,
        work: &Path,
    ) -> Result<UseCaseFacts> {
        let folder = tempfile::tempdir_in(work)?;
        let mut given = UseCaseFacts::default();
        std::thread::sleep(SETTLE);
        given.look("before")?;
        let ran = self.run(candidate, variables, folder.path(), &mut given);
        measure::end_descendants()?;
        ran?;
        // The downloads and the browser's profile lie in the page cache, which MemFree does not have.
        drop(folder);
        std::thread::sleep(SETTLE);
        given.look("idle")?;
        Ok(given)
    }

    fn run(
        &self,
        candidate: &CatalogueCandidate,
        variables: &Variables,
        folder: &Path,
        given: &mut UseCaseFacts,
    ) -> Result<()> {
        let mut browser = Browser::start(self.apps, variables, folder)?;
        if let Some(browser) = &mut browser {
            for number in 1..=PAGES {
                let url = format!("http://127.0.0.1:{}/page{number}.html", self.files.port);
                browser.open(&url, &format!("page {number} loaded"))?;
                std::thread::sleep(INTERVAL);
            }
        }
        self.fetch(variables, folder)?;
        let gallery = self.gallery(variables, folder)?;
        let video = self.video(variables, folder)?;
        given.look("running")?;
        let programs = [
            ("browser", browser.as_ref().map(|browser| &browser.child)),
            ("gallery", gallery.as_ref()),
            ("video", video.as_ref()),
        ];
        for (name, child) in programs {
            if let Some(child) = child {
                given.program(name, child.id(), candidate).with_context(|| name.to_owned())?;
            }
        }
        Ok(())
    }

    fn fetch(&self, variables: &Variables, folder: &Path) -> Result<()> {
        let Some(curl) = &self.apps.fetch else { return Ok(()) };
        for number in 1..=PICTURES {
            let name = format!("picture{number}.bmp");
            let url = format!("http://127.0.0.1:{}/{name}", self.files.port);
            let words = ["--silent", "--fail", "--noproxy", "*", "--max-time", "30", "--output", &name, &url];
            let status = start::command(curl, variables, folder).args(words).status()?;
            anyhow::ensure!(status.success(), "curl: a picture was not fetched: {status}");
        }
        Ok(())
    }

    /// Scales each picture and stays, as a gallery does that shows them.
    fn gallery(&self, variables: &Variables, folder: &Path) -> Result<Option<Child>> {
        let Some(gm) = &self.apps.gallery else { return Ok(None) };
        let mut command = start::command(gm, variables, folder);
        command
            .args(["batch", "-feedback", "on", "-prompt", "off", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("gm")?;
        let answers = Spoken::of("gm", child.stdout.take().context("gm has no output")?);
        let from = if self.apps.fetch.is_some() { folder } else { &self.inputs.folder };
        for number in 1..=PICTURES {
            let input = child.stdin.as_mut().context("gm has no input")?;
            let picture = from.join(format!("picture{number}.bmp"));
            writeln!(input, "convert \"{}\" -resize 400x300 \"small{number}.bmp\"", picture.display())?;
            let passed = answers.until(|line| match line.trim() {
                "PASS" => Some(true),
                "FAIL" => Some(false),
                _ => None,
            })?;
            anyhow::ensure!(passed, "gm: a picture was not scaled");
            std::thread::sleep(INTERVAL);
        }
        Ok(Some(child))
    }

    /// Plays until all of the video was decoded once, and goes on.
    fn video(&self, variables: &Variables, folder: &Path) -> Result<Option<Child>> {
        let Some(ffmpeg) = &self.apps.video else { return Ok(None) };
        let mut command = start::command(ffmpeg, variables, folder);
        command
            .args(["-v", "error", "-nostdin", "-stream_loop", "-1", "-readrate", PLAY_RATE, "-i"])
            .arg(&self.inputs.video);
        command
            .args(["-progress", "pipe:1", "-stats_period", "0.1", "-f", "null", "-"])
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("ffmpeg")?;
        let progress = Spoken::of("ffmpeg", child.stdout.take().context("ffmpeg has no output")?);
        let played = |line: &str| line.strip_prefix("out_time_us=")?.parse::<u64>().ok();
        progress.until(|line| played(line).filter(|us| *us >= u64::from(VIDEO_S) * 1_000_000))?;
        Ok(Some(child))
    }
}

impl UseCaseFacts {
    fn look(&mut self, state: &str) -> Result<()> {
        let memory = MachineMemory::now()?;
        let sizes =
            [("free", memory.free_bytes), ("available", memory.available_bytes), ("used", memory.used_bytes)];
        for (name, bytes) in sizes {
            self.set(format!("{state}.{name}"), bytes);
        }
        for (order, count) in memory.blocks.iter().enumerate() {
            self.set(format!("{state}.order{order:02}"), *count);
        }
        Ok(())
    }

    fn program(&mut self, name: &str, pid: u32, candidate: &CatalogueCandidate) -> Result<()> {
        let seen = seen(pid, candidate)?;
        self.set(format!("{name}.resident"), seen.resident_bytes);
        self.set(format!("{name}.processes"), seen.processes.into());
        self.served.insert(name.to_owned(), seen.served);
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of a machine are below 2^53")]
    fn set(&mut self, name: String, value: u64) {
        self.figures.insert(name, value as f64);
    }
}
