//! The gRPC calls that the official client makes: unary, framed by hand.

use super::accounts::{IamTarget, StorageCaller};
use super::faults::{Effect, Operation};
use super::messages as m;
use super::refusal::Refusal;
use super::settings::Settings;
use super::state::{Conditions, Query, Stored};
use super::{Body, Service, Wire, act};
use bytes::{BufMut, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use prost::Message;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

const STORAGE: &str = "/google.storage.v2.Storage/";
const CONTROL: &str = "/google.storage.control.v2.StorageControl/";
/// Bytes before a message: a flag for compression, and its length.
const FRAME: usize = 5;

pub(crate) async fn answer(
    parts: Parts,
    body: Bytes,
    service: Arc<Service>,
    wire: Arc<Wire>,
    caller: StorageCaller,
) -> Response<Body> {
    let reply = match (unframed(body), parts.headers.get("x-goog-request-params")) {
        (Some(message), Some(_)) => call(parts.uri.path(), message, &GrpcCall { service, wire, caller }).await,
        (None, _) => Err(Refusal::invalid("not one whole gRPC message")),
        (_, None) => Err(Refusal::invalid("no x-goog-request-params: the request cannot be routed")),
    };
    match reply {
        Ok(message) => replied(message),
        Err(refusal) => refuse(&refusal),
    }
}

fn unframed(body: Bytes) -> Option<Bytes> {
    let length = u32::from_be_bytes(body.get(1..FRAME)?.try_into().ok()?) as usize;
    (body.first() == Some(&0) && body.len() == FRAME + length).then(|| body.slice(FRAME..))
}

fn replied(message: Vec<u8>) -> Response<Body> {
    let mut framed = BytesMut::with_capacity(FRAME + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(framed.freeze()).with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

pub(crate) fn refuse(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(Full::default().map_err(|never| match never {}).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(refusal.code()));
    let text = refusal.message.replace('%', "%25");
    headers.insert("grpc-message", HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("refused")));
    response
}

fn decode<T: Message + Default>(message: Bytes) -> Result<T, Refusal> {
    T::decode(message).map_err(|e| Refusal::invalid(e.to_string()))
}

/// Name of the bucket in `projects/_/buckets/NAME`.
fn bucket_of(resource: &str) -> Result<String, Refusal> {
    let name = resource.strip_prefix("projects/_/buckets/").filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or_else(|| Refusal::invalid(format!("not the name of a bucket: {resource}")))
}

/// Where a request comes from.
struct GrpcCall {
    service: Arc<Service>,
    wire: Arc<Wire>,
    caller: StorageCaller,
}

impl GrpcCall {
    async fn act(
        &self,
        operation: Operation,
        name: &str,
        effect: impl FnOnce(&Service, &StorageCaller) -> Result<Vec<u8>, Refusal> + Send + 'static,
    ) -> Result<Vec<u8>, Refusal> {
        let (service, caller) = (self.service.clone(), self.caller.clone());
        let effect = async move |_: Option<Effect>| effect(&service, &caller);
        act(&self.service, &self.wire, &self.caller, operation, name, effect).await
    }
}

async fn call(path: &str, message: Bytes, from: &GrpcCall) -> Result<Vec<u8>, Refusal> {
    if let Some(method) = path.strip_prefix(CONTROL) {
        if method != "TestIamPermissions" {
            return Err(Refusal::unknown(path));
        }
        let request: m::TestIamPermissionsRequest = decode(message)?;
        let resource = request.resource.clone();
        let effect = move |service: &Service, caller: &StorageCaller| test_permissions(service, caller, request);
        return from.act(Operation::TestPermissions, &resource, effect).await;
    }
    match path.strip_prefix(STORAGE).unwrap_or(path) {
        "DeleteObject" => {
            let request: m::DeleteObjectRequest = decode(message)?;
            let name = request.object.clone();
            from.act(Operation::Delete, &name, move |service, caller| delete(service, caller, &request)).await
        }
        "GetObject" => {
            let request: m::GetObjectRequest = decode(message)?;
            let name = request.object.clone();
            from.act(Operation::Stat, &name, move |service, caller| get(service, caller, &request)).await
        }
        "ListObjects" => {
            let request: m::ListObjectsRequest = decode(message)?;
            let name = request.prefix.clone();
            from.act(Operation::List, &name, move |service, caller| list(service, caller, request)).await
        }
        "UpdateObject" => {
            let request: m::UpdateObjectRequest = decode(message)?;
            let name = request.object.as_ref().map(|o| o.name.clone()).unwrap_or_default();
            from.act(Operation::Patch, &name, move |service, caller| update(service, caller, request)).await
        }
        "GetBucket" => {
            let request: m::GetBucketRequest = decode(message)?;
            let name = request.name.clone();
            from.act(Operation::GetBucket, &name, move |service, caller| get_bucket(service, caller, &request)).await
        }
        _ => Err(Refusal::unknown(path)),
    }
}

fn delete(service: &Service, caller: &StorageCaller, request: &m::DeleteObjectRequest) -> Result<Vec<u8>, Refusal> {
    let conditions = Conditions {
        generation_match: request.if_generation_match,
        generation_not_match: request.if_generation_not_match,
        metageneration_match: request.if_metageneration_match,
        metageneration_not_match: request.if_metageneration_not_match,
    };
    let generation = Some(request.generation).filter(|g| *g != 0);
    service.state().delete(caller, &bucket_of(&request.bucket)?, &request.object, generation, conditions)?;
    Ok(Vec::new())
}

fn get(service: &Service, caller: &StorageCaller, request: &m::GetObjectRequest) -> Result<Vec<u8>, Refusal> {
    let conditions = Conditions {
        generation_match: request.if_generation_match,
        generation_not_match: request.if_generation_not_match,
        metageneration_match: request.if_metageneration_match,
        metageneration_not_match: request.if_metageneration_not_match,
    };
    let bucket = bucket_of(&request.bucket)?;
    let generation = Some(request.generation).filter(|g| *g != 0);
    let stored = service.state().read(caller, &bucket, &request.object, generation, conditions)?;
    Ok(object(&bucket, &stored, request.read_mask.as_ref())?.encode_to_vec())
}

fn list(service: &Service, caller: &StorageCaller, request: m::ListObjectsRequest) -> Result<Vec<u8>, Refusal> {
    let bucket = bucket_of(&request.parent)?;
    let page_size = usize::try_from(request.page_size).map_err(|_| Refusal::invalid("negative page_size"))?;
    let query = Query {
        prefix: request.prefix,
        delimiter: request.delimiter,
        start: request.lexicographic_start,
        end: request.lexicographic_end,
        token: request.page_token,
        page_size,
    };
    let page = service.state().list(caller, &bucket, &query)?;
    let objects = page.objects.iter().map(|stored| object(&bucket, stored, request.read_mask.as_ref()));
    let reply = m::ListObjectsResponse {
        objects: objects.collect::<Result<_, _>>()?,
        prefixes: page.prefixes,
        next_page_token: page.next,
    };
    Ok(reply.encode_to_vec())
}

/// Updates custom metadata; no other field can be changed here.
fn update(service: &Service, caller: &StorageCaller, request: m::UpdateObjectRequest) -> Result<Vec<u8>, Refusal> {
    let wanted = request.object.unwrap_or_default();
    let bucket = bucket_of(&wanted.bucket)?;
    let conditions = Conditions {
        generation_match: request.if_generation_match,
        generation_not_match: request.if_generation_not_match,
        metageneration_match: request.if_metageneration_match,
        metageneration_not_match: request.if_metageneration_not_match,
    };
    let mut changes = BTreeMap::new();
    for path in request.update_mask.unwrap_or_default().paths {
        let key = path.strip_prefix("metadata.").ok_or_else(|| Refusal::unknown(&format!("the field {path}")))?;
        changes.insert(key.to_owned(), wanted.metadata.get(key).cloned());
    }
    let stored = service.state().patch(caller, &bucket, &wanted.name, changes, None, conditions)?;
    Ok(object(&bucket, &stored, None)?.encode_to_vec())
}

fn get_bucket(service: &Service, caller: &StorageCaller, request: &m::GetBucketRequest) -> Result<Vec<u8>, Refusal> {
    let id = bucket_of(&request.name)?;
    let mut state = service.state();
    // A request for settings costs nothing, so this works for requester-pays buckets too.
    let found = state.buckets.get_mut(&id).ok_or_else(|| Refusal::no_bucket(&id))?;
    found.allows("storage.buckets.get")?;
    caller.may("storage.buckets.get", IamTarget::Bucket(&id))?;
    Ok(bucket(request.name.clone(), id, &found.settings).encode_to_vec())
}

fn test_permissions(
    service: &Service,
    caller: &StorageCaller,
    request: m::TestIamPermissionsRequest,
) -> Result<Vec<u8>, Refusal> {
    let state = service.state();
    let id = bucket_of(&request.resource)?;
    let found = state.buckets.get(&id).ok_or_else(|| Refusal::no_bucket(&id))?;
    let allowed = |p: &String| found.allows(p).is_ok() && caller.has(p, IamTarget::Bucket(&id));
    let permissions = request.permissions.into_iter().filter(allowed).collect();
    Ok(m::TestIamPermissionsResponse { permissions }.encode_to_vec())
}

fn time(at: Timestamp) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() })
}

