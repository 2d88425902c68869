// SPDX-License-Identifier: Apache-2.0
//! The tables. A released migration is never edited; a change is a new one at the end.

use rusqlite::Connection;
use rusqlite_migration::{M, Migrations};

use crate::StoreError;

const FIRST: &str = "
CREATE TABLE program (
    id      INTEGER PRIMARY KEY,
    path    TEXT NOT NULL,              -- resolved path of the executable
    detail  TEXT NOT NULL DEFAULT '',   -- script, jar or class of an interpreter
    UNIQUE (path, detail)
) STRICT;

-- Raw figures; appended, never changed.
CREATE TABLE trial (
    id                INTEGER PRIMARY KEY,
    trial_id          TEXT NOT NULL UNIQUE, -- a page harvested twice is stored once
    program           INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate         TEXT NOT NULL,
    build_id          TEXT NOT NULL,        -- of the executable
    allocator_version TEXT NOT NULL,
    made_s            REAL NOT NULL,        -- Unix time
    retest_s          REAL,                 -- waiting time between tests in force when it began
    uneventful        INTEGER NOT NULL,     -- a production start that did not crash: nothing but its number matters
    sample            TEXT NOT NULL         -- imas_core::sample::Sample as JSON
) STRICT;
CREATE INDEX trial_of_program ON trial (program, made_s);
CREATE INDEX uneventful_start ON trial (program, id) WHERE uneventful;

-- One row each time a decision differs from the one before, and one per trial begun.
CREATE TABLE decision (
    id        INTEGER PRIMARY KEY,
    program   INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    at_s      REAL NOT NULL,
    candidate TEXT NOT NULL,
    trial     INTEGER NOT NULL,
    trial_id  TEXT,                         -- of a trial begun
    retest_s  REAL,                         -- waiting time between tests in force then
    reason    TEXT NOT NULL,                -- id of the reason
    because   TEXT NOT NULL                 -- the sentence and the evidence, for people
) STRICT;
CREATE INDEX decision_of_program ON decision (program, id);
CREATE INDEX decision_of_trial ON decision (trial_id) WHERE trial_id IS NOT NULL;

CREATE TABLE pin (
    program   INTEGER PRIMARY KEY REFERENCES program (id) ON DELETE CASCADE,
    candidate TEXT NOT NULL,
    at_s      REAL NOT NULL
) STRICT;

CREATE TABLE exclusion (
    path TEXT PRIMARY KEY,                  -- resolved path of an executable or script
    at_s REAL NOT NULL
) STRICT;

CREATE TABLE lift (
    program   INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate TEXT NOT NULL,
    at_s      REAL NOT NULL,
    PRIMARY KEY (program, candidate)
) STRICT;

-- What was found out about a file; void as soon as the file changes.
CREATE TABLE file_fact (
    path   TEXT NOT NULL,
    kind   TEXT NOT NULL,
    stamp  TEXT NOT NULL,                   -- device, inode, size, modification and change time
    fact   TEXT NOT NULL,                   -- JSON
    PRIMARY KEY (path, kind)
) STRICT;
";

/// Adds a trust domain to programs, and the tables of imasd. SQLite cannot change a UNIQUE constraint in
/// place. So the table is created anew, with foreign keys off (see [`migrate`]): the trials that refer to it
/// stay.
const DOMAINS: &str = "
CREATE TABLE program_in_domain (
    id      INTEGER PRIMARY KEY,
    domain  INTEGER NOT NULL DEFAULT -1,  -- -1: the owner's own store; 4294967295: everybody's; else a uid
    path    TEXT NOT NULL,
    detail  TEXT NOT NULL DEFAULT '',
    UNIQUE (domain, path, detail)
) STRICT;
INSERT INTO program_in_domain (id, path, detail) SELECT id, path, detail FROM program;
DROP TABLE program;
ALTER TABLE program_in_domain RENAME TO program;

-- Trials that the index offers. The process that makes the page runs the trial. Deleted when the trial is
-- stored or withdrawn.
CREATE TABLE offer (
    token     TEXT PRIMARY KEY,             -- 16 hexadecimal digits, the page's name
    program   INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate TEXT NOT NULL,
    retest_s  REAL NOT NULL,                -- waiting time between tests then in force
    at_s      REAL NOT NULL
) STRICT;
CREATE INDEX offer_of_program ON offer (program);

-- Processes that were seen alive and own a page: only those pages count.
CREATE TABLE witness (
    uid         INTEGER NOT NULL,
    page        TEXT NOT NULL,              -- name in the user's folder
    boot_id     TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    program     INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate   TEXT NOT NULL,
    PRIMARY KEY (uid, page)
) STRICT;

