// SPDX-License-Identifier: Apache-2.0
//! The pages. Each is a function from what is known and the words of the address to a page and its data.

pub(crate) mod machine;
pub(crate) mod overview;
pub(crate) mod program;
pub(crate) mod what_if;

use axum::http::StatusCode;
use imas_report::page::ResultPage;
use serde_json::Value;

use crate::keeper::{ServedState, Shared};
use crate::listing::Words;

/// Answer to a request.
pub(crate) struct Answer {
    pub(crate) page: ResultPage,
    /// The facts of the page as JSON.
    pub(crate) data: Value,
}

/// Why nothing is answered.
pub(crate) struct Failure {
    pub(crate) code: StatusCode,
    /// A sentence.
    pub(crate) why: String,
}

/// Function that makes the answer.
pub(crate) type View = fn(&Shared, &ServedState, &Words) -> Result<Answer, Failure>;

impl Failure {
    pub(crate) fn not_found(why: &str) -> Self {
        Self { code: StatusCode::NOT_FOUND, why: why.to_owned() }
    }

    pub(crate) fn busy(why: &str) -> Self {
        Self { code: StatusCode::SERVICE_UNAVAILABLE, why: why.to_owned() }
    }

    pub(crate) fn internal(why: &str) -> Self {
        Self { code: StatusCode::INTERNAL_SERVER_ERROR, why: why.to_owned() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::internal(&format!("{error:#}"))
    }
}

/// Each page: its address, its data's address, and what answers.
pub(crate) const PAGES: [(&str, &str, View); 5] = [
    ("/", "/api/overview", overview::answer),
    ("/program", "/api/program", program::answer),
    ("/machine", "/api/machine", machine::answer),
    ("/suite", "/api/suite", program::answer_suite),
    ("/what-if", "/api/what-if", what_if::answer),
];

/// A fraction that is saved, as a change with a sign: 0.123 is `-12.3 %`.
fn saved(fraction: f64) -> String {
    format!("{:+.1} %", (-fraction * 1000.0).round() / 10.0 + 0.0)
}

fn dash() -> String {
    "-".to_owned()
}
