//! Users that children run as.

use std::fmt;

/// User and group IDs for children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
}

/// Users for children, each with the group of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAsUsers {
    first: u32,
    last: u32,
}

impl RunAsUsers {
    /// Returns the users from `first` to `last`; `None` if there is none, or root is among them.
    pub fn new(first: u32, last: u32) -> Option<RunAsUsers> {
        (0 < first && first <= last).then_some(RunAsUsers { first, last })
    }

    /// Returns the first user.
    pub fn first(self) -> RunAs {
        RunAs { uid: self.first, gid: self.first }
    }

    /// Returns the only user, or `None` if there are several.
    pub fn only(self) -> Option<RunAs> {
        (self.first == self.last).then(|| self.first())
    }

    /// Returns all users.
    pub fn iter(self) -> impl Iterator<Item = RunAs> {
        (self.first..=self.last).map(|id| RunAs { uid: id, gid: id })
    }

    /// Returns true if this user is one of them.
    pub fn contains(self, uid: u32) -> bool {
        (self.first..=self.last).contains(&uid)
    }
}

impl fmt::Display for RunAsUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.only() {
            Some(user) => write!(f, "user {}", user.uid),
            None => write!(f, "users {} to {}, one for each pull request at work", self.first, self.last),
        }
    }
}
