//! A body that is streamed and copied.
//!
//! Invariant: the copy is the whole of the streamed body, or nothing.

use std::{collections::VecDeque, mem};

use bytes::Bytes;

use crate::{
    body::{Body, BoxError, Observer, PIECE_OVERHEAD_BYTES},
    held_bytes::HeldBytes,
};

/// An observer that passes a copy of a body's bytes to a callback at its end.
pub(super) struct Collecting<F> {
    read: VecDeque<Bytes>,
    bytes: usize,
    /// The bytes of all copies in progress: a client may never read its document to the end.
    copied: HeldBytes,
    /// Counts the bytes of this copy until its end; a kept document counts elsewhere.
    counted: Vec<Bytes>,
    /// The callback; `None` after the end, or if the body is too large or broken.
    whole: Option<F>,
}

/// The largest document that is cached.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The limit of all copies in progress, in bytes.
const COPIED_BYTES_MAX: usize = 32 * 1024 * 1024;

// === impl Collecting ===

impl<F: FnOnce(VecDeque<Bytes>) + Send + Unpin + 'static> Collecting<F> {
    /// Wraps a body, whose copy counts in `copied`; `whole` receives the bytes when the body has ended.
    pub(super) fn wrap(inner: Body, copied: &HeldBytes, whole: F) -> Body {
        let (read, counted, copied) = (VecDeque::new(), Vec::new(), copied.clone());
        inner.observed(Self { read, bytes: 0, copied, counted, whole: Some(whole) })
    }
}

impl<F: FnOnce(VecDeque<Bytes>) + Send + Unpin + 'static> Observer for Collecting<F> {
    fn passed(&mut self, chunk: &Bytes) {
        self.bytes += chunk.len() + PIECE_OVERHEAD_BYTES;
        if self.bytes > DOCUMENT_BYTES_MAX || self.copied.total() > COPIED_BYTES_MAX {
            self.forget();
        } else if self.whole.is_some() {
            self.counted.push(self.copied.hold(chunk.clone()));
            self.read.push_back(chunk.clone());
        }
    }

    fn ended(&mut self) {
        self.counted.clear();
        if let Some(whole) = self.whole.take() {
            whole(mem::take(&mut self.read));
        }
    }

    fn broke(&mut self, _: &BoxError) {
        self.forget();
    }
}

impl<F> Collecting<F> {
    fn forget(&mut self) {
        self.whole = None;
        self.read.clear();
        self.counted.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        sync::{Arc, Mutex},
        task::{Context, Poll},
    };

    use http_body::{Frame, SizeHint};
    use http_body_util::BodyExt as _;

    use super::*;

    /// The copied bytes, if any.
    type Kept = Arc<Mutex<Option<VecDeque<Bytes>>>>;

    fn collecting(body: Body) -> (Body, Kept) {
        let kept = Kept::default();
        let to = kept.clone();
        let whole = move |chunks| *to.lock().expect("no panic") = Some(chunks);
        (Collecting::wrap(body, &HeldBytes::default(), whole), kept)
    }

    fn text(kept: &Kept) -> Option<Vec<u8>> {
        let kept = kept.lock().expect("no panic").clone();
        kept.map(|chunks| chunks.iter().flatten().copied().collect())
    }

    fn pieces(pieces: Vec<Result<&'static str, &'static str>>) -> Body {
        let frames =
            pieces.into_iter().map(|piece| piece.map(|text| Frame::data(Bytes::from(text))));
        Body::wrap(http_body_util::StreamBody::new(futures_util::stream::iter(frames)))
    }

    #[tokio::test]
    async fn a_copy_counts_until_its_end_and_not_while_it_is_kept() {
        let (copied, kept) = (HeldBytes::default(), Kept::default());
        let to = kept.clone();
        let whole = move |chunks| *to.lock().expect("no panic") = Some(chunks);
        let mut body = Collecting::wrap(pieces(vec![Ok("a"), Ok("b")]), &copied, whole);
        body.frame().await.expect("a piece").expect("no error");
        assert!(copied.total() > 0);
        while body.frame().await.is_some() {}
        assert_eq!(text(&kept), Some(b"ab".to_vec()));
        assert_eq!(copied.total(), 0);
    }

    #[tokio::test]
    async fn a_complete_body_is_copied_with_its_last_byte() {
        for body in [Body::full("ab"), pieces(vec![Ok("a"), Ok("b")])] {
            let (mut body, kept) = collecting(body);
            assert_eq!(text(&kept), None);
            while body.frame().await.is_some() {}
            assert_eq!(text(&kept), Some(b"ab".to_vec()));
        }
        let (mut body, kept) = collecting(Body::full("ab"));
        body.frame().await.expect("a piece").expect("no error");
        assert_eq!(text(&kept), Some(b"ab".to_vec()), "its length told that this was all");
        let (_, kept) = collecting(Body::empty());
        assert_eq!(text(&kept), Some(Vec::new()));
    }

    /// A body that knows its length, and whose end comes only later.
    struct Late(Option<Bytes>);

    impl http_body::Body for Late {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            self.0.take().map_or(Poll::Pending, |piece| Poll::Ready(Some(Ok(Frame::data(piece)))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(2)
        }
    }

    #[tokio::test]
    async fn a_body_of_known_length_ends_without_a_last_poll() {
        let late = Body::wrap(Late(Some(Bytes::from("ab"))));
        let (mut body, kept) = collecting(late);
        body.frame().await.expect("a piece").expect("no error");
        drop(body);
        assert_eq!(text(&kept), Some(b"ab".to_vec()));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_not_kept() {
        let (mut body, kept) = collecting(pieces(vec![Ok("a"), Err("broken")]));
        while let Some(Ok(_)) = body.frame().await {}
        assert!(body.frame().await.is_none());
        assert_eq!(text(&kept), None);
        let (mut body, kept) = collecting(pieces(vec![Ok("a"), Ok("b")]));
        body.frame().await.expect("a piece").expect("no error");
        drop(body);
        assert_eq!(text(&kept), None);
    }

    #[tokio::test]
    async fn the_copies_of_bodies_that_nobody_reads_to_the_end_are_bounded_together() {
        let copied = HeldBytes::default();
        let mut unread = Vec::new();
        for _ in 0..100 {
            let chunks = VecDeque::from([Bytes::from(vec![b'x'; 1 << 20]), Bytes::from("y")]);
            let mut body = Collecting::wrap(Body::chunks(chunks), &copied, |_| {});
            body.frame().await.expect("a piece").expect("no error");
            unread.push(body);
        }
        assert!((COPIED_BYTES_MAX..COPIED_BYTES_MAX + (2 << 20)).contains(&copied.total()));
        drop(unread);
        assert_eq!(copied.total(), 0);
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_streamed_and_not_kept() {
        let large = Bytes::from(vec![b'x'; DOCUMENT_BYTES_MAX]);
        let chunks = VecDeque::from([large, Bytes::from("y")]);
        let (mut body, kept) = collecting(Body::chunks(chunks));
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.expect("no error").data_ref().map_or(0, Bytes::len);
        }
        assert_eq!((bytes, text(&kept)), (DOCUMENT_BYTES_MAX + 1, None));
    }
}
