// SPDX-License-Identifier: Apache-2.0
//! Style and scripts. Their addresses contain a hash, so that a browser keeps them and never mixes versions.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use imas_report::page;

use crate::answer;

const LIVE: &str = include_str!("assets/live.js");

/// A file.
struct Asset {
    name: String,
    kind: &'static str,
    text: String,
}

impl Asset {
    fn new(name: &str, ending: &str, kind: &'static str, text: String) -> Self {
        let digits: String =
            answer::tag(text.as_bytes()).chars().filter(char::is_ascii_hexdigit).take(12).collect();
        Self { name: format!("{name}-{digits}.{ending}"), kind, text }
    }
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    [
        Asset::new("style", "css", "text/css; charset=utf-8", page::stylesheet()),
        Asset::new("page", "js", SCRIPT, page::script().to_owned()),
        Asset::new("live", "js", SCRIPT, LIVE.to_owned()),
    ]
});

/// Address of the style.
pub(crate) fn style() -> String {
    format!("/static/{}", ASSETS[0].name)
}

/// Addresses of the scripts.
pub(crate) fn scripts() -> Vec<String> {
    ASSETS[1..].iter().map(|asset| format!("/static/{}", asset.name)).collect()
}

/// `/static/NAME`
pub(crate) async fn get(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => {
            let forever = [(header::CACHE_CONTROL, "private, max-age=31536000, immutable")];
            (forever, answer::tagged(&headers, asset.kind, asset.text.clone())).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
