//! Decisions of Tidelock, made without disk, network, clock or database.
//!
//! [`comment`] parses commands, [`config`] the configuration of repositories and servers, and [`inputs`] finds the files that a project is
//! made of. [`guards`] refuses what operators forbid plans and code to do. [`schedule`] selects projects and their order, and [`locks`] decides who may change one. [`render`] makes the text of comments
//! and commit statuses, in the words of [`wording`]. [`plan_text`] reads plans as Terraform prints them. [`domain`] has the types that all of them share with the packages around this one.

pub mod comment;
pub mod config;
pub mod domain;
pub mod guards;
pub mod inputs;
pub mod locks;
pub mod plan_text;
pub mod render;
pub mod schedule;
pub mod wording;

#[cfg(any(test, feature = "test-support"))]
pub mod mutation;
