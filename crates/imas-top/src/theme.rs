// SPDX-License-Identifier: Apache-2.0
//! Colours, and what stands in for them where there are none.

use imas_engine::live::snapshot::ProcessState;
use ratatui::style::{Color, Modifier, Style};

/// How the page looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    has_colour: bool,
    /// Whether lines and dots beyond ASCII can be shown.
    pub(crate) has_unicode: bool,
}

impl Theme {
    /// The theme that `NO_COLOR` and the locale's variables ask for. `NO_COLOR` counts when it is not empty.
    pub(crate) fn of_environment() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        Self { has_colour: set("NO_COLOR").is_none(), has_unicode: is_utf8(&locale) }
    }

    /// A theme with or without colour, and with or without characters beyond ASCII.
    #[cfg(test)]
    pub(crate) fn new(has_colour: bool, has_unicode: bool) -> Self {
        Self { has_colour, has_unicode }
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colour { Style::default().fg(colour) } else { Style::default() }
    }

    /// Style of the column titles.
    pub(crate) fn title(self) -> Style {
        Style::default().add_modifier(Modifier::BOLD)
    }

    /// Style of the selected line.
    pub(crate) fn selected(self) -> Style {
        Style::default().add_modifier(Modifier::REVERSED)
    }

    /// Style of what needs attention.
    pub(crate) fn warning(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Style of a state.
    pub(crate) fn state(self, state: &ProcessState) -> Style {
        match state {
            ProcessState::Trial { .. } => self.coloured(Color::Yellow),
            ProcessState::Settled { .. } | ProcessState::Pinned { .. } => self.coloured(Color::Green),
            ProcessState::Quarantined { .. } | ProcessState::Lost { .. } => self.coloured(Color::Red),
            ProcessState::Testing { .. } => self.coloured(Color::Cyan),
            ProcessState::LeftAlone { .. } | ProcessState::Excluded | ProcessState::Unknown => {
                Style::default()
            }
        }
    }

    /// Style of the lines of a curve: in use, free blocks, free pages, heap, other.
    pub(crate) fn curve(self, at: usize) -> Style {
        const COLOURS: [Color; 5] = [Color::Green, Color::Yellow, Color::Red, Color::Cyan, Color::Blue];
        self.coloured(COLOURS[at % COLOURS.len()])
    }
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_no_style_has_one() {
        let theme = Theme::new(false, true);
        let styles = [
            theme.title(),
            theme.selected(),
            theme.warning(),
            theme.curve(0),
            theme.state(&ProcessState::Excluded),
        ];
        assert!(styles.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
        assert!(is_utf8("C.UTF-8") && is_utf8("de_DE.utf8") && !is_utf8("C") && !is_utf8(""));
    }
}
