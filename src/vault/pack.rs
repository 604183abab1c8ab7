//! The format of journal and base objects: one header that holds the hashes of everything behind it, then contents.
