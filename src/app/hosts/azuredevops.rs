//! Azure DevOps: the addresses of its service hooks.

use crate::web::access::address::Published;

/// Ranges for service hooks (learn.microsoft.com, "Allowed IP addresses and domain URLs"; as of November 2026). Microsoft publishes no
/// list for machines of these alone.
const RANGES: &[&str] = &[
    "20.37.158.0/23",
    "20.37.194.0/24",
    "20.39.13.0/26",
    "20.41.6.0/23",
    "20.41.194.0/24",
    "20.42.5.0/24",
    "20.42.134.0/23",
    "20.42.226.0/24",
    "20.45.196.64/26",
    "20.91.148.128/25",
    "20.125.155.0/24",
    "20.166.41.0/24",
    "20.189.107.0/24",
    "20.195.68.0/24",
    "20.204.197.192/26",
    "20.233.130.0/25",
    "40.74.28.0/23",
    "40.80.187.0/24",
    "40.82.252.0/24",
    "40.119.10.0/24",
    "51.104.26.0/24",
    "52.150.138.0/24",
    "52.228.82.0/24",
    "191.235.226.0/24",
];

/// Under the word `azuredevops`.
pub(super) fn published() -> Published {
    Published { word: "azuredevops", known: RANGES, address: None, read: |_| None }
}
