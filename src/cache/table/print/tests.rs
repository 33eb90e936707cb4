use super::*;
use crate::cache::table::human::SECOND;

const CREATED: &str = "2026-01-01T00:00:00Z";

const COLUMNS: &str = r#"[{"name":"Name","type":"string","format":"name","description":"n","priority":0},{"name":"Restarts","type":"string","format":"","description":"","priority":0},{"name":"Age","type":"string","format":"","description":"","priority":0}]"#;

const DEFAULT: &str = r#"[{"name":"Name","type":"string","format":"name","description":"n","priority":0},{"name":"Created At","type":"date","format":"","description":"","priority":0}]"#;

fn at(seconds: i64) -> Moment {
    Moment::parse(CREATED).expect("a timestamp").plus(seconds * SECOND)
}

fn window(seconds: i64) -> Window {
    Window { from: at(seconds), to: at(seconds) }
}

fn header(columns: &str) -> String {
    format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"9"}},"columnDefinitions":{columns},"rows":["#
    )
}

fn pods() -> TableEnvelope {
    let resource = GroupVersionResource::new("", "v1", "pods");
    TableEnvelope::learn(&header(COLUMNS), "]}\n", &resource).expect("understood").0
}

fn metadata() -> String {
    format!(r#"{{"name":"p","uid":"u","resourceVersion":"5","creationTimestamp":"{CREATED}"}}"#)
}

fn pod() -> String {
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{},"spec":{{}}}}"#, metadata())
}

fn row(age: &str, object: &str) -> String {
    format!(
        r#"{{"cells":["p","0","{age}"],"conditions":[{{"type":"Completed"}}],"object":{object}}}"#
    )
}

fn printed(packed: &[u8], include: Include, version: MetadataVersion, seconds: i64) -> String {
    let mut out = Vec::new();
    pods().write_row(packed, Table { version, include }, at(seconds), &mut out).expect("printable");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn a_list_around_its_rows_is_reproduced() {
    let resource = GroupVersionResource::new("", "v1", "pods");
    let (table, version) =
        TableEnvelope::learn(&header(COLUMNS), "]}\n", &resource).expect("understood");
    assert_eq!((version.as_str(), table.style(), table.column(2)), ("9", Style::Typed, "Age"));
    assert_eq!(
        table.header(&ListMeta::whole(&version), MetadataVersion::V1, true, true),
        header(COLUMNS)
    );
    let later = table.header(&ListMeta::whole(&version), MetadataVersion::V1Beta1, false, false);
    assert_eq!(later, header("null").replace("k8s.io/v1", "k8s.io/v1beta1"));
    let roles = GroupVersionResource::new("rbac.authorization.k8s.io", "v1", "roles");
    let empty = header(DEFAULT).replace("\"rows\":[", "\"rows\":null}\n");
    let (table, _) = TableEnvelope::learn(&empty, "", &roles).expect("understood");
    let around = |is_empty| {
        let start = table.header(&ListMeta::whole(&version), MetadataVersion::V1, true, is_empty);
        format!("{start}{}", table.trailer(is_empty))
    };
    assert_eq!(around(true), empty);
    assert_eq!(around(false), format!("{}]}}\n", header(DEFAULT)));
}

#[test]
fn a_list_in_another_form_is_not_understood() {
    let resource = GroupVersionResource::new("", "v1", "pods");
    let odd = [
        (header(COLUMNS).replace(r#"{"kind""#, r#"{"a":1,"kind""#), "]}\n"),
        (header(COLUMNS).replace("\"9\"", "\"9\",\"continue\":\"x\""), "]}\n"),
        (header("null"), "]}\n"),
        (header("[]"), "]}\n"),
        (header(COLUMNS).replace("\"rows\":[", "\"rows\":null}\n"), ""),
        (header(COLUMNS), "]} \n"),
    ];
    for (header, trailer) in odd {
        let learned = TableEnvelope::learn(&header, trailer, &resource);
        assert!(matches!(learned, Err(EnvelopeError::NotUnderstood)), "{header}");
    }
}

#[test]
fn a_row_has_the_requested_part_of_its_object() {
    let packed = pods().pack(&row("60m", &pod()), window(3600)).expect("a row");
    assert_eq!(unproven_column(&packed), None);
    let of = |include, version| printed(&packed, include, version, 3600);
    let (v1, beta) = (MetadataVersion::V1, MetadataVersion::V1Beta1);
    assert_eq!(of(Include::Object, v1), row("60m", &pod()));
    assert_eq!(of(Include::None, v1), row("60m", "null"));
    for (version, api_version) in [(v1, "meta.k8s.io/v1"), (beta, "meta.k8s.io/v1beta1")] {
        let partial = format!(
            r#"{{"kind":"PartialObjectMetadata","apiVersion":"{api_version}","metadata":{}}}"#,
            metadata()
        );
        assert_eq!(of(Include::Metadata, version), row("60m", &partial));
    }
}

#[test]
fn ages_are_of_the_moment_of_the_answer() {
    let packed = pods().pack(&row("60m", &pod()), window(3600)).expect("a row");
    for (seconds, age) in
        [(3599, "59m"), (3660, "61m"), (3 * 86_400, "3d"), (-9, r"\u003cinvalid\u003e")]
    {
        let printed = printed(&packed, Include::Object, MetadataVersion::V1, seconds);
        assert_eq!(printed, row(age, &pod()));
    }
    assert_eq!(pods().alike_until(&packed, at(3661)), Some(at(3720)));
}

#[test]
fn a_row_that_is_not_proven_is_not_printed() {
    let packed = pods().pack(&row("61m", &pod()), window(3600)).expect("a row");
    assert_eq!(unproven_column(&packed), Some(2));
    let table = Table { version: MetadataVersion::V1, include: Include::None };
    assert_eq!(pods().write_row(&packed, table, at(3600), &mut Vec::new()), None);
}

#[test]
fn an_event_has_one_row_and_the_known_columns() {
    let line = row("5m", &pod());
    let event = |columns: &str, rows: &str| format!("{}{rows}]}}", header(columns));
    for columns in [COLUMNS, "null"] {
        assert_eq!(pods().row_of(&event(columns, &line)), Some(&*line));
    }
    for odd in [
        event("null", ""),
        event("null", &format!("{line},{line}")),
        event(DEFAULT, &line),
        event("null", &line).replace(",\"rows\"", ", \"rows\""),
        event("null", &line).replace("\"9\"", "\"0\""),
    ] {
        assert_eq!(pods().row_of(&odd), None, "{odd}");
    }
}

#[test]
fn metadata_that_a_conversion_changed_is_not_that_of_the_row() {
    let table = |include| Table { version: MetadataVersion::V1, include };
    let written = |annotation: &str| {
        let own = metadata()
            .replace(r#""name":"p""#, &format!(r#""name":"p","annotations":{{{annotation}}}"#));
        let packed = pods().pack(&row("60m", &pod().replace(&metadata(), &own)), window(3600));
        let packed = packed.expect("a row");
        [Include::Metadata, Include::Object].map(|include| {
            pods().write_row(&packed, table(include), at(3600), &mut Vec::new()).is_some()
        })
    };
    for name in
        ["deprecated.daemonset.template.generation", "autoscaling.alpha.kubernetes.io/conditions"]
    {
        assert_eq!(written(&format!(r#""{name}":"1""#)), [false, true], "{name}");
    }
    assert_eq!(written(r#""x":"no deprecated.daemonset.template.generation""#), [true, true]);
}
