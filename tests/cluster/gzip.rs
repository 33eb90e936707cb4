//! Compressed lists whose parts stem from several states, unpacked by readers of other languages.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::clusters::skipped;
use crate::rig::artifact::source_folder;
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::control_plane::Version;
use crate::rig::load_data::LoadData;
use crate::rig::wait::until_hit;
use crate::unmodified::stage::{Scene, Stage};

const DATA: LoadData = LoadData { namespace: "gzip", pods: 200, pollers: 4, apps: 20, nodes: 5 };

const LIMIT: Duration = Duration::from_secs(30);

const FORMS: [&str; 3] = [
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
];

/// A program that writes the text of a gzip file.
struct Reader {
    tool: &'static str,
    arguments: &'static [&'static str],
    /// Its source in `clients/gzip`.
    source: Option<&'static str>,
}

const READERS: [Reader; 5] = [
    Reader { tool: "gzip", arguments: &["-dc"], source: None },
    Reader { tool: "python3", arguments: &[], source: Some("unpack.py") },
    Reader { tool: "node", arguments: &[], source: Some("unpack.js") },
    Reader { tool: "java", arguments: &[], source: Some("Unpack.java") },
    Reader { tool: "go", arguments: &["run"], source: Some("unpack.go") },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_every_language_unpack_a_list_whose_parts_stem_from_several_states() {
    let Some(stage) = Stage::take(Version::V1_36).await else { return };
    let scene = stage.scene(DATA.namespace).await.expect("a scene");
    DATA.load(&scene.straight).await.expect("pods");
    let through = scene.proxy.client(Protocol::Http1);
    let folder = TempDir::new().expect("a folder");
    for selection in ["", "?labelSelector=poller%3D2"] {
        let path = format!("{}{selection}", DATA.collection());
        for form in FORMS {
            // Each state takes over the parts that have not changed since the one before it.
            for pod in [3, 102, 199] {
                compressed(&through, &path, form).await.expect("an answer");
                change(&scene, pod).await.expect("a change");
            }
            let (packed, plain) = same_state(&through, &path, form).await.expect("an answer");
            unpack(folder.path(), &packed, &plain);
        }
        curl(&scene, &through, &path).await.expect("an answer to curl");
    }
}

/// Has every reader unpack a body.
fn unpack(folder: &Path, packed: &Answer, plain: &Answer) {
    let file = folder.join("body.gz");
    std::fs::write(&file, &packed.body).expect("a file");
    for Reader { tool, arguments, source } in READERS {
        let source = source.map(|name| source_folder("clients/gzip").join(name));
        let mut command = Command::new(tool);
        command.args(arguments).args(source).arg(&file);
        match command.output() {
            Err(error) => skipped(tool, &error.to_string()),
            Ok(output) => {
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{tool}: {error}");
                assert!(output.stdout == plain.body, "{tool}: another text");
            }
        }
    }
}

/// Has curl read a list, and compares it with the same list without compression.
async fn curl(scene: &Scene<'_>, through: &Client, path: &str) -> Result<()> {
    let url = format!("https://{}{path}", scene.proxy.server().authority());
    let mut command = Command::new("curl");
    // Another name than its own, for which the apiserver indents.
    command.args(["--silent", "--show-error", "--insecure", "--compressed", "--user-agent", "rig"]);
    command.args(["--header", "Accept: application/json", "--header"]);
    command.arg(format!("Authorization: Bearer {}", scene.proxy.token().context("no token")?));
    match command.arg(&url).output() {
        Err(error) => skipped("curl", &error.to_string()),
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "curl: {error}");
            let plain = through.get(path).await?;
            ensure!(output.stdout == plain.body, "curl: another text");
        }
    }
    Ok(())
}

async fn change(scene: &Scene<'_>, pod: u32) -> Result<()> {
    let stamp = format!("{:?}", std::time::SystemTime::now());
    let patch = json!({"metadata": {"annotations": {"example.com/changed": stamp}}});
    let target = format!("{}/{}", DATA.collection(), DATA.name(pod));
    let patch = Request::new(Method::PATCH, &target)
        .body("application/merge-patch+json", patch.to_string());
    scene.proxy.client(Protocol::Http1).send(patch).await?.successful().map(drop)
}

/// Returns a compressed list, and the same list without compression.
async fn same_state(through: &Client, path: &str, form: &str) -> Result<(Answer, Answer)> {
    let begun = Instant::now();
    loop {
        let first = plain(through, path, form).await?;
        let packed = compressed(through, path, form).await?;
        let second = plain(through, path, form).await?;
        // Neither an event nor an age came in between.
        if first.body == second.body {
            return Ok((packed, first));
        }
        ensure!(begun.elapsed() < LIMIT, "{path} as {form} never stays the same");
    }
}

async fn plain(through: &Client, path: &str, form: &str) -> Result<Answer> {
    until_hit(through, &Request::get(path).header("Accept", form), LIMIT).await
}

async fn compressed(through: &Client, path: &str, form: &str) -> Result<Answer> {
    let request = Request::get(path).header("Accept", form).header("Accept-Encoding", "gzip");
    let answer = until_hit(through, &request, LIMIT).await?;
    ensure!(answer.header("content-encoding") == Some("gzip"), "{path} as {form}");
    Ok(answer)
}
