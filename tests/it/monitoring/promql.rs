//! A small part of PromQL: enough to find the metrics and labels of an expression.
//!
//! promtool checks that the expression is valid.

/// The names in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Each metric, and its selecting labels with their operator and value.
    pub(crate) selectors: Vec<Selector>,
    /// Labels of `by`, `on` and similar clauses, beside the metrics' own.
    pub(crate) grouped: Vec<String>,
}

/// A metric and its selecting labels.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    /// The metric.
    pub(crate) metric: String,
    /// Label, operator, value.
    pub(crate) matchers: Vec<(String, String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 6] = ["and", "or", "unless", "offset", "bool", "atan2"];

/// Finds the names in an expression.
pub(crate) fn named(expression: &str) -> Named {
    let tokens = tokens(expression);
    let mut named = Named::default();
    let mut at = 0;
    while at < tokens.len() {
        let next = tokens.get(at + 1);
        match &tokens[at] {
            Token::Word(word) if GROUPING.contains(&word.as_str()) => {
                at = inside(&tokens, at + 1, '(', ')', |token| {
                    if let Token::Word(label) = token {
                        named.grouped.push(label.clone());
                    }
                });
                continue;
            }
            Token::Word(word) if OPERATORS.contains(&word.as_str()) => {}
            // A function or an aggregation.
            Token::Word(_) if next == Some(&Token::Sign('(')) => {}
            Token::Word(word) if is_aggregation_before_labels(next) => {
                assert!(word.chars().all(|c| c.is_ascii_lowercase()), "{word} by (…)");
            }
            Token::Word(word) if word.starts_with(|c: char| c.is_ascii_digit()) => {}
            Token::Word(word) => {
                let (matchers, end) = matchers(&tokens, at + 1);
                named.selectors.push(Selector { metric: word.clone(), matchers });
                at = end;
                continue;
            }
            Token::Sign('[') => {
                at = inside(&tokens, at, '[', ']', |_| {});
                continue;
            }
            Token::Text(_) | Token::Sign(_) => {}
        }
        at += 1;
    }
    named
}

fn is_aggregation_before_labels(next: Option<&Token>) -> bool {
    matches!(next, Some(Token::Word(word)) if word == "by" || word == "without")
}

/// The matchers that follow a metric, if any, and the offset of their end.
fn matchers(tokens: &[Token], at: usize) -> (Vec<(String, String, String)>, usize) {
    if tokens.get(at) != Some(&Token::Sign('{')) {
        return (Vec::new(), at);
    }
    let mut parts: Vec<Token> = Vec::new();
    let end = inside(tokens, at, '{', '}', |token| parts.push(token.clone()));
    let mut matchers = Vec::new();
    for matcher in parts.split(|token| *token == Token::Sign(',')) {
        let [Token::Word(label), operator @ .., Token::Text(value)] = matcher else {
            assert!(matcher.is_empty(), "not a matcher: {matcher:?}");
            continue;
        };
        let operator = operator.iter().filter_map(|token| match token {
            Token::Sign(sign) => Some(*sign),
            _ => None,
        });
        matchers.push((label.clone(), operator.collect(), value.clone()));
    }
    (matchers, end)
}

/// Passes on the text between two brackets; returns the text after them.
fn inside(
    tokens: &[Token],
    at: usize,
    open: char,
    close: char,
    mut each: impl FnMut(&Token),
) -> usize {
    if tokens.get(at) != Some(&Token::Sign(open)) {
        return at;
    }
    let ends = |token: &Token| *token == Token::Sign(close);
    let length = tokens[at..].iter().position(ends).expect("a closing bracket");
    tokens[at + 1..at + length].iter().for_each(&mut each);
    at + length + 1
}

fn tokens(expression: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let length = rest[1..].find('"').expect("a closing quote");
            tokens.push(Token::Text(rest[1..=length].to_owned()));
            rest = &rest[length + 2..];
        } else if is_of_word(first) {
            let length = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..length].to_owned()));
            rest = &rest[length..];
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    tokens
}

/// Names, numbers and durations; a colon is part of recorded names.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.' | '$')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(expression: &str) -> Vec<String> {
        named(expression).selectors.into_iter().map(|selector| selector.metric).collect()
    }

    #[test]
    fn metrics_are_distinguished_from_functions_operators_numbers_and_labels() {
        assert_eq!(
            metrics("rate(a_total[5m]) > 14.4 * 0.01 and b:c:d or time()"),
            ["a_total", "b:c:d"]
        );
        assert_eq!(
            metrics("sum by (x, y) (rate(a[$__rate_interval])) / sum(b) by (z)"),
            ["a", "b"]
        );
        assert_eq!(metrics("a and on (job) b offset 5m"), ["a", "b"]);
        assert_eq!(
            metrics("histogram_quantile(0.99, sum by (le) (rate(a_bucket{le!=\"1\"}[5m])))"),
            ["a_bucket"]
        );
    }

    #[test]
    fn labels_are_found_where_they_select_and_where_they_group() {
        let found = named("sum by (x) (a{b=\"c\", d!~\"e|f\",}) / on (y) group_left (z) g");
        assert_eq!(found.grouped, ["x", "y", "z"]);
        let matchers = &found.selectors[0].matchers;
        let wanted = [("b", "=", "c"), ("d", "!~", "e|f")];
        assert_eq!(*matchers, wanted.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
    }
}
