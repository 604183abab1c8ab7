//! Azure DevOps Services and Server over REST (7.0).

mod address;
pub mod shapes;

pub use address::AzureAddress;
