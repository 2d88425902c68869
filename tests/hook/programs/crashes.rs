// SPDX-License-Identifier: Apache-2.0
//! crashes overflow|thread|abort|fine: what Rust's own handler of SIGSEGV does with each. Linked with a C
//! object (faults.c) that faults at the end where FAULT_AT_END is set.

fn overflow(depth: u64) -> u64 {
    let frame = [depth; 512];
    if depth == 0 { 0 } else { overflow(depth + 1) + std::hint::black_box(frame)[3] }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("overflow") => println!("{}", overflow(1)),
        Some("thread") => println!("{:?}", std::thread::spawn(|| overflow(1)).join().is_ok()),
        Some("abort") => std::process::abort(),
        _ => println!("fine"),
    }
}
