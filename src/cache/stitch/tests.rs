//! Compressed lists against the same lists printed whole.

use proptest::prelude::*;

use super::*;
use crate::{
    api::{
        GroupVersionResource, Scope,
        form::Form,
        media::{Include, MetadataVersion, Partial, Representation, Table},
        protobuf::{
            tests::{PODLIST, bytes},
            wire::field,
        },
        query::Query,
    },
    cache::{
        fixture::{self, Pod, pods, query, version},
        form::ListSplitter,
        portion::{Next, Portion},
        reader::Reader,
        rebuild::Rebuild,
        split::SplitError,
        store::Snapshot,
        table::{TableEnvelope, Window},
    },
    gzip::tests::unpacked,
};

/// The list of one client.
#[derive(Clone)]
struct View {
    query: Query,
    portion: Portion,
    representation: Representation,
}

/// A change of one object, and the view that is read after it.
type Step = (u8, usize, usize, usize, usize);

const SECOND: i64 = 1_000_000_000;

const CREATED: Moment = Moment(1_767_225_600 * SECOND);

const COLUMNS: &str = r#"[{"name":"Name","type":"string","format":"name","description":"n","priority":0},{"name":"Age","type":"string","format":"","description":"","priority":0}]"#;

fn view(query: Query, representation: Representation) -> View {
    View { query, portion: Portion::default(), representation }
}

/// Returns text that repeats itself only a little.
fn noise(seed: usize, length: usize) -> String {
    let mut state = seed as u32 ^ 0x9e37_79b9;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("{:x}.", state >> 20)
    });
    let mut text: String = words.take(length / 2 + 1).collect();
    text.truncate(length);
    text
}

/// Compresses a list and compares it with the same list printed whole; returns its parts.
fn check(
    snapshot: &Snapshot,
    view: &View,
    now: Moment,
    base: Option<Arc<Stitched>>,
    slice: usize,
) -> Arc<Stitched> {
    let listing = || snapshot.listing(&view.query, &view.portion, view.representation, now);
    let mut deflaters = Deflaters::default();
    let mut stitcher = Stitcher::new(listing(), base);
    while !stitcher.step(&mut deflaters, slice).expect("printable") {}
    let joined = stitcher.finish(&mut deflaters).expect("printable");
    let whole = listing().body().expect("printable");
    let expected: Vec<u8> = whole.chunks.into_iter().flatten().collect();
    assert_eq!((joined.text_bytes, joined.alike_until), (expected.len(), whole.alike_until));
    assert_eq!(listing().known_bytes().unwrap_or(whole.bytes), whole.bytes);
    assert!(unpacked(&joined.chunks) == expected, "another text");
    check_rejoined(&joined.stitched, snapshot, view, now);
    Arc::new(joined.stitched)
}

/// Joins a list again as if a bookmark had come, and compares it with the same list printed whole.
fn check_rejoined(stitched: &Stitched, snapshot: &Snapshot, view: &View, now: Moment) {
    let later = snapshot.at(version(1_000_000_000));
    let (portion, mut deflaters) = (&view.portion, Deflaters::default());
    let again = stitched.rejoin(&later, portion, view.representation, &mut deflaters);
    let can_improve = stitched.parts.iter().any(|part| part.can_improve(THOROUGH_BYTES_MAX));
    assert_eq!(again.is_none(), can_improve);
    let Some(again) = again else { return };
    let whole = later.listing(&view.query, portion, view.representation, now).body();
    let expected: Vec<u8> = whole.expect("printable").chunks.into_iter().flatten().collect();
    assert!(unpacked(&again) == expected, "another text");
}

/// Returns the number of parts that two states of a list share.
fn shared(old: &Stitched, new: &Stitched) -> usize {
    let is_old = |part: &&Arc<Part>| old.parts.iter().any(|old| Arc::ptr_eq(old, part));
    new.parts.iter().filter(is_old).count()
}

