//! The terminal: its width, its colours, and text that is wrapped at words.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal},
};

/// The place where text is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// The columns of a line. Unlimited without a terminal.
    pub width: usize,
    /// `true` if text may have colours.
    pub colours: bool,
}

/// A style of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Headings.
    Bold,
    /// Failures and risks.
    Red,
    /// Savings.
    Green,
}

/// The minimum width for which text is laid out.
const WIDTH_MIN: usize = 24;

// === impl Screen ===

impl Screen {
    /// A file or pipe: unlimited lines without colours.
    pub const PLAIN: Self = Self { width: usize::MAX, colours: false };

    /// Returns the screen of standard output. COLUMNS overrides the width of the terminal.
    pub fn stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        let size = if terminal { columns_of_stdout() } else { None };
        Self::of(terminal, size, env::var_os("COLUMNS"), env::var_os("NO_COLOR"))
    }

    fn of(
        terminal: bool,
        size: Option<usize>,
        columns: Option<OsString>,
        no_color: Option<OsString>,
    ) -> Self {
        let columns = columns.and_then(|columns| columns.to_str()?.parse().ok());
        let width = columns.or(size).filter(|width| *width > 0);
        Self {
            width: width.map_or(usize::MAX, |width| width.max(WIDTH_MIN)),
            colours: terminal && no_color.is_none_or(|value| value.is_empty()),
        }
    }

    /// Returns text in a style, or unchanged if there are no colours.
    pub fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Bold => 1,
            Style::Red => 31,
            Style::Green => 32,
        };
        if self.colours && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Wraps each line of a text. Continued lines have the indent.
    pub fn wrap(self, text: &str, indent: usize) -> String {
        let indent = " ".repeat(indent);
        text.lines().map(|line| wrap("", &indent, line, self.width)).collect()
    }

    /// Wraps a text behind a label, with all lines below each other.
    pub fn labelled(self, label: &str, text: &str) -> String {
        // A label that leaves no room for words has only its first line to itself.
        let room = width(label) + WIDTH_MIN <= self.width;
        let indent = " ".repeat(if room { width(label) } else { 2 });
        wrap(label, &indent, text, self.width)
    }
}

#[cfg(unix)]
fn columns_of_stdout() -> Option<usize> {
    Some(rustix::termios::tcgetwinsize(io::stdout()).ok()?.ws_col.into())
}

#[cfg(not(unix))]
fn columns_of_stdout() -> Option<usize> {
    None
}

/// Breaks a text at words into lines of at most this width. A longer word has a line of its own.
pub fn wrap(first: &str, rest: &str, text: &str, width_max: usize) -> String {
    let mut out = first.to_owned();
    // A text that fits keeps its spaces.
    if !text.contains('\n') && width(first) + width(text) <= width_max {
        return (out + text).trim_end().to_owned() + "\n";
    }
    let mut used = width(first);
    // Spaces in front of the first word are part of the text.
    let words = text.trim_start();
    let indent = text.len() - words.len();
    out += &text[..indent];
    used += indent;
    let mut is_first = true;
    for word in words.split_whitespace() {
        if !is_first && used + 1 + width(word) > width_max {
            out.push('\n');
            out += rest;
            used = width(rest);
        } else if !is_first {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += width(word);
        is_first = false;
    }
    out + "\n"
}

/// Returns the columns of a text without its colours.
pub fn width(text: &str) -> usize {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, shown)| shown));
    std::iter::once(first).chain(rest).map(|part| part.chars().count()).sum()
}

/// Cuts a text to a width, with a mark.
pub fn cut(text: &str, width_max: usize) -> String {
    if text.chars().count() <= width_max {
        return text.to_owned();
    }
    text.chars().take(width_max.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_override_the_size_and_without_a_terminal_nothing_is_limited() {
        let screen = |terminal, size, columns: Option<&str>, no_color: Option<&str>| {
            let screen =
                Screen::of(terminal, size, columns.map(Into::into), no_color.map(Into::into));
            (screen.width, screen.colours)
        };
        assert_eq!(screen(false, None, None, None), (usize::MAX, false));
        assert_eq!(screen(true, Some(120), None, None), (120, true));
        assert_eq!(screen(true, Some(120), Some("80"), Some("1")), (80, false));
        assert_eq!(screen(false, None, Some("80"), Some("")), (80, false));
        assert_eq!(screen(true, Some(0), Some("many"), Some("")), (usize::MAX, true));
        assert_eq!(screen(true, Some(3), None, None), (WIDTH_MIN, true));
    }

    #[test]
    fn text_is_wrapped_at_words() {
        let text = "one two three four";
        assert_eq!(wrap("", "  ", text, 9), "one two\n  three\n  four\n");
        assert_eq!(wrap("- ", "  ", text, 18), "- one two three\n  four\n");
        assert_eq!(wrap("", "", "a  b", 80), "a  b\n");
        assert_eq!(wrap("# ", "# ", "a\nb", 80), "# a b\n");
        assert_eq!(wrap("", "", "   seen: it", 9), "   seen:\nit\n");
        assert_eq!(wrap("", "", "a-very-long-word b", 4), "a-very-long-word\nb\n");
    }

    #[test]
    fn colours_take_no_room() {
        let screen = Screen { width: 80, colours: true };
        let text = screen.paint(Style::Red, "3 failed");
        assert_eq!((text.as_str(), width(&text)), ("\u{1b}[31m3 failed\u{1b}[0m", 8));
        assert_eq!(wrap("", "", &format!("{text} x"), 10), format!("{text} x\n"));
        assert_eq!(Screen::PLAIN.paint(Style::Bold, "x"), "x");
    }
}
