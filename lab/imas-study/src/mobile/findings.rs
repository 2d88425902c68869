// SPDX-License-Identifier: Apache-2.0
//! The claims of the paper, judged by our samples.

use imas_core::candidate::SYSTEM;
use imas_core::stats::median;

use super::change::STATES;
use super::contrast::{Contrast, Side, judged};
use super::sample::Samples;
use crate::verdict::{Finding, Reproduction};

/// The candidates of the paper that are available here, by their names in the catalogue.
const PAPERS: [&str; 7] =
    ["tlsf", "musl-mallocng", "musl-oldmalloc", "tcmalloc", "nedmalloc", "dlmalloc", "jemalloc"];
const MIB: f64 = 1_048_576.0;
const USE_CASE: &str = "use-case";

pub(crate) fn findings(samples: &Samples) -> Vec<Finding> {
    let mut all = vec![
        smallest_library(samples),
        static_size(samples),
        initial_memory(samples),
        quick_when_many(samples),
        quick_when_few(samples),
        browser(samples),
        more_free(samples),
        deviation(samples),
    ];
    all.extend(blocks(samples));
    all.push(more_available(samples));
    all
}

/// A claim that `who` is on the side `claimed` of each of `others`, as contrasts.
struct Claim<'a> {
    who: &'a str,
    claimed: Side,
    contrasts: Vec<(String, Option<Contrast>)>,
}

impl Claim<'_> {
    fn verdict(&self) -> Reproduction {
        judged(&self.contrasts.iter().map(|(_, contrast)| *contrast).collect::<Vec<_>>(), self.claimed)
    }

    fn text(&self, decimals: usize, unit: &str) -> String {
        let one = |(other, contrast): &(String, Option<Contrast>)| {
            let who = self.who;
            match contrast {
                None => format!("{who} and {other}: no figure"),
                Some(c) if c.neutral == 0.0 => format!("{who} less {other}: {}", c.text(decimals, unit)),
                Some(c) => format!("{who} by {other}: {}", c.text(decimals, unit)),
            }
        };
        self.contrasts.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

/// The verdict on several claims that belong to one sentence.
fn together(claims: &[Claim<'_>]) -> Reproduction {
    let verdicts: Vec<Reproduction> = claims.iter().map(Claim::verdict).collect();
    let all = |verdict| verdicts.iter().all(|v| *v == verdict);
    match verdicts.first() {
        Some(first) if all(*first) => *first,
        _ if verdicts.iter().any(|v| matches!(v, Reproduction::Reproduced | Reproduction::Differs)) => {
            Reproduction::Differs
        }
        _ => Reproduction::NotReproduced,
    }
}

fn library(samples: &Samples, candidate: &str, figure: &str) -> Option<f64> {
    samples.values("library", candidate, figure).first().copied()
}

fn kib(bytes: f64) -> String {
    format!("{:.0} KiB", bytes / 1024.0)
}

/// Candidates that were measured, each with its loaded bytes, the smallest first.
fn by_size(samples: &Samples) -> Vec<(&'static str, f64)> {
    let mut sizes: Vec<(&str, f64)> =
        PAPERS.iter().filter_map(|name| Some((*name, library(samples, name, "loaded")?))).collect();
    sizes.sort_by(|a, b| a.1.total_cmp(&b.1));
    sizes
}

fn smallest_library(samples: &Samples) -> Finding {
    let sizes = by_size(samples);
    let verdict = match sizes.first() {
        _ if sizes.len() < 2 || !sizes.iter().any(|(name, _)| *name == "tlsf") => Reproduction::Undecided,
        first => Reproduction::holds(first.is_some_and(|(name, _)| *name == "tlsf")),
    };
    let listed: Vec<String> = sizes.iter().map(|(name, bytes)| format!("{name} {}", kib(*bytes))).collect();
    Finding {
        claim: "tlsf is the smallest library".to_owned(),
        printed: "wins in space for libc (a chart without numbers)".to_owned(),
        ours: listed.join(", "),
        verdict,
        remark: "Loaded bytes of the shared object, our glue for glibc's semantics included in each."
            .to_owned(),
    }
}

fn static_size(samples: &Samples) -> Finding {
    let of = |name| library(samples, name, "loaded");
    let (ours, verdict) = match (of("dlmalloc"), of("tcmalloc"), of("jemalloc")) {
        (Some(dl), Some(tc), Some(je)) => (
            format!("{}, {:.2} of tcmalloc's, {:.2} of jemalloc's", kib(dl), dl / tc, dl / je),
            Reproduction::holds(dl < tc && dl < je),
        ),
        _ => ("no figure".to_owned(), Reproduction::Undecided),
    };
    Finding {
        claim: "dlmalloc is considerably smaller than tcmalloc and jemalloc".to_owned(),
        printed: "no figure".to_owned(),
        ours,
        verdict,
        remark: "Without their tables of size classes and their thread caches.".to_owned(),
    }
}

fn claim<'a>(
    who: &'a str,
    claimed: Side,
    others: &[&str],
    contrast: impl Fn(&str) -> Option<Contrast>,
) -> Claim<'a> {
    Claim {
        who,
        claimed,
        contrasts: others.iter().map(|other| ((*other).to_owned(), contrast(other))).collect(),
    }
}

