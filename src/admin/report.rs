//! The report, and the part of it that `top` shows.

use crate::insight::{report::Report, sort::Sort};

/// What may be asked of the report.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// At most so many polls.
    limit: Option<usize>,
    sort: Sort,
}

/// Rows that `top` shows unless it is told.
const TOP_ROWS: usize = 50;

/// The report as JSON, or what is wrong with the question.
pub(super) fn report(report: Report, query: Option<&str>) -> Result<String, String> {
    Ok(Wanted::of(query)?.cut(report, usize::MAX).to_json())
}

/// Its first rows.
pub(super) fn top(report: Report, query: Option<&str>) -> Result<String, String> {
    Ok(Wanted::of(query)?.cut(report, TOP_ROWS).to_json())
}

// === impl Wanted ===

impl Wanted {
    fn of(query: Option<&str>) -> Result<Self, String> {
        let mut wanted = Self::default();
        let parameters = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for (name, value) in parameters.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            match name {
                "limit" => {
                    let limit = value.parse().map_err(|_| "limit: expected a number")?;
                    wanted.limit = Some(limit);
                }
                "sort" => wanted.sort = value.parse::<Sort>().map_err(|error| error.to_string())?,
                _ => return Err("expected limit=N or sort=WORD".to_owned()),
            }
        }
        Ok(wanted)
    }

    fn cut(self, mut report: Report, unless_told: usize) -> Report {
        self.sort.sort(&mut report.polls);
        report.polls.truncate(self.limit.unwrap_or(unless_told));
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::report::Poll;

    #[test]
    fn as_many_polls_as_asked_for_in_the_order_asked_for() {
        let poll = |requests| Poll { requests, ..Poll::default() };
        let all = Report { polls: (0..60).map(poll).collect(), ..Report::default() };
        let asked = |json: Result<String, String>| -> Vec<u64> {
            let report: Report = serde_json::from_str(&json.unwrap()).unwrap();
            report.polls.iter().map(|poll| poll.requests).collect()
        };
        assert_eq!(asked(report(all.clone(), None)).len(), 60);
        assert_eq!(asked(top(all.clone(), None)).len(), TOP_ROWS);
        assert_eq!(asked(top(all, Some("limit=2&sort=requests"))), [59, 58]);
    }
}
