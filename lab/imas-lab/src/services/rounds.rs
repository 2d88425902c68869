// SPDX-License-Identifier: Apache-2.0
//! Which runs come next: whole rounds of one service, each in one sitting.
//!
//! A round that was cut short stays in the journal, and a later session begins a new one: runs of one round are only
//! comparable when they were made next to each other. A failure that is nobody's fault cuts its round short.
//! Candidates that are shown to be no pick leave the later rounds.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use imas_core::compare::Looks;
use imas_core::run::{RawRun, RunKind};
use imas_core::server_bench::{CandidateFigures, ServiceOptions, compare_services};
use imas_core::stats::median;
use imas_linux::catalogue::SYSTEM;
use imas_linux::host::now_unix_s;
use imas_runs::schedule::{self, RoundKind, Step};
use imas_study::services::BASELINES;

use super::sets::rails;

/// A candidate with this number of failed runs of a service has no further run with it: a run takes minutes.
/// `system` as well, and then the service has none.
pub(super) const MOST_FAILURES: usize = 2;
/// A service whose rounds a session had to cut short so often, because of failures that are nobody's
/// fault, has no further round in it: what is in the way stays there.
const MOST_CUT: u32 = 3;
/// Seconds of a run where nothing is known, beside its pause and its day: thirty of load, start and stop.
const USUAL_S: f64 = 35.0;

/// The runs of a journal, which grow while a session makes them.
pub(super) type SharedRuns = Rc<RefCell<Vec<RawRun>>>;

/// Rounds that are asked for.
#[derive(Debug, Clone)]
pub(super) struct RoundsWanted {
    /// Names of the services.
    pub(super) services: Vec<String>,
    /// Names of the candidates, `system` among them.
    pub(super) candidates: Vec<String>,
    /// Service and candidate where the service does not get the candidate: settings of another runtime.
    pub(super) lacking: BTreeSet<(String, String)>,
    /// Seconds of pause and day in a run, by service.
    pub(super) rest_s: BTreeMap<String, f64>,
    /// Whole rounds of each service.
    pub(super) rounds: u32,
    /// Most runs under `system` in each round.
    pub(super) system_runs: u32,
    /// Counted runs of each service.
    pub(super) counted: u32,
    /// Candidates never leave.
    pub(super) keeps_all: bool,
    /// Seed of the order.
    pub(super) seed: u64,
}

/// The steps of a session, made when they are asked for: the runs so far decide which candidates are in a round.
pub(super) struct Rounds {
    wanted: RoundsWanted,
    runs: SharedRuns,
    /// Median seconds of a run by service, of other journals.
    known_s: BTreeMap<String, f64>,
    /// Unix time in seconds by which a round must have ended.
    until: Option<f64>,
    /// Rounds of each service that are left.
    left: Vec<u32>,
    /// Rounds of each service that were cut short by a failure that is nobody's fault.
    cuts: Vec<u32>,
    queue: VecDeque<Step>,
    /// The last step of the round that is under way.
    last: Option<Step>,
}

/// Work that is left for one service.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ServicePlan {
    pub(super) service: String,
    /// Seconds of a run.
    pub(super) run_s: f64,
    /// The seconds were measured, and not assumed.
    pub(super) is_known: bool,
    pub(super) rounds: u32,
    /// Runs if all candidates that may leave do so as soon as they can, and if none does.
    pub(super) runs: [u32; 2],
}

impl RoundsWanted {
    /// Runs under `system` in a round with `others` other candidates. All are compared with it, so its noise weighs as
    /// much as the noise of each other run if it has the square root of their number. Two show the noise.
    fn system_runs(&self, others: usize) -> u32 {
        let wanted = (1..).find(|runs: &u32| (runs * runs) as usize >= others).unwrap_or(1);
        wanted.max(2).min(self.system_runs)
    }

    /// Whether the service gets the candidate.
    fn gets(&self, service: &str, candidate: &str) -> bool {
        !self.lacking.contains(&(service.to_owned(), candidate.to_owned()))
    }
}

