// SPDX-License-Identifier: Apache-2.0
//! The machine: what it is short of, and which allocator serves how many processes.

use imas_report::page::{Block, PageSection, ResultPage};
use imas_report::table::Table;
use serde_json::json;

use super::{Answer, Failure};
use crate::known::Known;
use crate::listing::Words;
use crate::site::Shared;

/// `/machine`
pub(crate) fn answer(_: &Shared, known: &Known, _: &Words) -> Result<Answer, Failure> {
    let table = Table::new("pressure", "", &["what", "value"]);
    let page = ResultPage {
        title: "This machine".to_owned(),
        sections: vec![PageSection::new("pressure", "Pressure", vec![Block::Table(table)])],
        ..ResultPage::default()
    };
    Ok(Answer { page, data: json!({ "schema": 1, "conditions": format!("{:?}", known.conditions) }) })
}
