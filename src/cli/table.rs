//! Tables and numbers for people in a terminal. Pure.

use crate::terminal::{self, Screen, Style, cut};

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    head: &'static str,
    side: Side,
    /// The width to which a narrow screen may shrink it.
    min: usize,
    max: usize,
    /// The column with the lowest rank is left out first.
    rank: u8,
    style: fn(&str) -> Option<Style>,
}

/// The columns that a screen has room for.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The indexes of the columns, and their widths.
    columns: Vec<(usize, usize)>,
    /// `true` if wider words are cut.
    cuts: bool,
}

/// The space between two columns.
const GAP: usize = 2;

// === impl Column ===

impl Column {
    /// Returns a column of words, which may be cut.
    pub(super) const fn words(head: &'static str, min: usize, max: usize, rank: u8) -> Self {
        Self { head, side: Side::Left, min, max, rank, style: |_| None }
    }

    /// Returns a column of numbers, which are never cut.
    pub(super) const fn number(head: &'static str, max: usize, rank: u8) -> Self {
        Self { head, side: Side::Right, min: max, max, rank, style: |_| None }
    }

    /// Returns the same column with a style for each text.
    pub(super) const fn styled(self, style: fn(&str) -> Option<Style>) -> Self {
        Self { style, ..self }
    }
}

// === impl Layout ===

impl Layout {
    /// Fits columns into a width. `natural` is the width of each without a limit.
    ///
    /// Columns of words shrink first. If their minimum is still too wide, the columns with the
    /// lowest ranks are left out.
    pub(super) fn of(columns: &[Column], natural: &[usize], width_max: usize) -> Self {
        let least = |(index, width): &(usize, usize)| (*width).min(columns[*index].min);
        let total = |widths: &mut dyn Iterator<Item = usize>| {
            widths.map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
        };
        let mut kept: Vec<(usize, usize)> = natural.iter().copied().enumerate().collect();
        while kept.len() > 1 && total(&mut kept.iter().map(least)) > width_max {
            let lowest = (0..kept.len()).min_by_key(|at| columns[kept[*at].0].rank);
            kept.remove(lowest.unwrap_or_default());
        }
        let mut over = total(&mut kept.iter().map(|(_, width)| *width)).saturating_sub(width_max);
        while over > 0 {
            let wide = kept.iter_mut().filter(|it| it.1 > least(it));
            let Some((_, widest)) = wide.max_by_key(|(_, width)| *width) else { break };
            (*widest, over) = (*widest - 1, over - 1);
        }
        Self { columns: kept, cuts: true }
    }

    /// Returns all columns with these widths, which wider texts exceed.
    pub(super) fn uncut(widths: &[usize]) -> Self {
        Self { columns: widths.iter().copied().enumerate().collect(), cuts: false }
    }

    /// Formats one row. Only words that are wider than their column are cut.
    pub(super) fn row(&self, columns: &[Column], row: &[String], screen: Screen) -> String {
        self.line(columns, row, |column, text| match (column.style)(text) {
            Some(style) => screen.paint(style, text),
            None => text.to_owned(),
        })
    }

    /// Formats the headings.
    pub(super) fn headings(&self, columns: &[Column], screen: Screen) -> String {
        let heads: Vec<String> = columns.iter().map(|column| column.head.to_owned()).collect();
        self.line(columns, &heads, |_, text| screen.paint(Style::Bold, text))
    }

    fn line(
        &self,
        columns: &[Column],
        row: &[String],
        paint: impl Fn(&Column, &str) -> String,
    ) -> String {
        let mut line = String::new();
        let mut gap = 0;
        for (index, width) in &self.columns {
            let (column, text) = (&columns[*index], row.get(*index).map_or("", String::as_str));
            let text = match column.side {
                Side::Left if self.cuts => cut(text, *width),
                _ => text.to_owned(),
            };
            let fill = width.saturating_sub(terminal::width(&text));
            let (before, after) = match column.side {
                Side::Left => (0, fill),
                Side::Right => (fill, 0),
            };
            if !text.is_empty() {
                line += &" ".repeat(gap + before);
                line += &paint(column, &text);
                gap = 0;
            }
            // Spaces are written in front of the next text, so no line ends with them.
            gap += after + GAP + if text.is_empty() { before } else { 0 };
        }
        line + "\n"
    }
}

