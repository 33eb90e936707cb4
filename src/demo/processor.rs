//! The CPU time of this process's threads of one name, if the kernel reports it.

use std::{fs, path::Path, time::Duration};

/// The unit of times in /proc: a hundredth of a second on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// The fields for user and system time in a thread's `stat`, counted behind its name.
const USER_FIELD: usize = 11;
const SYSTEM_FIELD: usize = 12;

/// Returns the sum over all threads of this name. `None` if the kernel does not report it.
pub(super) fn time_of_threads(name: &str) -> Option<Duration> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let ticks: u32 =
        tasks.filter_map(|task| ticks_of(&task.ok()?.path(), name)).fold(0, u32::saturating_add);
    Some(TICK * ticks)
}

fn ticks_of(task: &Path, name: &str) -> Option<u32> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    parse(&stat, name)
}

/// Parses one `stat` line. The name is in parentheses and may contain any character.
fn parse(stat: &str, name: &str) -> Option<u32> {
    let (head, fields) = stat.rsplit_once(')')?;
    let (_, thread) = head.split_once('(')?;
    if thread != name {
        return None;
    }
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u32>().ok();
    Some(ticks(USER_FIELD)?.saturating_add(ticks(SYSTEM_FIELD)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_read_behind_any_name() {
        let stat = "77 (a ) b) S 1 1 1 0 -1 4194304 100 0 0 0 25 17 0 0 20 0 1 0 5000 1 1";
        assert_eq!(parse(stat, "a ) b"), Some(42));
        assert_eq!(parse(stat, "other"), None);
        assert_eq!(parse("garbage", "a"), None);
    }
}
