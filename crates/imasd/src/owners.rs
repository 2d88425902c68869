// SPDX-License-Identifier: Apache-2.0
//! Owners, who answer for what runs under a uid. One person may have tens of thousands of uids for containers
//! (`/etc/subuid`), and all that happens under them counts as that one person's. This file is the only place
//! where that rule stands.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

/// Limit for the number of answers remembered.
const MOST_REMEMBERED: usize = 65_536;

/// Owner of a uid, who answers for what runs under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owner {
    /// Root or an account of the system.
    System,
    /// A person, by the uid of the account.
    Person(u32),
    /// Uid without an account: all such uids together are treated as one person.
    Unknown,
}

/// The rule, and what it rests on.
#[derive(Debug)]
pub(crate) struct Owners {
    accounts: Accounts,
    names: NameService,
    remembered: HashMap<u32, Owner>,
}

impl Owners {
    /// Owners by the files below `etc` and the machine's name service.
    pub(crate) fn read(etc: &Path) -> Self {
        Self { accounts: Accounts::read(etc), names: NameService::new(), remembered: HashMap::new() }
    }

    /// Takes up what has changed; whether anything has.
    pub(crate) fn refresh(&mut self) -> bool {
        self.remembered.clear(); // answers of the name service grow old too
        self.accounts.refresh() | self.names.take_answers()
    }

    /// Owner who answers for this uid.
    pub(crate) fn of(&mut self, uid: u32) -> Owner {
        if let Some(owner) = self.remembered.get(&uid) {
            return *owner;
        }
        let owner = self.find(uid);
        if self.remembered.len() >= MOST_REMEMBERED {
            self.remembered.clear();
        }
        self.remembered.insert(uid, owner);
        owner
    }

    /// An account of the uid comes first, then the range that contains the uid, then the answer of the name
    /// service.
    fn find(&mut self, uid: u32) -> Owner {
        if uid == 0 || self.accounts.has(uid) {
            return of_account(uid);
        }
        let account = match self.accounts.holder_of(uid).cloned() {
            Some(holder) => return self.of_holder(&holder),
            None => self.names.answer(&Question::Uid(uid)),
        };
        account.map_or(Owner::Unknown, of_account)
    }

    /// The uids that root or a service hands to containers are not the system's: what runs there may be
    /// anybody's.
    fn of_holder(&mut self, holder: &Holder) -> Owner {
        let uid = match holder {
            Holder::Uid(uid) => Some(*uid),
            Holder::Name(name) => {
                let listed = self.accounts.uid_of(name);
                listed.or_else(|| self.names.answer(&Question::Name(name.clone())))
            }
        };
        uid.filter(|uid| *uid >= FIRST_USER).map_or(Owner::Unknown, Owner::Person)
    }
}

fn of_account(uid: u32) -> Owner {
    if uid < FIRST_USER { Owner::System } else { Owner::Person(uid) }
}

// The accounts of this machine as its files list them: `/etc/passwd` and `/etc/subuid`. Both are root's to
// write and are believed.

/// The first uid of people; those below belong to the system.
const FIRST_USER: u32 = 1000;

/// Whom a range of subordinate uids was given to, as `/etc/subuid` writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    Uid(u32),
    Name(String),
}

/// The uids from `first` on that one account may use for its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
    holder: Holder,
}

/// State in which a file was read: device, inode, size, modification time.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// Accounts and ranges of the two files.
#[derive(Debug)]
pub(super) struct Accounts {
    passwd: PathBuf,
    subuid: PathBuf,
    read: (Stamp, Stamp),
    uids: HashSet<u32>,
    by_name: HashMap<String, u32>,
    ranges: Vec<Range>,
}

impl Accounts {
    /// Reads both files below `etc`. A missing file counts as empty.
    pub(super) fn read(etc: &Path) -> Self {
        let (passwd, subuid) = (etc.join("passwd"), etc.join("subuid"));
        let mut accounts = Self {
            passwd,
            subuid,
            read: (None, None),
            uids: HashSet::new(),
            by_name: HashMap::new(),
            ranges: Vec::new(),
        };
        accounts.read_again();
        accounts
    }

    /// Reads them again if one has changed; whether one had.
    pub(super) fn refresh(&mut self) -> bool {
        let has_changed = (stamp(&self.passwd), stamp(&self.subuid)) != self.read;
        if has_changed {
            self.read_again();
        }
        has_changed
    }

    fn read_again(&mut self) {
        // Taken before reading: what is written meanwhile is read at the next look.
        self.read = (stamp(&self.passwd), stamp(&self.subuid));
        let text = |file: &Path| {
            std::fs::read(file)
                .map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into_owned())
        };
        self.by_name = text(&self.passwd).lines().filter_map(account).collect();
        self.uids = self.by_name.values().copied().collect();
        self.ranges = text(&self.subuid).lines().filter_map(range).collect();
    }

    /// Whether an account has this uid.
    pub(super) fn has(&self, uid: u32) -> bool {
        self.uids.contains(&uid)
    }

    /// The uid of the account of that name.
    pub(super) fn uid_of(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Holder of the subordinate uid.
    fn holder_of(&self, uid: u32) -> Option<&Holder> {
        let has = |range: &&Range| uid.checked_sub(range.first).is_some_and(|at| at < range.count);
        self.ranges.iter().find(has).map(|range| &range.holder)
    }
}

