//! What a session has written or been shown is in everything it reads afterwards.

mod content;
mod levels;
mod mixed;

mod model;
mod monotonic;
mod protobuf;
mod races;
mod writes;
