//! Unexpected bytes: every parser of peer input handles them without a panic, and keeps its
//! invariants.
//!
//! The driver is proptest: each input is a seed of the corpus with random edits, and a failing
//! input is shrunk. By default every target has the same few hundred inputs each time;
//! `LISTLESS_FUZZ_SECONDS=20` gives each target new inputs for that many seconds.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use kube::config::Kubeconfig;
use listless::{
    api::{
        GroupVersionResource, Scope,
        continue_token::ContinueToken,
        field::protobuf_field_values,
        form::Form,
        learn::Learner,
        media::Negotiated,
        protobuf::wire::{Fields, Value, put_bytes, put_number},
        request::RequestInfo,
        selector::{FieldSelector, LabelSelector},
        watch::WatchReader,
    },
    app::kubeconfig,
    cache::{
        form::ListSplitter,
        reader::Reader,
        reflector::ReflectorFailure,
        table::{Moment, Window},
    },
    config::Config,
    injector::{manifest, patch::Settings, review},
    websocket::Incoming,
};
use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config as Runs, TestError, TestRunner},
};

/// Inputs of every target in each round; one round unless a time is given.
const INPUTS: u32 = 256;

/// An edit of a seed.
#[derive(Clone, Debug)]
enum Edit {
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    Repeat(Index, u8, u8),
    Splice(Index, Index),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let words = prop::sample::select(vec![
        "%",
        "%2F",
        "%zz",
        "&",
        "=",
        "==",
        "!=",
        ",",
        " in (a,b)",
        "#",
        "?",
        "/",
        "..",
        "\n",
        "\r\n",
        "\0",
        "\u{e9}",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        "\\u0000",
        "null",
        "-1",
        "18446744073709551616",
        "1e999",
        ": ",
        "- ",
        "|\n",
        "---\n",
        "k8s\0",
        "\u{7f}",
    ]);
    let word = words.prop_map(|word| word.as_bytes().to_vec());
    let bytes = prop::collection::vec(any::<u8>(), 0..8);
    let edit = prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (any::<Index>(), word).prop_map(|(at, word)| Edit::Insert(at, word)),
        (any::<Index>(), bytes).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any::<Index>(), any::<u8>(), 1_u8..20)
            .prop_map(|(at, length, times)| Edit::Repeat(at, length, times)),
        (any::<Index>(), any::<Index>()).prop_map(|(at, from)| Edit::Splice(at, from)),
    ];
    prop::collection::vec(edit, 0..8)
}

fn edited(corpus: &[Vec<u8>], seed: Index, edits: &[Edit]) -> Vec<u8> {
    let mut bytes = seed.get(corpus).clone();
    for edit in edits {
        let place = |at: &Index| at.index(bytes.len() + 1);
        match edit {
            Edit::Replace(at, byte) => {
                let at = place(at);
                if let Some(there) = bytes.get_mut(at) {
                    *there = *byte;
                }
            }
            Edit::Insert(at, more) => {
                let at = place(at);
                bytes.splice(at..at, more.iter().copied());
            }
            Edit::Remove(at, length) => {
                let at = place(at);
                let end = bytes.len().min(at + usize::from(*length));
                bytes.drain(at..end);
            }
            Edit::Repeat(at, length, times) => {
                let at = place(at);
                let end = bytes.len().min(at + usize::from(*length));
                let part = bytes[at..end].repeat(usize::from(*times));
                bytes.splice(at..at, part);
            }
            Edit::Splice(at, from) => {
                let (at, other) = (place(at), from.get(corpus));
                bytes.truncate(at);
                bytes.extend_from_slice(&other[other.len() / 2..]);
            }
        }
    }
    bytes
}

/// Seeds of a target: each file of its folder, or each line of its file.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = root.join("tests/it/fuzz/corpus").join(target);
    let lines = std::fs::read_to_string(&place).unwrap_or_else(|error| panic!("{target}: {error}"));
    lines.lines().map(|line| line.replace("\\n", "\n").into_bytes()).collect()
}

