// SPDX-License-Identifier: Apache-2.0
//! A question to the server: its answer is another page.

use maud::{Markup, html};

/// Fields whose values become the query of a link (`GET`); nothing is changed by them.
#[derive(Debug, Clone, Default)]
pub struct Form {
    /// Purpose of the form.
    pub label: String,
    /// Address of the answer.
    pub action: String,
    /// Fields in the order shown.
    pub fields: Vec<Field>,
    /// Name of the button.
    pub submit: String,
}

/// A field of a form.
#[derive(Debug, Clone, Default)]
pub struct Field {
    /// Name of the field in the query.
    pub name: String,
    /// Question that the field answers.
    pub label: String,
    /// Value of the field.
    pub value: String,
    /// Values and what they are called; any text where there are none.
    pub choices: Vec<(String, String)>,
}

impl Form {
    pub(super) fn render(&self) -> Markup {
        html! {
            form.ask action=(self.action) method="get" aria-label=(self.label) {
                @for field in &self.fields { (field.render()) }
                button type="submit" { (self.submit) }
            }
        }
    }
}

impl Field {
    fn render(&self) -> Markup {
        html! {
            label {
                span { (self.label) }
                @if self.choices.is_empty() {
                    input type="search" name=(self.name) value=(self.value) maxlength="200" autocomplete="off";
                } @else {
                    select name=(self.name) {
                        @for (value, title) in &self.choices {
                            option value=(value) selected[*value == self.value] { (title) }
                        }
                    }
                }
            }
        }
    }
}
