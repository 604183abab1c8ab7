//! The directory bucket: the suite of all buckets, then what only files have: modes, damage, crashes, other processes.

use super::*;
use crate::vault::bucket::conformance::{Fresh, Scale, conforms};

async fn fresh() -> Fresh {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("bucket");
    let open = || Arc::new(Directory::open(&path).unwrap());
    Fresh { one: open(), two: open(), keep: Box::new(dir) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_does_all_that_a_bucket_has_to_do() {
    conforms(fresh, Scale::default()).await;
}
