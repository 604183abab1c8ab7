//! Deposes a server.

use super::Ctx;
use tidelock_vault::bucket::{Body, Bucket, Written};
use tidelock_vault::directory::Directory;
use tidelock_vault::lease::{self, Record};

/// Takes the lease as another server, as if the server under test had been silent for too long.
pub(crate) async fn depose(ctx: &Ctx) -> u64 {
    let bucket = Directory::existing(&ctx.own.join("bucket")).unwrap();
    // The holder renews now and then, so the present generation is taken.
    loop {
        let object = bucket.get(lease::NAME).await.unwrap().unwrap();
        let mut record: Record = serde_json::from_slice(&object.bytes).unwrap();
        record.epoch += 1;
        let holder = record.holder.as_mut().unwrap();
        holder.nonce = "f".repeat(32);
        holder.machine = "somebody else".into();
        let body = Body::Bytes(serde_json::to_vec(&record).unwrap().into());
        let written = bucket.put(lease::NAME, object.generation, body, "lease").await.unwrap();
        if matches!(written, Written::Stored(_)) {
            return record.epoch;
        }
    }
}
