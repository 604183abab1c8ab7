//! Settings of Atlantis that are known and have no effect: their feature does not exist here, or works differently.

use super::table::Support::Accepted;

without_effect! {
    static SETTINGS {
        Accepted("our mirrors need none") => {
            "checkout-depth": Number = "0", "Depth of clones.";
        }
        Accepted("on GitLab a status that waits is canceled, so that no pipeline runs on; elsewhere it is always kept pending") => {
            "pending-apply-status": Switch = "false", "Keep the apply status pending while plans wait, on GitLab.";
        }
        Accepted("always on in effect") => {
            "skip-clone-no-changes": Switch = "false", "Do not clone when no project changed.";
        }
        Accepted("") => {
            "websocket-check-origin": Switch = "false", "Check the origin of readers of live logs; always on.";
        }
        Accepted("plans are kept in the bucket") => {
            "enable-external-stores": Switch = "false", "Keep plans in an external store; see bucket.";
            "share-plan-dir": Path, "Where Atlantis keeps plan files.";
        }
        Accepted("there is no such API") => {
            "enable-profiling-api": Switch = "false", "Profiles of the running server.";
        }
        Accepted("lists are read to their end, in pages of the size that the host has") => {
            "gitea-page-size": Number = "30", "Page size of Gitea's API.";
        }
        Accepted("the merge request names the pipeline of a status") => {
            "gitlab-status-retry-enabled": Switch = "false", "Retry longer to find the pipeline of a status.";
        }
        Accepted("locks are kept in the bucket") => {
            "locking-db-type": Text = "boltdb", "Where Atlantis keeps locks.";
            "redis-cluster-addresses": List, "Redis.";
            "redis-db": Number = "0", "Redis.";
            "redis-host": Text, "Redis.";
            "redis-insecure-skip-verify": Switch = "false", "Redis.";
            "redis-password": Secret, "Redis.";
            "redis-port": Number = "6379", "Redis.";
            "redis-tls-enabled": Switch = "false", "Redis.";
            "redis-username": Text, "Redis.";
        }
        Accepted("a remote run is known by what Terraform says; logs are live either way") => {
            "tfe-local-execution-mode": Switch = "false", "Terraform Enterprise runs nothing itself.";
        }
    }
}
