//! The reasons why no cache can answer a request.

/// The reason why a request cannot be answered from the cache, whatever the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotModelled {
    /// The method is not GET.
    NotARead,
    /// It is a WATCH, not a GET or LIST.
    Watch,
    /// It addresses a part of an object.
    Subresource,
    /// The path has escapes, empty or dot segments, a slash at the end, or a deprecated prefix.
    UnusualPath,
    /// The query has a `;`, a bad escape, or bytes that are not UTF-8.
    MalformedQuery,
    /// The verb does not have this parameter, as far as Listless knows.
    UnknownParameter,
    /// A known parameter is repeated.
    RepeatedParameter,
    /// It continues an earlier LIST.
    Continue,
    /// The apiserver refuses these parameters together.
    IllegalCombination,
    /// resourceVersion is not a plain positive number or 0.
    BadVersion,
    /// A selector does not parse.
    BadSelector,
    /// A field selector names a field whose value Listless does not know.
    UnmodelledField,
    /// A selector is above 4 KiB or 64 values, or a part of the path is above 253 bytes.
    Oversized,
    /// The value of some other parameter does not parse.
    BadValue,
    /// The GET has a body.
    Body,
    /// A page of another origin asks: only the apiserver knows whether it allows that (S-HDR-04).
    CrossOrigin,
    /// The path or query repeats the caller's token, which nothing may store or show.
    RepeatsToken,
}

// === impl NotModelled ===

impl NotModelled {
    /// Returns the word for `Cache-Status`, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotARead => "not-a-read",
            Self::Watch => "watch",
            Self::Subresource => "subresource",
            Self::UnusualPath => "unusual-path",
            Self::MalformedQuery => "malformed-query",
            Self::UnknownParameter => "unknown-parameter",
            Self::RepeatedParameter => "repeated-parameter",
            Self::Continue => "continue",
            Self::IllegalCombination => "illegal-combination",
            Self::BadVersion => "bad-version",
            Self::BadSelector => "bad-selector",
            Self::UnmodelledField => "unmodelled-field",
            Self::Oversized => "oversized",
            Self::BadValue => "bad-value",
            Self::Body => "body",
            Self::CrossOrigin => "cross-origin",
            Self::RepeatsToken => "repeats-token",
        }
    }
}