-- Allocators that harmed several programs: given to nobody until the library changes or the operator unblocks
-- them.
CREATE TABLE disabled (
    allocator TEXT PRIMARY KEY,
    version   TEXT NOT NULL,
    at_s      REAL NOT NULL,
    why       TEXT NOT NULL,
    lifted_s  REAL                          -- when the operator gave it back; what it did before is cleared
) STRICT;
CREATE INDEX eventful_trial ON trial (made_s) WHERE NOT uneventful;
";

/// Adds what was published to a fleet, and its statistics.
const FLEET: &str = "
-- What was published of a trial; kind: pair, void or crash.
CREATE TABLE fleet_told (
    trial INTEGER NOT NULL REFERENCES trial (id) ON DELETE CASCADE,
    kind  TEXT NOT NULL,
    PRIMARY KEY (trial, kind)
) STRICT, WITHOUT ROWID;

-- What was published of a program's residuals, in all.
CREATE TABLE fleet_residual (
    program  INTEGER PRIMARY KEY REFERENCES program (id) ON DELETE CASCADE,
    subject  TEXT NOT NULL,                 -- program and environment as the fleet names them
    residual TEXT NOT NULL                  -- JSON
) STRICT;

-- The present boot and its messages so far.
CREATE TABLE fleet_boot (
    boot_id TEXT PRIMARY KEY,               -- of the kernel
    name    TEXT NOT NULL,                  -- random: a part of the messages' ids
    batch   INTEGER NOT NULL DEFAULT 0,     -- messages in this boot
    place   INTEGER NOT NULL                -- of the newest message
) STRICT;

-- Messages that are not written into the exchange folder yet.
CREATE TABLE fleet_message (
    place   INTEGER PRIMARY KEY,            -- the order of sending, over all boots
    boot    TEXT NOT NULL,
    batch   INTEGER NOT NULL,
    message TEXT NOT NULL                   -- JSON
) STRICT;

-- Statistics received from the fleet.
CREATE TABLE fleet_statistics (
    program    INTEGER PRIMARY KEY REFERENCES program (id) ON DELETE CASCADE,
    subject    TEXT NOT NULL,
    statistics TEXT NOT NULL                -- JSON
) STRICT;

-- As which host imasd takes part; no row: it does not.
CREATE TABLE fleet_member (
    host  TEXT NOT NULL,
    share REAL NOT NULL                     -- of the hosts that may be in a trial of one program
) STRICT;
";

/// Adds the length of turns, and when the fleet was reached last: a host of a fleet that is gone tries as if
/// it were alone.
const FLEET_REACHED: &str = "
ALTER TABLE fleet_member ADD COLUMN turn_s REAL NOT NULL DEFAULT 600; -- seconds of a turn
ALTER TABLE fleet_member ADD COLUMN reached_s REAL NOT NULL DEFAULT 0; -- Unix time
ALTER TABLE fleet_told RENAME TO fleet_published;
";

/// Adds what replays of a recorded run predicted, and recordings that are to be made or replayed.
const REPLAYS: &str = "
CREATE TABLE replayed_run (
    program  INTEGER PRIMARY KEY REFERENCES program (id) ON DELETE CASCADE,
    at_s     REAL NOT NULL,                 -- Unix time
    build_id TEXT NOT NULL,
    machine  TEXT NOT NULL,                 -- page settings and CPU count
    run      TEXT NOT NULL                  -- facts of the recorded run, JSON
) STRICT;

-- Differences of logarithms to system.
CREATE TABLE prediction (
    program   INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate TEXT NOT NULL,
    version   TEXT NOT NULL,                -- of the allocator
    cpu       REAL NOT NULL,
    memory    REAL NOT NULL,
    PRIMARY KEY (program, candidate)
) STRICT, WITHOUT ROWID;

CREATE TABLE recording (
    program     INTEGER PRIMARY KEY REFERENCES program (id) ON DELETE CASCADE,
    asked_s     REAL NOT NULL,              -- Unix time
    limit_bytes INTEGER NOT NULL,
    window_s    REAL,                       -- NULL: to the end of the program
    begun_s     REAL,                       -- NULL, as all below: before the start
    folder      TEXT,
    build_id    TEXT,
    pid         INTEGER,
    start_ticks INTEGER,
    boot_id     TEXT
) STRICT;
";

/// Adds how processes of services live on after their samples were taken.
const LIVES: &str = "
-- Memory of a process in one part of its life; appended, never changed.
CREATE TABLE life_window (
    program  INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    process  TEXT NOT NULL,                 -- of a trial: trial_id
    is_trial INTEGER NOT NULL,              -- else it was left untouched
    build_id TEXT NOT NULL,                 -- of the executable
    machine  TEXT NOT NULL,                 -- page settings and CPU count
    begun_s  REAL NOT NULL,                 -- Unix time
    until_s  REAL NOT NULL,                 -- age of the process at the end of the window
    figures  TEXT NOT NULL,                 -- imas_core::service_life::LifeWindow as JSON
    PRIMARY KEY (program, process, until_s)
) STRICT, WITHOUT ROWID;
";

