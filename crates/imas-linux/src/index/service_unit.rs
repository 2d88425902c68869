// SPDX-License-Identifier: Apache-2.0
//! systemd services as programs.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};

/// A service of systemd. Its name alone does not say whose it is: a user may give any name to a service of the own
/// manager.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceUnit {
    name: String,
    user: Option<u32>,
}

impl ServiceUnit {
    /// Returns the service of a process, from the text of its `/proc/PID/cgroup`, as `sd_pid_get_unit` and
    /// `sd_pid_get_user_unit` find it.
    #[must_use]
    pub fn of_cgroup(text: &str) -> Option<Self> {
        service(group_of_cgroup(text)?).map(|(name, user)| Self { name: name.to_owned(), user })
    }

    /// Returns the system's service of that name.
    #[must_use]
    pub fn of_system(name: &str) -> Self {
        Self { name: name.to_owned(), user: None }
    }

    /// Returns its name where the system's manager has it; `None` for one of a user's manager, which `systemctl`
    /// does not mean by that name.
    #[must_use]
    pub fn system_name(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|_| self.user.is_none())
    }
}

/// One of a user is written with that user: `cron.service of user 1000`.
impl fmt::Display for ServiceUnit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.name)?;
        self.user.map_or(Ok(()), |user| write!(to, " of user {user}"))
    }
}

/// Writes the text of [`fmt::Display`].
impl Serialize for ServiceUnit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Returns the system's service of a process, from the text of `/proc/PID/cgroup`.
#[must_use]
pub fn unit_of_cgroup(text: &str) -> Option<&str> {
    service(group_of_cgroup(text)?).filter(|(_, user)| user.is_none()).map(|(name, _)| name)
}

/// Returns the group in which systemd keeps a process, from the text of `/proc/PID/cgroup`: the group in the
/// unified hierarchy (`0::`), or in systemd's own (`:name=systemd:`) where the unified one has no groups.
#[must_use]
pub fn group_of_cgroup(text: &str) -> Option<&str> {
    let unified = text.lines().find_map(|line| line.strip_prefix("0::")).filter(|group| *group != "/");
    unified.or_else(|| text.lines().find_map(|line| Some(line.split_once(":name=systemd:")?.1)))
}

/// The service of a group, and the user whose manager has it. The first component behind the slices is the unit: whoever
/// was given its group names what is below. Below a user's manager that is the user, whose units are found in the same way.
fn service(group: &str) -> Option<(&str, Option<u32>)> {
    let mut units = group.split('/').filter(|part| !part.is_empty() && !is_slice(part));
    let first = units.next()?;
    let (unit, user) = match user_of_manager(first) {
        Some(user) => (units.next()?, Some(user)),
        None => (first, None),
    };
    // systemd puts `_` before a name that could be a file of the kernel's, or begins with it.
    let name = unit.strip_prefix('_').unwrap_or(unit);
    (name.ends_with(SERVICE) && name.len() > SERVICE.len()).then_some((name, user))
}

const SERVICE: &str = ".service";
const SLICE: &str = ".slice";

fn is_slice(unit: &str) -> bool {
    unit.ends_with(SLICE) && unit.len() > SLICE.len()
}

fn user_of_manager(unit: &str) -> Option<u32> {
    let uid = unit.strip_prefix("user@")?.strip_suffix(SERVICE)?;
    let is_number = !uid.is_empty() && uid.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| uid.parse().unwrap_or(u32::MAX))
}

/// How a program that is a service is written where programs are named: `unit NAME`.
const UNIT: &str = "unit ";

/// The service whose instances are one program: `x@.service` for `x@1.service`, the same for all others.
#[must_use]
pub fn template_of_unit(name: &str) -> Cow<'_, str> {
    match name.split_once('@') {
        Some((template, _)) if !template.is_empty() => Cow::Owned(format!("{template}@.service")),
        _ => Cow::Borrowed(name),
    }
}

/// The text for a service of that name, in place of what an interpreter is given. Instances of a template
/// have one text.
#[must_use]
pub fn detail_of_unit(name: &str) -> String {
    format!("{UNIT}{}", template_of_unit(name))
}

