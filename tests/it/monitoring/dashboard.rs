//! The dashboard: its source, and the JSON for Grafana.

use serde::Deserialize;
use serde_json::{Value, json};

/// The dashboard as its source describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dashboard {
    title: String,
    pub(crate) rows: Vec<Row>,
}

/// Panels about one subject.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) title: String,
    pub(crate) panels: Vec<Panel>,
}

/// One panel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) answers: String,
    #[serde(default)]
    kind: Kind,
    unit: String,
    width: u64,
    /// The values that are green; every other value is red.
    healthy: Option<Healthy>,
    /// Shows nothing while there is no problem.
    #[serde(default)]
    rare: bool,
    pub(crate) queries: Vec<Query>,
}

/// A query of a panel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    pub(crate) expr: String,
    pub(crate) legend: String,
    /// As for panels.
    #[serde(default)]
    rare: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Timeseries,
    Stat,
}

/// The green values of a panel.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Healthy {
    /// This value and larger ones.
    From(f64),
    /// Smaller values.
    Below(f64),
}

const HEIGHT: u64 = 8;
const STAT_HEIGHT: u64 = 4;
const WIDTH: u64 = 24;
const SCHEMA: u64 = 38;
/// The variables that choose series, each a label of the target. One without a value matches every
/// series, also one without that label.
const VARIABLES: [&str; 4] = ["cluster", "namespace", "job", "instance"];

// === impl Dashboard ===

impl Dashboard {
    pub(crate) fn parse(text: &str) -> Self {
        serde_saphyr::from_str(text).expect("a dashboard")
    }

    pub(crate) fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.rows.iter().flat_map(|row| &row.panels)
    }

    /// Returns the JSON that Grafana imports. The first row is open, the others are collapsed.
    pub(crate) fn grafana(&self) -> String {
        let mut panels = Vec::new();
        let (mut top, mut id) = (0, 0);
        for (index, row) in self.rows.iter().enumerate() {
            let is_open = index == 0;
            let place = json!({"h": 1, "w": WIDTH, "x": 0, "y": top});
            id += 1;
            let mut head = json!({
                "id": id, "type": "row", "title": row.title, "gridPos": place,
                "collapsed": !is_open, "panels": [],
            });
            let (inner, bottom) = row.grafana(id, top + 1);
            id += inner.len();
            if is_open {
                panels.push(head);
                panels.extend(inner);
                top = bottom;
            } else {
                head["panels"] = inner.into();
                panels.push(head);
                top += 1;
            }
        }
        let dashboard = json!({
            "uid": "listless", "title": self.title, "tags": ["kubernetes", "listless"],
            "schemaVersion": SCHEMA, "version": 1, "editable": true, "graphTooltip": 1,
            "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "timezone": "",
            "templating": {"list": variables()},
            "annotations": {"list": []}, "links": [],
            "panels": panels,
        });
        format!("{dashboard:#}\n")
    }
}

// === impl Row ===

impl Row {
    /// Returns the panels in lines from `top`, with ids after `id`, and the end of the last line.
    fn grafana(&self, id: usize, top: u64) -> (Vec<Value>, u64) {
        let mut panels = Vec::new();
        let (mut left, mut top, mut height) = (0, top, 0);
        for panel in &self.panels {
            if left + panel.width > WIDTH {
                (left, top, height) = (0, top + height, 0);
            }
            height = height.max(panel.height());
            let place = json!({"h": panel.height(), "w": panel.width, "x": left, "y": top});
            panels.push(panel.grafana(id + panels.len() + 1, &place));
            left += panel.width;
        }
        (panels, top + height)
    }
}

/// The variables: the data source, and the Listless to show.
fn variables() -> Value {
    let chosen = |name: &str, label: &str, query: &str| {
        json!({
            "name": name, "label": label, "type": "query", "datasource": source(),
            "query": {"query": query, "refId": name}, "definition": query, "refresh": 2, "sort": 1,
            "multi": true, "includeAll": true, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        })
    };
    let metric = "listless_build_info";
    let mut list = vec![json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
    })];
    // Each variable offers only what those before it leave.
    for (index, name) in VARIABLES.iter().enumerate() {
        let before = matchers(&VARIABLES[..index], |name| format!("${name}"));
        let label = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        list.push(chosen(name, &label, &format!("label_values({metric}{{{before}}}, {name})")));
    }
    list.into()
}

/// Returns the label matchers of these variables with these values.
fn matchers(names: &[&str], value: impl Fn(&str) -> String) -> String {
    let each = names.iter().map(|name| format!("{name}=~\"{}\"", value(name)));
    each.collect::<Vec<_>>().join(", ")
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

// === impl Panel ===

impl Panel {
    fn height(&self) -> u64 {
        match self.kind {
            Kind::Stat => STAT_HEIGHT,
            Kind::Timeseries => HEIGHT,
        }
    }

    fn grafana(&self, id: usize, place: &Value) -> Value {
        let targets: Vec<Value> = self
            .queries
            .iter()
            .zip('A'..='Z')
            .map(|(query, letter)| {
                json!({
                    "refId": letter.to_string(), "datasource": source(),
                    "expr": query.chosen(|name| format!("${name}")), "legendFormat": query.legend,
                    "rare": self.rare || query.rare,
                })
            })
            .collect();
        let mut panel = json!({
            "id": id, "title": self.title, "description": self.answers, "gridPos": place,
            "datasource": source(), "targets": targets,
            "fieldConfig": {"defaults": {"unit": self.unit, "min": 0}, "overrides": []},
        });
        if let Some(healthy) = self.healthy {
            let (base, at, from) = match healthy {
                Healthy::From(value) => ("red", value, "green"),
                Healthy::Below(value) => ("green", value, "red"),
            };
            let steps = json!([{"color": base, "value": null}, {"color": from, "value": at}]);
            panel["fieldConfig"]["defaults"]["thresholds"] =
                json!({"mode": "absolute", "steps": steps});
        }
        match self.kind {
            Kind::Stat => {
                panel["type"] = json!("stat");
                panel["options"] = json!({
                    "reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area",
                    "colorMode": "value",
                });
            }
            Kind::Timeseries => {
                panel["type"] = json!("timeseries");
                panel["options"] = json!({
                    "legend": {"displayMode": "list", "placement": "bottom"},
                    "tooltip": {"mode": "multi", "sort": "desc"},
                });
            }
        }
        panel
    }
}

// === impl Query ===

impl Query {
    /// The expression for the series that the variables' values choose.
    pub(crate) fn chosen(&self, value: impl Fn(&str) -> String) -> String {
        self.expr.trim_end().replace("CHOSEN", &matchers(&VARIABLES, value))
    }
}
