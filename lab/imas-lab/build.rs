// SPDX-License-Identifier: Apache-2.0
//! Compiles the C that `imas` has (`crates/imas/src/sigpipe.c`: why it is there) and links it into the
//! binary, where nothing calls it.

fn main() {
    println!("cargo:rerun-if-changed=../../crates/imas/src/sigpipe.c");
    let objects =
        cc::Build::new().file("../../crates/imas/src/sigpipe.c").flag("-Wextra").compile_intermediates();
    for object in objects {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}
