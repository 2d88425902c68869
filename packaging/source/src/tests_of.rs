// SPDX-License-Identifier: Apache-2.0
//! Which parts of a file only tests have.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use syn::spanned::Spanned as _;
use syn::visit::Visit;
use syn::{Attribute, ImplItem, Item};

use crate::file::SourceFile;

/// Whether one of the attributes is `#[cfg(test)]` or `#[test]`.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let cfg_test = attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"));
        cfg_test || attribute.path().is_ident("test")
    })
}

/// Attributes of an item; none for those that have none.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The lines of items that only tests have.
pub(crate) fn lines(file: &SourceFile) -> Vec<RangeInclusive<usize>> {
    let mut found = Lines(vec![]);
    found.visit_file(&file.syntax);
    found.0
}

struct Lines(Vec<RangeInclusive<usize>>);

impl Lines {
    fn add(&mut self, span: proc_macro2::Span) {
        self.0.push(span.start().line..=span.end().line);
    }
}

impl<'ast> Visit<'ast> for Lines {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            self.add(item.span());
        } else {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        match item {
            ImplItem::Fn(method) if is_test(&method.attrs) => self.add(item.span()),
            _ => syn::visit::visit_impl_item(self, item),
        }
    }
}

/// Modules in files of their own that only tests have, as paths without extension.
pub(crate) fn modules(file: &SourceFile) -> Vec<PathBuf> {
    let of_folder = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| file.path.ends_with(name));
    let folder = if of_folder { file.path.with_file_name("") } else { file.path.with_extension("") };
    let declared = file.syntax.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => Some(&module.ident),
        _ => None,
    });
    declared.map(|name| folder.join(name.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn the_lines_of_tests_are_found_wherever_they_stand() {
        let file = parsed(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nstruct S;\nimpl S {\n fn c() {}\n #[cfg(test)]\n fn d() {}\n}\n\
             #[cfg(unix)]\nfn e() {}\nmod inner {\n #[test]\n fn f() {}\n}\n",
        );
        assert_eq!(lines(&file), [2..=5, 9..=10, 15..=16]);
    }
}