fn initial_memory(samples: &Samples) -> Finding {
    let others: Vec<&str> = PAPERS.into_iter().filter(|name| *name != "tcmalloc").collect();
    let figure = "first.Private_Dirty";
    let initial =
        claim("tcmalloc", Side::Above, &others, |other| samples.ratio("minimal", figure, "tcmalloc", other));
    let added = |name: &str| {
        let of = |name| median(&samples.values("minimal", name, figure));
        Some(of(name)? - of(SYSTEM)?)
    };
    let listed: Vec<String> =
        PAPERS.iter().filter_map(|name| Some(format!("{name} {:+.0} KiB", added(name)? / 1024.0))).collect();
    Finding {
        claim: "tcmalloc takes more memory at the start than the others".to_owned(),
        printed: "no figure".to_owned(),
        ours: format!("private memory beyond system's: {}", listed.join(", ")),
        verdict: initial.verdict(),
        remark: "A process that allocates 100 bytes; medians.".to_owned(),
    }
}

fn quick_when_many(samples: &Samples) -> Finding {
    let of = |figure: &'static str, test: &'static str| {
        claim("tcmalloc", Side::Below, &["nedmalloc", "jemalloc"], move |other| {
            samples.ratio(test, figure, "tcmalloc", other)
        })
    };
    let claims = [of("many-random.malloc", "chunks"), of("cpu", "threads-1")];
    Finding {
        claim: "With many allocations of random size tcmalloc is much faster than nedmalloc and jemalloc"
            .to_owned(),
        printed: "much faster (a chart without numbers)".to_owned(),
        ours: format!(
            "malloc of 20,000: {}. One thread, random sizes: {}",
            claims[0].text(2, ""),
            claims[1].text(2, "")
        ),
        verdict: together(&claims),
        remark: "Sizes up to three pages, as the paper's are mostly across pages.".to_owned(),
    }
}

fn quick_when_few(samples: &Samples) -> Finding {
    let of = |who: &'static str| {
        claim(who, Side::Below, &["tcmalloc", "jemalloc"], move |other| {
            samples.ratio("chunks", "few-linear.malloc", who, other)
        })
    };
    let claims = [of("dlmalloc"), of("nedmalloc")];
    Finding {
        claim: "With few allocations in order dlmalloc and nedmalloc are the quicker ones in malloc".to_owned(),
        printed: "faster response (a chart without numbers)".to_owned(),
        ours: format!("{}; {}", claims[0].text(2, ""), claims[1].text(2, "")),
        verdict: together(&claims),
        remark: "500 blocks of one size, against the tcmalloc and jemalloc of today, whose thread caches answer from a list."
            .to_owned(),
    }
}

fn browser(samples: &Samples) -> Finding {
    let contrast =
        samples.difference(USE_CASE, "browser.resident", "tcmalloc", "jemalloc").map(|c| scaled(c, MIB));
    let served = samples.samples.iter().find_map(|sample| sample.served.get("browser"));
    let own = served.is_some_and(|who| who.contains("own"));
    Finding {
        claim: "A browser takes slightly less memory with tcmalloc than with jemalloc, the system's there"
            .to_owned(),
        printed: "about 10 KB less".to_owned(),
        ours: contrast.map_or_else(|| "no figure".to_owned(), |c| c.text(2, " MiB")),
        // The allocator cannot show an effect if the browser uses its own.
        verdict: if own { Reproduction::Undecided } else { judged(&[contrast], Side::Below) },
        remark: if own {
            "This browser serves itself, so neither allocator can show; the difference is that of noise and of an unused library.".to_owned()
        } else {
            "Resident anonymous memory of all its processes with three pages.".to_owned()
        },
    }
}

