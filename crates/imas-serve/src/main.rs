// SPDX-License-Identifier: Apache-2.0
//! `imas serve`: what IMAS knows, in a browser and as metrics. Reads only.
//!
//! ```text
//! store, imasd's status --keeper--> ServedState (one moment) --pages--> ResultPage --site--> HTML, JSON
//!                                       |                                               ^
//!                                       +--> metrics, events                   answer, admission, connections
//! ```
//! Running processes are looked at when they are asked for ([`keeper`]). The keeper has a thread of its own;
//! requests are served by one more, and compute what they need beside it.

mod admission;
mod answer;
mod cli;
mod connections;
mod keeper;
mod line;
mod listing;
mod metrics;
mod pages;
mod site;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::CommandFactory as _;
use imas_cli::manual;
use imas_cli::message::{self, Hinted};
use imas_engine::context::Context;
use imas_engine::entry;
use imas_engine::flags;
use tokio::signal::unix::{SignalKind, signal};

use crate::admission::Admission;
use crate::cli::Options;
use crate::connections::Listener;
use crate::keeper::Keeper;
use admission::Token;
use keeper::{Live, Shared, Suite};

fn main() -> ExitCode {
    let read = || {
        manual::answer_completion(Options::command);
        flags::read(|options: &mut Options| &mut options.places)
    };
    entry::main_of(read, |options| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(4).build()?;
        runtime.block_on(run(options)).map(|()| ExitCode::SUCCESS)
    })
}

/// Serves until SIGTERM or SIGINT.
async fn run(options: Options) -> Result<()> {
    let token = options.token_file.as_deref().map(Token::read).transpose()?;
    if token.is_none() && !options.listen.is_of_this_machine() {
        return Err(Hinted::error(
            "other machines could read everything here: no token is set",
            "give a token with --token-file FILE, or listen at 127.0.0.1 and use a tunnel: ssh -L 4627:127.0.0.1:4627 HOST",
        ));
    }
    if let Some(file) = &options.results {
        check_results(file)?;
    }
    let context = || Context::beside(&options.places, &options.run_dir);
    let suite = Suite::new(options.results.clone(), &context()?.lib_dir);
    let listener = Listener::open(&options.listen).await?;
    let keeper = Keeper::start(context()?, context()?, &options.run_dir)?;
    let admission = Arc::new(Admission::new(listener.address(), &options.hosts, token));
    let live = Live::new(&options.places, &options.run_dir)?;
    let shared = Arc::new(Shared::new(keeper, context()?, live, suite));
    tokio::spawn(tidy(Arc::clone(&admission)));
    let mut end = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    message::say(&format!("imas serve: {}", listener.place()?));
    let [terminated, interrupted] = &mut end;
    let ended = async {
        tokio::select! { _ = terminated.recv() => {}, _ = interrupted.recv() => {} }
    };
    connections::serve(listener, site::router(shared, Arc::clone(&admission)), ended).await
}

/// Refuses results that are no file: the page of the suite would say so only when somebody opens it.
fn check_results(file: &Path) -> Result<()> {
    let why = match std::fs::metadata(file) {
        Ok(about) if about.is_file() => return Ok(()),
        Ok(_) => "not a regular file".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Hinted::error(
        format!("{}: {why}", file.display()),
        "--results names raw runs of the suite, as 'imas-lab suite run' writes them",
    ))
}

async fn tidy(admission: Arc<Admission>) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        admission.forget_quiet();
    }
}
