//! A copy of a service account's directory for the workload, whose `ca.crt` also trusts Listless.
//!
//! It has the kubelet's layout, so that clients never see half of a change: the files are links
//! into `..data`, a link to a directory that is replaced as a whole. Invariant: an empty token is
//! never written, and a read or write error leaves the copy unchanged.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// A directory and its copy.
pub struct Mirror {
    source: PathBuf,
    target: PathBuf,
    /// The authority that precedes the cluster's own.
    authority_pem: String,
    written: Option<Files>,
}

/// The reason why the copy is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be read or written.
    #[error("{}", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A required file of a service account is missing or empty.
    #[error("{} is missing or empty", .0.display())]
    Missing(PathBuf),
}

/// The result of a check of the source.
#[derive(Debug, PartialEq, Eq)]
pub enum Look {
    /// The source is unchanged.
    Same,
    /// The copy is new, and the token may be.
    Written,
}

/// File names and contents.
type Files = BTreeMap<String, File>;

#[derive(Clone, PartialEq, Eq)]
struct File {
    content: Vec<u8>,
    mode: u32,
}

/// The bit of a directory whose files get its group.
const SET_GROUP: u32 = 0o2000;
const TOKEN: &str = "token";
const AUTHORITIES: &str = "ca.crt";
/// The link that is replaced on each change.
const DATA: &str = "..data";
const NEXT_DATA: &str = "..data_tmp";

// === impl Mirror ===

impl Mirror {
    /// Returns a mirror. It reads and writes nothing before the first check.
    pub fn new(source: PathBuf, target: PathBuf, authority_pem: String) -> Self {
        Self { source, target, authority_pem, written: None }
    }

    /// Reports whether this directory has had a copy.
    pub fn is_in(target: &Path) -> bool {
        target.join(DATA).symlink_metadata().is_ok()
    }

    /// Copies the source if it has changed.
    pub fn look(&mut self, now: SystemTime) -> Result<Look, Error> {
        let mut files = self.read()?;
        for required in [TOKEN, AUTHORITIES] {
            let is_there = |file: &File| !file.content.trim_ascii().is_empty();
            if !files.get(required).is_some_and(is_there) {
                return Err(Error::Missing(self.source.join(required)));
            }
        }
        if let Some(bundle) = files.get_mut(AUTHORITIES) {
            bundle.content.splice(..0, self.authority_pem.bytes());
        }
        if self.written.as_ref() == Some(&files) {
            return Ok(Look::Same);
        }
        self.write(&files, now)?;
        self.written = Some(files);
        Ok(Look::Written)
    }

    /// Returns the last copied token.
    pub fn token(&self) -> Option<&str> {
        let file = self.written.as_ref()?.get(TOKEN)?;
        std::str::from_utf8(file.content.trim_ascii()).ok()
    }

    /// Reads all files of the kubelet's current directory, at one moment.
    fn read(&self) -> Result<Files, Error> {
        let current = fs::canonicalize(self.source.join(DATA));
        let directory = current.unwrap_or_else(|_| self.source.clone());
        let failed = |source| Error::File { path: directory.clone(), source };
        let mut files = Files::new();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let failed = |source| Error::File { path: path.clone(), source };
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = fs::metadata(&path).map_err(failed)?;
            if name.starts_with("..") || !metadata.is_file() {
                continue;
            }
            let content = fs::read(&path).map_err(failed)?;
            let mode = metadata.permissions().mode() & 0o777;
            files.insert(name, File { content, mode });
        }
        Ok(files)
    }

    fn write(&self, files: &Files, now: SystemTime) -> Result<(), Error> {
        let target = &self.target;
        let live = || fs::read_link(target.join(DATA)).ok();
        let before = live();
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("..{}.{:09}", since.as_secs(), since.subsec_nanos());
        let directory = target.join(&name);
        let result = self.write_generation(files, &directory, Path::new(&name));
        // A reader of the previous generation may finish. After an error, either may be the live
        // one.
        let keep = [before, live()];
        self.remove_but(&keep);
        result
    }

    fn write_generation(&self, files: &Files, directory: &Path, name: &Path) -> Result<(), Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        fs::create_dir_all(directory).map_err(failed(directory))?;
        // The workload may have another user, whatever the umask is. Files inherit the group of an `fsGroup` by a bit
        // that the new directory has inherited, too.
        let inherited = fs::metadata(directory).map_err(failed(directory))?.permissions().mode();
        let readable = Permissions::from_mode(0o755 | (inherited & SET_GROUP));
        fs::set_permissions(directory, readable).map_err(failed(directory))?;
        for (file, File { content, mode }) in files {
            let path = directory.join(file);
            write_file(&path, content, *mode).map_err(failed(&path))?;
        }
        let (data, next) = (self.target.join(DATA), self.target.join(NEXT_DATA));
        replace_link(name, &next, &data).map_err(failed(&data))?;
        for file in files.keys() {
            let (link, leads_to) = (self.target.join(file), Path::new(DATA).join(file));
            if fs::read_link(&link).ok().as_deref() != Some(&leads_to) {
                let next = self.target.join(format!("..{file}_tmp"));
                replace_link(&leads_to, &next, &link).map_err(failed(&link))?;
            }
        }
        Ok(())
    }

    /// Removes old generations and dead links. A failure is harmless.
    fn remove_but(&self, keep: &[Option<PathBuf>]) {
        let Ok(entries) = fs::read_dir(&self.target) else { return };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), PathBuf::from(entry.file_name()));
            let is_ours = name.to_str().is_some_and(|name| {
                name.strip_prefix("..")
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            });
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let _left = if is_ours && !keep.contains(&Some(name)) {
                fs::remove_dir_all(&path)
            } else if is_link && !path.exists() {
                fs::remove_file(&path)
            } else {
                Ok(())
            };
        }
    }
}

fn write_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    // The workload must be able to read the files whatever the umask is.
    file.set_permissions(Permissions::from_mode(mode))
}

/// Replaces a link atomically.
fn replace_link(leads_to: &Path, next: &Path, link: &Path) -> io::Result<()> {
    match fs::remove_file(next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(leads_to, next)?;
    fs::rename(next, link)
}

#[cfg(test)]
mod tests;
