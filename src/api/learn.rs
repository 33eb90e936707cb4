//! stub
use super::version::ResourceVersion;
use std::collections::BTreeMap;
#[derive(Debug)]
pub struct Learner;
#[derive(Debug)]
pub struct LearnedObject { pub name: String, pub namespace: Option<String>, pub uid: String, pub version: ResourceVersion, pub labels: BTreeMap<String,String>, pub lingers: bool }
impl LearnedObject { pub fn is_gone(&self) -> bool { false } }
#[derive(Debug)]
pub enum Learned { Object(LearnedObject), List { version: ResourceVersion }, Status { details_uid: Option<String>, name: Option<String> }, Nothing }
impl Learner {
  pub fn new(_c: Option<&str>, _e: Option<&str>) -> Self { Self }
  pub fn push(&mut self, _b: &[u8]) {}
  pub fn is_complete(&self) -> bool { false }
  pub fn finish(self) -> Learned { Learned::Nothing }
}
