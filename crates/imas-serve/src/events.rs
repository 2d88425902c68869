// SPDX-License-Identifier: Apache-2.0
//! Server-sent events: that what is known has changed. What it is, a page asks for itself.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;

use crate::shared::Shared;

/// Time between two signs of life, by which a connection whose client is gone is noticed.
const BEAT: Duration = Duration::from_secs(15);

/// `/events`
pub(crate) async fn get(State(shared): State<Arc<Shared>>) -> Response {
    let Ok(place) = Arc::clone(&shared.listeners).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages listen for changes\n").into_response();
    };
    let changes = WatchStream::new(shared.keeper.subscribe()).map(move |known| {
        let _held = &place; // until the stream ends
        let generation = known.as_ref().map_or(0, |known| known.generation);
        let data = serde_json::json!({ "generation": generation });
        Ok::<_, Infallible>(
            Event::default().event("changed").id(generation.to_string()).data(data.to_string()),
        )
    });
    Sse::new(changes).keep_alive(KeepAlive::new().interval(BEAT)).into_response()
}
