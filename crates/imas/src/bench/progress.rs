// SPDX-License-Identifier: Apache-2.0
//! The bar of `imas bench`: on a terminal only, on standard error.

use imas_runs::plan::Kind;
use indicatif::{ProgressBar, ProgressStyle};

pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn start(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (about {eta} left)");
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    pub(super) fn step(&self, candidate: &str, kind: Kind) {
        let what = match kind {
            Kind::Warmup => "warm-up",
            Kind::Measured { .. } => "measured",
            Kind::Counted { .. } => "counted",
        };
        self.0.set_message(format!("{candidate}, {what}"));
        self.0.inc(1);
    }

    pub(super) fn finish(self) {
        self.0.finish_and_clear();
    }
}
