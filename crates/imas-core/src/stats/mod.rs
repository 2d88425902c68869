// SPDX-License-Identifier: Apache-2.0
//! Textbook statistics that no crate gives in the form needed: robust spread and outliers, and the bootstrap
//! interval of a figure of paired rounds.

mod bootstrap;
mod fraction;
mod median;
mod noise;
mod outliers;
mod paired;
mod round;
mod settle;
mod spending;
mod t_test;

pub use bootstrap::{CONFIDENCE, Interval, RESAMPLES, attainable_confidence, bootstrap, relative_spread};
pub use fraction::{more, saved};
pub use median::{mad, median};
pub use noise::{Steadiness, steadiness};
pub use outliers::{OUTLIER_SCORE, modified_z_scores, outliers};
pub use paired::Moments;
pub use round::significant;
pub use settle::runs_to_settle;
pub use spending::look_share;
pub use t_test::{geometric_mean, mean_and_deviation, mean_interval, t_quantile, t_tail};
