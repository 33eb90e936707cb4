//! An in-process apiserver for the demo and the hermetic tests.
