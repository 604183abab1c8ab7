//! What Tidelock decides, without disk, network, clock or database.
//!
//! [`comment`] reads what people ask for, [`config`] what repositories and servers set, [`inputs`] what a project is made of; [`schedule`]
//! chooses projects and their order, and [`locks`] decides who may change one. [`domain`] has the types that all of them, and the packages
//! around this one, share.

pub mod comment;
pub mod config;
pub mod domain;
pub mod inputs;
pub mod locks;
pub mod schedule;

#[cfg(any(test, feature = "test-support"))]
pub mod mutation;
