//! Bad input from everywhere: people get a clear error at the usual place, and the next pull request is planned.

mod deliveries;
mod host;
mod markup;
mod repositories;
mod tools;
