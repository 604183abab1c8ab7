//! Bad input, wherever it comes from: each gets a clear error where a person looks, and the next pull request is planned.

mod deliveries;
mod host;
mod markup;
mod repositories;
mod tools;
