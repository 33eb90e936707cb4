//! One request of the differential suite and the expectations of its response.
//!
//! The status is stated per version, so that a case proves that it tests its intended behaviour.

use http::Method;

use crate::dataset::Dataset;
use crate::rig::client::Request;
use crate::rig::control_plane::{User, Version};

/// The credentials of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Caller {
    /// A user of the token file.
    User(User),
    /// No credentials at all.
    Anonymous,
    /// A token that nobody issued.
    UnknownToken,
}

/// The expectation about an answer from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Answered from memory once a replica is warm.
    Wanted,
    /// Both are right.
    Free,
    /// Always forwarded.
    Never,
}

/// The part of a response that changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Nothing.
    Still,
    /// Ages in seconds, or objects the apiserver renews: sent again before a difference counts.
    Clock,
    /// Ages: compared between two equal responses of the apiserver.
    Ages,
    /// Nothing, but the response takes the apiserver seconds.
    Slow,
}

/// The pages behind `continue` that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Only the first response.
    First,
    /// Each side follows its own tokens to the end.
    All,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The request method.
    pub method: Method,
    /// Path and query; `{before}`, `{after}` and `{future}` stand for versions.
    pub target: String,
    /// Headers beside those every request has.
    pub headers: Vec<(String, String)>,
    /// The caller.
    pub caller: Caller,
    /// See [`Memory`].
    pub memory: Memory,
    /// See [`Pace`].
    pub pace: Pace,
    /// See [`Pages`].
    pub pages: Pages,
    status: u16,
    status_on_old: u16,
}

// === impl Case ===

impl Case {
    /// A request by the administrator that is answered with 200 and may be answered from memory.
    pub fn new(method: Method, target: &str) -> Self {
        Self {
            method,
            target: target.to_owned(),
            headers: Vec::new(),
            caller: Caller::User(User::Admin),
            memory: Memory::Free,
            pace: Pace::Still,
            pages: Pages::First,
            status: 200,
            status_on_old: 200,
        }
    }

    /// A GET request.
    pub fn get(target: &str) -> Self {
        Self::new(Method::GET, target)
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an `Accept` header.
    pub fn accept(self, value: &str) -> Self {
        self.header("Accept", value)
    }

    /// Sets the caller.
    pub fn caller(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    /// Sets the expected status on both versions; refusals are never answered from memory.
    pub fn status(mut self, status: u16) -> Self {
        if status != 200 {
            self.memory = Memory::Never;
        }
        (self.status, self.status_on_old) = (status, status);
        self
    }

    /// Sets the expected status on 1.30 where it differs.
    pub fn status_on_old(mut self, status: u16) -> Self {
        self.status_on_old = status;
        self
    }

    /// Requires an answer from memory once the replica is warm.
    pub fn wanted(mut self) -> Self {
        self.memory = Memory::Wanted;
        self
    }

    /// Requires a forward.
    pub fn never(mut self) -> Self {
        self.memory = Memory::Never;
        self
    }

    /// Sets the part that changes by itself.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Compares all pages.
    pub fn all_pages(mut self) -> Self {
        self.pages = Pages::All;
        self
    }

    /// The status that the apiserver returns.
    pub fn expected_status(&self, version: Version) -> u16 {
        match version {
            Version::V1_36 => self.status,
            Version::V1_30 => self.status_on_old,
        }
    }

    /// The text that distinguishes this case from all others, for tables and messages.
    pub fn name(&self) -> String {
        let headers: Vec<String> =
            self.headers.iter().map(|(name, value)| format!(" {name}: {value}")).collect();
        let caller = match self.caller {
            Caller::User(User::Admin) => String::new(),
            other => format!(" as {other:?}"),
        };
        format!("{} {}{}{caller}", self.method, self.target, headers.join(";"))
    }

    /// The request as it is sent, with versions filled in.
    pub fn request(&self, dataset: &Dataset) -> Request {
        let mut request = Request::new(self.method.clone(), &self.filled(dataset));
        request.headers.clone_from(&self.headers);
        request
    }

    /// Reports whether it reads one object: the version of its response is the object's own.
    pub fn names_object(&self) -> bool {
        let path = self.target.split('?').next().unwrap_or_default();
        // The apiserver decodes a path before it divides it.
        let path = path.replace("%2F", "/").replace("%2f", "/");
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = match parts.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => &[],
        };
        matches!(rest, ["namespaces", _] | ["namespaces", _, _, _])
            || rest.first() != Some(&"namespaces") && rest.len() == 2
    }

    /// The target with versions filled in.
    pub fn filled(&self, dataset: &Dataset) -> String {
        let future = dataset.version_after + 1_000_000;
        self.target
            .replace("{before}", &dataset.version_before.to_string())
            .replace("{after}", &dataset.version_after.to_string())
            .replace("{future}", &future.to_string())
    }

    /// The first value of a query parameter, as written.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(key, value)| (key == name).then_some(value))
    }

    /// The query of a read: its path and selectors. Its lists never go back.
    pub fn query(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        let selector = |name| self.parameter(name).unwrap_or_default();
        format!("{path}?{}&{}", selector("labelSelector"), selector("fieldSelector"))
    }

    /// The requested collection, without the API version: it has one sequence of versions.
    pub fn group_resource(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => ("", &[][..]),
        };
        let resource = match rest {
            ["namespaces", _, resource, ..] => resource,
            [resource, ..] => resource,
            [] => "",
        };
        format!("{resource}.{group}")
    }
}

#[cfg(test)]
mod tests {
    use super::Case;

    #[test]
    fn an_escaped_slash_divides_a_path_as_the_apiserver_divides_it() {
        for list in ["/api/v1/namespaces%2Fshop/pods", "/api/v1/namespaces/shop%2fpods"] {
            assert!(!Case::get(list).names_object(), "{list}");
        }
        for object in ["/api/v1/namespaces%2Fshop/pods/web-0", "/api/v1/nodes%2Fnode-1"] {
            assert!(Case::get(object).names_object(), "{object}");
        }
    }
}
