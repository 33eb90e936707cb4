//! Just enough protobuf to learn from a write's answer: metadata of an object, list or Status.
#![expect(unused_variables, missing_docs, reason = "stub")]
