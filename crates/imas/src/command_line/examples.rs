// SPDX-License-Identifier: Apache-2.0
//! An example or two for each verb, at the end of its help and of its man page.

use clap::Command;

/// Examples of each verb: a command, and what it does.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "bench",
        &[
            ("imas bench -- sqlite3 :memory: '.read work.sql'", "under six candidates"),
            ("imas bench --quick -- python3 work.py", "under the two that one recorded run finds promising"),
            ("imas bench --with all --input words.txt -- sort", "under all, with standard input"),
            (
                "imas bench --shell none --parameter-list file a.txt,b.txt -- 'sort {file}'",
                "two commands, one after the other",
            ),
            ("imas bench --with 'jemalloc?narenas:1' -- perl work.pl", "an allocator with a setting"),
            (
                "imas bench --baseline old.json --fail-if 'peak>5%' -- perl work.pl",
                "in CI; old.json is of --export-json",
            ),
        ],
    ),
    (
        "run",
        &[
            ("imas run redis-server", "learn while it works, then run it on the best"),
            ("imas run --candidate mimalloc -- python3 work.py", "under one candidate, once"),
            ("imas run --candidate 'jemalloc?narenas:1' -- python3 work.py", "under one with settings, once"),
            ("imas run --follow --candidate jemalloc -- make", "with everything that it starts"),
            ("imas run --record -- python3 work.py", "record this start for 'imas learn'"),
        ],
    ),
    (
        "record",
        &[
            ("imas record -o work.trace -- python3 work.py", "once, under system"),
            ("imas record --for 60s --limit 256M -- redis-server", "the first minute"),
        ],
    ),
    (
        "replay",
        &[
            ("imas replay work.trace", "what six candidates would take"),
            ("imas replay work.trace --with jemalloc,mimalloc --json", "two, for scripts"),
        ],
    ),
    (
        "learn",
        &[
            ("imas learn -- python3 work.py", "record and replay it now"),
            ("imas learn redis-server --for 10m", "record the first ten minutes of its next start"),
            ("imas learn --pending", "replay what was recorded, as from a timer at night"),
            ("imas learn work.py --trace work.trace", "from a trace of 'imas record'"),
        ],
    ),
    (
        "list",
        &[
            ("imas list --default", "what is tested when nobody is named"),
            ("imas list --json", "for scripts"),
        ],
    ),
    (
        "top",
        &[
            ("imas top", "your processes; with sudo everybody's"),
            ("imas top --sort gain", "what a restart would gain most"),
            ("imas top --once --json", "for scripts"),
        ],
    ),
    ("serve", &[("imas serve", "pages for a browser on this machine")]),
    ("fleet", &[("imas fleet doctor", "what this host needs to learn together with others")]),
    (
        "kube",
        &[("imas kube status -n shop", "the workloads of a namespace, and the candidates of their pods")],
    ),
    ("show", &[("imas show", "all programs"), ("imas show sqlite3", "what each candidate costs it")]),
    (
        "explain",
        &[
            ("imas explain sqlite3", "why it starts as it does, and how to change that"),
            ("imas explain --pid 812", "where a process has its memory: leak or fragmentation"),
        ],
    ),
    ("pin", &[("imas pin sqlite3 jemalloc", "from the next start on")]),
    ("unpin", &[("imas unpin sqlite3", "what is measured decides again")]),
    (
        "forget",
        &[("imas forget sqlite3", "its trials and decisions"), ("imas forget --all", "everything learned")],
    ),
    (
        "exclude",
        &[
            ("imas exclude add /usr/bin/rsync", "it always starts under system"),
            ("imas exclude remove /usr/bin/rsync", "what is measured decides again"),
            ("imas exclude list", "what is left alone"),
        ],
    ),
    (
        "system",
        &[
            ("sudo imas system verify", "a rehearsal, changes nothing"),
            ("sudo imas system enable", "asks, and puts everything back if a program behaves differently"),
            ("sudo imas system disable", "every file as it was"),
            ("imas system status", "what is in place, and what serves"),
            ("sudo imas system boot", "where systemd does not do it at boot"),
        ],
    ),
    ("harvest", &[("imas harvest", "before a restart of the machine")]),
    ("unblock", &[("sudo imas unblock jemalloc", "after it was repaired")]),
    ("status", &[("sudo imas status", "the daemon and every process that it serves")]),
    ("advise", &[("imas advise", "running processes, those that gain most first")]),
    (
        "apply",
        &[
            ("imas apply puma --candidate jemalloc", "shows the drop-in, writes nothing"),
            ("sudo imas apply puma --candidate jemalloc --write --now", "writes it, restarts the service"),
            (
                "sudo imas apply puma --candidate jemalloc --watch 24h",
                "the same, and takes it back if the service crashes or grows",
            ),
            ("sudo imas apply --auto --write", "every service for which a better candidate is known"),
        ],
    ),
    ("unapply", &[("sudo imas unapply --all --write --now", "every service as it was")]),
    ("trim", &[("imas trim 812", "one process"), ("sudo imas trim puma", "every process of the service")]),
    (
        "env",
        &[
            ("eval \"$(imas env --candidate mimalloc)\"", "for this shell"),
            (
                "imas env --candidate jemalloc --format dockerfile --bundle /opt/imas",
                "for an image, see 'imas bundle'",
            ),
        ],
    ),
    (
        "bundle",
        &[
            ("imas bundle jemalloc --out imas", "a folder for a Dockerfile's COPY"),
            ("imas bundle mimalloc --out imas.tar --at /srv/imas", "an archive, to be found at /srv/imas"),
            ("imas bundle jemalloc --musl --out imas", "the same for an image of Alpine"),
        ],
    ),
    (
        "doctor",
        &[("imas doctor", "what is missing"), ("imas doctor --noise", "how steady this machine measures")],
    ),
    ("report", &[("imas report --html page.html sqlite3", "one page for a browser")]),
    (
        "completions",
        &[(
            "imas completions bash >~/.local/share/bash-completion/completions/imas",
            "from the next shell on",
        )],
    ),
];

/// The command line with examples at the end of each verb's help.
pub(crate) fn add(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (verb, examples)| {
        command.mut_subcommand(verb, |verb| {
            let long = verb.get_after_long_help().map(|text| format!("\n\n{text}")).unwrap_or_default();
            let text = text(examples);
            below(verb, examples).after_long_help(format!("{text}{long}")).after_help(text)
        })
    })
}

/// The verb whose own verbs (`exclude add`) have those of the examples that are theirs.
fn below(verb: Command, examples: &[(&str, &str)]) -> Command {
    let name = verb.get_name().to_owned();
    let below: Vec<String> = verb.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    below.into_iter().fold(verb, |verb, one| {
        let whole = format!("imas {name} {one}");
        let own: Vec<_> = examples.iter().filter(|(command, _)| command.contains(&whole)).copied().collect();
        if own.is_empty() { verb } else { verb.mut_subcommand(one, |one| one.after_help(text(&own))) }
    })
}

fn text(examples: &[(&str, &str)]) -> String {
    let lines = examples.iter().map(|(command, what)| format!("  {command}\n      {what}"));
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}