impl Rounds {
    pub(super) fn new(
        wanted: RoundsWanted,
        runs: &SharedRuns,
        known_s: BTreeMap<String, f64>,
        until: Option<f64>,
    ) -> Self {
        let runs = Rc::clone(runs);
        let cuts = vec![0; wanted.services.len()];
        let (left, queue, last) = (vec![], VecDeque::new(), None);
        let mut rounds = Self { wanted, runs, known_s, until, left, cuts, queue, last };
        let whole = |service: &String| u32::try_from(rounds.whole(service).len()).unwrap_or(u32::MAX);
        rounds.left = rounds
            .wanted
            .services
            .iter()
            .map(|one| rounds.wanted.rounds.saturating_sub(whole(one)))
            .collect();
        rounds
    }

    /// Measured runs of a service.
    fn measured(&self, service: &str) -> Vec<RawRun> {
        let runs = self.runs.borrow();
        runs.iter().filter(|run| run.program == service && run.kind == RunKind::Measured).cloned().collect()
    }

    /// The rounds of a service that are whole: every candidate that had not left or failed has its runs. What failed
    /// by nobody's fault is no run.
    fn whole(&self, service: &str) -> BTreeSet<u32> {
        let mut all = self.measured(service);
        all.retain(|run| !run.is_nobodys_failure());
        let numbers: BTreeSet<u32> = all.iter().map(|run| run.round).collect();
        let mut whole = BTreeSet::new();
        for round in numbers {
            let left = self.leavers(service, &all, &whole);
            let others = self.wanted.candidates.len() - 1 - left.len();
            let is_made = |name: &String| {
                let own = || all.iter().filter(|run| run.candidate == *name);
                let wanted = if name == SYSTEM { self.wanted.system_runs(others) as usize } else { 1 };
                let failed = own().filter(|run| run.round <= round && !run.ok).count();
                left.contains(name)
                    || failed >= MOST_FAILURES
                    || own().filter(|run| run.round == round).count() >= wanted
            };
            if self.wanted.candidates.iter().all(is_made) {
                whole.insert(round);
            }
        }
        whole
    }

    /// Candidates without a run in a journal that has whole rounds of the others. A round needs all of them side by side:
    /// with such a one, every round of the journal would be made again.
    pub(super) fn newcomers(wanted: &RoundsWanted, runs: &SharedRuns) -> Vec<String> {
        let is_measured = |name: &&String| {
            let runs = runs.borrow();
            runs.iter().any(|run| run.kind == RunKind::Measured && run.candidate == **name)
        };
        let (known, new): (Vec<&String>, Vec<_>) = wanted.candidates.iter().partition(is_measured);
        let known = RoundsWanted { candidates: known.into_iter().cloned().collect(), ..wanted.clone() };
        if new.is_empty() || known.candidates.len() < 2 || !known.candidates.iter().any(|name| name == SYSTEM)
        {
            return vec![];
        }
        let rounds = Self::new(known, runs, BTreeMap::new(), None);
        // The first round may have been cut short before a candidate had its run.
        let is_late = |name: &&String| {
            let mut its = wanted.services.iter().filter(|service| wanted.gets(service, name));
            its.any(|service| rounds.whole(service).len() > 1)
        };
        new.into_iter().filter(is_late).cloned().collect()
    }

    /// The candidates that are not in the next round: those that the service does not get, and those that these rounds
    /// show to be no pick. They are not as much leaner than `system` as a pick must be, or they are proven to cost more
    /// than it may. What anybody can give to all services stays.
    fn leavers(&self, service: &str, runs: &[RawRun], rounds: &BTreeSet<u32>) -> BTreeSet<String> {
        let lacks = |name: &&String| !self.wanted.gets(service, name);
        let mut left: BTreeSet<String> = self.wanted.candidates.iter().filter(lacks).cloned().collect();
        if self.wanted.keeps_all || rounds.is_empty() {
            return left;
        }
        let those: Vec<RawRun> = runs.iter().filter(|run| rounds.contains(&run.round)).cloned().collect();
        // It is asked before each round.
        let looks = Some(Looks { first: 2, most: self.wanted.rounds.max(2) });
        let options = ServiceOptions { rails: rails(false), seed: 1, looks, ..ServiceOptions::default() };
        let found = compare_services(&self.wanted.candidates, &those, &options);
        let leaves = |name: &str| name != SYSTEM && !BASELINES.contains(&name);
        let all = found.candidates.into_iter().filter(|one| leaves(&one.name) && one.rounds > 0);
        let is_no_pick =
            |one: &CandidateFigures| (!one.is_open() && !one.is_better()) || !one.exceeds.is_empty();
        left.extend(all.filter(is_no_pick).map(|one| one.name));
        left
    }

