//! Requests of a simulated server, and their answers.

use super::jobs::JobStep;
use crate::bucket::{Generation, Listed, Written};
use bytes::Bytes;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Content of an object, with a short digest of it for comparisons.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) bytes: Bytes,
    pub(super) digest: u64,
}

impl Content {
    pub(super) fn new(bytes: Bytes) -> Content {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Content { digest: hasher.finish(), bytes }
    }
}

impl Hash for Content {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// One request to the bucket, the host or the machine.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Get(Arc<str>),
    Range(Arc<str>, Generation, u64, u64),
    Put {
        name: Arc<str>,
        expected: Option<Generation>,
        content: Content,
        label: Arc<str>,
    },
    Delete(Arc<str>, Option<Generation>),
    List(Arc<str>, Arc<str>),
    Sleep(Duration),
    /// Posts a comment on the delivery's pull request.
    Post(Arc<str>),
    Comments(Arc<str>),
    DeleteComment(u64),
    SetStatus(u64),
    Status,
    /// Starts terraform.
    Spawn(Arc<str>),
    /// An effect outside the bucket without any trace, to check that it is allowed.
    Act,
    /// A step of a leader or attempt of a job that is not a request to the bucket.
    Job(JobStep),
}

impl Op {
    /// Returns true if it changes something, so that it can take effect after the server has stopped waiting for its answer.
    pub(super) fn writes(&self) -> bool {
        matches!(
            self,
            Op::Put { .. } | Op::Delete(..) | Op::Post(_) | Op::DeleteComment(_) | Op::SetStatus(_) | Op::Spawn(_)
        )
    }

    /// Returns true if it is a request to the bucket.
    pub(super) fn is_of_bucket(&self) -> bool {
        matches!(self, Op::Get(_) | Op::Range(..) | Op::Put { .. } | Op::Delete(..) | Op::List(..))
    }

    /// Returns true if its effect is outside the bucket.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self, Op::Post(_) | Op::SetStatus(_) | Op::Spawn(_) | Op::Act)
    }
}

/// Answer to a request.
#[derive(Clone)]
pub(super) enum Reply {
    /// There was no usable answer.
    Lost,
    /// The bucket refused the request, for example for lack of permission, and did nothing.
    Refused,
    Done,
    Object(Option<(Generation, Content)>),
    Range(Option<Bytes>),
    Written(Written),
    Deleted(bool),
    Listed(Arc<Vec<Listed>>),
    Comments(Vec<u64>),
    Status(u64),
}

impl Reply {
    /// Returns a digest, for the identity of a server's history.
    pub(super) fn digest(&self) -> u64 {
        let mut h = DefaultHasher::new();
        std::mem::discriminant(self).hash(&mut h);
        match self {
            Reply::Lost | Reply::Refused | Reply::Done => {}
            Reply::Object(object) => object.hash(&mut h),
            Reply::Range(bytes) => bytes.hash(&mut h),
            Reply::Written(Written::Stored(generation)) => generation.hash(&mut h),
            Reply::Written(Written::Refused) => {}
            Reply::Deleted(gone) => gone.hash(&mut h),
            Reply::Listed(list) => {
                list.iter().for_each(|o| (&o.name, o.generation, o.size, o.created, &o.label).hash(&mut h))
            }
            Reply::Comments(ids) => ids.hash(&mut h),
            Reply::Status(count) => count.hash(&mut h),
        }
        h.finish()
    }
}
