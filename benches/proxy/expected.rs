//! The requests of a cell and the expected responses.
//!
//! Every response is checked: status, form, length and `Cache-Status` always, the whole body
//! sometimes.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hasher},
    io::Read,
    sync::Arc,
};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use flate2::bufread::GzDecoder;

use crate::{
    bare::Kept,
    form::{self, Form},
    wire::{Answer, Connection, Endpoint},
};

/// The interval of whole-body comparisons. Their cost is the load generator's, not the server's.
const WHOLE_BODY_EVERY: u64 = 64;
/// The bytes by which a list's version and token may grow during a run.
const VERSION_GROWTH: usize = 12;
/// The bytes by which the age in a row of a table may grow during a run.
const AGE_GROWTH: usize = 4;

/// The requests of a cell, which each connection sends in turn, with their responses.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) form: Form,
    pub(crate) steps: Arc<[Step]>,
    /// `true` if the steps are the pages of a list. A page is requested with the token of the page
    /// before it.
    pub(crate) pages: bool,
    /// The body of the requests, if they are POSTs.
    pub(crate) body: Option<&'static str>,
    /// `true` if Listless must forward the requests.
    pub(crate) is_forwarded: bool,
    /// `true` if the objects change meanwhile.
    pub(crate) changes: bool,
    /// The required text in `Cache-Status`, if the server is Listless.
    pub(crate) cache_status: Option<&'static str>,
}

/// A request and its expected response.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) target: String,
    status: u16,
    /// The apiserver's body as it was sent.
    pub(crate) sent: Bytes,
    content: Content,
    /// The number of bytes that a body may have besides its content.
    others_max: usize,
}

/// The content of a body, which stays the same while the objects do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    items: usize,
    bytes: usize,
    hash: u64,
}

// === impl Expected ===

impl Expected {
    /// Learns the apiserver's own responses to these targets.
    pub(crate) fn learn(
        form: Form,
        targets: &[String],
        body: Option<&'static str>,
        server: &Endpoint,
    ) -> Result<Self> {
        let mut connection = Connection::open(server)?;
        let step = |target: &String| {
            let answer = connection.exchange(&server.request_with(form, target, body))?;
            Step::learn(form, target.clone(), &answer)
        };
        let steps = targets.iter().map(step).collect::<Result<_>>()?;
        let (pages, is_forwarded, changes, cache_status) = (false, false, false, None);
        Ok(Self { form, steps, pages, body, is_forwarded, changes, cache_status })
    }

    /// Learns the apiserver's own pages of a list, of which `first` is the target of the first.
    pub(crate) fn learn_pages(form: Form, first: &str, server: &Endpoint) -> Result<Self> {
        let mut connection = Connection::open(server)?;
        let (mut steps, mut target) = (Vec::new(), Some(first.to_owned()));
        while let Some(page) = target.take() {
            let answer = connection.exchange(&server.request_in(form, &page))?;
            target = form::token(answer.body).map(|token| next_page(first, token));
            steps.push(Step::learn(form, page, &answer)?);
        }
        let steps = steps.into();
        let (pages, body, is_forwarded, changes, cache_status) = (true, None, false, false, None);
        Ok(Self { form, steps, pages, body, is_forwarded, changes, cache_status })
    }

    /// Returns the responses that a server without an apiserver can send. The tokens in pages are those of its targets.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Kept> {
        let kept = |step: &Step| (self.form, step.target.clone(), step.sent.clone());
        let steps = if self.is_forwarded { &[] } else { &*self.steps };
        steps.iter().map(kept).map(|(form, target, body)| Kept { form, target, body })
    }

    /// Returns the target of the page after a response, if one follows.
    pub(crate) fn next_page(&self, answer: &Answer<'_>) -> Option<String> {
        form::token(answer.body).map(|token| next_page(&self.steps[0].target, token))
    }

    /// Checks every byte of each 64th response.
    pub(crate) fn check_now_and_then(
        &self,
        step: &Step,
        answer: &Answer<'_>,
        count: u64,
    ) -> Result<()> {
        if count.is_multiple_of(WHOLE_BODY_EVERY) {
            return self.check_whole(step, answer);
        }
        self.check(step, answer)?;
        // The length of a page depends on its token.
        if self.pages { self.check_items(step, answer.body) } else { Ok(()) }
    }

    /// Checks every byte of a response, or the number of objects while they change.
    pub(crate) fn check_whole(&self, step: &Step, answer: &Answer<'_>) -> Result<()> {
        self.check(step, answer)?;
        let body = unpacked(self.form, answer.body)?;
        if self.changes {
            return self.check_items(step, &body);
        }
        let content = Content::of(self.form, &body)?;
        ensure!(content == step.content, "another body: {}", step.target);
        Ok(())
    }

    fn check_items(&self, step: &Step, body: &[u8]) -> Result<()> {
        let (found, wanted) = (self.form.items(body), step.content.items);
        ensure!(found == wanted, "{found} objects, expected {wanted}: {}", step.target);
        Ok(())
    }

    fn check(&self, step: &Step, answer: &Answer<'_>) -> Result<()> {
        let others = answer.body.len().wrapping_sub(step.content.bytes);
        // The lengths of compressed and of changed ones differ.
        let any_length = self.form.is_gzip() || self.changes;
        if answer.status != step.status
            || !self.form.begins(answer.body)
            || (others > step.others_max && !any_length)
        {
            bail!(
                "{}: status {}, {} bytes, expected {} and {}: {}",
                step.target,
                answer.status,
                answer.body.len(),
                step.status,
                step.sent.len(),
                String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)])
            );
        }
        if let Some(wanted) = self.cache_status {
            let found = answer.cache_status();
            ensure!(found.contains(wanted), "{}: Cache-Status {found:?}", step.target);
        }
        Ok(())
    }
}

/// Returns the target of a later page.
fn next_page(first: &str, token: &str) -> String {
    format!("{first}&continue={token}")
}

// === impl Step ===

impl Step {
    fn learn(form: Form, target: String, answer: &Answer<'_>) -> Result<Self> {
        let fits = matches!(answer.status, 200 | 201) && form.begins(answer.body);
        ensure!(fits, "no {} from the apiserver: {target}: status {}", form.name(), answer.status);
        let body = unpacked(form, answer.body)?;
        let content = Content::of(form, &body)?;
        let ages = if form == Form::Table { content.items * AGE_GROWTH } else { 0 };
        let others_max = body.len() - content.bytes + VERSION_GROWTH + ages;
        let (status, sent) = (answer.status, Bytes::copy_from_slice(answer.body));
        Ok(Self { target, status, sent, content, others_max })
    }
}

// === impl Content ===

impl Content {
    fn of(form: Form, body: &[u8]) -> Result<Self> {
        let (mut bytes, mut hasher) = (0, DefaultHasher::new());
        for part in form.lasting(body)? {
            bytes += part.len();
            hasher.write(part);
        }
        Ok(Self { items: form.items(body), bytes, hash: hasher.finish() })
    }
}

/// Returns a body without its encoding, which is exactly one gzip member if there is any.
fn unpacked(form: Form, body: &[u8]) -> Result<Cow<'_, [u8]>> {
    if !form.is_gzip() {
        return Ok(body.into());
    }
    let (mut text, mut rest) = (Vec::new(), body);
    GzDecoder::new(&mut rest).read_to_end(&mut text).context("not a gzip member")?;
    ensure!(rest.is_empty(), "bytes after the gzip member");
    Ok(text.into())
}