fn scaled(contrast: Contrast, unit: f64) -> Contrast {
    let i = contrast.interval;
    let interval = imas_core::stats::Interval { lo: i.lo / unit, mid: i.mid / unit, hi: i.hi / unit };
    Contrast { interval, ..contrast }
}

/// Contrasts of `who` with the others of the three allocators in the paper's use case: jemalloc, nedmalloc,
/// tcmalloc.
fn in_use_case<'a>(
    samples: &Samples,
    who: &'a str,
    others: &[&str],
    state: &str,
    figure: &str,
    unit: f64,
) -> Claim<'a> {
    let name = format!("{state}.{figure}.change");
    claim(who, Side::Above, others, |other| {
        samples.difference(USE_CASE, &name, who, other).map(|c| scaled(c, unit))
    })
}

fn more_free(samples: &Samples) -> Finding {
    let others = ["tcmalloc", "nedmalloc"];
    let claims = STATES.map(|state| in_use_case(samples, "jemalloc", &others, state, "free", MIB));
    Finding {
        claim: "With jemalloc more memory is free".to_owned(),
        printed: "no figure".to_owned(),
        ours: format!("running: {}; idle: {}", claims[0].text(1, " MiB"), claims[1].text(1, " MiB")),
        verdict: together(&claims),
        remark: "Change of MemFree since before, differences in the same iteration.".to_owned(),
    }
}

fn deviation(samples: &Samples) -> Finding {
    let claims = STATES.map(|state| {
        claim("jemalloc", Side::Above, &["tcmalloc"], |other| {
            samples.deviation_ratio(USE_CASE, &format!("{state}.free.change"), "jemalloc", other)
        })
    });
    Finding {
        claim: "Free memory deviates more from run to run with jemalloc".to_owned(),
        printed: "larger deviation".to_owned(),
        ours: format!(
            "ratio of median absolute deviations, running: {}; idle: {}",
            claims[0].text(2, ""),
            claims[1].text(2, "")
        ),
        verdict: together(&claims),
        remark: "Whatever else the machine does is in it.".to_owned(),
    }
}

fn blocks(samples: &Samples) -> [Finding; 2] {
    let large = STATES.map(|state| in_use_case(samples, "jemalloc", &["tcmalloc"], state, "high", 1.0));
    let small = in_use_case(samples, "tcmalloc", &["jemalloc", "nedmalloc"], "running", "low", 1.0);
    [
        Finding {
            claim: "With jemalloc more free blocks of 32 KiB and more are there, running and idle".to_owned(),
            printed: "high number of 32, 64 KB".to_owned(),
            ours: format!("running: {}; idle: {}", large[0].text(0, ""), large[1].text(0, "")),
            verdict: together(&large),
            remark: "Blocks of orders 3 to 10 in /proc/buddyinfo, change since before.".to_owned(),
        },
        Finding {
            claim: "With tcmalloc more free pages of low order are there while programs run".to_owned(),
            printed: "good amount of lower pages".to_owned(),
            ours: small.text(0, ""),
            verdict: small.verdict(),
            remark: "Blocks of orders 0 to 2 (4 to 16 KiB), change since before.".to_owned(),
        },
    ]
}

fn more_available(samples: &Samples) -> Finding {
    let claims: Vec<Claim<'_>> = STATES
        .iter()
        .flat_map(|state| {
            ["jemalloc", "nedmalloc"]
                .map(|who| in_use_case(samples, who, &["tcmalloc"], state, "available", MIB))
        })
        .collect();
    let text: Vec<String> = claims.iter().map(|claim| claim.text(1, " MiB")).collect();
    Finding {
        claim: "With jemalloc and nedmalloc more memory is available than with tcmalloc, running and idle"
            .to_owned(),
        printed: "no figure".to_owned(),
        ours: format!("running: {}, {}; idle: {}, {}", text[0], text[1], text[2], text[3]),
        verdict: together(&claims),
        remark: "Change of MemAvailable since before.".to_owned(),
    }
}
