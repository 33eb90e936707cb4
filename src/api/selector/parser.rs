//! The grammar of label selectors (S-SEL-01, S-SEL-03, S-SEL-04).
//!
//! Everything that the apiserver refuses is refused, including keys and values that no object could
//! have. The text is parsed once, from front to back.

use super::{
    REQUIREMENTS_MAX, SelectorError,
    labels::{Requirement, Test},
};

const NAME_BYTES_MAX: usize = 63;
const PREFIX_BYTES_MAX: usize = 253;

/// Returns the requirements of a selector in the written order.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser::new(text);
    let mut requirements = Vec::new();
    if parser.peek() == Token::End {
        return Ok(requirements);
    }
    loop {
        if requirements.len() == REQUIREMENTS_MAX {
            return Err(SelectorError(format!("more than {REQUIREMENTS_MAX} requirements")));
        }
        requirements.push(parser.requirement()?);
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Comma => {}
            found => return Err(found.instead_of("',' or 'end of string'")),
        }
    }
}

/// A token; `in` and `notin` are words, because they may also be keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Open,
    Close,
    End,
}

struct Parser<'a> {
    rest: &'a str,
    ahead: Token<'a>,
}

// === impl Parser ===

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut parser = Self { rest: text, ahead: Token::End };
        parser.next();
        parser
    }

    fn peek(&self) -> Token<'a> {
        self.ahead
    }

    /// Takes the next token.
    fn next(&mut self) -> Token<'a> {
        std::mem::replace(&mut self.ahead, scan(&mut self.rest))
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = self.peek() == Token::Not;
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => key(word)?,
            found => return Err(found.instead_of("identifier")),
        };
        let test = match (negated, self.peek()) {
            (true, _) => Test::DoesNotExist,
            (false, Token::Comma | Token::End) => Test::Exists,
            (false, _) => self.test()?,
        };
        Ok(Requirement { key, test })
    }

    fn test(&mut self) -> Result<Test, SelectorError> {
        Ok(match self.next() {
            Token::Equals | Token::DoubleEquals => Test::In([value(self.single()?)?].into()),
            Token::NotEquals => Test::NotIn([value(self.single()?)?].into()),
            Token::Greater => Test::GreaterThan(bound(self.single()?)?),
            Token::Less => Test::LessThan(bound(self.single()?)?),
            Token::Word("in") => Test::In(self.set()?),
            Token::Word("notin") => Test::NotIn(self.set()?),
            found => return Err(found.instead_of("an operator")),
        })
    }

    /// Returns the single value after an operator such as `=`; it may be missing.
    fn single(&mut self) -> Result<&'a str, SelectorError> {
        match self.peek() {
            Token::Comma | Token::End => Ok(""),
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            found => Err(found.instead_of("identifier")),
        }
    }

    /// Returns the values in brackets; a missing one is the empty value.
    fn set(&mut self) -> Result<Box<[Box<str>]>, SelectorError> {
        match self.next() {
            Token::Open => {}
            found => return Err(found.instead_of("'('")),
        }
        let mut values = Vec::new();
        loop {
            values.push(match self.peek() {
                Token::Word(word) => {
                    self.next();
                    value(word)?
                }
                // Some releases refuse it before the end, such as 1.30 (S-SEL-06).
                Token::Comma if !values.is_empty() => {
                    return Err(Token::Comma.instead_of("identifier"));
                }
                _ => "".into(),
            });
            match self.next() {
                Token::Comma => {}
                Token::Close => break,
                found => return Err(found.instead_of("',' or ')'")),
            }
        }
        values.sort_unstable();
        values.dedup();
        Ok(values.into())
    }
}

// === impl Token ===

impl Token<'_> {
    fn instead_of(self, expected: &str) -> SelectorError {
        SelectorError(format!(
            "unable to parse requirement: found '{}', expected: {expected}",
            self.text()
        ))
    }

    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Comma => ",",
            Self::Not => "!",
            Self::Equals => "=",
            Self::DoubleEquals => "==",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Open => "(",
            Self::Close => ")",
            Self::End => "",
        }
    }
}

/// Takes one token from the front.
fn scan<'a>(rest: &mut &'a str) -> Token<'a> {
    let text = rest.trim_start_matches(is_whitespace);
    let Some(first) = text.bytes().next() else {
        *rest = text;
        return Token::End;
    };
    let followed_by_equals = text.as_bytes().get(1) == Some(&b'=');
    let (token, length) = match first {
        b'=' if followed_by_equals => (Token::DoubleEquals, 2),
        b'!' if followed_by_equals => (Token::NotEquals, 2),
        b'=' => (Token::Equals, 1),
        b'!' => (Token::Not, 1),
        b',' => (Token::Comma, 1),
        b'(' => (Token::Open, 1),
        b')' => (Token::Close, 1),
        b'>' => (Token::Greater, 1),
        b'<' => (Token::Less, 1),
        _ => {
            let length = text.find(ends_word).unwrap_or(text.len());
            (Token::Word(&text[..length]), length)
        }
    };
    *rest = &text[length..];
    token
}

fn is_whitespace(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn ends_word(character: char) -> bool {
    is_whitespace(character) || matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn key(text: &str) -> Result<Box<str>, SelectorError> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let valid = prefix.is_none_or(is_subdomain) && !name.is_empty() && is_name(name);
    if valid { Ok(text.into()) } else { Err(SelectorError(format!("invalid label key {text:?}"))) }
}

fn value(text: &str) -> Result<Box<str>, SelectorError> {
    let valid = text.is_empty() || is_name(text);
    if valid {
        Ok(text.into())
    } else {
        Err(SelectorError(format!("invalid label value {text:?}")))
    }
}

/// Returns an integer that is also a valid label value, and has no sign.
fn bound(text: &str) -> Result<i64, SelectorError> {
    let text = value(text)?;
    text.parse().map_err(|_| {
        SelectorError("for 'Gt', 'Lt' operators, the value must be an integer".to_owned())
    })
}

/// Reports whether the text is at most 63 of `[-A-Za-z0-9_.]` and begins and ends with a letter or
/// digit.
fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= NAME_BYTES_MAX
        && text.bytes().all(is_inner)
        && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && text.as_bytes().last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Reports whether the text is at most 253 bytes of dotted lower-case DNS labels.
fn is_subdomain(text: &str) -> bool {
    let is_outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        label.bytes().all(|byte| is_outer(&byte) || byte == b'-')
            && label.as_bytes().first().is_some_and(is_outer)
            && label.as_bytes().last().is_some_and(is_outer)
    };
    text.len() <= PREFIX_BYTES_MAX && text.split('.').all(is_label)
}
