//! List-and-watch: the only writer of one replica.
