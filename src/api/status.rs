//! Status answers.
use super::GroupResource;
/// not found
pub fn not_found(resource: &GroupResource, name: &str) -> bytes::Bytes {
    format!("{resource} {name}").into()
}
