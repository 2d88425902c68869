// SPDX-License-Identifier: Apache-2.0
//! The addresses, and what each answers.
//!
//! Server-sent events: that what is known has changed. What it is, a page asks for itself.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Router, middleware};
use imas_core::printable;
use imas_report::page::{ResultPage, Site, SiteLink};
use serde_json::json;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;
use tower_http::compression::CompressionLayer;

use crate::admission::{Admission, admit};
use crate::keeper::{ServedState, Shared};
use crate::pages::{Answer, Failure, PAGES, View};
use crate::{answer, metrics};

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// Surroundings of the page at that address.
fn site(shared: &Shared, path: &str, known: Option<&ServedState>) -> Site {
    let pages = [
        ("/", "Overview", true),
        ("/machine", "Machine", true),
        ("/suite", "Suite results", shared.suite.is_there()),
        ("/what-if", "What if", true),
    ];
    let link = |(href, title, _)| SiteLink::new(href, title).current(href == path);
    let store = known.map_or(String::new(), |known| format!("Store: {}.", known.store.path));
    Site {
        name: "IMAS".to_owned(),
        links: pages.into_iter().filter(|page| page.2).map(link).collect(),
        style: answer::style(),
        scripts: answer::scripts(),
        footer: format!("{store} Only shown here, never changed: 'imas --help' has the commands."),
    }
}

/// Everything that is answered.
pub(crate) fn router(shared: Arc<Shared>, admission: Arc<Admission>) -> Router {
    let router = PAGES.into_iter().fold(Router::new(), |router, (path, api, view)| {
        router.route(path, page(path, view)).route(api, data(view))
    });
    router
        .route("/events", get(events))
        .route("/metrics", get(metrics::get))
        .route("/static/{name}", get(answer::asset))
        .route("/favicon.ico", get(async || StatusCode::NO_CONTENT))
        .fallback(async || (StatusCode::NOT_FOUND, "there is no such page; the first one is /\n"))
        .with_state(shared)
        .layer(CompressionLayer::new())
        .layer(middleware::from_fn_with_state(admission, admit))
        .layer(middleware::from_fn(answer::protect))
}

type Words = Query<BTreeMap<String, String>>;

/// A view as a page.
fn page(path: &'static str, view: View) -> MethodRouter<Arc<Shared>> {
    get(async move |State(shared): State<Arc<Shared>>, Query(words): Words, headers: HeaderMap| {
        let (known, viewed) = viewed(&shared, view, words).await;
        let site = site(&shared, path, known.as_deref());
        match viewed {
            Ok(viewed) => answer::tagged(&headers, HTML, viewed.page.render_in(&site)),
            Err(failure) => {
                let page = ResultPage {
                    title: "Not shown".to_owned(),
                    result: failure.why,
                    ..ResultPage::default()
                };
                (failure.code, [(header::CONTENT_TYPE, HTML)], page.render_in(&site)).into_response()
            }
        }
    })
}

/// The data of a view.
fn data(view: View) -> MethodRouter<Arc<Shared>> {
    get(async move |State(shared): State<Arc<Shared>>, Query(words): Words, headers: HeaderMap| match viewed(
        &shared, view, words,
    )
    .await
    .1
    {
        // Names of processes are not escaped in it, and people read it on terminals.
        Ok(viewed) => {
            let text = viewed.data.to_string();
            answer::tagged(&headers, JSON, printable::json(&text).into_owned())
        }
        Err(failure) => {
            let text = json!({ "schema": 1, "error": failure.why }).to_string();
            (failure.code, [(header::CONTENT_TYPE, JSON)], text).into_response()
        }
    })
}

/// A view, computed beside the thread that serves connections.
async fn viewed(
    shared: &Arc<Shared>,
    view: View,
    words: BTreeMap<String, String>,
) -> (Option<Arc<ServedState>>, Result<Answer, Failure>) {
    let known = shared.known().await;
    let Some(known) = known else {
        return (None, Err(Failure::busy("the store is still being read; try again in a few seconds")));
    };
    let (shared, of) = (Arc::clone(shared), Arc::clone(&known));
    let viewed = tokio::task::spawn_blocking(move || view(&shared, &of, &words)).await;
    let viewed =
        viewed.unwrap_or_else(|_| Err(Failure::internal("a mistake in imas-serve; please report it")));
    (Some(known), viewed)
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.code, format!("{}\n", self.why)).into_response()
    }
}

/// Time between two signs of life, by which a connection whose client is gone is noticed.
const BEAT: Duration = Duration::from_secs(15);

/// `/events`
pub(super) async fn events(State(shared): State<Arc<Shared>>) -> Response {
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
