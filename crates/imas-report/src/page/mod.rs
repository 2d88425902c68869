// SPDX-License-Identifier: Apache-2.0
//! One page: the result first, in a sentence and a picture, then a table of contents and the sections, the
//! method last.
//!
//! A page is one file. It loads nothing, it can be read without its script, and it follows the reader's
//! choice of light or dark. Every text is escaped. A page that is served beside others is the same with its
//! style and script elsewhere: [`Site`].
//!
//! Last, what a server adds: a question, whose answer is another page ([`Form`]), and the page beside others, whose style
//! and script have addresses of their own, so that it needs nothing inline.

mod tables;

use imas_cli::table::Table;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::{COLOURS, Chart, STYLE};

pub use tables::{Head, Listing};

const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A page of results.
#[derive(Debug, Default)]
pub struct ResultPage {
    /// Heading.
    pub title: String,
    /// Subject of the page, below the heading.
    pub subtitle: String,
    /// The result in one sentence.
    pub result: String,
    /// The result in one picture.
    pub picture: Option<Chart>,
    /// Sections in the order shown; the method comes last.
    pub sections: Vec<PageSection>,
    /// Whether the picture and all sections show the same candidates: the one under the pointer is marked in
    /// all.
    pub is_group: bool,
}

/// A part of the page with an entry in the table of contents.
#[derive(Debug, Default)]
pub struct PageSection {
    /// Anchor of the section.
    pub id: String,
    /// Heading of the section.
    pub title: String,
    /// Content of the section.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Debug)]
pub enum Block {
    /// A paragraph.
    Paragraph(String),
    /// A paragraph in smaller print.
    Note(String),
    /// Short sentences.
    List(Vec<String>),
    /// A heading without an entry in the table of contents.
    Heading(String),
    /// Charts, beside each other where there is room.
    Charts(Vec<Chart>),
    /// A table; it can be sorted, and is folded when it is long.
    Table(Table),
    /// A table whose first column leads to places of the page.
    Index(Table, Vec<String>),
    /// A table whose rows the server has sorted, and shows in part.
    Listing(Listing),
    /// A question to the server.
    Form(Form),
    /// Links beside each other, with what they are for.
    Links(String, Vec<SiteLink>),
    /// Names of candidates in their colours.
    Keys(Vec<String>),
    /// Parts that show the same candidates: the one under the pointer is marked in all of them.
    Group(Vec<Self>),
    /// Parts that are shown after a click.
    Folded(FoldedPart),
}

/// Part that is shown after a click on its title.
#[derive(Debug, Default)]
pub struct FoldedPart {
    /// Anchor of the part.
    pub id: String,
    /// Title to click on.
    pub title: String,
    /// A few words beside the title.
    pub note: String,
    /// Content of the part.
    pub blocks: Vec<Block>,
    /// Whether the part is shown at once.
    pub open: bool,
}

impl PageSection {
    /// A section.
    #[must_use]
    pub fn new(id: &str, title: &str, blocks: Vec<Block>) -> Self {
        Self { id: id.to_owned(), title: title.to_owned(), blocks }
    }
}

impl ResultPage {
    /// The page as HTML.
    #[must_use]
    pub fn render(&self) -> String {
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                (self.head())
                body {
                    header { h1 { (self.title) } @if !self.subtitle.is_empty() { p.soft { (self.subtitle) } } }
                    main.group[self.is_group] {
                        (self.parts())
                    }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        markup.into_string()
    }

    /// Parts between heading and end.
    fn parts(&self) -> Markup {
        html! {
            (self.result())
            (self.contents())
            @for section in &self.sections { (section.render()) }
        }
    }

    fn head(&self) -> Markup {
        html! {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (self.title) }
                style { (PreEscaped(COLOURS)) (PreEscaped(STYLE)) (PreEscaped(PAGE_STYLE)) }
            }
        }
    }

    fn result(&self) -> Markup {
        html! {
            section.result aria-label="Result" {
                p { (self.result) }
                @if self.is_group { (reading()) }
                @if let Some(picture) = &self.picture { (picture.figure()) }
            }
        }
    }

    fn contents(&self) -> Markup {
        html! {
            @if self.sections.len() > 1 {
                nav aria-label="Contents" {
                    ol { @for section in &self.sections { li { a href=(format!("#{}", section.id)) { (section.title) } } } }
                }
            }
        }
    }
}

impl PageSection {
    fn render(&self) -> Markup {
        html! {
            section id=(self.id) {
                h2 { (self.title) }
                @for block in &self.blocks { (block.render()) }
            }
        }
    }
}

impl Block {
    fn render(&self) -> Markup {
        match self {
            Self::Paragraph(text) => html! { p { (text) } },
            Self::Note(text) => html! { p.note { (text) } },
            Self::List(lines) => html! { ul.note { @for line in lines { li { (line) } } } },
            Self::Heading(text) => html! { h3 { (text) } },
            Self::Charts(charts) => match charts.as_slice() {
                [chart] => chart.figure(),
                charts => html! { div.two { @for chart in charts { div { (chart.figure()) } } } },
            },
            Self::Table(table) => tables::table(table, &[]),
            Self::Listing(listing) => listing.render(),
            Self::Form(form) => form.render(),
            Self::Links(label, links) => link_list(label, links),
            Self::Index(table, links) => tables::table(table, links),
            Self::Keys(names) => tables::keys(names),
            Self::Group(blocks) => html! {
                div.group { (reading()) @for block in blocks { (block.render()) } }
            },
            Self::Folded(part) => part.render(),
        }
    }
}