/// Returns the object with the fields of the mask; absent or `*`: all.
fn object(bucket: &str, stored: &Stored, mask: Option<&prost_types::FieldMask>) -> Result<m::Object, Refusal> {
    let all = m::Object {
        name: stored.name.clone(),
        bucket: format!("projects/_/buckets/{bucket}"),
        generation: stored.generation,
        metageneration: stored.metageneration,
        size: i64::try_from(stored.content.len()).unwrap_or(i64::MAX),
        content_type: stored.content_type.clone(),
        create_time: time(stored.created),
        checksums: Some(m::Checksums { crc32c: Some(stored.crc32c), md5_hash: Bytes::copy_from_slice(&stored.md5) }),
        update_time: time(stored.updated),
        metadata: stored.metadata.clone().into_iter().collect(),
    };
    let Some(mask) = mask.filter(|mask| !mask.paths.iter().any(|path| path == "*")) else { return Ok(all) };
    let mut some = m::Object::default();
    for path in &mask.paths {
        match path.as_str() {
            "name" => some.name.clone_from(&all.name),
            "bucket" => some.bucket.clone_from(&all.bucket),
            "generation" => some.generation = all.generation,
            "metageneration" => some.metageneration = all.metageneration,
            "size" => some.size = all.size,
            "content_type" => some.content_type.clone_from(&all.content_type),
            "create_time" => some.create_time = all.create_time,
            "checksums" => some.checksums.clone_from(&all.checksums),
            "update_time" => some.update_time = all.update_time,
            "metadata" => some.metadata.clone_from(&all.metadata),
            _ => return Err(Refusal::invalid(format!("unknown field in read_mask: {path}"))),
        }
    }
    Ok(some)
}

