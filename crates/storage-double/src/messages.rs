//! The messages of `google.storage.v2` that the double needs, with the numbers of the service's own definitions.

use bytes::Bytes;
use prost_types::{Duration, FieldMask, Timestamp};
use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteObjectRequest {
    #[prost(string, tag = "1")]
    pub(crate) bucket: String,
    #[prost(string, tag = "2")]
    pub(crate) object: String,
    #[prost(int64, tag = "4")]
    pub(crate) generation: i64,
    #[prost(int64, optional, tag = "5")]
    pub(crate) if_generation_match: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub(crate) if_generation_not_match: Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub(crate) if_metageneration_match: Option<i64>,
    #[prost(int64, optional, tag = "8")]
    pub(crate) if_metageneration_not_match: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetObjectRequest {
    #[prost(string, tag = "1")]
    pub(crate) bucket: String,
    #[prost(string, tag = "2")]
    pub(crate) object: String,
    #[prost(int64, tag = "3")]
    pub(crate) generation: i64,
    #[prost(int64, optional, tag = "4")]
    pub(crate) if_generation_match: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub(crate) if_generation_not_match: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub(crate) if_metageneration_match: Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub(crate) if_metageneration_not_match: Option<i64>,
    #[prost(message, optional, tag = "10")]
    pub(crate) read_mask: Option<FieldMask>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListObjectsRequest {
    #[prost(string, tag = "1")]
    pub(crate) parent: String,
    #[prost(int32, tag = "2")]
    pub(crate) page_size: i32,
    #[prost(string, tag = "3")]
    pub(crate) page_token: String,
    #[prost(string, tag = "4")]
    pub(crate) delimiter: String,
    #[prost(string, tag = "6")]
    pub(crate) prefix: String,
    #[prost(message, optional, tag = "8")]
    pub(crate) read_mask: Option<FieldMask>,
    #[prost(string, tag = "10")]
    pub(crate) lexicographic_start: String,
    #[prost(string, tag = "11")]
    pub(crate) lexicographic_end: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListObjectsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) objects: Vec<Object>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) prefixes: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) next_page_token: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Checksums {
    #[prost(fixed32, optional, tag = "1")]
    pub(crate) crc32c: Option<u32>,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) md5_hash: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Object {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) bucket: String,
    #[prost(int64, tag = "3")]
    pub(crate) generation: i64,
    #[prost(int64, tag = "4")]
    pub(crate) metageneration: i64,
    #[prost(int64, tag = "6")]
    pub(crate) size: i64,
    #[prost(string, tag = "13")]
    pub(crate) content_type: String,
    #[prost(message, optional, tag = "14")]
    pub(crate) create_time: Option<Timestamp>,
    #[prost(message, optional, tag = "16")]
    pub(crate) checksums: Option<Checksums>,
    #[prost(message, optional, tag = "17")]
    pub(crate) update_time: Option<Timestamp>,
    #[prost(map = "string, string", tag = "22")]
    pub(crate) metadata: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct UpdateObjectRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) object: Option<Object>,
    #[prost(int64, optional, tag = "2")]
    pub(crate) if_generation_match: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub(crate) if_generation_not_match: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub(crate) if_metageneration_match: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub(crate) if_metageneration_not_match: Option<i64>,
    #[prost(message, optional, tag = "7")]
    pub(crate) update_mask: Option<FieldMask>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetBucketRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) read_mask: Option<FieldMask>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Flag {
    #[prost(bool, tag = "1")]
    pub(crate) on: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RetentionPolicy {
    #[prost(bool, tag = "2")]
    pub(crate) is_locked: bool,
    #[prost(message, optional, tag = "4")]
    pub(crate) retention_duration: Option<Duration>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SoftDeletePolicy {
    #[prost(message, optional, tag = "1")]
    pub(crate) retention_duration: Option<Duration>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Action {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Condition {
    #[prost(int32, optional, tag = "1")]
    pub(crate) age_days: Option<i32>,
    #[prost(bool, optional, tag = "3")]
    pub(crate) is_live: Option<bool>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) num_newer_versions: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    pub(crate) days_since_custom_time: Option<i32>,
    #[prost(int32, optional, tag = "9")]
    pub(crate) days_since_noncurrent_time: Option<i32>,
    #[prost(string, repeated, tag = "11")]
    pub(crate) matches_prefix: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LifecycleRule {
    #[prost(message, optional, tag = "1")]
    pub(crate) action: Option<Action>,
    #[prost(message, optional, tag = "2")]
    pub(crate) condition: Option<Condition>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Lifecycle {
    #[prost(message, repeated, tag = "1")]
    pub(crate) rule: Vec<LifecycleRule>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Bucket {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) bucket_id: String,
    #[prost(string, tag = "7")]
    pub(crate) storage_class: String,
    #[prost(message, optional, tag = "10")]
    pub(crate) lifecycle: Option<Lifecycle>,
    #[prost(bool, tag = "14")]
    pub(crate) default_event_based_hold: bool,
    #[prost(message, optional, tag = "17")]
    pub(crate) versioning: Option<Flag>,
    #[prost(message, optional, tag = "21")]
    pub(crate) billing: Option<Flag>,
    #[prost(message, optional, tag = "22")]
    pub(crate) retention_policy: Option<RetentionPolicy>,
    #[prost(message, optional, tag = "31")]
    pub(crate) soft_delete_policy: Option<SoftDeletePolicy>,
    #[prost(message, optional, tag = "33")]
    pub(crate) object_retention: Option<Flag>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TestIamPermissionsRequest {
    #[prost(string, tag = "1")]
    pub(crate) resource: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) permissions: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TestIamPermissionsResponse {
    #[prost(string, repeated, tag = "1")]
    pub(crate) permissions: Vec<String>,
}
