// SPDX-License-Identifier: Apache-2.0
//! Names of public types: over all crates, one name stands for one type.

use std::collections::BTreeMap;

use syn::visit::Visit;
use syn::{Ident, Item, Visibility};

use crate::file::SourceFile;
use crate::tests_of;

/// Public names of several types, each with the places of its types.
pub(crate) fn duplicates(files: &[SourceFile]) -> BTreeMap<String, Vec<String>> {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for file in files {
        let mut types = Types(vec![]);
        types.visit_file(&file.syntax);
        for name in types.0 {
            places.entry(name.to_string()).or_default().push(file.place(name.span()));
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
}

/// The types that are `pub`. An alias is a second name of a type, and counts as a type.
struct Types<'ast>(Vec<&'ast Ident>);

impl<'ast> Visit<'ast> for Types<'ast> {
    fn visit_item(&mut self, item: &'ast Item) {
        if tests_of::is_test(tests_of::attributes(item)) {
            return;
        }
        let (visibility, name) = match item {
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Union(item) => (&item.vis, &item.ident),
            _ => return syn::visit::visit_item(self, item),
        };
        if matches!(visibility, Visibility::Public(_)) {
            self.0.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn one_public_name_is_one_type() {
        let found = |text: &str| duplicates(&[parsed(text)]).into_keys().collect::<Vec<_>>();
        assert_eq!(found("pub struct A; mod m { pub enum A {} pub trait B {} }"), ["A"]);
        assert_eq!(found("pub struct A; mod m { pub type A = u8; } fn f() { struct A; }"), ["A"]);
        let none: [&str; 0] = [];
        assert_eq!(
            found("pub struct A; mod m { struct A; pub(crate) struct B; } mod n { pub struct B; }"),
            none
        );
        assert_eq!(found("pub struct A; pub use m::B as A2; mod m { pub struct B; }"), none);
        assert_eq!(found("pub struct A; #[cfg(test)] mod m { pub struct A; }"), none);
        let places = &duplicates(&[parsed("pub struct A;\nmod m {\n pub struct A;\n}")])["A"];
        assert_eq!(places[..], ["x/src/lib.rs:1", "x/src/lib.rs:3"]);
    }
}
