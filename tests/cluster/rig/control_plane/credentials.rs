//! The files by which an apiserver knows its users.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::User;

/// Writes the users' tokens and the keys of service accounts.
pub fn write(folder: &Path) -> Result<()> {
    write_tokens(folder, 0)?;
    let key = rcgen::KeyPair::generate()?;
    fs::write(folder.join("service-account.key"), key.serialize_pem())?;
    fs::write(folder.join("service-account.pub"), key.public_key_pem())?;
    Ok(())
}

/// Writes the users' own tokens, a spare one of the admin and its successor.
pub fn write_tokens(folder: &Path, number: u32) -> Result<()> {
    let own = User::ALL.into_iter().map(|user| user.token_file_line(&user.token()));
    let spare = [number, number + 1].map(|it| User::Admin.token_file_line(&spare_token(it)));
    let lines: String = own.chain(spare).collect();
    Ok(fs::write(folder.join("tokens.csv"), lines)?)
}

/// A temporary token of the admin.
pub fn spare_token(number: u32) -> String {
    format!("spare-token-{number}")
}
