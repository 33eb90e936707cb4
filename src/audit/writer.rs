//! The thread that writes the audit file and rotates it by size.
//!
//! An error loses lines, but never a request. It is logged once when it begins, and every lost line
//! is counted.

use std::fs::{self, File, OpenOptions};
use std::{
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use crate::{
    config::AuditFile,
    metrics::{AuditResult, Metrics},
};

/// The queue to the thread. Dropping it ends the thread after the last line.
pub(super) struct Writer {
    lines: SyncSender<Vec<u8>>,
    thread: JoinHandle<()>,
}

/// The state of the thread.
struct Output {
    path: PathBuf,
    bytes_max: u64,
    /// The open file. `None` before the first line and after an error.
    open: Option<Open>,
    metrics: Metrics,
    health: Health,
}

struct Open {
    file: File,
    bytes: u64,
}

/// The result of the last write. A full disk is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Good,
    Bad,
}

/// The maximum number of queued lines.
const LINES_MAX: usize = 4096;

/// The maximum size of one batch of lines.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// The file mode: only the owner reads and writes.
const MODE: u32 = 0o600;

// === impl Writer ===

impl Writer {
    /// Starts the thread. It opens the file with the first line.
    pub(super) fn start(file: &AuditFile, metrics: Metrics) -> io::Result<Self> {
        let (lines, taken) = sync_channel(LINES_MAX);
        let (path, bytes_max) = (file.file.clone(), file.bytes_max);
        let output = Output { path, bytes_max, open: None, metrics, health: Health::Good };
        let thread = thread::Builder::new().name("audit".to_owned());
        let thread = thread.spawn(move || output.run(&taken))?;
        Ok(Self { lines, thread })
    }

    /// Queues a line. Returns `false` if the queue is full.
    pub(super) fn take(&self, line: Vec<u8>) -> bool {
        self.lines.try_send(line).is_ok()
    }

    /// Waits until all lines are written.
    pub(super) fn close(self) {
        drop(self.lines);
        if self.thread.join().is_err() {
            tracing::error!("the audit thread panicked");
        }
    }
}

// === impl Output ===

impl Output {
    fn run(mut self, taken: &Receiver<Vec<u8>>) {
        while let Ok(mut batch) = taken.recv() {
            // The current size of the file. An error here also shows on the first write.
            let _ = self.opened();
            let mut lines = 1;
            while batch.len() < BATCH_BYTES_MAX
                && let Ok(line) = taken.try_recv()
            {
                if self.is_too_much(batch.len() + line.len()) {
                    self.write(&batch, lines);
                    (batch, lines) = (Vec::new(), 0);
                }
                batch.extend_from_slice(&line);
                lines += 1;
            }
            self.write(&batch, lines);
        }
    }

    fn write(&mut self, batch: &[u8], lines: u64) {
        match self.try_write(batch) {
            Ok(()) => {
                self.health = Health::Good;
                self.metrics.audited(AuditResult::Written, lines);
            }
            Err(error) => {
                if self.health == Health::Good {
                    let file = self.path.display();
                    tracing::error!(%file, %error, "cannot write the audit file: lines are lost");
                }
                self.health = Health::Bad;
                self.open = None;
                self.metrics.audited(AuditResult::Failed, lines);
            }
        }
    }

    fn try_write(&mut self, batch: &[u8]) -> io::Result<()> {
        let held = self.opened()?.bytes;
        if held > 0 && self.is_too_much(batch.len()) {
            self.open = None;
            fs::rename(&self.path, older(&self.path))?;
        }
        let open = self.opened()?;
        open.file.write_all(batch)?;
        open.bytes += batch.len() as u64;
        Ok(())
    }

    fn opened(&mut self) -> io::Result<&mut Open> {
        match &mut self.open {
            Some(open) => Ok(open),
            closed => Ok(closed.insert(Open::at(&self.path)?)),
        }
    }

    /// Reports whether `more` bytes would exceed the maximum size.
    fn is_too_much(&self, more: usize) -> bool {
        self.open.as_ref().map_or(0, |open| open.bytes) + more as u64 > self.bytes_max
    }
}

// === impl Open ===

impl Open {
    fn at(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }
}

/// Returns the path of the rotated file.
fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn written(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    fn write(file: &Path, bytes_max: u64, lines: &[&str]) -> Metrics {
        let metrics = Metrics::new();
        let file = AuditFile { file: file.to_owned(), bytes_max };
        let writer = Writer::start(&file, metrics.clone()).expect("a thread");
        for line in lines {
            assert!(writer.take(format!("{line}\n").into_bytes()));
        }
        writer.close();
        metrics
    }

    #[test]
    fn lines_are_appended_and_only_the_owner_reads_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("audit");
        let metrics = write(&file, 1000, &["a", "b"]);
        write(&file, 1000, &["c"]);
        assert_eq!(written(&file), "a\nb\nc\n");
        let mode = fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert!(metrics.render().contains("listless_audit_lines_total{result=\"written\"} 2"));
    }

    #[test]
    fn a_file_over_the_maximum_size_is_rotated() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("audit");
        for line in ["aaaa", "bbbb", "cccc", "dddd", "eeee"] {
            write(&file, 12, &[line]);
        }
        assert_eq!(written(&file), "eeee\n");
        assert_eq!(written(&older(&file)), "cccc\ndddd\n");
        write(&file, 12, &["ffff", "gggg", "hhhh"]);
        assert_eq!(written(&file), "gggg\nhhhh\n");
        assert_eq!(written(&older(&file)), "eeee\nffff\n");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        let metrics = write(&directory.path().join("missing/audit"), 1000, &["a", "b", "c"]);
        assert!(metrics.render().contains("listless_audit_lines_total{result=\"failed\"} 3"));
    }
}