/// The golden manifests.
fn manifests() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/manifests");
    let mut paths: Vec<_> = walk(&folder);
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a golden file")).collect()
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Calls `check` with edited seeds, and two positions at which to split each.
#[expect(clippy::print_stderr, reason = "a long run says how much it tried")]
fn fuzz(corpus: &[Vec<u8>], check: impl Fn(&[u8], [usize; 2])) {
    let seconds = std::env::var("LISTLESS_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let runs = Runs { cases: INPUTS, failure_persistence: None, ..Runs::default() };
    let input = (any::<Index>(), edits(), any::<[Index; 2]>());
    let (began, mut executions) = (Instant::now(), 0_u64);
    loop {
        let mut runner = match seconds {
            None => TestRunner::new_with_rng(runs.clone(), deterministic()),
            Some(_) => TestRunner::new(runs.clone()),
        };
        let outcome = runner.run(&input, |(seed, edits, cuts)| {
            let bytes = edited(corpus, seed, &edits);
            check(&bytes, cuts.map(|cut| cut.index(bytes.len() + 1)));
            Ok(())
        });
        if let Err(TestError::Fail(why, (seed, edits, _))) = outcome {
            let bytes = edited(corpus, seed, &edits);
            panic!("{why}: {:?}", String::from_utf8_lossy(&bytes));
        }
        executions += u64::from(INPUTS);
        if began.elapsed() >= Duration::from_secs(seconds.unwrap_or(0)) {
            eprintln!("{executions} inputs");
            return;
        }
    }
}

fn deterministic() -> proptest::test_runner::TestRng {
    use proptest::test_runner::{RngAlgorithm, TestRng};
    TestRng::deterministic_rng(RngAlgorithm::ChaCha)
}

fn pieces(bytes: &[u8], cuts: [usize; 2]) -> [&[u8]; 3] {
    let (first, last) = (cuts[0].min(cuts[1]), cuts[0].max(cuts[1]));
    [&bytes[..first], &bytes[first..last], &bytes[last..]]
}

#[test]
fn request_lines() {
    fuzz(&corpus("requests"), |bytes, _| {
        let text = String::from_utf8_lossy(bytes);
        let (method, target) = text.split_once(' ').unwrap_or(("GET", &text));
        let (Ok(method), Ok(uri)) = (method.parse::<Method>(), target.parse::<Uri>()) else {
            return;
        };
        let info = RequestInfo::parse(&method, &uri, &HeaderMap::new());
        let _ = (info.verb(), info.scope_label());
    });
}

#[test]
fn label_selectors() {
    fuzz(&corpus("labels"), |bytes, _| {
        let Ok(selector) = LabelSelector::parse(&String::from_utf8_lossy(bytes)) else { return };
        let written = selector.to_string();
        assert_eq!(LabelSelector::parse(&written).as_ref(), Ok(&selector), "{written}");
        assert!(selector.is_subset_of(&selector));
    });
}

#[test]
fn field_selectors() {
    fuzz(&corpus("fields"), |bytes, _| {
        let Ok(selector) = FieldSelector::parse(&String::from_utf8_lossy(bytes)) else { return };
        let written = selector.to_string();
        assert_eq!(FieldSelector::parse(&written).as_ref(), Ok(&selector), "{written}");
        assert!(selector.is_subset_of(&selector));
    });
}

#[test]
fn responses_in_any_pieces() {
    for media in ["application/json", "application/vnd.kubernetes.protobuf"] {
        fuzz(&corpus("answers"), |bytes, cuts| {
            let learned = |pieces: &[&[u8]]| {
                let mut learner = Learner::new(Some(media), None);
                pieces.iter().for_each(|piece| learner.push(piece));
                learner.finish()
            };
            assert_eq!(learned(&[bytes]), learned(&pieces(bytes, cuts)), "{media}");
        });
    }
}

/// A list in protobuf with one object.
fn protobuf_list() -> Vec<u8> {
    let message = |fields: &[(u8, &[u8])]| {
        let mut message = Vec::new();
        fields.iter().for_each(|(number, value)| put_bytes(&mut message, *number, value));
        message
    };
    let label = message(&[(1, b"app"), (2, b"web")]);
    let object = message(&[(1, b"a"), (3, b"b"), (5, b"u"), (6, b"3"), (11, &label)]);
    let list = message(&[(1, &message(&[(2, b"12")])), (2, &message(&[(1, &object), (3, b"")]))]);
    let kind = message(&[(1, b"v1"), (2, b"PodList")]);
    let unknown = message(&[(1, &kind), (2, &list), (3, b""), (4, b"")]);
    [&b"k8s\0"[..], &unknown].concat()
}

/// The splitter of a replica's list, and the reader of its objects.
#[test]
fn lists_in_any_pieces() {
    let pods = GroupVersionResource::new("", "v1", "pods");
    let seeds = [corpus("answers"), corpus("lists"), vec![protobuf_list()]].concat();
    // Ages of rows are read at the time of their arrival: five minutes after the creation of one.
    let at = Moment(1_767_225_900_000_000_000);
    for form in [Form::Json, Form::Protobuf, Form::Table] {
        fuzz(&seeds, |bytes, cuts| {
            let read = |pieces: &[&[u8]]| {
                let mut splitter = ListSplitter::new(form, &pods, 1_000);
                splitter.arrives(Window { from: at, to: at });
                let mut reader = Reader::new(pods.clone(), Scope::All, form);
                let mut objects = Vec::new();
                let mut keep = |item: &[u8]| {
                    let object = reader.item(item).map(|(object, style)| {
                        let (key, version) = (object.key().clone(), object.version().clone());
                        (key, version, object.raw().clone(), style)
                    });
                    objects.push(object.map_err(|error| error.to_string()));
                    Ok::<_, ReflectorFailure>(())
                };
                let fed = pieces.iter().try_for_each(|piece| splitter.feed(piece, &mut keep));
                let ended = fed.map(|()| splitter.finish().map_err(|error| error.to_string()));
                (objects, ended.map_err(|error| error.to_string()))
            };
            assert_eq!(read(&[bytes]), read(&pieces(bytes, cuts)), "{form:?}");
        });
    }
}

#[test]
fn kubeconfigs() {
    fuzz(&corpus("kubeconfigs"), |bytes, _| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(read) = Kubeconfig::from_yaml(&text) else { return };
        let written = kubeconfig::yaml(&read).expect("YAML");
        let again = Kubeconfig::from_yaml(&written).expect("what is written is read");
        let value = |it: &Kubeconfig| serde_json::to_value(it).expect("JSON");
        assert_eq!(value(&again), value(&read), "{written}");
    });
}

