//! The APIServices with servers of their own, and which of them changed. Pure.

use std::{collections::BTreeSet, mem, sync::Arc};

/// The names of APIServices that another server than the apiserver serves.
#[derive(Default)]
pub(super) struct Remote {
    names: Arc<BTreeSet<Box<str>>>,
    /// `true` once all APIServices have been listed.
    is_known: bool,
}

// === impl Remote ===

impl Remote {
    pub(super) fn names(&self) -> Arc<BTreeSet<Box<str>>> {
        Arc::clone(&self.names)
    }

    /// Notes a list of all names. Returns those that joined or left since the last one. Before the
    /// first list nothing is known that could have changed.
    pub(super) fn list(&mut self, names: BTreeSet<Box<str>>) -> Vec<Box<str>> {
        let is_first = !mem::replace(&mut self.is_known, true);
        let before = mem::replace(&mut self.names, Arc::new(names));
        let moved = before.symmetric_difference(&self.names);
        if is_first { Vec::new() } else { moved.cloned().collect() }
    }

    /// Notes one APIService; reports whether another server serves it than before.
    pub(super) fn is_moved(&mut self, name: &str, is_remote: bool) -> bool {
        if self.names.contains(name) == is_remote {
            return false;
        }
        let names = Arc::make_mut(&mut self.names);
        if is_remote { names.insert(name.into()) } else { names.remove(name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_service_that_moves_while_nobody_follows_is_found_by_the_next_list() {
        let names = |all: &[&str]| all.iter().map(|name| Box::from(*name)).collect();
        let mut remote = Remote::default();
        assert!(remote.list(names(&["v1.a", "v1.b"])).is_empty());
        assert_eq!(*remote.list(names(&["v1.b", "v1.c"])), ["v1.a".into(), "v1.c".into()]);
        assert!(!remote.is_moved("v1.b", true) && remote.is_moved("v1.b", false));
        assert!(!remote.is_moved("v1.b", false) && remote.names().len() == 1);
    }
}
