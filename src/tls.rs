//! Certificates and roots: made, loaded, turned into rustls configurations.