/// Name of a program whose text a person has written.
#[must_use]
pub fn with_templates(text: &str) -> String {
    unit_of_detail(text).map_or_else(|| text.to_owned(), detail_of_unit)
}

/// Unit of a detail that [`detail_of_unit`] made.
#[must_use]
pub fn unit_of_detail(text: &str) -> Option<&str> {
    text.strip_prefix(UNIT).filter(|name| name.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_the_systems_or_a_users() {
        const MANAGER: &str = "/user.slice/user-1000.slice/user@1000.service";
        for (group, system, shown) in [
            ("/system.slice/cron.service", Some("cron.service"), Some("cron.service")),
            ("/cron.service", Some("cron.service"), Some("cron.service")),
            ("/system.slice/system-x.slice/x@1.service", Some("x@1.service"), Some("x@1.service")),
            ("/system.slice/_cpu.service/a", Some("cpu.service"), Some("cpu.service")),
            ("/system.slice/__x.service", Some("_x.service"), Some("_x.service")),
            ("/system.slice/udev.service/cron.service", Some("udev.service"), Some("udev.service")),
            ("/system.slice/user@x.service", Some("user@x.service"), Some("user@x.service")),
            (&format!("{MANAGER}/app.slice/cron.service"), None, Some("cron.service of user 1000")),
            (&format!("{MANAGER}/cron.service"), None, Some("cron.service of user 1000")),
            (&format!("{MANAGER}/app.slice/_cpu.service"), None, Some("cpu.service of user 1000")),
            (
                &format!("{MANAGER}/a.slice/a-b.slice/x.service/cron.service"),
                None,
                Some("x.service of user 1000"),
            ),
            (&format!("{MANAGER}/user@0.service/cron.service"), None, Some("user@0.service of user 1000")),
            ("/user@0.service/app.slice/cron.service", None, Some("cron.service of user 0")),
            (&format!("{MANAGER}/app.slice/a.scope/cron.service"), None, None),
            (&format!("{MANAGER}/init.scope"), None, None),
            (MANAGER, None, None),
            ("/user.slice/user-1.slice/session-1.scope/cron.service", None, None),
            ("/system.slice/docker-1.scope/system.slice/cron.service", None, None),
            ("/kubepods/pod1/cron.service", None, None),
            ("/../system.slice/cron.service", None, None),
            ("/system.slice/.service", None, None),
            ("/system.slice", None, None),
            ("/.slice/cron.service", None, None),
            ("/user@99999999999.service", None, None),
            ("/", None, None),
        ] {
            for text in [
                format!("0::{group}\n"),
                format!("12:cpu:/system.slice/no.service\n1:name=systemd:{group}\n0::/\n"),
                format!("1:name=systemd:{group}\n"),
            ] {
                assert_eq!(unit_of_cgroup(&text), system, "{text}");
                let service = ServiceUnit::of_cgroup(&text);
                assert_eq!(service.as_ref().and_then(ServiceUnit::system_name), system, "{text}");
                assert_eq!(service.map(|one| one.to_string()).as_deref(), shown, "{text}");
            }
        }
        let both = "1:name=systemd:/system.slice/cron.service\n0::/user.slice/session-1.scope\n";
        assert_eq!(unit_of_cgroup(both), None, "the unified hierarchy decides where it has groups");
    }

    #[test]
    fn instances_of_a_template_are_one_program() {
        for (unit, program) in [
            ("x@1.service", "unit x@.service"),
            ("x@2.service", "unit x@.service"),
            ("x@a@b.c.service", "unit x@.service"),
            ("x@.service", "unit x@.service"),
            ("x.service", "unit x.service"),
            ("@x.service", "unit @x.service"),
        ] {
            assert_eq!(detail_of_unit(unit), program);
            assert_eq!(with_templates(&format!("unit {unit}")), program);
        }
        assert_eq!(with_templates("/srv/unit x@1.service"), "/srv/unit x@1.service", "no unit");
    }
}
