//! Health, metrics and insight endpoints, apart from the data path.
