//! The list half of a reflector: a whole collection, streamed into the next snapshot.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Reflector,
    exchange::next_piece,
    failure::{ReflectorFailure, Step},
};
use crate::{
    api::{form::Form, version::ResourceVersion},
    body::Body,
    cache::{
        budget::Reservation,
        envelope::{Kind, Style},
        form::{Envelope, ListSplitter},
        reader::{ObjectError, Reader},
        rebuild::Rebuild,
        replica::{Link, SyncState},
        store::Snapshot,
        table::Moment,
    },
};

/// A list in progress.
struct Listing<'a> {
    reader: &'a mut Reader,
    rebuild: Rebuild,
    /// The style of the items so far.
    style: Option<Style>,
    /// The kind that the first of a custom resource's items names.
    kind: Option<Kind>,
}

// === impl Reflector ===

impl Reflector {
    /// Lists the collection again, not older than a version or consistently.
    pub(super) async fn list(
        &mut self,
        from: Option<ResourceVersion>,
    ) -> Result<Step, ReflectorFailure> {
        let base = self.snapshot();
        self.counters.lists.increment();
        if base.is_some() {
            self.counters.relists.increment();
        }
        let (asked_at, sent) = (Instant::now(), self.replica.clock().own());
        let doubts = self.replica.doubts();
        let body = self.exchange.list(from.as_ref()).await?;
        let snapshot = self.read_list(body, sent, base.clone()).await;
        // The memory of a failed list is already free.
        let history_bytes = self.replica.history().bytes();
        self.replica.usage().extra_bytes = self.reader.bytes() + history_bytes;
        let snapshot = snapshot?;
        self.bad_lists = 0;
        let listed = snapshot.version().clone();
        if let Some(shown) = base.map(|base| base.version().clone())
            && listed < shown
        {
            // A consistent response is below the published version only if the storage itself went
            // back.
            return Err(match from {
                Some(_) => ReflectorFailure::Older { listed, shown },
                None => ReflectorFailure::Restored { current: listed, shown },
            });
        }
        // A list that is not older than the published version may be equal to it. One that was asked for before
        // a suspension has no known age.
        let is_newest = from.is_none() && self.replica.doubts() == doubts;
        self.show_list(snapshot, is_newest.then_some(asked_at));
        Ok(Step::Watch)
    }

    async fn read_list(
        &mut self,
        mut body: Body,
        sent: Moment,
        base: Option<Arc<Snapshot>>,
    ) -> Result<Snapshot, ReflectorFailure> {
        let (limit, item_bytes_max) = {
            let settings = self.settings.borrow();
            (settings.memory_limit_bytes, settings.item_bytes_max)
        };
        let (form, resource) = (self.replica.form(), &self.replica.query().resource);
        let mut splitter = ListSplitter::new(form, resource, item_bytes_max);
        let mut listing = Listing {
            reader: &mut self.reader,
            rebuild: Rebuild::of(base, self.replica.form(), self.budget.pool().clone()),
            style: None,
            kind: None,
        };
        let mut reserved = Reservation::of(&self.budget);
        while let Some(piece) = next_piece(&mut body).await? {
            splitter.arrives(self.replica.clock().since(sent));
            splitter.feed(&piece, |item| listing.add(item))?;
            let bytes = listing.rebuild.bytes() + listing.reader.bytes();
            self.replica.usage().extra_bytes = bytes;
            // Concurrent lists share the limit.
            if reserved.grow_to(bytes) > limit {
                return Err(ReflectorFailure::OutOfMemory);
            }
        }
        let (envelope, version) = splitter.finish()?;
        let snapshot = listing.finish(envelope, version)?;
        self.count_unproven(snapshot.envelope());
        Ok(snapshot)
    }

    /// Counts the cells that are not proven, since the last call.
    pub(super) fn count_unproven(&mut self, envelope: &Envelope) {
        let Some(table) = envelope.table() else { return };
        for column in self.reader.take_unproven() {
            let resource = self.replica.query().resource.group_resource();
            self.counters.unproven_cells.increment(resource, table.column(column));
        }
    }

    fn show_list(&self, snapshot: Snapshot, newest_at: Option<Instant>) {
        let query = self.replica.query();
        let (objects, version) = (snapshot.len(), snapshot.version().clone());
        tracing::info!(
            resource = %query.resource, scope = query.scope.as_str(), objects, %version, "listed"
        );
        let before = self.snapshot();
        if before.as_ref().is_some_and(|before| before.envelope() != snapshot.envelope()) {
            self.replica.learn_bookmark(None);
        }
        let is_relist = before.is_some();
        let mut history = self.replica.history();
        history.reset(version.clone());
        self.replica.publish(|published| {
            published.oldest = Some(version);
            published.state = SyncState::Synced;
            published.snapshot = Some(Arc::new(snapshot));
            if let Some(newest_at) = newest_at {
                published.link = Link::Lost { since: newest_at };
                published.prove(newest_at);
            }
        });
        drop(history);
        // States that were kept until now may have other bytes.
        self.replica.usage().relists += u64::from(is_relist);
    }
}

// === impl Listing ===

impl Listing<'_> {
    fn add(&mut self, item: &[u8]) -> Result<(), ReflectorFailure> {
        let (object, style) = self.reader.item(item)?;
        if *self.style.get_or_insert(style) != style {
            return Err(ReflectorFailure::NotUnderstood);
        }
        if self.kind.is_none() && style == Style::Custom && self.reader.form() == Form::Json {
            let kind = serde_json::from_slice(item).map_err(ObjectError::Malformed)?;
            self.kind = Some(kind);
        }
        Ok(self.rebuild.push(object)?)
    }

    fn finish(
        self,
        mut envelope: Envelope,
        version: ResourceVersion,
    ) -> Result<Snapshot, ReflectorFailure> {
        let same_style = self.style.is_none_or(|style| style == envelope.style());
        if !same_style || envelope.api_version() != self.reader.api_version() {
            return Err(ReflectorFailure::NotUnderstood);
        }
        if let (Envelope::Json(json), Some(kind)) = (&mut envelope, self.kind) {
            json.learn_kind(kind);
        }
        Ok(self.rebuild.finish(version, envelope)?)
    }
}
