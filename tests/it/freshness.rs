//! What a session has written or been shown is in everything it reads afterwards.

mod levels;

mod model;
mod monotonic;
mod protobuf;
mod races;
mod writes;
