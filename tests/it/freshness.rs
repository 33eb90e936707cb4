//! What a session has written or been shown is in everything it reads afterwards.

mod levels;

mod monotonic;
mod writes;
