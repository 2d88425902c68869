// SPDX-License-Identifier: Apache-2.0
//! Places for processes that are looked at, and the owners that get them. Owners take turns, so the processes
//! of one leave the others theirs.

use std::collections::BTreeMap;

use super::ObservedProcess;

/// Processes that get a place, as many as there are places for. Of each owner's processes those that have a
/// place already come first.
pub(super) fn share_out(
    observed: Vec<ObservedProcess>,
    most: usize,
    has_place: impl Fn(&ObservedProcess) -> bool,
) -> Vec<ObservedProcess> {
    if observed.len() <= most {
        return observed;
    }
    let mut by_owner = BTreeMap::<u64, Vec<ObservedProcess>>::new();
    for one in observed {
        by_owner.entry(one.owner).or_default().push(one);
    }
    let mut in_turns = vec![];
    for mut theirs in by_owner.into_values() {
        theirs.sort_by_key(|one| !has_place(one));
        in_turns.extend(theirs.into_iter().enumerate());
    }
    in_turns.sort_by_key(|(turn, _)| *turn);
    in_turns.into_iter().map(|(_, one)| one).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_info::Identity;

    #[test]
    fn the_processes_of_one_owner_leave_others_their_places() {
        let process =
            |owner: u64, pid: u32| ObservedProcess::of_test(owner, Identity { pid, start_ticks: 1 });
        let mallorys = (0..1000).map(|pid| process(2001, pid));
        let alices = (2000..2003).map(|pid| process(2002, pid));
        let observed: Vec<_> = mallorys.chain(alices).collect();
        let places = share_out(observed, 256, |one| one.identity.pid == 999);
        let count = |owner| places.iter().filter(|one| one.owner == owner).count();
        assert_eq!((count(2001), count(2002)), (253, 3));
        assert!(places.iter().any(|one| one.identity.pid == 999), "it had a place");
    }
}
