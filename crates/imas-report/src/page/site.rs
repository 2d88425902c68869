// SPDX-License-Identifier: Apache-2.0
//! A page that is served beside others: its style and script have addresses of their own, so that it needs
//! nothing inline.

use maud::{DOCTYPE, Markup, html};

use super::{PAGE_STYLE, ResultPage, SCRIPT};
use crate::chart::{COLOURS, STYLE};

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
                        (links("Pages", &site.links))
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
pub(super) fn links(label: &str, links: &[SiteLink]) -> Markup {
    html! {
        nav aria-label=(label) { ol { @for link in links { li { (link.render()) } } } }
    }
}
