//! The mark of Listless's own kubeconfigs. They lead clients to Listless, never to the apiserver.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// The start of the first line of each kubeconfig that Listless writes or prints, in every version.
pub const KUBECONFIG_MARK: &str = "# Written by listless";

/// The writer of a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Listless, in any version.
    Listless,
    /// Another program, or the user.
    Other,
    /// None: the file is empty or does not exist.
    Nobody,
}

/// Returns the writer of a file.
pub fn writer_of(file: &Path) -> io::Result<Writer> {
    let mut begin = Vec::new();
    let read = File::open(file)
        .and_then(|open| open.take(KUBECONFIG_MARK.len() as u64).read_to_end(&mut begin));
    match read {
        Ok(_) if begin.is_empty() => Ok(Writer::Nobody),
        Ok(_) if begin == KUBECONFIG_MARK.as_bytes() => Ok(Writer::Listless),
        Ok(_) => Ok(Writer::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Writer::Nobody),
        Err(error) => Err(error),
    }
}

/// Reports whether Listless wrote a file. It opens regular files only: a pipe can be read once.
pub(super) fn is_ours(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file())
        && matches!(writer_of(file), Ok(Writer::Listless))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_listless_has_the_mark() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config");
        let writer = || (writer_of(&file).expect("readable"), is_ours(&file));
        assert_eq!(writer(), (Writer::Nobody, false));
        for (text, expected) in [
            ("", Writer::Nobody),
            ("kind: Config\n", Writer::Other),
            ("# Written by li", Writer::Other),
            ("# Written by listless; replaced whenever it starts.\n", Writer::Listless),
        ] {
            fs::write(&file, text).expect("written");
            assert_eq!(writer(), (expected, expected == Writer::Listless), "{text}");
        }
        assert!(!is_ours(directory.path()));
    }
}