/// Where the figures of the candidate under the pointer are written.
fn reading() -> Markup {
    html! { div.reading aria-live="polite" {} }
}

impl FoldedPart {
    fn render(&self) -> Markup {
        let id = Some(&self.id).filter(|id| !id.is_empty());
        html! {
            details id=[id] open[self.open] {
                summary { (self.title) @if !self.note.is_empty() { span.soft { ": " (self.note) } } }
                @for block in &self.blocks { (block.render()) }
            }
        }
    }
}

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

const SITE_STYLE: &str = include_str!("site.css");

/// Surroundings of a page: name, links, style and footer.
#[derive(Debug, Clone, Default)]
pub struct Site {
    /// Name of the site, at the top of every page.
    pub name: String,
    /// The pages.
    pub links: Vec<SiteLink>,
    /// Address of [`stylesheet`].
    pub style: String,
    /// Addresses of scripts, [`script`] among them.
    pub scripts: Vec<String>,
    /// Text at the end of every page.
    pub footer: String,
}

/// A link among others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteLink {
    /// Address that the link leads to.
    pub href: String,
    /// Title to click on.
    pub title: String,
    /// Whether the link leads to what is shown already.
    pub is_current: bool,
}

impl SiteLink {
    /// A link.
    #[must_use]
    pub fn new(href: &str, title: &str) -> Self {
        Self { href: href.to_owned(), title: title.to_owned(), is_current: false }
    }

    /// This link, marked if it leads to what is shown already.
    #[must_use]
    pub fn current(self, is_current: bool) -> Self {
        Self { is_current, ..self }
    }

    fn render(&self) -> Markup {
        html! { a href=(self.href) aria-current=[self.is_current.then_some("page")] { (self.title) } }
    }
}

/// The style of all pages.
#[must_use]
pub fn stylesheet() -> String {
    [COLOURS, STYLE, PAGE_STYLE, SITE_STYLE].concat()
}

/// The script of all pages: it sorts tables, and lets the parts of one candidate point at each other.
#[must_use]
pub fn script() -> &'static str {
    SCRIPT
}

impl ResultPage {
    /// The page as HTML that loads the site's style and scripts and has nothing inline.
    #[must_use]
    pub fn render_in(&self, site: &Site) -> String {
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                (self.site_head(site))
                body {
                    a.skip href="#main" { "To the contents" }
                    div.site {
                        span.name { (site.name) }
                        (link_list("Pages", &site.links))
                        span.updates role="status" {}
                    }
                    div #main tabindex="-1" {
                        header { h1 { (self.title) } @if !self.subtitle.is_empty() { p.soft { (self.subtitle) } } }
                        main.group[self.is_group] { (self.parts()) }
                    }
                    footer.note { (site.footer) }
                }
            }
        };
        markup.into_string()
    }

    fn site_head(&self, site: &Site) -> Markup {
        html! {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (self.title) " \u{2013} " (site.name) }
                link rel="stylesheet" href=(site.style);
                @for script in &site.scripts { script src=(script) defer {} }
            }
        }
    }
}

/// Links beside each other.
fn link_list(label: &str, links: &[SiteLink]) -> Markup {
    html! {
        nav aria-label=(label) { ol { @for link in links { li { (link.render()) } } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&";

    fn page(text: &str) -> String {
        let mut table = Table::new("t", text, &["candidate", text]);
        table.push(vec![text.to_owned(), text.to_owned()]);
        let text = || text.to_owned();
        let part = FoldedPart {
            id: String::new(),
            title: text(),
            note: text(),
            blocks: vec![Block::Note(text())],
            open: false,
        };
        let blocks = vec![
            Block::Paragraph(text()),
            Block::List(vec![text()]),
            Block::Heading(text()),
            Block::Keys(vec![text()]),
            Block::Group(vec![Block::Table(table.clone()), Block::Index(table, vec!["#method".into()])]),
            Block::Folded(part),
        ];
        let sections =
            vec![PageSection::new("a", &text(), blocks), PageSection::new("method", "Method", vec![])];
        ResultPage {
            title: text(),
            subtitle: text(),
            result: text(),
            picture: None,
            sections,
            is_group: true,
        }
        .render()
    }

    #[test]
    fn names_are_text() {
        let page = page(HOSTILE);
        assert!(!page.contains("<img") && !page.contains("\"'&"), "unescaped");
        assert_eq!(page.matches("</script>").count(), 1);
    }

    #[test]
    fn the_page_stands_alone_and_the_result_is_first() {
        let page = page("words");
        for outside in ["http://", "https://", "<link", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("no {part}"));
        assert!(at("class=\"result\"") < at("<nav") && at("<nav") < at("id=\"a\""));
        assert!(at("id=\"a\"") < at("id=\"method\""));
    }
}