    /// Fills the queue with the next round: of the service that has the most left, so that a journal that is ended
    /// early has every service as often as every other.
    fn begin_round(&mut self) -> bool {
        let services: Vec<&str> = self.wanted.services.iter().map(String::as_str).collect();
        let most = self.left.iter().copied().max().unwrap_or(0);
        let order = schedule::subjects(&services, self.wanted.rounds.saturating_sub(most), self.wanted.seed);
        let mut next: Vec<usize> = order.into_iter().filter(|&at| self.left[at] > 0).collect();
        next.sort_by_key(|&at| std::cmp::Reverse(self.left[at]));
        for subject in next {
            let steps = self.steps(subject);
            if self.is_alone(&steps) {
                self.left[subject] = 0;
                continue;
            }
            let seconds = steps.len() as f64 * self.run_s(&self.wanted.services[subject]).0;
            if self.until.is_none_or(|until| now_unix_s() + seconds <= until) {
                self.left[subject] -= 1;
                self.last = steps.last().copied();
                self.queue = steps.into();
                return true;
            }
        }
        false
    }

    /// Whether the last run is of the round that is under way and failed by nobody's fault.
    fn is_cut(&self, last: &Step) -> bool {
        let runs = self.runs.borrow();
        runs.last().is_some_and(|run| {
            run.is_nobodys_failure()
                && run.program == self.wanted.services[last.subject]
                && last.kind.kept() == Some((run.kind, run.round))
        })
    }

    /// Ends the round that is under way if it lacks a run now, and has it begun anew.
    fn cut(&mut self) {
        let Some(Step { subject, .. }) = self.last.filter(|last| self.is_cut(last)) else { return };
        self.last = None;
        self.queue.clear();
        self.cuts[subject] += 1;
        self.left[subject] = if self.cuts[subject] < MOST_CUT { self.left[subject] + 1 } else { 0 };
    }

    /// One round of a service, the first one after its counted runs.
    fn steps(&self, subject: usize) -> Vec<Step> {
        let service = &self.wanted.services[subject];
        let (all, whole) = (self.measured(service), self.whole(service));
        let left = self.leavers(service, &all, &whole);
        let round = all.iter().map(|run| run.round + 1).max().unwrap_or(0);
        let names = &self.wanted.candidates;
        let order = schedule::candidates(service, names.len(), round, self.wanted.seed);
        let stays = order.into_iter().filter(|&at| !left.contains(&names[at]));
        let kind = RoundKind::Measured { round };
        let steps: Vec<Step> = stays.map(|candidate| Step { subject, candidate, kind }).collect();
        let system = self.system();
        let system_runs = self.wanted.system_runs(steps.len() - 1);
        let steps = schedule::with_repeats(steps, system, system_runs, self.wanted.seed);
        let counted = (self.counted(service)..self.wanted.counted).map(|round| Step {
            subject,
            candidate: system,
            kind: RoundKind::Counted { round },
        });
        counted.chain(steps).collect()
    }

    /// Whether every other candidate has left: then nothing more can be compared.
    fn is_alone(&self, steps: &[Step]) -> bool {
        steps.iter().all(|step| step.candidate == self.system())
    }

    fn system(&self) -> usize {
        self.wanted.candidates.iter().position(|name| name == SYSTEM).unwrap_or(0)
    }

    /// Number of counted runs of a service.
    fn counted(&self, service: &str) -> u32 {
        let runs = self.runs.borrow();
        let own = runs.iter().filter(|run| run.program == service && run.kind == RunKind::Counted);
        u32::try_from(own.count()).unwrap_or(u32::MAX)
    }

    /// Seconds of a run of a service, and whether they were measured.
    fn run_s(&self, service: &str) -> (f64, bool) {
        let own: Vec<f64> =
            self.measured(service).iter().filter(|run| run.ok).map(|run| run.wall_s).collect();
        let known = median(&own).or_else(|| self.known_s.get(service).copied());
        let rest_s = self.wanted.rest_s.get(service).copied().unwrap_or(0.0);
        (known.unwrap_or(USUAL_S + rest_s), known.is_some())
    }

