// SPDX-License-Identifier: Apache-2.0
//! Chromium without a window, which loads pages on request over its own HTTP interface.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_linux::environment::Variables;

use super::parts::Apps;
use super::start;

const BROWSER_TIMEOUT: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(100);
/// The sandbox needs rights that containers lack, and the pages are our own; nothing may be fetched from
/// elsewhere.
const FLAGS: [&str; 13] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// A running browser.
pub(super) struct Browser<'a> {
    pub(super) child: Child,
    curl: &'a Path,
    port: u16,
}

impl<'a> Browser<'a> {
    /// Starts a browser and waits until it answers.
    pub(super) fn start(apps: &'a Apps, variables: &Variables, folder: &Path) -> Result<Option<Self>> {
        let (Some(chromium), Some(curl)) = (&apps.browser, &apps.fetch) else { return Ok(None) };
        let profile = folder.join("profile");
        let mut command = start::command(chromium, variables, folder);
        let mut flag = std::ffi::OsString::from("--user-data-dir=");
        flag.push(&profile);
        let child = command.args(FLAGS).arg(flag).arg("about:blank").spawn().context("chromium")?;
        let mut browser = Self { child, curl, port: 0 };
        browser.port = browser.until("it did not open its port", |browser| {
            anyhow::ensure!(browser.child.try_wait()?.is_none(), "it ended at once");
            let text = std::fs::read_to_string(profile.join("DevToolsActivePort")).unwrap_or_default();
            Ok(text.lines().next().and_then(|line| line.parse().ok()))
        })?;
        Ok(Some(browser))
    }

    /// Opens a page in a new tab and waits until it is loaded, which changes its title.
    pub(super) fn open(&mut self, url: &str, title: &str) -> Result<()> {
        let port = self.port;
        self.ask("PUT", &format!("http://127.0.0.1:{port}/json/new?{url}"))?;
        let list = format!("http://127.0.0.1:{port}/json/list");
        self.until("a page was not loaded", |browser| {
            Ok(browser.ask("GET", &list)?.contains(title).then_some(()))
        })
    }

    fn ask(&self, method: &str, url: &str) -> Result<String> {
        let output = std::process::Command::new(self.curl)
            .args(["--silent", "--fail", "--noproxy", "*", "--max-time", "30", "--request", method, url])
            .output()?;
        anyhow::ensure!(output.status.success(), "chromium does not answer ({})", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn until<T>(&mut self, failed: &str, mut ask: impl FnMut(&mut Self) -> Result<Option<T>>) -> Result<T> {
        let start = Instant::now();
        loop {
            if let Some(found) = ask(self)? {
                return Ok(found);
            }
            anyhow::ensure!(
                start.elapsed() < BROWSER_TIMEOUT,
                "chromium: {failed} within {} s",
                BROWSER_TIMEOUT.as_secs()
            );
            std::thread::sleep(ASK_EVERY);
        }
    }
}
