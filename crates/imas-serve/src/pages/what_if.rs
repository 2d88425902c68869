// SPDX-License-Identifier: Apache-2.0
//! Choices under another policy or objective, from the trials that are stored: the selection code is the one
//! of every start.

use std::sync::PoisonError;
use std::time::Instant;

use clap::ValueEnum;
use imas_cli::format::counted;
use imas_core::SYSTEM;
use imas_engine::decide::decide;
use imas_engine::flags::{MemoryLimit, ObjectiveName, PolicyName, RulesArgs};
use imas_engine::state::profile_of;
use imas_report::page::{Block, Field, PageSection, ResultPage};
use serde::Serialize;
use serde_json::json;

use super::{Answer, Failure};
use crate::keeper::{ServedProgram, ServedState, Shared};
use crate::listing::{Listed, Order, Words, short, word};

const ORDERS: [Order<Choice>; 3] = [
    Order { word: "changed", falls: true, compare: |a, b| a.is_changed().cmp(&b.is_changed()) },
    Order { word: "name", falls: false, compare: |a, b| a.program.cmp(&b.program) },
    Order { word: "then", falls: false, compare: |a, b| a.then.cmp(&b.then) },
];
const COLUMNS: [(&str, Option<&str>); 5] = [
    ("program", Some("name")),
    ("starts under", Some("changed")),
    ("would start under", Some("then")),
    ("would be tried next", None),
    ("because", None),
];

/// Candidate that one program would start under.
#[derive(Debug, Serialize)]
struct Choice {
    id: i64,
    program: String,
    now: String,
    then: String,
    trial: Option<String>,
    because: String,
}

impl Choice {
    fn is_changed(&self) -> bool {
        self.now != self.then
    }
}

/// `/what-if?policy=&objective=&max_memory=`
pub(crate) fn answer(shared: &Shared, known: &ServedState, words: &Words) -> Result<Answer, Failure> {
    let rules = rules(words);
    let began = Instant::now();
    let choices: Vec<Choice> = {
        let context = shared.context.lock().unwrap_or_else(PoisonError::into_inner);
        known.programs.iter().map(|program| choice(&context, known, program, &rules)).collect()
    };
    let took_ms = began.elapsed().as_millis();
    let listed = Listed::new(("/what-if", words), choices.iter(), |choice| &choice.program, &ORDERS);
    let changed = choices.iter().filter(|choice| choice.is_changed()).count();
    let data = json!({
        "schema": 1,
        "policy": word(words, "policy"),
        "objective": word(words, "objective"),
        "max_memory_mib": rules.max_memory.and_then(MemoryLimit::mebibytes),
        "changed": changed,
        "programs_found": listed.found,
        "programs": listed.shown,
        "took_ms": took_ms,
    });
    let all = counted(choices.len(), "program");
    let other = choices.iter().filter(|choice| choice.then != SYSTEM).count();
    let result = format!(
        "Of {all}, {changed} would start under another allocator than now, and {other} under another than system."
    );
    let sections = vec![PageSection::new("choices", "What would be chosen", blocks(&listed, words))];
    let title = "What if something else counted?".to_owned();
    let subtitle =
        "From the stored trials, with the selection code of every start. Nothing is changed by asking."
            .to_owned();
    Ok(Answer { page: ResultPage { title, subtitle, result, sections, ..ResultPage::default() }, data })
}

fn rules(words: &Words) -> RulesArgs {
    let mib: Option<u64> = word(words, "max_memory").trim().parse().ok();
    RulesArgs {
        policy: PolicyName::from_str(word(words, "policy"), true).ok(),
        objective: ObjectiveName::from_str(word(words, "objective"), true).ok(),
        max_memory: mib.filter(|mib| *mib > 0).map(MemoryLimit::Mebibytes),
        max_cpu: None,
    }
}

fn choice(
    context: &imas_engine::context::Context,
    known: &ServedState,
    program: &ServedProgram,
    rules: &RulesArgs,
) -> Choice {
    let line = &program.line;
    let profile = profile_of(&program.state.known, context, rules);
    let next = decide(&profile, &program.state.giving, &known.conditions);
    Choice {
        id: line.id,
        program: line.name.clone(),
        now: line.candidate.clone(),
        then: next.production.candidate.clone(),
        trial: next.trial().map(str::to_owned),
        because: next.production.reason.sentence().to_owned(),
    }
}

fn blocks(listed: &Listed<'_, Choice>, words: &Words) -> Vec<Block> {
    let mut form = listed.form("Programs");
    form.fields.splice(0..0, fields(words));
    form.submit = "Ask".to_owned();
    let links = listed.shown.iter().map(|choice| format!("/program?id={}", choice.id)).collect();
    listed.blocks(form, ("choices", "program"), &COLUMNS, row, links)
}

fn row(choice: &Choice) -> Vec<String> {
    vec![
        short(&choice.program),
        choice.now.clone(),
        choice.then.clone(),
        choice.trial.clone().unwrap_or_else(super::dash),
        choice.because.clone(),
    ]
}

fn fields(words: &Words) -> [Field; 3] {
    let choices = |first: &str, all: &[(&str, &str)]| {
        let first = (String::new(), first.to_owned());
        let all = all.iter().map(|(value, title)| ((*value).to_owned(), (*title).to_owned()));
        std::iter::once(first).chain(all).collect()
    };
    let field = |name: &str, label: &str, choices| Field {
        name: name.to_owned(),
        label: label.to_owned(),
        value: word(words, name).to_owned(),
        choices,
    };
    let policies = [("adaptive", "adaptive"), ("paper", "that of the paper")];
    let objectives = [
        ("auto", "what the machine is short of"),
        ("cpu", "CPU time"),
        ("memory", "memory"),
        ("balanced", "both alike"),
    ];
    [
        field("policy", "Policy", choices("as configured", &policies)),
        field("objective", "What counts", choices("as configured", &objectives)),
        field("max_memory", "Peak below, MiB", vec![]),
    ]
}
