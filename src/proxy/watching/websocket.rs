//! A watch over a WebSocket: one message for each event (S-WATCH-45).

use std::{io, time::Duration};

use bytes::{Buf, Bytes};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    time::timeout,
};

use super::Watching;
use crate::{
    api::form::Form,
    websocket::{CLOSE, CLOSE_PROTOCOL_ERROR, Incoming, Message, binary_header, pong, text_header},
};

/// The size of reads from a client; a watch's client sends almost nothing.
const READ_BYTES: usize = 512;

/// The time after which a client that reads nothing is disconnected.
pub(super) const WRITE_STALL_MAX: Duration = Duration::from_secs(60);

/// The length before an event in protobuf. A message has a length of its own.
const EVENT_LENGTH_BYTES: usize = 4;

/// The time after which a client that does not complete the protocol switch is disconnected.
const SWITCH_MAX: Duration = Duration::from_secs(60);

// === impl Watching ===

impl Watching {
    /// Sends the watch over a connection once it has switched protocols; `form` is that of its
    /// events.
    pub fn send_over(self, connection: OnUpgrade, form: Form) {
        tokio::spawn(async move {
            let Ok(Ok(connection)) = timeout(SWITCH_MAX, connection).await else { return };
            let outcome = converse(Box::new(self), TokioIo::new(connection), form).await;
            tracing::debug!(?outcome, "watch over a WebSocket ended");
        });
    }
}

/// Runs until the watch or its client ends; events never wait for messages of the client.
async fn converse<T>(mut watching: Box<Watching>, connection: T, form: Form) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = split(connection);
    let mut incoming = Incoming::default();
    let mut received = vec![0; READ_BYTES];
    loop {
        tokio::select! {
            event = watching.next() => match event {
                Some(event) => send(&mut writer, message(event, form)).await?,
                None => {
                    send(&mut writer, Bytes::from_static(&CLOSE)).await?;
                    return writer.shutdown().await;
                }
            },
            read = reader.read(&mut received) => {
                let bytes = read?;
                if bytes == 0 {
                    return Ok(());
                }
                let mut replies = Vec::new();
                let read = incoming.push(&received[..bytes], |message| replies.push(message));
                for message in replies {
                    match message {
                        Message::Ping(payload) => {
                            send(&mut writer, Bytes::from(pong(&payload))).await?;
                        }
                        Message::Close => {
                            send(&mut writer, Bytes::from_static(&CLOSE)).await?;
                            return writer.shutdown().await;
                        }
                    }
                }
                if read.is_err() {
                    send(&mut writer, Bytes::from_static(&CLOSE_PROTOCOL_ERROR)).await?;
                    return writer.shutdown().await;
                }
            }
        }
    }
}

/// Returns the message of an event, without a copy: text in JSON, binary in protobuf.
fn message(mut event: Bytes, form: Form) -> impl Buf {
    let header = match form {
        Form::Json | Form::Table => text_header(event.len()),
        Form::Protobuf => {
            event.advance(EVENT_LENGTH_BYTES);
            binary_header(event.len())
        }
    };
    Bytes::from(header).chain(event)
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), mut message: impl Buf) -> io::Result<()> {
    let written = async {
        writer.write_all_buf(&mut message).await?;
        writer.flush().await
    };
    timeout(WRITE_STALL_MAX, written).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