fn stamp(file: &Path) -> Stamp {
    let about = std::fs::metadata(file).ok()?;
    Some((about.dev(), about.ino(), about.size(), about.mtime(), about.mtime_nsec()))
}

/// A line of passwd(5): name, password, uid and more.
fn account(line: &str) -> Option<(String, u32)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with(['+', '-', '#']))?;
    Some((name.to_owned(), fields.nth(1)?.parse().ok()?))
}

/// A line of subuid(5): name or uid, first, count.
fn range(line: &str) -> Option<Range> {
    let mut fields = line.trim().split(':');
    let holder = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let holder = holder.parse().map_or_else(|_| Holder::Name(holder.to_owned()), Holder::Uid);
    Some(Range { first: fields.next()?.parse().ok()?, count: fields.next()?.parse().ok()?, holder })
}

// Accounts that are in no file, but in the machine's name service (LDAP, SSSD, systemd). It may take minutes
// to answer, or never answer. So a thread asks, and imasd continues without an answer until it comes.

/// Question to the name service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Question {
    Uid(u32),
    Name(String),
}

/// The uid of an account of the system or of a person; `None` where there is no such account.
type Answer = Option<u32>;

/// Limit for the number of questions remembered. Further ones are not asked.
const MOST: usize = 4096;
/// An answer is asked for again after this time.
const GOOD_FOR: Duration = Duration::from_secs(3600);

/// The two ends of the thread that asks.
type Asking = (Sender<Question>, Receiver<(Question, Answer)>);

/// Questions and answers of the machine's name service.
#[derive(Debug)]
pub(super) struct NameService {
    lookup: fn(&Question) -> Answer,
    asking: Option<Asking>,
    open: HashSet<Question>,
    answers: HashMap<Question, (Answer, Instant)>,
}

impl NameService {
    /// The name service of the machine.
    pub(super) fn new() -> Self {
        Self::with(ask_machine)
    }

    fn with(lookup: fn(&Question) -> Answer) -> Self {
        Self { lookup, asking: None, open: HashSet::new(), answers: HashMap::new() }
    }

    /// The last answer. If there is none, or if it is old, the question is asked in the background.
    pub(super) fn answer(&mut self, question: &Question) -> Answer {
        let last = self.answers.get(question).copied();
        if last.is_none_or(|(_, at)| at.elapsed() >= GOOD_FOR) {
            self.ask(question);
        }
        last.and_then(|(answer, _)| answer)
    }

    /// Takes up what has been answered; whether that changes anything.
    fn take_answers(&mut self) -> bool {
        let Some((_, answered)) = &self.asking else { return false };
        let mut changed = false;
        while let Ok((question, answer)) = answered.try_recv() {
            self.open.remove(&question);
            let before = self.answers.insert(question, (answer, Instant::now()));
            changed |= before.is_none_or(|(before, _)| before != answer);
        }
        changed
    }

    fn ask(&mut self, question: &Question) {
        if self.answers.len() + self.open.len() >= MOST {
            self.answers.retain(|_, (_, at)| at.elapsed() < GOOD_FOR);
        }
        let has_room = self.answers.contains_key(question) || self.answers.len() + self.open.len() < MOST;
        if !has_room || self.open.contains(question) {
            return;
        }
        if self.asking.is_none() {
            self.asking = start(self.lookup);
        }
        let Some((questions, _)) = &self.asking else { return };
        if questions.send(question.clone()).is_ok() {
            self.open.insert(question.clone());
        }
    }
}

