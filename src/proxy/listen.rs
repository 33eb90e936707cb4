//! Accept, TLS, HTTP/1.1 and HTTP/2 serving, connection limits, drain.
