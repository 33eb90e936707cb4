//! Tables and numbers for people in a terminal. Pure.

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// One column: its heading, its alignment, and its maximum width.
pub(super) type Column = (&'static str, Side, usize);

/// Formats aligned columns, each as wide as its widest text up to its maximum.
pub(super) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..columns.len())
        .map(|index| {
            let (head, _, max) = columns[index];
            let widest = rows.iter().filter_map(|row| row.get(index)).map(|text| width(text));
            widest.max().unwrap_or_default().max(width(head)).min(max)
        })
        .collect();
    let head: Vec<String> = columns.iter().map(|(head, ..)| (*head).to_owned()).collect();
    let mut out = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for ((text, (_, side, _)), width) in row.iter().zip(columns).zip(&widths) {
            let text = cut(text, *width);
            match side {
                Side::Left => line += &format!("{text:<width$}  "),
                Side::Right => line += &format!("{text:>width$}  "),
            }
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Formats the same table as Markdown.
pub(super) fn markdown(columns: &[Column], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(columns.iter().map(|(head, ..)| head.to_lowercase()).collect());
    let rule = columns.iter().map(|(_, side, _)| match side {
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

fn width(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, width_max: usize) -> String {
    if width(text) <= width_max {
        return text.to_owned();
    }
    text.chars().take(width_max.saturating_sub(1)).chain(['…']).collect()
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
        let columns = [("NAME", Side::Left, 6), ("N", Side::Right, 9)];
        let rows = [vec!["short".into(), "1".into()], vec!["rather long".into(), "12 345".into()]];
        let expected = "NAME         N\nshort        1\nrathe…  12 345\n";
        assert_eq!(table(&columns, &rows), expected);
        let rows = [vec!["a|b".into(), "1".into()]];
        assert_eq!(markdown(&columns, &rows), "| name | n |\n| --- | ---: |\n| a\\|b | 1 |\n");
    }
}
