//! The command line: arguments in, one command run, an exit code out.
