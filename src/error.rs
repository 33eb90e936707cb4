//! The one place that turns a failure into a Status answer.
