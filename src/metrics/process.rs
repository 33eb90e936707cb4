//! Metrics of the process, read from /proc on each scrape. Other systems have none.

use std::{fmt::Write, fs};

use super::metric::{Kind, Metric};
use super::table::{
    PROCESS_CPU, PROCESS_MAX_FDS, PROCESS_OPEN_FDS, PROCESS_RESIDENT, PROCESS_START,
    PROCESS_THREADS, PROCESS_VIRTUAL,
};

/// The clock ticks per second in /proc, the same on every Linux that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// Appends the metrics of this process in the text format.
pub(super) fn render(out: &mut String) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = |name| status_number(&status, name).map(|value| value * 1024.0);
    write(out, &PROCESS_RESIDENT, kilobytes("VmRSS:"));
    write(out, &PROCESS_VIRTUAL, kilobytes("VmSize:"));
    write(out, &PROCESS_THREADS, status_number(&status, "Threads:"));
    write(out, &PROCESS_OPEN_FDS, open_fds());
    write(out, &PROCESS_MAX_FDS, max_fds());
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = |field| stat_number(&stat, field);
    let cpu = ticks(UTIME).zip(ticks(STIME)).map(|(user, system)| user + system);
    write(out, &PROCESS_CPU, cpu.map(|ticks| ticks / TICKS_PER_SECOND));
    let start = ticks(START).zip(boot_time());
    write(out, &PROCESS_START, start.map(|(ticks, boot)| boot + ticks / TICKS_PER_SECOND));
}

/// The index of a field in /proc/self/stat, counted behind the parenthesised name.
const UTIME: usize = 11;
const STIME: usize = 12;
const START: usize = 19;

fn write(out: &mut String, metric: &Metric, value: Option<f64>) {
    let Some(value) = value else { return };
    let (name, help) = (metric.name, metric.help);
    let kind = if metric.kind == Kind::Counter { "counter" } else { "gauge" };
    write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n")
        .expect("writing to a string cannot fail");
}

fn status_number(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn stat_number(stat: &str, field: usize) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(field)?.parse().ok()
}

fn open_fds() -> Option<f64> {
    // The open directory is one more descriptor.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_has_memory_threads_files_and_a_start() {
        let mut out = String::new();
        render(&mut out);
        let value = |name: &str| {
            let line = out.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse::<f64>().ok()).expect(name)
        };
        for name in ["process_resident_memory_bytes ", "process_threads ", "process_open_fds "] {
            assert!(value(name) > 0.0, "{name}");
        }
        assert!(value("process_start_time_seconds ") > 1.6e9, "after September 2020");
        assert!(value("process_cpu_seconds_total ") >= 0.0);
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 9000 1 2";
        assert_eq!(stat_number(stat, UTIME), Some(150.0));
        assert_eq!(stat_number(stat, STIME), Some(50.0));
        assert_eq!(stat_number(stat, START), Some(9000.0));
    }
}
