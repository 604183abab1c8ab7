//! `secrets` and `masks` in `tidelock check`: references with their rules, and errors with their places.