fn seconds(seconds: Option<i64>) -> Option<prost_types::Duration> {
    seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 })
}

fn bucket(name: String, bucket_id: String, settings: &Settings) -> m::Bucket {
    let rule = |rule: &super::Rule| m::LifecycleRule {
        action: Some(m::Action { kind: rule.action.clone() }),
        condition: Some(m::Condition {
            age_days: rule.age_days,
            is_live: rule.is_live,
            num_newer_versions: rule.newer_versions,
            days_since_custom_time: rule.days_since_custom_time,
            days_since_noncurrent_time: rule.days_since_noncurrent,
            matches_prefix: rule.prefixes.clone(),
        }),
    };
    let policy = |retention| m::RetentionPolicy { is_locked: false, retention_duration: seconds(Some(retention)) };
    let rules: Vec<_> = settings.lifecycle.iter().map(rule).collect();
    let class = if settings.storage_class.is_empty() { "STANDARD" } else { &settings.storage_class };
    m::Bucket {
        name,
        bucket_id,
        storage_class: class.to_owned(),
        lifecycle: Some(rules).filter(|rules| !rules.is_empty()).map(|rule| m::Lifecycle { rule }),
        default_event_based_hold: settings.event_based_hold,
        versioning: Some(m::Flag { on: settings.versioning }),
        billing: settings.requester_pays.then_some(m::Flag { on: true }),
        retention_policy: settings.retention.map(policy),
        soft_delete_policy: Some(m::SoftDeletePolicy { retention_duration: seconds(settings.soft_delete) }),
        object_retention: settings.object_retention.then_some(m::Flag { on: true }),
    }
}
