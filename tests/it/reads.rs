//! LIST and GET: what memory answers, in which bytes, and what starts and ends a replica.

mod exact;
mod forms;
mod negotiation;
mod replicas;
mod rewriting;
mod schemas;
mod versions;
