// SPDX-License-Identifier: Apache-2.0
//! What a study returns.

use crate::table::Table;
use crate::verdict::Finding;
use serde::Serialize;

/// A published experiment, reproduced. Serialises without the drawings; their data is in it.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// "freelist", "fit" or "selector"; the stem of every file that is written.
    pub id: String,
    /// Heading of the page.
    pub title: String,
    /// Author, title, place and year of what is reproduced.
    pub paper: String,
    /// How it was run, a sentence or two each.
    pub method: Vec<String>,
    /// What the verdicts mean.
    pub rule: String,
    /// Every printed finding with ours.
    pub findings: Vec<Finding>,
    /// The tables.
    pub tables: Vec<Table>,
    /// The figures, in the paper's order.
    pub figures: Vec<Figure>,
}

/// A drawing and the numbers in it.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What is drawn, and how the paper's values are marked.
    pub caption: String,
    /// A complete SVG document.
    #[serde(skip)]
    pub svg: String,
    /// What is drawn, as numbers; its id and title are the figure's.
    pub data: Table,
}
