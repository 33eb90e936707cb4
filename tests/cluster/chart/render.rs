//! Helm's output for the chart without a cluster: linted, rendered for every version, refused.

use std::fs;
use std::path::Path;

use listless::api::field::BUILT_IN_GROUPS;
use serde_json::{Value, json};

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
    ("injector.port=8081", &["injector.port", "injector.healthPort", "both 8081"]),
    ("injector.resources.limits.memory=lots", &["/injector/resources/limits/memory"]),
    ("injector.sidecar.imagePullSecrets[0]=registry", &["/injector/sidecar/imagePullSecrets/0"]),
    ("injector.sidecar.mode=off", &["/injector/sidecar/mode", "observe"]),
    ("injector.sidecar.port=443", &["/injector/sidecar/port"]),
    ("injector.sidecar.port=16020", &["injector.sidecar.port", "16020", "another port"]),
    ("injector.sidecar.port=16021", &["injector.sidecar.port", "16021", "another port"]),
    ("injector.sidecar.resources.limits.gpu=1", &["/injector/sidecar/resources/limits", "gpu"]),
    ("injector.sidecar.resources.limits.cpu=null", &["/injector/sidecar/resources/limits", "cpu"]),
    ("injector.sidecar.resources.requests=null", &["/injector/sidecar/resources", "requests"]),
    ("injector.sidecar.resources=null", &["/injector/sidecar", "resources"]),
    ("image.digest=sha256:abc", &["/image/digest"]),
    ("image.pullPolicy=Sometimes", &["/image/pullPolicy", "IfNotPresent"]),
    ("image.registry=https://ghcr.io", &["/image/registry"]),
    ("image.registry=ghcr.io/me/", &["/image/registry"]),
    ("image.registry=ghcr.io/me:0.1.0", &["/image/registry"]),
    ("image.registry=ghcr.io/Me", &["/image/registry"]),
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
    (
        "gateway.enabled=true,gateway.tls.secretName=a,gateway.port=7445",
        &["gateway.port", "gateway.healthPort", "both 7445"],
    ),
    ("injector.serviceAccount.create=false", &["injector.serviceAccount", "name"]),
    (
        "gateway.enabled=true,gateway.tls.secretName=a,\
         gateway.configuration.cache.rules[0].resources={*}",
        &["gateway.configuration.cache.rules", "gateway.rbac"],
    ),
];

/// Settings that look unusual, each with its flag, and lines that they must render.
const RIGHT: &[(&str, &str, &[&str])] = &[
    (
        "--set",
        "image.registry=ghcr.io/me,image.repository=listless,image.tag=a",
        &["image: ghcr.io/me/listless:a\n", "- --image=ghcr.io/me/listless:a\n"],
    ),
    ("--set", "image.registry=localhost:5000", &["image: localhost:5000/listless-dev/listless:"]),
    (
        "--set-json",
        r#"injector.sidecar.resources={"limits":{"cpu":1.5,"memory":268435456}}"#,
        &["- --cpu-limit=1.5\n", "- --memory-limit=268435456\n", "- --memory-request=64Mi\n"],
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

#[test]
fn unusual_but_right_values_are_rendered() {
    for major in Major::ALL {
        let Some(helm) = Helm::get(major, None) else { return };
        for (flag, setting, lines) in RIGHT {
            let chart = chart();
            let rest = ["--kube-version", WRITTEN, flag, setting];
            let rendered = helm.output(&[["template", RELEASE, &chart].as_slice(), &rest].concat());
            let rendered = rendered.unwrap_or_else(|error| panic!("{setting}: {error}"));
            for line in *lines {
                assert!(rendered.contains(line), "{setting} with {major:?}: {line:?}\n{rendered}");
            }
        }
    }
}

#[test]
fn a_rule_for_a_custom_group_below_k8s_io_gives_the_right_to_get_api_services() {
    let Some(helm) = Helm::get(Major::Four, None) else { return };
    let custom = [
        "gateways.gateway.networking.k8s.io",
        "volumesnapshots.v1.snapshot.storage.k8s.io",
        "nodes.metrics.k8s.io",
        "widgets.example.com",
    ];
    for name in custom {
        assert!(gets_api_services(&helm, name), "{name}");
    }
    let built_in = BUILT_IN_GROUPS.map(|group| match group {
        "" => "pods".to_owned(),
        group => format!("things.{group},things.v1beta1.{group}"),
    });
    assert!(!gets_api_services(&helm, &built_in.join(",")), "{built_in:?}");
}

#[test]
fn the_chart_and_the_program_have_the_same_built_in_groups() {
    let path = Path::new(&chart()).join("templates/gateway/_rights.tpl");
    let template = fs::read_to_string(path).expect("a template");
    let (_, rest) = template.split_once("$builtIn := list").expect("the list");
    let (list, _) = rest.split_once("}}").expect("the end of the list");
    let named: Vec<_> = list.split_whitespace().map(|name| name.trim_matches('"')).collect();
    assert_eq!(named, BUILT_IN_GROUPS);
}

/// Reports whether a gateway whose only rule names these resources may get APIServices.
fn gets_api_services(helm: &Helm, resources: &str) -> bool {
    let setting = format!(
        "gateway.enabled=true,gateway.tls.secretName=a,\
         gateway.configuration.cache.rules[0].resources={{{resources}}}"
    );
    let chart = chart();
    let arguments = ["template", RELEASE, &chart, "--kube-version", WRITTEN, "--set", &setting];
    let rendered = helm.output(&arguments);
    let rendered = rendered.unwrap_or_else(|error| panic!("{resources}: {error}"));
    let objects = read(&rendered).expect("YAML");
    let roles = objects.iter().filter(|object| object["kind"] == "ClusterRole");
    let mut rules = roles.filter_map(|role| role["rules"].as_array()).flatten();
    let wanted = json!({
        "apiGroups": ["apiregistration.k8s.io"],
        "resources": ["apiservices"],
        "verbs": ["get"],
    });
    rules.any(|rule| *rule == wanted)
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
