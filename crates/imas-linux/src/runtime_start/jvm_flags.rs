// SPDX-License-Identifier: Apache-2.0
//! Options of the JVM as flags that `libimas-settings.so` sets inside it. The program sees none of them, and hands none to
//! a JVM that it starts (docs/decisions/0056).

use imas_abi::env::{JVM_FLAGS, JVM_YIELDS};

use crate::catalogue::CatalogueCandidate;
use crate::runtime::{FoundRuntime, Runtime, RuntimeEntry, VersionRange};

/// JVMs that describe their flags in a form that the library reads.
const DESCRIBED: &str = ">=17";
/// Begin of an option that sets a flag.
const OPTION: &str = "-XX:";

/// The candidate with its options as flags, if the JVM that was found has them described and each option is one. `yields_to`:
/// beginnings of options beside which the JVM gets none of the flags.
#[must_use]
pub(crate) fn hidden(
    mut candidate: CatalogueCandidate,
    found: &FoundRuntime,
    yields_to: &[String],
) -> CatalogueCandidate {
    let is_described = || {
        let range = VersionRange::parse(DESCRIBED).unwrap_or_default();
        found.version.as_deref().is_some_and(|version| range.has(version))
    };
    let Some(flags) = flags(&candidate).filter(|_| is_described()) else { return candidate };
    candidate.environment.insert(JVM_FLAGS.to_owned(), flags);
    candidate.environment.insert(JVM_YIELDS.to_owned(), yields_to.join(" "));
    candidate.runtime.iter_mut().for_each(|settings| settings.arguments.clear());
    candidate
}

/// Words of [`JVM_FLAGS`] for the candidate's options; `None` where it has none, or one of another kind.
pub(crate) fn flags(candidate: &CatalogueCandidate) -> Option<String> {
    let settings = candidate.runtime.as_ref().filter(|settings| settings.runtime == Runtime::Jvm)?;
    let words: Option<Vec<_>> = settings.arguments.iter().map(|option| flag(option)).collect();
    words.filter(|words| !words.is_empty()).map(|words| words.join(" "))
}

/// Options by which a JVM that is asked gets what the candidate sets, as the entry takes them.
pub(crate) fn as_options(candidate: &CatalogueCandidate, entry: RuntimeEntry) -> Vec<String> {
    let words = candidate.environment.get(JVM_FLAGS).map(String::as_str).unwrap_or_default();
    let begin = if entry == RuntimeEntry::Tool { "-J" } else { "" };
    words.split(' ').filter(|word| !word.is_empty()).map(|word| format!("{begin}{OPTION}{word}")).collect()
}

/// Flag with a sign, or with a number.
fn flag(option: &str) -> Option<&str> {
    let flag = option.strip_prefix(OPTION)?;
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_number = |value: &str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let is_flag = match flag.split_once('=') {
        Some((name, value)) => is_name(name) && is_number(value),
        None => flag.strip_prefix(['+', '-']).is_some_and(is_name),
    };
    is_flag.then_some(flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimeSettings;

    fn of(options: &[&str], version: Option<&str>) -> CatalogueCandidate {
        let arguments = options.iter().map(|&one| one.to_owned()).collect();
        let settings = RuntimeSettings { arguments, ..RuntimeSettings::of(Runtime::Jvm) };
        let candidate = CatalogueCandidate { runtime: Some(settings), ..CatalogueCandidate::default() };
        let found = FoundRuntime {
            runtime: Runtime::Jvm,
            by: String::new(),
            version: version.map(Into::into),
            entry: RuntimeEntry::Own,
        };
        hidden(candidate, &found, &["-XX:+UseG1GC".to_owned(), "@".to_owned()])
    }

    #[test]
    fn options_become_flags_where_the_jvm_describes_them() {
        let lean = of(&["-XX:+UseSerialGC", "-XX:MinHeapFreeRatio=10"], Some("17.0.15"));
        assert_eq!(lean.environment[JVM_FLAGS], "+UseSerialGC MinHeapFreeRatio=10");
        assert_eq!(lean.environment[JVM_YIELDS], "-XX:+UseG1GC @");
        assert!(lean.runtime.as_ref().unwrap().arguments.is_empty());
        let asked = as_options(&lean, RuntimeEntry::Tool);
        assert_eq!(asked, ["-J-XX:+UseSerialGC", "-J-XX:MinHeapFreeRatio=10"]);
        for version in [None, Some("11.0.2"), Some("8.0_402")] {
            assert!(of(&["-XX:+UseSerialGC"], version).environment.is_empty(), "{version:?}");
        }
        for other in ["-Xss1m", "-XX:OnError=x", "-XX:+", "-XX:=1", "-XX:A=-1", "-XX:A=1m", "-XX:+A B"] {
            let candidate = of(&["-XX:+UseSerialGC", other], Some("25"));
            assert!(candidate.environment.is_empty(), "{other}");
            assert_eq!(candidate.runtime.unwrap().arguments.len(), 2, "{other}");
        }
    }
}
