// SPDX-License-Identifier: Apache-2.0
//! systemd services as programs.

use std::borrow::Cow;

/// The systemd service a process belongs to, from the text of `/proc/PID/cgroup`: the last component that
/// ends in `.service` of the unified hierarchy (`0::`), else of systemd's own (`:name=systemd:`).
#[must_use]
pub fn unit_of_cgroup(text: &str) -> Option<&str> {
    let unified = text.lines().find_map(|line| service(line.strip_prefix("0::")?));
    unified.or_else(|| text.lines().find_map(|line| service(line.split_once(":name=systemd:")?.1)))
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

/// How a program is called now whose text an earlier version, or a person, has written.
#[must_use]
pub fn with_templates(text: &str) -> String {
    unit_of_detail(text).map_or_else(|| text.to_owned(), detail_of_unit)
}

/// Unit of a detail that [`detail_of_unit`] made.
#[must_use]
pub fn unit_of_detail(text: &str) -> Option<&str> {
    text.strip_prefix(UNIT).filter(|name| name.ends_with(".service"))
}

fn service(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| part.ends_with(".service") && part.len() > ".service".len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_found_in_its_cgroup() {
        assert_eq!(unit_of_cgroup("0::/system.slice/nginx.service\n"), Some("nginx.service"));
        assert_eq!(
            unit_of_cgroup("0::/user.slice/user@1.service/app.slice/a@b.service/sub\n"),
            Some("a@b.service")
        );
        assert_eq!(
            unit_of_cgroup("12:cpu:/x\n1:name=systemd:/system.slice/x.service\n0::/\n"),
            Some("x.service")
        );
        assert_eq!(unit_of_cgroup("0::/user.slice/session-1.scope\n"), None);
        assert_eq!(unit_of_cgroup("0::/.service\n"), None);
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