    /// Work that is left, service by service.
    pub(super) fn plan(&self) -> Vec<ServicePlan> {
        let of = |(subject, &rounds): (usize, &u32)| {
            let service = &self.wanted.services[subject];
            let first = if rounds > 0 { self.steps(subject).len() } else { 0 };
            let first = u32::try_from(first).unwrap_or(u32::MAX);
            let counted = self.wanted.counted.saturating_sub(self.counted(service)).min(first);
            let round = first - counted;
            let stays = |one: &&String| BASELINES.contains(&one.as_str()) && self.wanted.gets(service, one);
            let stay = self.wanted.candidates.iter().filter(stays).count();
            let last = self.wanted.system_runs(stay) + u32::try_from(stay).unwrap_or(0);
            let fewest = if self.wanted.keeps_all { round } else { last.min(round) };
            let whole = u32::try_from(self.whole(service).len()).unwrap_or(u32::MAX);
            // Two rounds may show that a candidate is no pick.
            let full = rounds.min(2_u32.saturating_sub(whole));
            let (run_s, is_known) = self.run_s(service);
            ServicePlan {
                service: service.clone(),
                run_s,
                is_known,
                rounds,
                runs: [counted + full * round + (rounds - full) * fewest, counted + rounds * round],
            }
        };
        self.left.iter().enumerate().map(of).collect()
    }
}

impl Iterator for Rounds {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.cut();
        if self.queue.is_empty() && !self.begin_round() {
            return None;
        }
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_run::{Failure, Figure, ServerRun, Stage};

    fn wanted(services: &[&str], candidates: &[&str], rounds: u32) -> RoundsWanted {
        RoundsWanted {
            services: services.iter().map(|name| (*name).to_owned()).collect(),
            candidates: candidates.iter().map(|name| (*name).to_owned()).collect(),
            lacking: BTreeSet::new(),
            rest_s: BTreeMap::new(),
            rounds,
            system_runs: 3,
            counted: 1,
            keeps_all: false,
            seed: 1,
        }
    }

    /// Makes every step; a candidate that is called `fat` takes twice the memory, `fails` fails, the port of `late`
    /// is taken in the first round and the gain of `never` always.
    fn make(rounds: &mut Rounds, runs: &SharedRuns, most: usize) -> Vec<(String, String, RunKind, u32)> {
        let mut made = vec![];
        for number in 0..most {
            let Some(step) = rounds.next() else { break };
            let (kind, round) = step.kind.kept().unwrap();
            let candidate = rounds.wanted.candidates[step.candidate].clone();
            let program = rounds.wanted.services[step.subject].clone();
            made.push((program.clone(), candidate.clone(), kind, round));
            let noise = f64::from(u32::try_from(number * 7 % 5).unwrap()) / 10.0;
            let memory = if candidate == "fat" { 200.0 } else { 100.0 } + noise;
            let server = ServerRun::of([Figure::lower("memory", memory, "B")]);
            let is_taken = candidate == "never" || (candidate == "late" && round == 0);
            let stage =
                if is_taken { Some(Stage::Taken) } else { (candidate == "fails").then_some(Stage::Ready) };
            let failure = stage.map(|stage| Failure::new(stage, "x".into()));
            let run = RawRun { program, candidate, kind, round, wall_s: 10.0, ..RawRun::default() };
            let at_s = f64::from(u32::try_from(runs.borrow().len()).unwrap());
            let run = RawRun { at_s, ..run }.with_server(ServerRun { failure, ..server });
            runs.borrow_mut().push(run);
        }
        made
    }

    fn count(made: &[(String, String, RunKind, u32)], candidate: &str, round: u32) -> usize {
        let is = |one: &&(String, String, RunKind, u32)| {
            (one.1.as_str(), one.2, one.3) == (candidate, RunKind::Measured, round)
        };
        made.iter().filter(is).count()
    }

