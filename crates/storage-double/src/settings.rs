//! Settings of a bucket.

/// A lifecycle rule.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    /// `Delete`, `SetStorageClass` or `AbortIncompleteMultipartUpload`.
    pub action: String,
    /// Days since the object's creation.
    pub age_days: Option<i32>,
    /// True if the object must be its current version, false if it must not be.
    pub is_live: Option<bool>,
    /// Number of newer versions of the object.
    pub newer_versions: Option<i32>,
    /// Days since a newer version replaced it.
    pub days_since_noncurrent: Option<i32>,
    /// Days since its custom time.
    pub days_since_custom_time: Option<i32>,
    /// Prefixes of the objects' names; empty: all objects.
    pub prefixes: Vec<String>,
}

/// Settings of a bucket.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// True if old versions are kept.
    pub versioning: bool,
    /// Seconds for which deleted objects can be restored.
    pub soft_delete: Option<i64>,
    /// Seconds for which an object may be neither replaced nor deleted.
    pub retention: Option<i64>,
    /// True if objects may have a retention of their own.
    pub object_retention: bool,
    /// True if new objects are held until somebody lifts the hold.
    pub event_based_hold: bool,
    /// True if the caller pays.
    pub requester_pays: bool,
    /// Class of new objects; empty: `STANDARD`.
    pub storage_class: String,
    /// Rules by which the service deletes or moves objects.
    pub lifecycle: Vec<Rule>,
    /// Permissions that the caller lacks, such as `storage.objects.create`.
    pub denied: Vec<&'static str>,
}