/// The thread ends with its questions, or with imasd.
fn start(lookup: fn(&Question) -> Answer) -> Option<Asking> {
    let (questions, asked) = channel::<Question>();
    let (answers, answered) = channel();
    let work = move || {
        for question in asked {
            let answer = lookup(&question);
            if answers.send((question, answer)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("names".to_owned()).spawn(work).ok()?;
    Some((questions, answered))
}

/// Beyond the system's own, an account that cannot log in is no person: systemd names the uids of services
/// and of containers, which one person may have many of.
fn ask_machine(question: &Question) -> Answer {
    let found = match question {
        Question::Uid(uid) => User::from_uid(Uid::from_raw(*uid)),
        Question::Name(name) => User::from_name(name),
    };
    let account = found.ok().flatten()?;
    let shell = account.shell.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let uid = account.uid.as_raw();
    (uid < FIRST_USER || !matches!(shell, "" | "nologin" | "false")).then_some(uid)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/:/usr/sbin/nologin\ndockremap:x:990:990::/:/bin/false\n\
        mallory:x:1000:1000::/home/m:/bin/sh\nalice:x:1001:1001::/home/a:/bin/sh\n";
    const SUBUID: &str = "mallory:100000:65536\n1001:165536:65536\ndockremap:300000:65536\nroot:1000000:65536\n\
        gone-with-no-account:400000:65536\n";

    #[test]
    fn a_uid_belongs_to_its_account_or_the_holder_of_its_range() {
        let etc = etc(PASSWD, SUBUID);
        let mut owners = Owners::read(etc.path());
        let mut are =
            |uids: &[u32], owner| uids.iter().for_each(|uid| assert_eq!(owners.of(*uid), owner, "{uid}"));
        are(&[0, 33, 990], Owner::System);
        are(&[1000, 100_000, 100_033, 165_535], Owner::Person(1000));
        are(&[1001, 165_536, 231_071], Owner::Person(1001));
        are(&[999, 34], Owner::Unknown);
        are(&[300_000, 365_535, 1_000_000], Owner::Unknown);
        are(&[400_000], Owner::Unknown);
        are(&[231_072, 4_000_000_000], Owner::Unknown);
    }

    #[test]
    fn changed_files_are_read_again() {
        let etc = etc(PASSWD, "");
        let mut owners = Owners::read(etc.path());
        assert_eq!(owners.of(100_000), Owner::Unknown);
        std::fs::write(etc.path().join("subuid"), SUBUID).unwrap();
        assert!(owners.refresh());
        assert_eq!(owners.of(100_000), Owner::Person(1000));
    }

    #[test]
    fn an_account_of_its_own_is_not_the_range_holders() {
        let etc = etc(&format!("{PASSWD}bob:x:100005:1::/:/bin/sh\n"), SUBUID);
        assert_eq!(Owners::read(etc.path()).of(100_005), Owner::Person(100_005));
    }

    /// A folder with these two files.
    pub(crate) fn etc(passwd: &str, subuid: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("passwd"), passwd).unwrap();
        std::fs::write(folder.path().join("subuid"), subuid).unwrap();
        folder
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let etc = etc(
            "root:x:0:0::/:/bin/sh\n\n+::::::\n#old:x:7:7:::\nbroken\nbig:x:99999999999:1:::\nmallory:x:1000:1000::/home:/bin/sh\n",
            "mallory:100000:65536\n1001:200000:10\n# none\nx:y:z\nlast:4294967290:4294967295\n",
        );
        let accounts = Accounts::read(etc.path());
        assert!(accounts.has(0) && accounts.has(1000) && !accounts.has(7));
        assert_eq!((accounts.uid_of("mallory"), accounts.uid_of("big")), (Some(1000), None));
        let mallory = Holder::Name("mallory".to_owned());
        assert_eq!(accounts.holder_of(100_000), Some(&mallory));
        assert_eq!(accounts.holder_of(165_535), Some(&mallory));
        assert_eq!(accounts.holder_of(165_536), None);
        assert_eq!(accounts.holder_of(200_009), Some(&Holder::Uid(1001)));
        assert_eq!(accounts.holder_of(u32::MAX), Some(&Holder::Name("last".to_owned())));
    }

    #[test]
    fn they_are_read_again_when_they_change() {
        let etc = etc("a:x:1000:1::/:/bin/sh\n", "");
        let mut accounts = Accounts::read(etc.path());
        assert!(!accounts.refresh());
        std::fs::write(etc.path().join("passwd.new"), "a:x:1000:1::/:/bin/sh\nb:x:1001:1::/:/bin/sh\n")
            .unwrap();
        std::fs::rename(etc.path().join("passwd.new"), etc.path().join("passwd")).unwrap();
        assert!(accounts.refresh() && accounts.has(1001));
        std::fs::remove_file(etc.path().join("passwd")).unwrap();
        assert!(accounts.refresh() && !accounts.has(1000), "a file that is gone has no accounts");
    }

    fn until(mut holds: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(60), "in vain");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_name_service_that_never_answers_delays_nothing() {
        let mut silent = NameService::with(|_| {
            loop {
                std::thread::park();
            }
        });
        let begin = Instant::now();
        for uid in 0..100_000 {
            assert_eq!(silent.answer(&Question::Uid(uid)), None);
            assert!(!silent.take_answers());
        }
        assert!(silent.open.len() <= MOST);
        assert!(begin.elapsed() < Duration::from_secs(60), "no more than a hang is meant");
    }

    #[test]
    fn an_answer_is_taken_up_when_it_comes() {
        let mut names = NameService::with(|question| match question {
            Question::Uid(uid) => Some(*uid),
            Question::Name(_) => None,
        });
        assert_eq!(names.answer(&Question::Uid(7)), None);
        until(|| names.take_answers());
        assert_eq!(names.answer(&Question::Uid(7)), Some(7));
        assert_eq!(names.answer(&Question::Name("x".to_owned())), None);
        until(|| names.take_answers());
        assert!(!names.take_answers() && names.open.is_empty());
        assert_eq!(names.answers.len(), 2, "that there is none is an answer too");
    }

    #[test]
    fn the_name_service_of_the_machine_is_asked() {
        assert_eq!(ask_machine(&Question::Uid(0)), Some(0), "root can log in");
        assert_eq!(ask_machine(&Question::Name("no-such-account".to_owned())), None);
    }
}
