//! A container's variables: the apiserver's address, and the exceptions from an HTTP proxy.
//!
//! The address comes first, so that later variables can refer to it. Variables that the container
//! sets itself are changed in place, because the last variable of a name counts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    edit::{Editor, Pointer},
    pod::name,
};

/// The original variables of a container by name. Absent ones are null.
pub(super) type Before = BTreeMap<String, Option<Value>>;

pub(super) const HOST: &str = "KUBERNETES_SERVICE_HOST";
pub(super) const PORT: &str = "KUBERNETES_SERVICE_PORT";
const PORT_HTTPS: &str = "KUBERNETES_SERVICE_PORT_HTTPS";
/// The variables with the apiserver's address.
pub(super) const ADDRESS: [&str; 3] = [HOST, PORT, PORT_HTTPS];

const LOOPBACK: &str = "127.0.0.1";
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
const EXCEPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// The hosts that every container must reach without a proxy.
const LOCAL: [&str; 3] = [LOOPBACK, "localhost", "::1"];

/// Returns the effective variable of a name.
pub(super) fn variable<'a>(container: &'a Value, wanted: &str) -> Option<(usize, &'a Value)> {
    let variables = super::pod::list(container, "env");
    variables.iter().enumerate().rev().find(|(_, variable)| name(variable) == wanted)
}

/// Returns its value, if it is text. A variable without a value is empty.
pub(super) fn literal(variable: &Value) -> Option<&str> {
    if variable.get("valueFrom").is_some_and(|from| !from.is_null()) {
        return None;
    }
    Some(variable["value"].as_str().unwrap_or(""))
}

/// Returns the required value of an address variable.
pub(super) fn wanted(variable: &str, port: u16) -> String {
    if variable == HOST { LOOPBACK.to_owned() } else { port.to_string() }
}

/// Reports whether a container's exceptions from its proxy may be in `envFrom`. Exceptions that are
/// added to `env` would replace them.
pub(super) fn may_hide_exceptions(container: &Value) -> bool {
    has_proxy(container)
        && !super::pod::list(container, "envFrom").is_empty()
        && EXCEPTIONS.iter().all(|name| variable(container, name).is_none())
}

/// Redirects a container to the sidecar. Records its original variables in `before`, unless it
/// `is_led` already. Returns its earlier list of them if that was empty.
pub(super) fn redirect(
    editor: &mut Editor,
    container: &Pointer,
    port: u16,
    is_led: bool,
    before: &mut Before,
) -> Option<Value> {
    let env = container.child("env");
    let mut missing = Vec::new();
    for name in ADDRESS {
        let value = wanted(name, port);
        match current(editor, container, name) {
            None => missing.push(json!({"name": name, "value": value})),
            Some((_, variable)) if literal(&variable) == Some(value.as_str()) => {
                if !is_led {
                    before.insert(name.to_owned(), Some(variable));
                }
            }
            Some((index, variable)) => {
                before.insert(name.to_owned(), Some(variable));
                editor.morph(&env.child(index), &json!({"name": name, "value": value}));
            }
        }
    }
    let was = if missing.is_empty() { None } else { editor.insert(&env, 0, missing) };
    if container.of(editor.document()).is_some_and(has_proxy) {
        except_local(editor, container, before);
    }
    was
}

/// Excludes loopback addresses from proxies.
fn except_local(editor: &mut Editor, container: &Pointer, before: &mut Before) {
    let env = container.child("env");
    let there = |editor: &Editor, name: &&str| current(editor, container, name).is_some();
    if !EXCEPTIONS.iter().any(|name| there(editor, name)) {
        for name in EXCEPTIONS {
            let variable = json!({"name": name, "value": LOCAL.join(",")});
            editor.insert(&env, usize::MAX, vec![variable]);
            before.insert(name.to_owned(), None);
        }
        return;
    }
    for name in EXCEPTIONS {
        let Some((index, variable)) = current(editor, container, name) else { continue };
        let Some(value) = literal(&variable) else {
            except_besides(editor, container, name, &variable, before);
            continue;
        };
        let hosts: Vec<_> =
            value.split(',').map(str::trim).filter(|host| !host.is_empty()).collect();
        let missing: Vec<_> = LOCAL.into_iter().filter(|host| !hosts.contains(host)).collect();
        if missing.is_empty() || hosts.contains(&"*") {
            continue;
        }
        let value = hosts.iter().chain(&missing).copied().collect::<Vec<_>>().join(",");
        before.insert(name.to_owned(), Some(variable.clone()));
        editor.morph(&env.child(index), &json!({"name": name, "value": value}));
    }
}

/// Excludes loopback addresses if only the kubelet knows the list: it is renamed, and referred to.
fn except_besides(
    editor: &mut Editor,
    container: &Pointer,
    name: &str,
    variable: &Value,
    before: &mut Before,
) {
    let Some((index, _)) = current(editor, container, name) else { return };
    let mut renamed = format!("LISTLESS_{name}");
    while current(editor, container, &renamed).is_some() {
        renamed.push('_');
    }
    let mut moved = variable.clone();
    moved["name"] = json!(renamed);
    let value = format!("$({renamed}),{}", LOCAL.join(","));
    let env = container.child("env");
    editor.morph(&env.child(index), &json!({"name": name, "value": value}));
    editor.insert(&env, index, vec![moved]);
    before.insert(name.to_owned(), Some(variable.clone()));
    before.insert(renamed, None);
}

/// Restores a container's original variables.
pub(super) fn restore(
    editor: &mut Editor,
    container: &Pointer,
    port: u16,
    before: &Before,
    was: Option<&Value>,
) {
    let env = container.child("env");
    for (name, was) in before {
        let Some((index, _)) = current(editor, container, name) else { continue };
        match was {
            Some(variable) => editor.morph(&env.child(index), variable),
            None => editor.remove(env.child(index)),
        }
    }
    for name in ADDRESS.into_iter().filter(|name| !before.contains_key(*name)) {
        let Some((index, variable)) = current(editor, container, name) else { continue };
        if literal(&variable) == Some(wanted(name, port).as_str()) {
            editor.remove(env.child(index));
        }
    }
    editor.tidy(env, was);
}

fn current(editor: &Editor, container: &Pointer, name: &str) -> Option<(usize, Value)> {
    let (index, variable) = variable(container.of(editor.document())?, name)?;
    Some((index, variable.clone()))
}

fn has_proxy(container: &Value) -> bool {
    let is_set = |(_, variable): (usize, &Value)| literal(variable) != Some("");
    PROXIES.iter().any(|name| variable(container, name).is_some_and(is_set))
}
