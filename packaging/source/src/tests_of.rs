// SPDX-License-Identifier: Apache-2.0
//! Which parts of a file only tests have.

use std::path::PathBuf;

use syn::{Attribute, Item};

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
