//! The embedded bucket: a directory of this machine with the same generation semantics, safe between processes.
