//! Output without the parts that no two objects share: uids, versions, times, ages, addresses,
//! widths.

/// Replaces the parts that may differ by their name, and runs of blanks by one.
pub fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut before = String::new();
    for line in text.lines() {
        let mut rest = line.trim_end();
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|it| is_word(it) != is_word(first)).unwrap_or(rest.len());
            let (part, after) = rest.split_at(end);
            if is_word(first) {
                plain.push_str(masked(part, &before));
                if part != ":" {
                    before = part.trim_end_matches(':').to_owned();
                }
            } else if part.len() > 1 && part.trim().is_empty() && !plain.ends_with('\n') {
                plain.push(' ');
            } else {
                plain.push_str(part);
            }
            rest = after;
        }
        plain.push('\n');
    }
    plain
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || ":.-_/<>".contains(character)
}

fn masked<'a>(word: &'a str, before: &str) -> &'a str {
    let is_number = word.chars().all(is_digit);
    if is_number && before == "resourceVersion" {
        "VERSION"
    } else if word.len() == 36 && word.split('-').map(str::len).eq([8, 4, 4, 4, 12]) {
        "UID"
    } else if word.len() >= 20 && word.contains('T') && word.ends_with('Z') && word.contains(':') {
        "TIME"
    } else if word.len() == 10 && word.starts_with("20") && word.matches('-').count() == 2 {
        "DATE"
    } else if word.len() >= 8 && word.matches(':').count() == 2 && word.ends_with(is_digit) {
        "TIME"
    } else if is_age(word) {
        "AGE"
    } else if word.starts_with("10.96.") {
        "ADDRESS"
    } else if word.contains("/LIVE-") || word.contains("/MERGED-") {
        // The folders kubectl compares, and the times of their files beside them.
        "FOLDER"
    } else {
        word
    }
}

fn is_digit(character: char) -> bool {
    character.is_ascii_digit()
}

fn is_age(word: &str) -> bool {
    let units = word.chars().filter(|it| "smh".contains(*it)).count();
    let digits = word.chars().filter(|it| is_digit(*it)).count();
    word.starts_with(is_digit) && word.ends_with(['s', 'm', 'h']) && units + digits == word.len()
}

#[test]
fn only_what_differs_between_runs_is_left_out() {
    let text = "one   Running   3s\n  \"resourceVersion\": \"123\", \"port\": 123\n\
                uid: 123e4567-e89b-12d3-a456-426614174000 2026-11-21T19:00:00Z 10.96.3.4";
    let wanted = "one Running AGE\n  \"resourceVersion\": \"VERSION\", \"port\": 123\n\
                  uid: UID TIME ADDRESS\n";
    assert_eq!(plain(text), wanted);
}
