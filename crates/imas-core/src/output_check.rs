// SPDX-License-Identifier: Apache-2.0
//! Whether a program's output varies by itself, and whether a candidate is to blame for another output: the
//! one rule for it.

/// The outputs of one program under `system`, by which those under candidates are judged: the one rule for
/// it.
///
/// Two runs of `system` that wrote different things show that the output varies; then no candidate is
/// rejected for another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutputCheck {
    first: Option<String>,
    /// Runs of `system` that wrote the first.
    same: u32,
    varies: bool,
}

/// Judgement on an output under a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputJudgement {
    /// The output is the one of `system`, or it varies by itself.
    Fine,
    /// The output is another than the one of `system`.
    Differs,
    /// No run of `system` was seen yet.
    Unknown,
}

impl OutputCheck {
    /// A program whose output is known to vary already.
    #[must_use]
    pub fn varying() -> Self {
        Self { varies: true, ..Self::default() }
    }

    /// An output of `system`. True when this is the first to show that it varies.
    pub fn see(&mut self, output: &str) -> bool {
        match &self.first {
            None => self.first = Some(output.to_owned()),
            Some(first) if first != output => return !std::mem::replace(&mut self.varies, true),
            Some(_) => {}
        }
        self.same = self.same.saturating_add(1);
        false
    }

    /// Whether two runs of `system` differed.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.varies
    }

    /// Whether a second run of `system` wrote the same as the first, or another thing: one more shows
    /// nothing new.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.varies || self.same > 1
    }

    /// Judges an output under a candidate.
    #[must_use]
    pub fn judge(&self, output: &str) -> OutputJudgement {
        match &self.first {
            _ if self.varies => OutputJudgement::Fine,
            None => OutputJudgement::Unknown,
            Some(first) if first == output => OutputJudgement::Fine,
            Some(_) => OutputJudgement::Differs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_judged_by_those_of_system() {
        let mut check = OutputCheck::default();
        assert_eq!(check.judge("a"), OutputJudgement::Unknown);
        assert!(!check.see("a") && !check.is_confirmed());
        assert_eq!((check.judge("a"), check.judge("b")), (OutputJudgement::Fine, OutputJudgement::Differs));
        assert!(!check.see("a") && check.is_confirmed());
        assert!(check.see("b"), "the first to show that it varies");
        assert!(!check.see("c") && check.varies());
        assert_eq!(check.judge("d"), OutputJudgement::Fine, "no candidate is rejected");
        assert_eq!(OutputCheck::varying().judge("d"), OutputJudgement::Fine);
    }
}
