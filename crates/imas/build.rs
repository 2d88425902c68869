// SPDX-License-Identifier: Apache-2.0
//! Compiles the C that this command alone has (each file says why it is there) and links it into the binary, where
//! nothing calls it.

/// C files, each with one constructor, which runs before Rust begins.
const SOURCES: [&str; 4] = ["src/closed_streams.c", "src/file_size.c", "src/odd_entries.c", "src/sigpipe.c"];

fn main() {
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
    }
    // Cargo forgets the profile's `strip` for a package that has an `opt-level` of its own there.
    println!("cargo:rustc-link-arg-bins=-Wl,--strip-all");
    let objects = cc::Build::new().files(SOURCES).flag("-Wextra").compile_intermediates();
    for object in objects {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}
