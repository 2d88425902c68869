// SPDX-License-Identifier: Apache-2.0
//! Which package of the distribution a file belongs to.

use std::path::Path;
use std::process::{Command, Stdio};

/// Version of the package that installed the file, in the distribution's notation. `None` if no package
/// manager lists the file.
#[must_use]
pub fn version_of(file: &Path) -> Option<String> {
    // Databases name the place a package was made for: /lib and /bin are often links into /usr since.
    let real = std::fs::canonicalize(file).ok()?;
    let before = real.strip_prefix("/usr").ok().map(|rest| Path::new("/").join(rest));
    let mut places = [Some(real), before].into_iter().flatten();
    places.find_map(|place| {
        let place = place.to_str()?.to_owned();
        of_dpkg(&place)
            .or_else(|| output_of("rpm", &["-qf", "--queryformat", "%{VERSION}-%{RELEASE}", &place]))
    })
}

fn of_dpkg(file: &str) -> Option<String> {
    let owner = output_of("dpkg-query", &["--search", file])?;
    let (package, _) = owner.split_once(": ")?;
    output_of("dpkg-query", &["--show", "--showformat=${Version}", package])
}

/// Standard output of a command that succeeds.
fn output_of(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packaged_file_has_a_version_and_others_have_none() {
        assert_eq!(version_of(Path::new("/proc/self/exe")), None);
        assert_eq!(version_of(Path::new("/no/such/file")), None);
        if !Path::new("/usr/bin/dpkg-query").exists() {
            return imas_testing::skipped("versions of packages: dpkg-query is not installed");
        }
        assert!(
            version_of(Path::new("/bin/sh")).is_some_and(|version| version.starts_with(char::is_numeric))
        );
    }
}