    #[test]
    fn a_round_that_was_cut_short_is_not_gone_on_with() {
        let runs = SharedRuns::default();
        let new = || Rounds::new(wanted(&["web"], &["system", "a"], 2), &runs, BTreeMap::new(), None);
        // A counted run, a whole round of three runs, and two runs of the second.
        assert_eq!(make(&mut new(), &runs, 6).len(), 6);
        let made = make(&mut new(), &runs, 100);
        assert_eq!(made.len(), 3, "no second counted run, and one whole round: {made:?}");
        assert!(made.iter().all(|one| one.3 == 2), "with a number of its own: {made:?}");
        assert_eq!([count(&made, "system", 2), count(&made, "a", 2)], [2, 1]);
        assert_eq!(make(&mut new(), &runs, 100), []);
    }

    #[test]
    fn a_round_with_a_failure_that_is_nobodys_fault_is_begun_anew() {
        let runs = SharedRuns::default();
        let asked = RoundsWanted { counted: 0, ..wanted(&["web"], &["system", "a", "late"], 2) };
        let made = make(&mut Rounds::new(asked.clone(), &runs, BTreeMap::new(), None), &runs, 100);
        let first: Vec<_> = made.iter().filter(|one| one.3 == 0).collect();
        assert_eq!(first.last().unwrap().1, "late", "it ends there: {made:?}");
        assert_eq!((made.len() - first.len(), count(&made, "late", 1), count(&made, "late", 2)), (8, 1, 1));
        assert_eq!(make(&mut Rounds::new(asked, &runs, BTreeMap::new(), None), &runs, 100), []);
    }

    #[test]
    fn a_service_whose_port_stays_taken_has_no_further_round() {
        let runs = SharedRuns::default();
        let asked = RoundsWanted { counted: 0, ..wanted(&["web"], &["system", "a", "never"], 6) };
        let new = || Rounds::new(asked.clone(), &runs, BTreeMap::new(), None);
        let made = make(&mut new(), &runs, 100);
        assert_eq!([0, 1, 2, 3].map(|round| count(&made, "never", round)), [1, 1, 1, 0], "{made:?}");
        assert_eq!(new().left, [6], "a later session tries again");
    }

    #[test]
    fn a_candidate_that_is_new_in_a_journal_is_noticed() {
        let runs = SharedRuns::default();
        let asked = wanted(&["web"], &["system", "a"], 2);
        let more = wanted(&["web"], &["system", "a", "b"], 2);
        let few: &mut Rounds = &mut Rounds::new(asked.clone(), &runs, BTreeMap::new(), None);
        make(few, &runs, 2);
        assert_eq!(Rounds::newcomers(&more, &runs), [""; 0], "no round is whole yet");
        make(few, &runs, 100);
        assert_eq!(Rounds::newcomers(&more, &runs), ["b"]);
        assert_eq!(Rounds::newcomers(&asked, &runs), [""; 0]);
    }

    /// `db` does not get `jvm:a`: its rounds are whole without it, and a candidate that only `web` gets is new in the
    /// rounds of `web` alone.
    #[test]
    fn a_service_has_rounds_of_the_candidates_that_it_gets() {
        let lacking = |names: &[&str]| -> BTreeSet<(String, String)> {
            names.iter().map(|name| ("db".to_owned(), (*name).to_owned())).collect()
        };
        let both = RoundsWanted {
            lacking: lacking(&["jvm:a"]),
            ..wanted(&["web", "db"], &["system", "a", "jvm:a"], 2)
        };
        let runs = SharedRuns::default();
        let mut rounds = Rounds::new(both.clone(), &runs, BTreeMap::new(), None);
        assert_eq!(rounds.plan().iter().map(|one| one.runs[1]).collect::<Vec<_>>(), [1 + 2 * 4, 1 + 2 * 3]);
        let made = make(&mut rounds, &runs, 100);
        let of = |service: &str| made.iter().filter(|one| one.0 == service && one.1 == "jvm:a").count();
        assert_eq!((made.len(), of("web"), of("db")), (9 + 7, 2, 0), "{made:?}");
        assert_eq!(make(&mut Rounds::new(both, &runs, BTreeMap::new(), None), &runs, 100), []);

        let more = |services: &[&str]| RoundsWanted {
            lacking: lacking(&["jvm:a", "jvm:b"]),
            ..wanted(services, &["system", "a", "jvm:a", "jvm:b"], 2)
        };
        assert_eq!(Rounds::newcomers(&more(&["db"]), &runs), [""; 0]);
        assert_eq!(Rounds::newcomers(&more(&["web", "db"]), &runs), ["jvm:b"]);
    }

