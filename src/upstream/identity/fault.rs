//! Failures of Listless's own credentials, in words.
//!
//! Invariant: no text repeats a credential. What a plugin printed on its standard output, its
//! arguments and its environment are left out, and so are long words of its error output.

use std::sync::Arc;

use kube::{
    client::AuthError,
    config::{AuthInfo, KubeconfigError},
};

/// The reason why there are no credentials, in words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::upstream) struct CredentialsError(Arc<str>);

/// The limit of the repeated error output of a plugin, in characters.
const OUTPUT_MAX: usize = 300;

/// The length from which a word of that output may be a credential.
const SECRET_MIN: usize = 32;

// === impl CredentialsError ===

impl CredentialsError {
    pub(super) fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Describes a failure of the credentials of this user.
    pub(super) fn of(error: &(dyn std::error::Error + 'static), user: &AuthInfo) -> Self {
        let auth = match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Auth(auth)) => Some(auth),
            _ => error.downcast_ref::<AuthError>(),
        };
        match auth {
            Some(auth) => Self::new(of_authentication(auth, user)),
            None => Self::new(format!("client-certificate and client-key: {error}")),
        }
    }
}

fn of_authentication(error: &AuthError, user: &AuthInfo) -> String {
    if let Some(provider) = &user.auth_provider {
        let name = &provider.name;
        return format!("auth-provider {name:?} gives no token; use exec with a credential plugin");
    }
    let exec = user.exec.as_ref();
    let command = exec.and_then(|exec| exec.command.as_deref()).unwrap_or_default();
    match error {
        AuthError::AuthExecStart(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let hint = exec.and_then(|exec| exec.install_hint.as_deref()).map(one_line);
            let hint = hint.map_or_else(String::new, |hint| format!(": {hint}"));
            format!("exec command {command:?} was not found{hint}")
        }
        AuthError::AuthExecStart(error) => format!("cannot run exec command {command:?}: {error}"),
        AuthError::AuthExecRun { out, .. } => {
            let output = one_line(&String::from_utf8_lossy(&out.stderr));
            let output = if output.is_empty() { output } else { format!(": {output}") };
            format!("exec command {command:?} failed with {}{output}", out.status)
        }
        AuthError::AuthExecParse(_) => {
            format!("exec command {command:?} printed no ExecCredential in JSON")
        }
        AuthError::ExecPluginFailed => {
            format!("exec command {command:?} printed an ExecCredential without a status")
        }
        AuthError::MalformedTokenExpirationDate(_) => {
            format!("exec command {command:?} printed an expirationTimestamp that is not a time")
        }
        AuthError::UnrefreshableTokenResponse => {
            format!("exec command {command:?} printed another kind of credential than before")
        }
        AuthError::MissingCommand => "exec has no command".to_owned(),
        AuthError::ReadTokenFile(error, path) => format!("tokenFile {}: {error}", path.display()),
        AuthError::InvalidBearerToken(_) => NOT_A_TOKEN.to_owned(),
        AuthError::InvalidBasicAuth(_) => {
            "username or password has a character that no header allows".to_owned()
        }
        // The texts of the others are constant.
        other => other.to_string(),
    }
}

/// The text about a token that cannot be sent.
pub(super) const NOT_A_TOKEN: &str = "the token has a character that no header allows";

/// Returns the text on one line, without words that may be credentials.
fn one_line(text: &str) -> String {
    let words = text.split_whitespace().map(|word| match word.chars().count() {
        0..SECRET_MIN => word,
        _ => "…",
    });
    let line = words.collect::<Vec<_>>().join(" ");
    line.chars().filter(|letter| !letter.is_control()).take(OUTPUT_MAX).collect()
}

/// Describes a kubeconfig that is not one, without its content.
pub(super) fn of_kubeconfig(error: &KubeconfigError) -> String {
    let KubeconfigError::Parse(error) = error else { return error.to_string() };
    let error = error.without_snippet();
    let place = error.location().map_or_else(String::new, |place| {
        format!("line {}, column {}: ", place.line(), place.column())
    });
    let text = error.to_string();
    // Quoted texts may be values. What follows is the place again, or advice to programmers.
    let outside = text.split('"').step_by(2).collect::<Vec<_>>().join("…");
    let end = [" at line ", ", set "].iter().filter_map(|mark| outside.find(mark)).min();
    format!("{place}{}", &outside[..end.unwrap_or(outside.len())])
}
