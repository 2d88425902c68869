// SPDX-License-Identifier: Apache-2.0
//! A part of a long list: filtered, sorted and cut out by the words of the address.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use imas_cli::format::counted;
use imas_cli::table::Table;
use imas_report::page::{Block, Field, Form, Head, Listing, SiteLink};

/// Rows of one page.
const ROWS: usize = 50;
/// Parts before and after the one shown that have a link; the first and the last always have one.
const NEAR: usize = 10;
/// Characters of a name in a list; the page of a program has all of them.
const LONGEST: usize = 96;

/// The words of an address.
pub(crate) type Words = BTreeMap<String, String>;

/// A column by which can be sorted.
pub(crate) struct Order<T> {
    /// Word of the order in the address.
    pub(crate) word: &'static str,
    /// Whether large values come first at the first click.
    pub(crate) falls: bool,
    pub(crate) compare: fn(&T, &T) -> Ordering,
}

/// Items that are asked for.
pub(crate) struct Listed<'a, T> {
    path: &'static str,
    words: &'a Words,
    orders: &'a [Order<T>],
    /// Items that are shown.
    pub(crate) shown: Vec<&'a T>,
    /// Number of items that passed the filter.
    pub(crate) found: usize,
    page: usize,
}

/// A word of the address; empty where there is none.
pub(crate) fn word<'a>(words: &'a Words, name: &str) -> &'a str {
    words.get(name).map_or("", |word| word.as_str())
}

impl<'a, T> Listed<'a, T> {
    /// The items of `all` whose `name` contains the word `q`. The first of `orders` is the usual one.
    pub(crate) fn new(
        (path, words): (&'static str, &'a Words),
        all: impl Iterator<Item = &'a T>,
        name: fn(&T) -> &str,
        orders: &'a [Order<T>],
    ) -> Self {
        let wanted = word(words, "q").to_lowercase();
        let mut found: Vec<&T> = all.filter(|one| name(one).to_lowercase().contains(&wanted)).collect();
        if let Some(order) = chosen(words, orders) {
            let falls = falls(words, order);
            let compare = |a: &T, b: &T| if falls { (order.compare)(b, a) } else { (order.compare)(a, b) };
            found.sort_by(|a, b| compare(a, b).then_with(|| name(a).cmp(name(b))));
        }
        let pages = found.len().div_ceil(ROWS).max(1);
        let page = word(words, "page").parse().unwrap_or(1).clamp(1, pages);
        let shown = found.iter().skip((page - 1) * ROWS).take(ROWS).copied().collect();
        Self { path, words, orders, shown, found: found.len(), page }
    }

    /// The field of the filter, with a button.
    pub(crate) fn form(&self, what: &str) -> Form {
        let field = Field {
            name: "q".to_owned(),
            label: format!("{what} whose name contains"),
            value: word(self.words, "q").to_owned(),
            choices: vec![],
        };
        Form {
            label: format!("Filter: {what}"),
            action: self.path.to_owned(),
            fields: vec![field],
            submit: "Filter".to_owned(),
        }
    }

    /// The form, the list of `what` and the links to its other parts. Each column has its title and the word of its
    /// order; `links` are the rows' links.
    pub(crate) fn blocks(
        &self,
        form: Form,
        (name, what): (&str, &str),
        columns: &[(&str, Option<&str>)],
        row: fn(&T) -> Vec<String>,
        links: Vec<String>,
    ) -> Vec<Block> {
        let (titles, words): (Vec<&str>, Vec<Option<&str>>) = columns.iter().copied().unzip();
        let mut table = Table::new(name, &self.count(what), &titles);
        self.shown.iter().for_each(|one| table.push(row(one)));
        let heads = self.heads(&words);
        let mut blocks = vec![Block::Form(form), Block::Listing(Listing { table, links, heads })];
        let parts = Some(self.parts()).filter(|parts| !parts.is_empty());
        blocks.extend(parts.map(|parts| Block::Links("Parts of the list".to_owned(), parts)));
        blocks
    }

    /// The heads of columns: the word of the order of each, if there is one.
    fn heads(&self, columns: &[Option<&str>]) -> Vec<Option<Head>> {
        let now = chosen(self.words, self.orders);
        let head = |column: &Option<&str>| {
            let order = self.orders.iter().find(|order| Some(order.word) == *column)?;
            let is_now = now.is_some_and(|now| now.word == order.word);
            let falls_now = is_now.then(|| falls(self.words, order));
            let next = falls_now.map_or(order.falls, |falls| !falls);
            let way = if next { "falling" } else { "rising" };
            let href = self.address(&[("sort", order.word), ("order", way), ("page", "")]);
            Some(Head { href, rising: falls_now.map(|falls| !falls) })
        };
        columns.iter().map(head).collect()
    }