    #[test]
    fn services_take_turns_and_the_runs_of_a_round_are_side_by_side() {
        let runs = SharedRuns::default();
        let asked = wanted(&["web", "db"], &["system", "glibc:arena1"], 3);
        let made = make(&mut Rounds::new(asked, &runs, BTreeMap::new(), None), &runs, 100);
        assert_eq!(made.len(), 2 * (1 + 3 * 3));
        let blocks: Vec<_> = made.chunk_by(|a, b| (&a.0, a.3) == (&b.0, b.3)).collect();
        assert_eq!(blocks.len(), 6, "{made:?}");
        let of_round = |pair: &[&[(String, String, RunKind, u32)]]| pair[0][0].0 != pair[1][0].0;
        assert!(blocks.chunks(2).all(of_round), "{made:?}");
    }

    #[test]
    fn what_is_shown_to_be_no_pick_leaves_and_what_all_may_use_stays() {
        let asked = wanted(&["web"], &["system", "glibc:arena1", "fat", "fails"], 6);
        let runs = SharedRuns::default();
        let mut rounds = Rounds::new(asked.clone(), &runs, BTreeMap::new(), None);
        let plan = rounds.plan();
        assert_eq!(plan[0].runs, [1 + 2 * 5 + 4 * 3, 1 + 6 * 5]);
        let made = make(&mut rounds, &runs, 100);
        let of = |candidate| (0..6).map(|round| count(&made, candidate, round)).collect::<Vec<_>>();
        assert_eq!(of("fat"), [1, 1, 0, 0, 0, 0]);
        assert_eq!((of("glibc:arena1"), of("system")), (vec![1; 6], vec![2; 6]));
        // Without anybody beside `system` there are no more rounds.
        let few = RoundsWanted {
            candidates: ["system", "fat"].map(str::to_owned).into(),
            rounds: 9,
            ..asked.clone()
        };
        assert_eq!(make(&mut Rounds::new(few, &runs, BTreeMap::new(), None), &runs, 100), []);
        let again = Rounds::new(asked.clone(), &runs, BTreeMap::new(), None);
        assert_eq!(again.left, [0], "rounds without what has left or failed are whole");
        let all = RoundsWanted { keeps_all: true, ..asked };
        assert_eq!(Rounds::new(all, &runs, BTreeMap::new(), None).left, [4]);
    }

    #[test]
    fn system_runs_as_often_as_its_noise_weighs() {
        let asked = wanted(&[], &[], 1);
        assert_eq!([1, 2, 4, 5, 9, 10, 40].map(|others| asked.system_runs(others)), [2, 2, 2, 3, 3, 3, 3]);
        let once = RoundsWanted { system_runs: 1, ..asked };
        assert_eq!(once.system_runs(5), 1);
    }

    #[test]
    fn a_run_of_which_nothing_is_known_takes_its_pause_and_its_day() {
        let rest_s = BTreeMap::from([("web".to_owned(), 310.0)]);
        let asked = RoundsWanted { rest_s, counted: 0, ..wanted(&["web"], &["system", "a"], 2) };
        let runs = SharedRuns::default();
        let new = |seconds: f64| {
            let until = Some(now_unix_s() + seconds);
            Rounds::new(asked.clone(), &runs, BTreeMap::new(), until)
        };
        let plan = new(9.0).plan();
        assert_eq!((plan[0].run_s, plan[0].is_known), (345.0, false));
        assert_eq!(make(&mut new(600.0), &runs, 100), [], "a round has three runs");
        assert_eq!(make(&mut new(1200.0), &runs, 3).len(), 3);
    }

    #[test]
    fn a_round_that_would_not_end_in_time_is_not_begun() {
        let runs = SharedRuns::default();
        let asked = RoundsWanted { counted: 0, ..wanted(&["slow", "fast"], &["system", "a"], 2) };
        let known = BTreeMap::from([("slow".to_owned(), 1000.0), ("fast".to_owned(), 10.0)]);
        let until = Some(now_unix_s() + 2000.0);
        let made = make(&mut Rounds::new(asked, &runs, known, until), &runs, 100);
        assert!(made.len() == 6 && made.iter().all(|one| one.0 == "fast"), "{made:?}");
    }
}
