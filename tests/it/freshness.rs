//! Every later read of a session contains what the session wrote or was shown.

mod content;
mod levels;
mod mixed;

mod model;
mod monotonic;
mod protobuf;
mod races;
mod writes;
