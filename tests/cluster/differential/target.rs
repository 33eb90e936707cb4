//! The target of a case: an apiserver, Listless, or a simulator, by address and token.

use anyhow::Result;

use super::case::Caller;
use crate::rig::client::{Answer, Client, Protocol, Request, Server};
use crate::rig::control_plane::User;

/// The kind of a target: a cache must describe its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An apiserver, real or simulated: no `Cache-Status`.
    Apiserver,
    /// A Listless with a memory: `Cache-Status` on every answer.
    Listless,
}

/// An address and the credentials of every caller, over one HTTP version.
#[derive(Clone, Debug)]
pub struct Target {
    server: Server,
    admin_token: String,
    kind: Kind,
    clients: Vec<(Caller, Client)>,
}

// === impl Target ===

impl Target {
    /// A target; `admin_token` stands for the administrator, all others use their own tokens.
    pub fn new(server: &Server, admin_token: &str, kind: Kind, protocol: Protocol) -> Self {
        let mut callers: Vec<Caller> = User::ALL.into_iter().map(Caller::User).collect();
        callers.extend([Caller::Anonymous, Caller::UnknownToken]);
        let client = |caller: Caller| {
            let token = token(caller, admin_token);
            (caller, Client::new(server, token.as_deref(), protocol))
        };
        Self {
            server: server.clone(),
            admin_token: admin_token.to_owned(),
            kind,
            clients: callers.into_iter().map(client).collect(),
        }
    }

    /// The same target over another HTTP version.
    pub fn over(&self, protocol: Protocol) -> Self {
        Self::new(&self.server, &self.admin_token, self.kind, protocol)
    }

    /// See [`Kind`].
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Sends a request as a caller.
    pub async fn send(&self, caller: Caller, request: Request) -> Result<Answer> {
        let known = self.clients.iter().find(|(held, _)| *held == caller);
        let (_, client) = known.expect("there is a client for every caller");
        client.send(request).await
    }
}

fn token(caller: Caller, admin_token: &str) -> Option<String> {
    match caller {
        Caller::User(User::Admin) => Some(admin_token.to_owned()),
        Caller::User(user) => Some(user.token()),
        Caller::Anonymous => None,
        Caller::UnknownToken => Some("nobody-issued-this".to_owned()),
    }
}