fn pod_of(index: usize, at: u64, size: usize) -> Pod {
    let namespace = ["a", "b", "c"][index % 3];
    let mut pod = Pod::new(namespace, &format!("p-{index:03}"), at);
    pod.labels = vec![("app", if index.is_multiple_of(4) { "web" } else { "db" })];
    pod.uid = format!("u{}", noise(index + at as usize, size));
    pod
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Sizes around those at which parts are divided and joined, and any others.
    let size = prop_oneof![0..300_usize, 7_000..9_000_usize, 31_000..35_000_usize, 0..70_000_usize];
    let step = (0..4_u8, 0..60_usize, size, 0..4_usize, 1..100_000_usize);
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Objects appear, change and go between reads of four lists, whose parts go on from read to
    /// read.
    #[test]
    fn every_state_of_a_list_unpacks_to_its_text(steps in steps(), first in 0..60_usize) {
        let next = |limit| Some(Next { limit, token: "t".into(), remaining: None });
        let (all, web) = (query(None, "", ""), query(None, "app=web", ""));
        let metadata = Representation::Metadata(Partial { version: MetadataVersion::V1, form: Form::Json });
        let mut part = view(all.clone(), Representation::Object);
        part.portion = Portion { after: Some("a/p-004".into()), next: next(10) };
        let views = [
            view(all, Representation::Object),
            view(web, Representation::Object),
            view(query(Some("b"), "", ""), metadata),
            part,
        ];
        let mut bases: [Option<Arc<Stitched>>; 4] = Default::default();
        let mut held: std::collections::BTreeMap<usize, Pod> =
            (0..first).map(|index| (index, pod_of(index, 1, 40 * index))).collect();
        let mut snapshot = None;
        for (number, (kind, index, size, read, slice)) in steps.into_iter().enumerate() {
            let at = number as u64 + 2;
            match kind {
                0 => drop(held.remove(&index)),
                _ => drop(held.insert(index, pod_of(index, at, size))),
            }
            let mut pods: Vec<_> = held.values().cloned().collect();
            pods.sort_by_key(Pod::key);
            let new = fixture::snapshot(snapshot.take(), at, &pods);
            bases[read] = Some(check(&new, &views[read], Moment(0), bases[read].take(), slice));
            snapshot = Some(new);
        }
    }

    /// Ages of rows change with time, which may also go back.
    #[test]
    fn tables_unpack_to_their_text_at_every_moment(
        steps in proptest::collection::vec((0..40_usize, 0..3_u8, -5..200_i64), 1..25),
        include in 0..3_usize,
    ) {
        let include = [Include::None, Include::Metadata, Include::Object][include];
        let table = Representation::Table(Table { version: MetadataVersion::V1, include });
        let view = view(query(None, "", ""), table);
        let (mut base, mut snapshot, mut now) = (None, None, CREATED.plus(300 * SECOND));
        let mut versions = [1_u64; 40];
        for (index, kind, seconds) in steps {
            now = now.plus(seconds * SECOND);
            versions[index] += u64::from(kind == 0);
            let new = Arc::new(table_of(snapshot.take(), &versions));
            base = Some(check(&new, &view, now, base.take(), 50_000));
            snapshot = Some(new);
        }
    }
}

/// Returns a snapshot of rows, each created seven seconds after the one before it.
fn table_of(base: Option<Arc<Snapshot>>, versions: &[u64]) -> Snapshot {
    let header = format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"9"}},"columnDefinitions":{COLUMNS},"rows":["#
    );
    let (envelope, at) = TableEnvelope::learn(&header, "]}\n", &pods()).expect("understood");
    let mut reader = Reader::new(pods(), Scope::All, Form::Table);
    let mut list = Rebuild::of(base, Form::Table, Default::default());
    for (index, held) in versions.iter().enumerate() {
        let uid = noise(index + *held as usize, 500 + 150 * index);
        let (minute, second) = (index * 7 / 60, index * 7 % 60);
        let row = format!(
            r#"{{"cells":["p-{index:03}","60s"],"object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"p-{index:03}","namespace":"a","uid":"{uid}","resourceVersion":"{held}","creationTimestamp":"2026-01-01T00:{minute:02}:{second:02}Z"}}}}}}"#
        );
        let moment = CREATED.plus((60 + 7 * index as i64) * SECOND);
        let window = Window { from: moment, to: moment };
        let packed = envelope.pack(&row, window).expect("a row");
        list.push(reader.item(&packed).expect("a row").0).expect("no duplicate");
    }
    list.finish(at, Envelope::Table(envelope)).expect("no duplicate")
}

#[test]
fn lists_in_protobuf_unpack_to_their_text() {
    let mut splitter = ListSplitter::new(Form::Protobuf, &pods(), 1000);
    splitter.feed(&bytes(PODLIST), |_| Ok::<_, SplitError>(())).expect("a list");
    let (envelope, _) = splitter.finish().expect("a list");
    let mut reader = Reader::new(pods(), Scope::All, Form::Protobuf);
    let (mut snapshot, mut bases) = (None, [None, None, None]);
    let representations = [
        Representation::Object,
        Representation::Metadata(Partial { version: MetadataVersion::V1, form: Form::Json }),
        Representation::Metadata(Partial { version: MetadataVersion::V1Beta1, form: Form::Json }),
    ];
    for changed in 0..9_u64 {
        let mut list = Rebuild::of(snapshot.take(), Form::Protobuf, Default::default());
        for index in 0..100_u64 {
            let held = if index == 7 * changed { 10 + changed } else { 1 };
            let (name, version) = (format!("p-{index:03}"), held.to_string());
            let uid = noise((index + held) as usize, 900);
            let parts = [(1, &*name), (2, ""), (3, "d"), (4, ""), (5, &*uid), (6, &*version)];
            let metadata = parts.map(|(number, text)| field(number, text.as_bytes())).concat();
            let pod = [field(1, &metadata), field(2, &[]), field(3, &[])].concat();
            let (object, _) = reader.item(&field(2, &pod)).expect("a pod");
            list.push(object).expect("no duplicate");
        }
        let new = Arc::new(list.finish(version(20 + changed), envelope.clone()).expect("a list"));
        for (representation, base) in representations.into_iter().zip(&mut bases) {
            let view = view(query(None, "", ""), representation);
            let parts = check(&new, &view, Moment(0), base.take(), usize::MAX);
            *base = Some(parts);
        }
        snapshot = Some(new);
    }
}

