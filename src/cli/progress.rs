//! A line about work that takes over a second, for people who wait at a terminal.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// The time after which people wonder.
const PATIENCE: Duration = Duration::from_secs(1);

/// Does some work. If it takes long, standard error shows the awaited thing, if it is a terminal.
pub(super) fn waiting_for<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let show = || {
        if io::stderr().is_terminal() {
            // The work goes on, whether or not people can see this.
            let _unwritten = writeln!(io::stderr(), "waiting for {what} …");
        }
    };
    shown_after(PATIENCE, show, work)
}

/// Does some work, and calls `show` if it takes longer than `patience`.
fn shown_after<T>(patience: Duration, show: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    let (done, ended) = mpsc::sync_channel::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                show();
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn only_work_that_takes_long_is_shown() {
        let shown = AtomicBool::new(false);
        let show = || shown.store(true, Ordering::SeqCst);
        assert_eq!(shown_after(Duration::from_secs(600), show, || 7), 7);
        assert!(!shown.load(Ordering::SeqCst));
        let (called, is_called) = mpsc::sync_channel(1);
        let show = move || called.send(()).unwrap();
        shown_after(Duration::ZERO, show, || is_called.recv().unwrap());
    }
}