    /// Links to the other parts, of a long list to those near; none where everything is shown.
    fn parts(&self) -> Vec<SiteLink> {
        let pages = self.found.div_ceil(ROWS);
        let link = |page: usize| {
            let last = (page * ROWS).min(self.found);
            let title = format!("{} to {last}", (page - 1) * ROWS + 1);
            SiteLink::new(&self.address(&[("page", &page.to_string())]), &title).current(page == self.page)
        };
        let is_linked = |page: &usize| [1, pages].contains(page) || page.abs_diff(self.page) <= NEAR;
        if pages < 2 { vec![] } else { (1..=pages).filter(is_linked).map(link).collect() }
    }

    /// How many items are shown, in words.
    fn count(&self, what: &str) -> String {
        match self.shown.len() == self.found {
            true => counted(self.found, what),
            false => format!("{} of {}", self.shown.len(), counted(self.found, what)),
        }
    }

    fn address(&self, changes: &[(&str, &str)]) -> String {
        let mut words = self.words.clone();
        for (name, value) in changes {
            words.insert((*name).to_owned(), (*value).to_owned());
        }
        words.retain(|_, value| !value.is_empty());
        address(self.path, &words)
    }
}

/// A path with its query.
pub(crate) fn address(path: &str, words: &Words) -> String {
    match serde_urlencoded::to_string(words) {
        Ok(query) if !query.is_empty() => format!("{path}?{query}"),
        _ => path.to_owned(),
    }
}

/// A name that fits a list: its end says most of a path.
pub(crate) fn short(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    match characters.len() > LONGEST {
        true => {
            let [first, last] =
                [&characters[..LONGEST / 3], &characters[characters.len() - LONGEST * 2 / 3..]];
            first.iter().chain(&['\u{2026}']).chain(last).collect()
        }
        false => name.to_owned(),
    }
}

fn chosen<'a, T>(words: &Words, orders: &'a [Order<T>]) -> Option<&'a Order<T>> {
    orders.iter().find(|order| order.word == word(words, "sort")).or_else(|| orders.first())
}

fn falls<T>(words: &Words, order: &Order<T>) -> bool {
    match word(words, "order") {
        "falling" => true,
        "rising" => false,
        _ => order.falls,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: [Order<String>; 2] = [
        Order { word: "length", falls: true, compare: |a, b| a.len().cmp(&b.len()) },
        Order { word: "name", falls: false, compare: |a, b| a.cmp(b) },
    ];

    fn listed<'a>(words: &'a Words, all: &'a [String]) -> Listed<'a, String> {
        Listed::new(("/p", words), all.iter(), |name| name, &ORDERS)
    }

    #[test]
    fn a_list_is_filtered_sorted_and_cut() {
        let all: Vec<String> = (0..120).map(|n| format!("{}{n}", "x".repeat(n % 7))).collect();
        let words = Words::from([("q".to_owned(), "X".to_owned()), ("page".to_owned(), "2".to_owned())]);
        let list = listed(&words, &all);
        assert_eq!((list.found, list.shown.len()), (102, 50));
        assert!(list.shown.is_sorted_by(|a, b| a.len() >= b.len()));
        let parts = list.parts();
        assert_eq!(parts.len(), 3);
        assert!(parts[1].is_current && parts[2].href == "/p?page=3&q=X" && parts[2].title == "101 to 102");
        let heads = list.heads(&[Some("name"), None, Some("length")]);
        assert_eq!(heads[2].as_ref().unwrap().href, "/p?order=rising&q=X&sort=length");
        assert_eq!((heads[0].as_ref().unwrap().rising, heads[1].is_none()), (None, true));
        let many = vec![String::new(); 5000];
        let words = Words::from([("page".to_owned(), "50".to_owned())]);
        assert_eq!(listed(&words, &many).parts().len(), 2 * NEAR + 3, "a long list");
    }

    #[test]
    fn wrong_words_are_the_first_page_in_the_usual_order() {
        let all = ["b".to_owned(), "aa".to_owned()];
        for page in ["0", "-1", "99999999999999999999", "x"] {
            let words = Words::from(
                [("page", page), ("sort", "no"), ("order", "no")].map(|(a, b)| (a.into(), b.into())),
            );
            assert_eq!(listed(&words, &all).shown, ["aa", "b"], "{page}");
        }
        let words = Words::from([("q".to_owned(), "<none>&".to_owned())]);
        assert!(listed(&words, &all).shown.is_empty() && listed(&words, &all).parts().is_empty());
    }

    #[test]
    fn a_long_name_keeps_its_ends() {
        let name = format!("/opt/{}/bin/tool", "é".repeat(4000));
        let shown = short(&name);
        assert!(shown.starts_with("/opt/") && shown.ends_with("/bin/tool"));
        assert_eq!(shown.chars().count(), LONGEST + 1);
        assert_eq!(short("/bin/x"), "/bin/x");
    }
}