#[test]
fn protobuf_messages() {
    let pods = GroupVersionResource::new("", "v1", "pods");
    let seeds = [corpus("answers"), corpus("watches")].concat();
    fuzz(&seeds, |bytes, _| {
        let mut written = Vec::new();
        for field in Fields::of(bytes) {
            let Ok(field) = field else { break };
            assert_eq!(field.start, written.len());
            match field.value {
                Value::Bytes(value) if field.number < 16 => {
                    put_bytes(&mut written, field.number as u8, value);
                }
                Value::Number(number) => {
                    put_number(&mut written, field.number << 3);
                    put_number(&mut written, number);
                }
                Value::Bytes(_) | Value::Fixed => {
                    written.extend_from_slice(&bytes[field.start..field.end]);
                }
            }
        }
        assert!(bytes.starts_with(&written), "what is parsed is written again");
        let _ = protobuf_field_values(&pods, bytes);
    });
}

#[test]
fn watches_in_any_pieces() {
    let http = |media| WatchReader::http(Some(media), None).expect("a form that is read");
    let json = || http("application/json");
    let protobuf = || http("application/vnd.kubernetes.protobuf");
    let forms: [&dyn Fn() -> WatchReader; 3] = [&json, &protobuf, &WatchReader::websocket];
    for form in forms {
        fuzz(&corpus("watches"), |bytes, cuts| {
            let shown = |pieces: &[&[u8]]| {
                let (mut reader, mut shown) = (form(), Vec::new());
                let ended =
                    pieces.iter().try_for_each(|piece| reader.push(piece, |one| shown.push(one)));
                (shown, ended)
            };
            assert_eq!(shown(&[bytes]), shown(&pieces(bytes, cuts)));
        });
    }
}

#[test]
fn websocket_frames_in_any_pieces() {
    let frames = [
        &b"\x88\x82abcd\x62\x8a"[..],
        b"\x89\x81abcdx",
        b"\x81\xfe\x00\x7eabcd",
        b"\x82\xff\0\0\0\0\0\0\0\x01abcdz",
    ];
    let frames: Vec<_> = frames.iter().map(|frame| frame.to_vec()).collect();
    fuzz(&frames, |bytes, cuts| {
        let told = |pieces: &[&[u8]]| {
            let (mut incoming, mut told) = (Incoming::default(), Vec::new());
            let ended = pieces.iter().try_for_each(|piece| {
                incoming.push(piece, |message| told.push(format!("{message:?}")))
            });
            (told, ended.is_ok())
        };
        assert_eq!(told(&[bytes]), told(&pieces(bytes, cuts)));
    });
}

#[test]
fn admission_reviews() {
    let settings = Settings::default();
    fuzz(&corpus("reviews"), |bytes, _| {
        let Ok((answer, verdict)) = review::answer(bytes, &settings) else { return };
        let answer = serde_json::to_value(&answer).expect("JSON");
        assert_eq!(answer["response"]["allowed"], true);
        assert_eq!(answer["response"]["patch"].is_string(), verdict.outcome.is_ok());
    });
}

#[test]
fn manifests_are_restored() {
    let settings = Settings::default();
    fuzz(&manifests(), |bytes, _| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let Ok(without) = manifest::uninject(text) else { return };
        let Ok(with) = manifest::inject(&without.text, &settings) else { return };
        let again = manifest::inject(&with.text, &settings).expect("the output parses again");
        assert_eq!(again.text, with.text, "injecting twice changes nothing");
    });
}

#[test]
fn continue_tokens() {
    fuzz(&corpus("tokens"), |bytes, _| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), URL_SAFE_NO_PAD.encode(bytes)] {
            let Some(token) = ContinueToken::decode(&text) else { continue };
            assert_eq!(token.encode(), Some(text), "{token:?}");
        }
    });
}

#[test]
fn configurations() {
    fuzz(&corpus("configurations"), |bytes, _| {
        let file = Path::new("f.yaml");
        let Ok(config) = Config::from_bytes(file, bytes) else { return };
        let written = listless::config::effective_document(config.raw());
        assert!(Config::from_bytes(file, written.as_bytes()).is_ok(), "{written}");
    });
}

#[test]
fn accept_headers() {
    fuzz(&corpus("accept"), |bytes, _| {
        let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
        let headers = HeaderMap::from_iter([(HeaderName::from_static("accept"), value)]);
        let _ = (Negotiated::of(&headers, None), Negotiated::of_watch(&headers));
    });
}
