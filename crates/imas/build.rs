// SPDX-License-Identifier: Apache-2.0
//! Compiles the only C in the command (`src/sigpipe.c`: why it is there) and links it into the binary, where
//! nothing calls it.

fn main() {
    println!("cargo:rerun-if-changed=src/sigpipe.c");
    let objects = cc::Build::new().file("src/sigpipe.c").flag("-Wextra").compile_intermediates();
    for object in objects {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}