#[test]
fn a_change_compresses_only_the_parts_around_it() {
    let all = view(query(None, "", ""), Representation::Object);
    let mut pods: Vec<_> = (0..300).map(|index| pod_of(index, 1, 2_000)).collect();
    pods.sort_by_key(Pod::key);
    let first = fixture::snapshot(None, 1, &pods);
    let mut parts = check(&first, &all, Moment(0), None, usize::MAX);
    let (count, mut snapshot) = (parts.parts.len(), first);
    assert!(count > 15, "{count} parts");
    // Parts that were compressed fast are compressed again, some with each state.
    for at in 2..5 {
        snapshot = fixture::snapshot(Some(snapshot), at, &pods);
        parts = check(&snapshot, &all, Moment(0), Some(parts), usize::MAX);
    }
    assert!(parts.parts.iter().all(|part| part.effort == Effort::Thorough));
    for (at, changed) in [(5, 0), (6, 150), (7, 299)] {
        pods[changed].version = at;
        snapshot = fixture::snapshot(Some(snapshot), at, &pods);
        let new = check(&snapshot, &all, Moment(0), Some(parts.clone()), usize::MAX);
        let compressed = new.parts.len() - shared(&parts, &new);
        assert!((1..=2).contains(&compressed), "{compressed} parts for {changed}");
        parts = new;
    }
    // Without a change, nothing is compressed.
    snapshot = Arc::new(snapshot.at(version(8)));
    let same = check(&snapshot, &all, Moment(0), Some(parts.clone()), usize::MAX);
    assert_eq!(shared(&parts, &same), same.parts.len());
}

#[test]
fn parts_stay_of_a_good_size_while_objects_come_and_go() {
    let all = view(query(None, "", ""), Representation::Object);
    let mut held: Vec<_> = (0..200).map(|index| pod_of(index, 1, 1_000)).collect();
    held.sort_by_key(Pod::key);
    let mut snapshot = fixture::snapshot(None, 1, &held);
    let mut parts = check(&snapshot, &all, Moment(0), None, usize::MAX);
    for at in 2..400_u64 {
        let place = (at * 7919 % 200) as usize;
        match held.iter().position(|pod| pod.name == format!("p-{place:03}")) {
            Some(index) => drop(held.remove(index)),
            None => held.push(pod_of(place, at, 1_000)),
        }
        held.sort_by_key(Pod::key);
        snapshot = fixture::snapshot(Some(snapshot), at, &held);
        parts = check(&snapshot, &all, Moment(0), Some(parts), usize::MAX);
        let most = 2 + parts.text_bytes() / SHORT_BYTES;
        assert!(parts.parts.len() <= most, "{} parts at {at}", parts.parts.len());
    }
}

#[test]
fn a_list_in_parts_is_hardly_larger_than_one_stream() {
    for (count, size) in [(2_000, 200), (300, 4_000), (50, 60_000)] {
        let mut pods: Vec<_> = (0..count).map(|index| pod_of(index, 1, size)).collect();
        pods.sort_by_key(Pod::key);
        let snapshot = fixture::snapshot(None, 1, &pods);
        for labels in ["", "app=web"] {
            let view = view(query(None, labels, ""), Representation::Object);
            let parts = check(&snapshot, &view, Moment(0), None, usize::MAX);
            let plain = snapshot.list_body(&view.query).chunks;
            let mut stream = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            plain
                .iter()
                .for_each(|chunk| std::io::Write::write_all(&mut stream, chunk).expect("memory"));
            let stream = stream.finish().expect("memory").len();
            let stitched: usize = parts.parts.iter().map(|part| part.segment.bytes()).sum();
            assert!(
                stitched <= stream + stream / 10,
                "{stitched} and {stream} of {count} × {size}"
            );
        }
    }
}