/// Formats aligned columns, each as wide as its widest text up to its maximum, that fit the screen.
pub(super) fn table(columns: &[Column], rows: &[Vec<String>], screen: Screen) -> String {
    let natural = |(index, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        let widest = cells.map(|text| terminal::width(text)).max().unwrap_or_default();
        widest.max(column.head.len()).min(column.max)
    };
    let natural: Vec<usize> = columns.iter().enumerate().map(natural).collect();
    let layout = Layout::of(columns, &natural, screen.width);
    let rows = rows.iter().map(|row| layout.row(columns, row, screen));
    std::iter::once(layout.headings(columns, screen)).chain(rows).collect()
}

/// Formats the same table as Markdown.
pub(super) fn markdown(columns: &[Column], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(columns.iter().map(|column| column.head.to_lowercase()).collect());
    let rule = columns.iter().map(|column| match column.side {
        Side::Left => "---".to_owned(),
        Side::Right => "---:".to_owned(),
    });
    out += &line(rule.collect());
    for row in rows {
        out += &line(row.iter().map(|cell| escaped(cell)).collect());
    }
    out
}

/// Escapes text for Markdown.
pub(super) fn escaped(text: &str) -> String {
    let special = ['|', '*', '_', '<', '>', '`', '\\', '[', ']'];
    let escape = |c| if special.contains(&c) { format!("\\{c}") } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Formats a count with thousands separated.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Formats bytes in a suitable unit.
pub(super) fn bytes(number: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut scaled = number;
    let mut unit = 0;
    while scaled.abs() >= 999.5 && unit + 1 < units.len() {
        (scaled, unit) = (scaled / 1000.0, unit + 1);
    }
    let digits = usize::from(unit > 0 && scaled.abs() < 99.5);
    format!("{scaled:.digits$} {}", units[unit])
}

/// Formats a fraction as a percentage.
pub(super) fn share(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!([count(7), count(1234), count(1_234_567)], ["7", "1 234", "1 234 567"]);
        let said = [999.0, 1000.0, 1_234_567.0, 150e6, 3.2e9].map(bytes);
        assert_eq!(said, ["999 B", "1.0 KB", "1.2 MB", "150 MB", "3.2 GB"]);
        assert_eq!(share(0.985), "98%");
    }

    #[test]
    fn columns_are_as_wide_as_needed_up_to_their_maximum() {
        let columns = [Column::words("NAME", 4, 6, 2), Column::number("N", 9, 1)];
        let rows = [vec!["short".into(), "1".into()], vec!["rather long".into(), "12 345".into()]];
        let expected = "NAME         N\nshort        1\nrathe…  12 345\n";
        assert_eq!(table(&columns, &rows, Screen::PLAIN), expected);
        let rows = [vec!["a|b".into(), "1".into()]];
        assert_eq!(markdown(&columns, &rows), "| name | n |\n| --- | ---: |\n| a\\|b | 1 |\n");
    }
    #[test]
    fn a_narrow_screen_shrinks_words_and_then_leaves_out_columns() {
        let columns = [
            Column::words("NAME", 6, 40, 9),
            Column::number("COUNT", 9, 5),
            Column::words("FOUND", 5, 40, 1),
            Column::words("WHY", 4, 40, 7),
        ];
        let text = |name: &str, why: &str| {
            vec![name.into(), "12 345".into(), "something".into(), why.into()]
        };
        let rows = [text("a rather long name", "behind 12"), text("b", "")];
        let expected = [
            (60, "NAME                 COUNT  FOUND      WHY"),
            (40, "NAME         COUNT  FOUND      WHY"),
            (31, "NAME     COUNT  FOUND   WHY"),
            (24, "NAME         COUNT  WHY"),
            (12, "NAME    WHY"),
            (5, "NAME"),
        ];
        for (width, head) in expected {
            let text = table(&columns, &rows, Screen { width, colours: false });
            let mut lines = text.lines();
            let seen = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(lines.next().map(seen), Some(seen(head)), "{width}: {text}");
            assert!(
                text.lines().all(|line| terminal::width(line) <= width.max(6)),
                "{width}: {text}"
            );
            assert_eq!(text.lines().count(), 3, "{width}: {text}");
        }
    }

    #[test]
    fn only_headings_and_styled_texts_have_colours() {
        let column = Column::words("RISK", 4, 6, 1);
        let columns = [column.styled(|text| (text == "high").then_some(Style::Red))];
        let rows = [vec!["high".into()], vec!["none".into()]];
        let screen = Screen { width: 80, colours: true };
        let expected = "\u{1b}[1mRISK\u{1b}[0m\n\u{1b}[31mhigh\u{1b}[0m\nnone\n";
        assert_eq!(table(&columns, &rows, screen), expected);
        assert!(!table(&columns, &rows, Screen::PLAIN).contains('\u{1b}'));
    }
}
