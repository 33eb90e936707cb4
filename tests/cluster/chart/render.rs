//! Helm's output for the chart without a cluster: linted, rendered for every version, refused.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::helm::{Helm, Major};
use super::objects::read;
use super::{EXAMPLES, NAMESPACE, RELEASE, chart, example, repository};

/// The oldest version that the chart supports, up to the newest of the suites.
const VERSIONS: std::ops::RangeInclusive<u8> = 29..=36;
/// The version that the golden files are rendered for.
const WRITTEN: &str = "1.33.0";

/// Wrong values, and the part that the error message must name.
const WRONG: &[(&str, &[&str])] = &[
    ("injectr.enabled=true", &["injectr", "not allowed"]),
    ("injector.replica=2", &["/injector", "replica", "not allowed"]),
    ("injector.replicas=0", &["/injector/replicas"]),
    ("injector.replicas=two", &["/injector/replicas"]),
    ("injector.webhook.failurePolicy=ignore", &["/injector/webhook/failurePolicy", "Ignore"]),
    ("injector.webhook.timeoutSeconds=31", &["/injector/webhook/timeoutSeconds"]),
    ("injector.webhook.url=http://injector", &["/injector/webhook/url"]),
    (
        "injector.webhook.namespaceExpressions[0].key=a",
        &["/injector/webhook/namespaceExpressions/0"],
    ),
    ("injector.port=70000", &["/injector/port"]),
    ("injector.resources.limits.memory=lots", &["/injector/resources/limits/memory"]),
    ("injector.sidecar.imagePullSecrets[0]=registry", &["/injector/sidecar/imagePullSecrets/0"]),
    ("injector.sidecar.mode=off", &["/injector/sidecar/mode", "observe"]),
    ("injector.sidecar.port=443", &["/injector/sidecar/port"]),
    ("injector.sidecar.resources.limits.gpu=1", &["/injector/sidecar/resources/limits", "gpu"]),
    ("image.digest=sha256:abc", &["/image/digest"]),
    ("image.pullPolicy=Sometimes", &["/image/pullPolicy", "IfNotPresent"]),
    ("test.namespace=Shop", &["/test/namespace"]),
    ("image.tag=a/b", &["/image/tag"]),
    ("listenAddress=everywhere", &["/listenAddress"]),
    ("log.format=yaml", &["/log/format", "json"]),
    ("commonLabels.a=1", &["/commonLabels/a"]),
    ("fullnameOverride=Listless", &["/fullnameOverride"]),
    ("gateway.service.type=ExternalName", &["/gateway/service/type"]),
    ("gateway.service.sessionAffinity=Cookie", &["/gateway/service/sessionAffinity"]),
    ("gateway.workerThreads=65", &["/gateway/workerThreads"]),
    ("gateway.autoscaling.targetCPUUtilizationPercentage=0", &["/gateway/autoscaling"]),
    ("gateway.configuration.mode=watch", &["/gateway/configuration/mode", "observe"]),
    ("gateway.configuration.cache.memoryLimit=much", &["/gateway/configuration/cache/memoryLimit"]),
    ("gateway.configuration.cache.size=1", &["/gateway/configuration/cache", "size"]),
    ("gateway.configuration.kind=ProxyConfiguration", &["/gateway/configuration", "kind"]),
    ("gateway.configuration.cache.rules[0].start=soon", &["/cache/rules/0", "start"]),
    (
        "gateway.configuration.cache.rules[0].resources[0]=deployments",
        &["/cache/rules/0/resources/0", "pattern"],
    ),
    ("gateway.tls.certManager.enabled=true", &["issuerRef", "name"]),
    ("gateway.flowControl.nominalConcurrencyShares=-1", &["nominalConcurrencyShares"]),
    ("observability.podMonitor.interval=often", &["/observability/podMonitor/interval"]),
    ("observability.dashboard.label=a", &["/observability/dashboard", "label"]),
    ("gateway.enabled=true", &["gateway.tls", "secretName", "certManager"]),
    ("injector.serviceAccount.create=false", &["injector.serviceAccount", "name"]),
    (
        "gateway.enabled=true,gateway.tls.secretName=a,\
         gateway.configuration.cache.rules[0].resources={*}",
        &["gateway.configuration.cache.rules", "gateway.rbac"],
    ),
];

#[test]
fn the_chart_passes_helms_strict_lint() {
    for major in Major::ALL {
        let Some(helm) = Helm::get(major, None) else { return };
        for name in EXAMPLES {
            let (chart, values) = (chart(), example(name));
            let arguments =
                ["lint", "--strict", &chart, "--namespace", NAMESPACE, "--values", &values];
            let text = helm.output(&arguments).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(text.contains("0 chart(s) failed"), "{name}: {text}");
        }
    }
}