/// Adds why a recording came to nothing, and what trials said of predictions.
const REFUSED_AND_CHECKED: &str = "
ALTER TABLE recording ADD COLUMN refused TEXT;      -- why nothing was learned from it
ALTER TABLE recording ADD COLUMN refused_s REAL;    -- Unix time

-- Of one candidate of one program of this host: ln(live / predicted).
CREATE TABLE checked_prediction (
    program   INTEGER NOT NULL REFERENCES program (id) ON DELETE CASCADE,
    candidate TEXT NOT NULL,
    run       TEXT NOT NULL,                -- facts of the recorded run, JSON
    cpu       REAL NOT NULL,
    memory    REAL NOT NULL,
    PRIMARY KEY (program, candidate)
) STRICT, WITHOUT ROWID;
";

/// Adds since when a host knows what its fleet measured: it checks that in later periods only.
const FLEET_KNOWN: &str = "
ALTER TABLE fleet_statistics ADD COLUMN known_s REAL NOT NULL DEFAULT 0; -- Unix time of the first of this subject
";

/// Adds which programs an earlier version knew by their file alone, whatever the name by which they were started.
const STARTED_NAMES: &str = "
ALTER TABLE program ADD COLUMN by_file_alone INTEGER NOT NULL DEFAULT 0;
UPDATE program SET by_file_alone = 1 WHERE detail = '';
";

fn migrations() -> Migrations<'static> {
    Migrations::new(vec![
        M::up(FIRST),
        M::up(DOMAINS).foreign_key_check(),
        M::up(FLEET),
        M::up(FLEET_REACHED),
        M::up(REPLAYS),
        M::up(LIVES),
        M::up(REFUSED_AND_CHECKED),
        M::up(FLEET_KNOWN),
        M::up(STARTED_NAMES),
    ])
}

/// Brings the tables up to date. Foreign keys must be off: with them, replacing a table would delete all rows
/// that refer to it.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let migrations = migrations();
    match migrations.to_latest(connection) {
        // Another process may have migrated the file between our version check and our write lock.
        Err(_) if migrations.pending_migrations(connection)? == 0 => Ok(()),
        done => Ok(done?),
    }
}

