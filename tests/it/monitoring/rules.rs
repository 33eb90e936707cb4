//! Rule files of Prometheus, and promtool's tests of them, as far as they are checked here.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A recording rule or an alert.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
    #[serde(rename = "for")]
    pub(crate) lasting: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

/// The unit tests of rules.
#[derive(Debug, Deserialize)]
pub(crate) struct RuleTests {
    pub(crate) rule_files: Vec<String>,
    tests: Vec<Case>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Case {
    alert_rule_test: Vec<AlertCase>,
}

#[derive(Debug, Deserialize)]
struct AlertCase {
    alertname: String,
    exp_alerts: Vec<Expected>,
}

#[derive(Debug, Deserialize)]
struct Expected {
    exp_labels: BTreeMap<String, String>,
}

/// Every rule of a file.
pub(crate) fn parse(text: &str) -> Vec<Rule> {
    let file: File = serde_saphyr::from_str(text).expect("a file of rules");
    let named = file.groups.iter().all(|group| !group.name.is_empty());
    assert!(named, "every group has a name");
    file.groups.into_iter().flat_map(|group| group.rules).collect()
}

/// The labels in an annotation's template.
pub(crate) fn template_labels(text: &str) -> Vec<String> {
    let after = text.split("$labels.").skip(1);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    after.map(|rest| rest.chars().take_while(|c| is_name(*c)).collect()).collect()
}

/// The labels in a panel's legend.
pub(crate) fn legend_labels(text: &str) -> Vec<String> {
    let after = text.split("{{").skip(1);
    after.filter_map(|rest| rest.split_once("}}")).map(|(name, _)| name.to_owned()).collect()
}

// === impl Rule ===

impl Rule {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.alert.as_deref().or(self.record.as_deref()).expect("a rule records or alerts")
    }
}

// === impl RuleTests ===

impl RuleTests {
    pub(crate) fn parse(text: &str) -> Self {
        serde_saphyr::from_str(text).expect("a file of tests")
    }

    /// The tests of all these files.
    pub(crate) fn all(files: impl IntoIterator<Item = Self>) -> Self {
        let tests = files.into_iter().flat_map(|file| file.tests).collect();
        Self { rule_files: Vec::new(), tests }
    }

    /// Returns the missing parts of an alert's tests; alerts of one name differ by their labels.
    pub(crate) fn lacking(&self, alert: &Rule) -> Vec<String> {
        let cases = || {
            let all = self.tests.iter().flat_map(|case| &case.alert_rule_test);
            all.filter(|case| case.alertname == alert.name())
        };
        let is_it = |expected: &Expected| {
            alert.labels.iter().all(|(key, value)| expected.exp_labels.get(key) == Some(value))
        };
        let fires = cases().any(|case| case.exp_alerts.iter().any(is_it));
        let quiet = cases().any(|case| case.exp_alerts.is_empty());
        let lacks = |there: bool, what: &str| {
            let name = format!("{} {:?}", alert.name(), alert.labels);
            (!there).then(|| format!("{name} has no test in which it {what}"))
        };
        [lacks(fires, "fires"), lacks(quiet, "stays quiet")].into_iter().flatten().collect()
    }
}
