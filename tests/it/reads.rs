//! LIST and GET: the reads that memory answers, their bytes, and the start and end of a replica.

mod aggregated;
mod compressed;
mod exact;
mod forms;
mod negotiation;
mod replicas;
mod rewriting;
mod schemas;
mod versions;
