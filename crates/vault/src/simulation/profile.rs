//! Faults of random runs.

/// Kinds and frequencies of faults in a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Profile {
    pub(super) name: &'static str,
    /// Chance of a pause before and after each effect, and of a lost answer.
    pub(super) pause: f64,
    pub(super) lost: f64,
    /// Chance that the bucket refuses a request, as without rights.
    pub(super) refused: f64,
    pub(super) kills: u64,
    pub(super) rollouts: u64,
    pub(super) deliveries: u64,
    /// Largest factor by which clocks drift, and the number of their jumps.
    pub(super) drift: f64,
    pub(super) jumps: u64,
    /// True if only requests are slow, never processes. Then only the holder of the lease has effects outside the bucket.
    pub(super) slow_network: bool,
    /// Number of servers that stand by from the beginning.
    pub(super) standbys: u64,
}

const CALM_SEA: Profile = Profile {
    name: "",
    pause: 0.0,
    lost: 0.0,
    refused: 0.0,
    kills: 0,
    rollouts: 0,
    deliveries: 10,
    drift: 1.02,
    jumps: 0,
    slow_network: false,
    standbys: 0,
};

pub(super) const PROFILES: [Profile; 8] = [
    Profile { name: "chaos", pause: 0.010, lost: 0.03, kills: 3, rollouts: 2, drift: 5.0, jumps: 3, ..CALM_SEA },
    Profile { name: "pauses", pause: 0.015, rollouts: 2, ..CALM_SEA },
    Profile { name: "lost", lost: 0.05, ..CALM_SEA },
    // Requests without an answer are refused when they are retried.
    Profile { name: "refused", pause: 0.002, lost: 0.06, refused: 0.06, kills: 1, rollouts: 1, ..CALM_SEA },
    Profile { name: "crash", kills: 4, ..CALM_SEA },
    Profile { name: "crash1", kills: 1, ..CALM_SEA },
    Profile { name: "rollout", rollouts: 4, ..CALM_SEA },
    Profile { name: "slow", pause: 0.03, deliveries: 40, slow_network: true, standbys: 2, ..CALM_SEA },
];

pub(super) fn profile(name: &str) -> Profile {
    *PROFILES.iter().find(|p| p.name == name).unwrap()
}
