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
    panels: Vec<Panel>,
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

const HEIGHT: u64 = 8;
const WIDTH: u64 = 24;
const SCHEMA: u64 = 38;

// === impl Dashboard ===

impl Dashboard {
    pub(crate) fn parse(text: &str) -> Self {
        serde_saphyr::from_str(text).expect("a dashboard")
    }

    pub(crate) fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.rows.iter().flat_map(|row| &row.panels)
    }

    /// Returns the JSON that Grafana imports.
    pub(crate) fn grafana(&self) -> String {
        let mut panels = Vec::new();
        let mut top = 0;
        for row in &self.rows {
            let id = panels.len() + 1;
            let place = json!({"h": 1, "w": WIDTH, "x": 0, "y": top});
            panels.push(json!({
                "id": id, "type": "row", "title": row.title, "gridPos": place, "collapsed": false,
                "panels": [],
            }));
            top += 1;
            let mut left = 0;
            for panel in &row.panels {
                if left + panel.width > WIDTH {
                    (left, top) = (0, top + HEIGHT);
                }
                let place = json!({"h": HEIGHT, "w": panel.width, "x": left, "y": top});
                panels.push(panel.grafana(panels.len() + 1, &place));
                left += panel.width;
            }
            top += HEIGHT;
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
    let of_jobs = format!("{metric}{{job=~\"$job\"}}");
    json!([
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        chosen("job", "Job", &format!("label_values({metric}, job)")),
        chosen("instance", "Instance", &format!("label_values({of_jobs}, instance)")),
    ])
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

// === impl Panel ===

impl Panel {
    fn grafana(&self, id: usize, place: &Value) -> Value {
        let targets: Vec<Value> = self
            .queries
            .iter()
            .zip('A'..='Z')
            .map(|(query, letter)| {
                json!({
                    "refId": letter.to_string(), "datasource": source(),
                    "expr": query.chosen("$job", "$instance"), "legendFormat": query.legend,
                    "rare": self.rare || query.rare,
                })
            })
            .collect();
        let mut panel = json!({
            "id": id, "title": self.title, "description": self.answers, "gridPos": place,
            "datasource": source(), "targets": targets,
            "fieldConfig": {"defaults": {"unit": self.unit, "min": 0}, "overrides": []},
        });
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
    /// The expression for the series that variables choose.
    pub(crate) fn chosen(&self, job: &str, instance: &str) -> String {
        let chosen = format!("job=~\"{job}\", instance=~\"{instance}\"");
        self.expr.trim_end().replace("CHOSEN", &chosen)
    }
}
