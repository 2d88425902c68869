// SPDX-License-Identifier: Apache-2.0
//! Tests that return early. A test that cannot run here says so, by `return skipped("why")`.

use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::visit::Visit;
use syn::{Expr, ExprClosure, ExprReturn, Item, ItemFn};

use crate::file::SourceFile;

/// A line for each early return of a test that says nothing.
pub(crate) fn silent(file: &SourceFile) -> Vec<String> {
    let mut tests = Tests(vec![]);
    tests.visit_file(&file.syntax);
    let line =
        |span: &Span| format!("{}: a test returns silently: return skipped(\"why\")", file.place(*span));
    tests.0.iter().map(line).collect()
}

struct Tests(Vec<Span>);

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if function.attrs.iter().any(|attribute| attribute.path().is_ident("test")) {
            let mut returns = Returns(vec![]);
            returns.visit_block(&function.block);
            self.0.append(&mut returns.0);
        }
    }
}

/// Returns of one function: those of closures and of functions in it are not its own.
struct Returns(Vec<Span>);

impl<'ast> Visit<'ast> for Returns {
    fn visit_expr_closure(&mut self, _: &'ast ExprClosure) {}

    fn visit_item(&mut self, _: &'ast Item) {}

    fn visit_expr_return(&mut self, returned: &'ast ExprReturn) {
        let Some(value) = returned.expr.as_deref() else { return self.0.push(returned.span()) };
        let speaks =
            matches!(value, Expr::Call(call) if named(&call.func).is_some_and(|name| name == "skipped"));
        if !speaks {
            self.0.push(returned.span());
        }
    }
}

fn named(function: &Expr) -> Option<String> {
    let Expr::Path(path) = function else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn a_test_returns_early_with_a_reason_only() {
        let count = |body: &str| silent(&parsed(&format!("mod m {{ #[test] fn a() {{ {body} }} }}"))).len();
        assert_eq!(count("if b() { return; }"), 1);
        assert_eq!(count("let Some(c) = b() else { return };"), 1);
        assert_eq!(count("for c in b() { if c { return d(c); } }"), 1);
        assert_eq!(count("if b() { return skipped(\"no b\"); }"), 0);
        assert_eq!(count("let Some(c) = b() else { return imas_testing::skipped(\"no b\") };"), 0);
        assert_eq!(count("let c = || { return; }; fn d() { return; } c();"), 0);
        assert_eq!(silent(&parsed("fn a() { return; }")).len(), 0, "that is no test");
    }
}