#[test]
fn a_list_of_another_form_is_no_base() {
    let resource = GroupVersionResource::new("", "v1", "pods");
    let all = Query::all(resource, Scope::All);
    let listed = fixture::snapshot(None, 1, &[pod_of(1, 1, 100)]);
    let object = view(all.clone(), Representation::Object);
    let base = check(&listed, &object, Moment(0), None, usize::MAX);
    let table =
        Representation::Table(Table { version: MetadataVersion::V1, include: Include::None });
    let rows = table_of(None, &[1, 1]);
    let now = CREATED.plus(500 * SECOND);
    let parts = check(&rows, &view(all, table), now, Some(base.clone()), usize::MAX);
    assert_eq!(shared(&base, &parts), 0);
}

/// Compares the processor time of one stream with that of a list of which one object has changed.
#[test]
fn one_changed_object_costs_a_small_part_of_a_stream() {
    let all = view(query(None, "", ""), Representation::Object);
    let alike = noise(7, 7_300);
    let mut pods: Vec<_> = (0..5_000)
        .map(|index| {
            let mut pod = pod_of(index, 1, 1_500);
            pod.name = format!("p-{index:04}");
            // Most of a pod is like the one before it.
            pod.uid.push_str(&alike);
            pod
        })
        .collect();
    pods.sort_by_key(Pod::key);
    let first = fixture::snapshot(None, 1, &pods);
    let compress = |snapshot: &Snapshot, base| {
        let listing = snapshot.listing(&all.query, &all.portion, all.representation, Moment(0));
        let (mut deflaters, mut stitcher) = (Deflaters::default(), Stitcher::new(listing, base));
        stitcher.step(&mut deflaters, usize::MAX).expect("printable");
        stitcher.finish(&mut deflaters).expect("printable")
    };
    let (body, plain) = timed(|| first.list_body(&all.query));
    let (stream, streamed) = timed(|| {
        let mut stream = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        body.chunks.iter().for_each(|chunk| {
            std::io::Write::write_all(&mut stream, chunk).expect("memory");
        });
        stream.finish().expect("memory").len()
    });
    let (whole, stitched) = timed(|| compress(&first, None));
    let mut base = Arc::new(whole.stitched);
    let (mut changed, mut snapshot) = (0.0, first);
    const CHANGES: u64 = 20;
    for at in 2..2 + CHANGES {
        pods[(at * 211) as usize].version = at;
        snapshot = fixture::snapshot(Some(snapshot), at, &pods);
        let (joined, seconds) = timed(|| compress(&snapshot, Some(base)));
        (base, changed) = (Arc::new(joined.stitched), changed + seconds / CHANGES as f64);
    }
    eprintln!(
        "{} MB of {} objects: laid out in {:.1} ms, one stream at level 1 {:.1} ms and {stream} B, \
         in parts {:.1} ms and {} B, after each change {:.2} ms",
        body.bytes / 1_000_000,
        pods.len(),
        plain * 1e3,
        streamed * 1e3,
        stitched * 1e3,
        whole.chunks.iter().map(Bytes::len).sum::<usize>(),
        changed * 1e3,
    );
    assert!(changed * 10.0 < streamed, "{changed} s of {streamed} s");
}

/// Returns a result with the processor time of this thread for it, in seconds.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let spent = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
        let nanoseconds = text.split(' ').next().and_then(|text| text.parse::<f64>().ok());
        nanoseconds.expect("a number") / 1e9
    };
    let before = spent();
    let done = work();
    (done, spent() - before)
}

#[test]
fn a_list_reads_each_page_once() {
    let pods: Vec<_> =
        (0..60).map(|index| Pod { padding: 8_000, ..pod_of(index, 1, 10) }).collect();
    let snapshot = fixture::snapshot(None, 9, &pods);
    let rest = || snapshot.pages().iter().for_each(|page| _ = page.rest(true));
    let partial = Partial { version: MetadataVersion::V1, form: Form::Json };
    for (labels, representation) in [
        ("", Representation::Object),
        // Objects with others between them.
        ("app=web", Representation::Object),
        ("", Representation::Metadata(partial)),
    ] {
        let view = view(query(None, labels, ""), representation);
        let listing = || snapshot.listing(&view.query, &view.portion, representation, CREATED);
        rest();
        listing().body().expect("printable");
        assert_eq!(snapshot.storage().pool().raw_bytes(), 0, "{representation:?} of {labels:?}");
        rest();
        let mut stitcher = Stitcher::new(listing(), None);
        while !stitcher.step(&mut Deflaters::default(), 1 << 20).expect("printable") {}
        assert_eq!(
            snapshot.storage().pool().raw_bytes(),
            0,
            "compressed {representation:?} of {labels:?}"
        );
    }
}