/// Whether the tables are those of an earlier version.
pub(crate) fn is_older(connection: &Connection) -> Result<bool, StoreError> {
    Ok(migrations().pending_migrations(connection)? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migrations_are_sound() {
        migrations().validate().unwrap();
    }

    #[test]
    fn a_store_of_the_first_version_keeps_its_trials() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        let mut old = Connection::open(&path).unwrap();
        Migrations::new(vec![M::up(FIRST)]).to_latest(&mut old).unwrap();
        old.execute_batch(
            "INSERT INTO program (id, path, detail) VALUES (7, '/bin/x', 's');
             INSERT INTO trial (trial_id, program, candidate, build_id, allocator_version, made_s, uneventful, sample)
             VALUES ('t', 7, 'a', 'b', '1', 1.0, 0, '{}');
             INSERT INTO pin VALUES (7, 'a', 1.0);",
        )
        .unwrap();
        drop(old);
        let unchanged = crate::Store::open_read_only(&path).unwrap();
        assert_eq!(unchanged.statistics(7).unwrap(), None);
        let store = crate::Store::open(&path).unwrap();
        let program = store.find_program_in(crate::domain::Domain::Own, "/bin/x", "s").unwrap().unwrap();
        assert_eq!(program.id, 7);
        assert_eq!(store.trials(7).unwrap().len(), 1);
        assert_eq!(store.pinned(7).unwrap().as_deref(), Some("a"));
        assert_eq!((store.fleet_member().unwrap(), store.statistics(7).unwrap()), (None, None));
    }

    #[test]
    fn a_store_of_the_first_fleet_keeps_what_was_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        let mut old = Connection::open(&path).unwrap();
        let first = Migrations::new(vec![M::up(FIRST), M::up(DOMAINS), M::up(FLEET)]);
        first.to_latest(&mut old).unwrap();
        old.execute_batch(
            "INSERT INTO program (id, domain, path, detail) VALUES (7, 4294967295, '/bin/x', '');
             INSERT INTO trial (trial_id, program, candidate, build_id, allocator_version, made_s, uneventful, sample)
             VALUES ('t', 7, 'a', 'b', '1', 1.0, 0, '{}');
             INSERT INTO fleet_told VALUES (1, 'pair');
             INSERT INTO fleet_member VALUES ('h', 0.05);",
        )
        .unwrap();
        drop(old);
        let unchanged = crate::Store::open_read_only(&path).unwrap();
        assert_eq!(unchanged.fleet_member().unwrap().map(|member| member.host).as_deref(), Some("h"));
        assert_eq!(unchanged.fleet_reached_s().unwrap(), 0.0);
        let store = crate::Store::open(&path).unwrap();
        assert_eq!(store.published_marks(7).unwrap().len(), 1);
        assert_eq!(store.fleet_reached_s().unwrap(), 0.0);
        store.note_fleet_reached(5.0).unwrap();
        let member = store.fleet_member().unwrap().unwrap();
        store.set_fleet_member(Some(&member)).unwrap();
        assert_eq!(store.fleet_reached_s().unwrap(), 5.0, "imasd was started again");
    }

    #[test]
    fn a_store_from_before_replays_is_read_and_learns() {
        use crate::recordings::AskedRecording;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        let mut old = Connection::open(&path).unwrap();
        let before = Migrations::new(vec![M::up(FIRST), M::up(DOMAINS), M::up(FLEET), M::up(FLEET_REACHED)]);
        before.to_latest(&mut old).unwrap();
        old.execute_batch("INSERT INTO program (id, path, detail) VALUES (7, '/bin/x', '')").unwrap();
        drop(old);
        let unchanged = crate::Store::open_read_only(&path).unwrap();
        assert_eq!((unchanged.predictions(7).unwrap(), unchanged.recordings().unwrap().len()), (None, 0));
        let store = crate::Store::open(&path).unwrap();
        let asked = AskedRecording { at_s: 1.0, limit_bytes: 1, window_s: None };
        assert!(store.ask_recording(7, &asked).unwrap());
        assert_eq!(store.predictions(7).unwrap(), None);
    }

    #[test]
    fn a_store_from_before_lives_keeps_its_trials_and_takes_windows() {
        use crate::lives::LivingProcess;
        use imas_core::service_life::LifeWindow;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        let mut old = Connection::open(&path).unwrap();
        let before = vec![M::up(FIRST), M::up(DOMAINS), M::up(FLEET), M::up(FLEET_REACHED), M::up(REPLAYS)];
        Migrations::new(before).to_latest(&mut old).unwrap();
        old.execute_batch(
            "INSERT INTO program (id, path, detail) VALUES (7, '/bin/x', '');
             INSERT INTO trial (trial_id, program, candidate, build_id, allocator_version, made_s, uneventful, sample)
             VALUES ('t', 7, 'a', 'b', '1', 1.0, 0, '{\"trial_id\": \"t\", \"wall_s\": 600.5}');",
        )
        .unwrap();
        drop(old);
        let unchanged = crate::Store::open_read_only(&path).unwrap();
        assert_eq!(unchanged.trials(7).unwrap()[0].sample.life, None);
        let store = crate::Store::open(&path).unwrap();
        let trial = store.trials(7).unwrap().remove(0);
        assert_eq!((trial.sample.wall_s, trial.sample.life), (600.5, None));
        let (name, build_id, machine) = ("t".to_owned(), "b".to_owned(), String::new());
        let process = LivingProcess { program: 7, name, is_trial: true, build_id, machine, begun_s: 1.0 };
        let window = LifeWindow { until_s: 600.0, ..LifeWindow::default() };
        assert!(store.add_life_window(&process, &window).unwrap());
        let life = store.trials(7).unwrap().remove(0).sample.life.unwrap();
        assert_eq!(life.windows, [window]);
    }

    #[test]
    fn the_first_name_takes_what_was_known_by_the_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        let mut old = Connection::open(&path).unwrap();
        Migrations::new(vec![M::up(FIRST), M::up(DOMAINS)]).to_latest(&mut old).unwrap();
        old.execute_batch(
            "INSERT INTO program (id, path, detail) VALUES (7, '/bin/m', ''), (8, '/bin/n', ''), (9, '/bin/p', '/s');",
        )
        .unwrap();
        drop(old);
        let store = crate::Store::open(&path).unwrap();
        let started = |path, detail: &str| {
            let is_by_name = detail.starts_with("as ");
            store.started_program_in(crate::domain::Domain::Own, path, detail, is_by_name).unwrap().id
        };
        assert_eq!((started("/bin/m", "as one"), started("/bin/m", "as one")), (7, 7));
        let (two, file) = (started("/bin/m", "as two"), started("/bin/m", ""));
        assert!(two != 7 && file != 7 && two != file, "it is the first one's");
        assert_eq!(started("/bin/n", ""), 8);
        assert_ne!(started("/bin/n", "as one"), 8, "the file's own name came first");
        assert_eq!(started("/bin/p", "/s"), 9);
    }

    #[test]
    fn many_may_open_a_new_store_at_once() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("imas.db");
            let start = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        // The limit allows for a slow disk. An error "busy" here came without waiting.
                        crate::Store::open_within(&path, std::time::Duration::from_secs(300)).unwrap();
                    });
                }
            });
        }
    }
}
