//! Responses from memory in forms other than JSON.

mod protobuf;
