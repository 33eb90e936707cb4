//! The report, and the part of it that `top` shows.

use crate::insight::{report::Report, sort::Sort};

/// The parameters of a report.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// The maximum number of polls.
    limit: Option<usize>,
    sort: Sort,
}

/// The default number of rows for `top`.
const TOP_ROWS: usize = 50;

/// Returns the report as JSON, or the error in the query.
pub(super) fn report(report: Report, query: Option<&str>) -> Result<String, String> {
    Ok(Wanted::of(query)?.cut(report, usize::MAX).to_json())
}

/// Returns the first rows of the report.
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
                    let limit = value.parse().map_err(|_| "limit: pass a number")?;
                    wanted.limit = Some(limit);
                }
                "sort" => wanted.sort = value.parse::<Sort>().map_err(|error| error.to_string())?,
                _ => return Err("use limit=N or sort=WORD".to_owned()),
            }
        }
        Ok(wanted)
    }

    fn cut(self, mut report: Report, limit_default: usize) -> Report {
        self.sort.sort(&mut report.polls);
        report.polls.truncate(self.limit.unwrap_or(limit_default));
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::report::Poll;

    #[test]
    fn a_report_has_the_requested_limit_and_order() {
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