#[test]
fn the_rendered_chart_equals_the_golden_files() {
    for major in [Major::Four, Major::Three] {
        let Some(helm) = Helm::get(major, None) else { return };
        for name in EXAMPLES {
            let rendered = with_names_of_files(&render(&helm, name, WRITTEN));
            let file = repository("tests/golden/chart").join(format!("{name}.yaml"));
            if major == Major::Four && std::env::var_os("LISTLESS_UPDATE").is_some() {
                fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
                fs::write(&file, &rendered).expect("the file can be written");
            }
            let written = fs::read_to_string(&file).unwrap_or_default();
            let hint = "out of date: LISTLESS_UPDATE=1 cargo test --test cluster chart";
            // Helm 3 has another order of objects, and no blank lines between them.
            let same = match major {
                Major::Three => objects(&rendered) == objects(&written),
                Major::Four => rendered == written,
            };
            assert!(same, "{name} with Helm {major:?}: {hint}");
        }
    }
}

#[test]
fn the_chart_renders_for_every_supported_kubernetes_version() {
    let Some(helm) = Helm::get(Major::Four, None) else { return };
    let mut rendered = 0;
    for minor in VERSIONS {
        for name in EXAMPLES {
            let version = format!("1.{minor}.0");
            assert_eq!(render(&helm, name, &version), render(&helm, name, WRITTEN), "{name}");
            rendered += 1;
        }
    }
    let oldest = VERSIONS.start() - 1;
    let version = format!("1.{oldest}.0");
    let told = helm.refusal(&["template", RELEASE, &chart(), "--kube-version", &version]);
    let told = told.expect("a refusal");
    assert!(told.contains("kubeVersion") && told.contains(">=1.29.0-0"), "{told}");
    let files = EXAMPLES.len();
    eprintln!("proof: chart: {rendered} renderings, {files} files of values and 1.{VERSIONS:?}");
}

#[test]
fn every_wrong_value_is_refused_by_its_name() {
    for major in Major::ALL {
        let Some(helm) = Helm::get(major, None) else { return };
        for (setting, names) in WRONG {
            let chart = chart();
            let rest = ["--kube-version", WRITTEN, "--set", setting];
            let told = helm.refusal(&[["template", RELEASE, &chart].as_slice(), &rest].concat());
            let told = told.unwrap_or_else(|error| panic!("{setting}: {error}"));
            // Helm 4 writes a pointer, Helm 3 may write it with dots.
            let plain = told.replace('.', "/");
            for name in *names {
                let found = told.contains(name) || plain.contains(&*name.replace('.', "/"));
                assert!(found, "{setting} with {major:?}: {name} is not in: {told}");
            }
        }
    }
    eprintln!("proof: chart: {} wrong values refused by name", WRONG.len());
}

fn objects(text: &str) -> Vec<String> {
    let mut found: Vec<_> = read(text).expect("YAML").iter().map(ToString::to_string).collect();
    found.sort();
    found
}

/// The rendered text, with the name of each file of the chart in the place of its content.
fn with_names_of_files(rendered: &str) -> String {
    let mut text = rendered.to_owned();
    for (name, content) in files_of_chart("dashboards") {
        let lines: Vec<_> = content.lines().map(|line| format!("    {line}")).collect();
        text = text.replace(&lines.join("\n"), &format!("    the content of {name}"));
    }
    // Helm writes rules anew: in another layout.
    let rules: Vec<_> = files_of_chart("rules")
        .map(|(name, content)| (name, yaml(&content)["groups"].clone()))
        .collect();
    let documents: Vec<_> = text
        .split("\n---\n")
        .map(|document| {
            let (head, groups) = document.split_once("\nspec:\n  groups:\n")?;
            let (name, _) = rules.iter().find(|(_, found)| *found == yaml(groups))?;
            Some(format!("{head}\nspec:\n  groups: those of {name}\n"))
        })
        .zip(text.split("\n---\n"))
        .map(|(shorter, document)| shorter.unwrap_or_else(|| document.to_owned()))
        .collect();
    documents.join("\n---\n")
}

/// The files of a folder of the chart, by their names in the chart.
fn files_of_chart(folder: &str) -> impl Iterator<Item = (String, String)> {
    let folder = Path::new("files").join(folder);
    let entries = fs::read_dir(Path::new(&chart()).join(&folder)).expect("a folder of the chart");
    entries.map(move |entry| {
        let path = entry.expect("an entry").path();
        let name = folder.join(path.file_name().expect("a name"));
        (name.display().to_string(), fs::read_to_string(path).expect("a text"))
    })
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

/// The output of `helm template`.
pub fn render(helm: &Helm, name: &str, version: &str) -> String {
    let chart = chart();
    let values = example(name);
    let arguments = ["template", RELEASE, &chart, "--namespace", NAMESPACE];
    let rest = ["--values", &values, "--kube-version", version];
    let rendered = helm.output(&[arguments.as_slice(), &rest].concat());
    rendered.unwrap_or_else(|error| panic!("{name}: {error}"))
}
