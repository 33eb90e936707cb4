//! Helm, straight and through Listless with the example configuration that caches its releases.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::chart::helm::{Helm, Major};
use crate::clusters::Cluster;
use crate::forms::EXPECTED;
use crate::rig::control_plane::{User, Version};
use crate::rig::proxy_process::ProxyProcess;

/// The example that its documentation names.
const CONFIGURATION: &str = include_str!("../../config/examples/workstation.yaml");
const NAMESPACE: &str = "empty";
/// The runs before the one that is counted.
const WARM_RUNS: usize = 3;
const PAUSE: Duration = Duration::from_millis(300);

const READS: &[&[&str]] = &[
    &["list"],
    &["list", "--all-namespaces"],
    &["list", "--output", "json"],
    &["list", "--filter", "one"],
    &["status", "one"],
    &["status", "one", "--output", "json"],
    &["status", "two", "--revision", "1"],
    &["history", "one"],
    &["history", "one", "--output", "yaml"],
    &["get", "values", "one"],
    &["get", "manifest", "one"],
    &["get", "metadata", "two"],
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_shows_the_same_releases_through_listless() {
    for major in Major::ALL {
        shows_the_same(major).await;
    }
}

async fn shows_the_same(major: Major) {
    let Some(cluster) = Cluster::take_aged(Version::V1_36).await else { return };
    let plane = cluster.plane();
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let Some(straight) = Helm::get(major, Some(&kubeconfig)) else { return };
    let Some(through) = Helm::get(major, Some(proxy.kubeconfig())) else { return };
    let chart = TempDir::with_prefix("chart-").expect("a folder");
    write_chart(chart.path()).expect("a chart");
    let place = chart.path().display().to_string();
    for arguments in [
        &["install", "one", &place][..],
        &["install", "two", &place],
        &["upgrade", "one", &place, "--set", "value=second"],
        &["upgrade", "one", &place, "--set", "value=third"],
    ] {
        straight.output(&[arguments, &["--namespace", NAMESPACE]].concat()).expect("a release");
    }
    let lists = async || plane.request_counts().await.expect("metrics").ended("LIST", "secrets");
    let (mut differences, mut sums) = (Vec::new(), [0, 0]);
    for arguments in READS {
        let arguments = [*arguments, &["--namespace", NAMESPACE]].concat();
        let before = lists().await;
        let expected = straight.output(&arguments).expect("an output");
        sums[0] += lists().await - before;
        for run in 0..=WARM_RUNS {
            let before = lists().await;
            let given = through.output(&arguments).expect("an output");
            if run == WARM_RUNS {
                sums[1] += lists().await - before;
            }
            if ageless(&given) != ageless(&expected) {
                differences.push(format!("{arguments:?}\n{expected}\n{given}"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    for release in ["one", "two"] {
        straight.output(&["uninstall", release, "--namespace", NAMESPACE]).expect("no release");
    }
    let [one, other] = sums;
    eprintln!(
        "proof: {major:?}: {} commands of helm, {} differences; LISTs of secrets at the apiserver: \
         {one} straight, {other} through Listless",
        READS.len(),
        differences.len()
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    if EXPECTED.releases_from_memory {
        assert!(other * 10 <= one, "{other} of {one} LISTs remain\n{}", proxy.log());
    }
}

/// An output without the ages at the ends of lines: the runs are some seconds apart.
fn ageless(output: &str) -> String {
    let line = |line: &str| match line.rsplit_once(' ') {
        Some((before, age)) if is_age(age) => before.trim_end().to_owned(),
        _ => line.to_owned(),
    };
    output.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn is_age(word: &str) -> bool {
    word.starts_with(|it: char| it.is_ascii_digit()) && word.ends_with(['s', 'm', 'h'])
}

fn write_chart(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("templates"))?;
    fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: demo\nversion: 1.0.0\n")?;
    fs::write(folder.join("values.yaml"), "value: first\n")?;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-map\n\
               data:\n  value: {{ .Values.value }}\n";
    Ok(fs::write(folder.join("templates/map.yaml"), map)?)
}
