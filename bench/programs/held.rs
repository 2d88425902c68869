// SPDX-License-Identifier: Apache-2.0
//! held-rs MODE - memory of a Rust program with a known truth for bench/held.
use std::collections::BTreeMap;
use std::time::Duration;

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let base: Vec<String> = (0..100_000).map(|n| format!("a text of the base with the number {n}")).collect();
    println!("ready");
    let (mut vec, mut map) = (vec![], BTreeMap::new());
    for n in 0u64.. {
        for i in 0..30 {
            match mode.as_str() {
                "leak" => drop(std::hint::black_box(Box::leak(vec![1u8; 200].into_boxed_slice())).len()),
                "vec" => vec.push(format!("{:100}", n * 30 + i)),
                "map" => drop(map.insert((n * 30 + i) % 20_000, vec![1u8; 200])),
                _ => std::process::exit(2),
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{} {} {}", base.len(), vec.len(), map.len());
}
