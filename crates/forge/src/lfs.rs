//! Git LFS for a repository, as specified: the batch API for downloads, and a store that accepts tickets instead of tokens.

use super::{Shared, git_http, server};
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header, request};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

const MEDIA_TYPE: &str = "application/vnd.git-lfs+json";
const BATCH: &str = "/info/lfs/objects/batch";
const STORE: &str = "/info/lfs/store/";
/// Header with the ticket of a batch answer for its downloads.
const TICKET: &str = "x-sandbox-ticket";

/// Returns true for a path of the batch endpoint or of the store of Git LFS.
pub(super) fn is_lfs(path: &str) -> bool {
    path.ends_with(BATCH) || path.contains(STORE)
}

/// Returns the pointer to these bytes.
pub(super) fn pointer(content: &[u8]) -> String {
    let hash = hex::encode(Sha256::digest(content));
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{hash}\nsize {}\n", content.len())
}

/// Answers a batch request or a download; refuses what the specification does not allow.
pub(super) fn answer(shared: &Arc<Shared>, parts: &request::Parts, body: &Bytes) -> Response {
    let path = parts.uri.path();
    if let Some((repo, hash)) = path.split_once(STORE) {
        return download(shared, parts, git_http::name_of(repo), hash);
    }
    let Some(repo) = path.strip_suffix(BATCH).filter(|_| parts.method == http::Method::POST) else {
        return refusal(StatusCode::NOT_FOUND, "no such endpoint");
    };
    batch(shared, &parts.headers, git_http::name_of(repo), repo, body)
}

fn batch(shared: &Shared, headers: &HeaderMap, full_name: &str, repo: &str, body: &Bytes) -> Response {
    let has = |name: header::HeaderName| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.starts_with(MEDIA_TYPE))
    };
    if !has(header::ACCEPT) {
        return refusal(StatusCode::NOT_ACCEPTABLE, "the Accept header must be that of Git LFS");
    }
    if !has(header::CONTENT_TYPE) {
        return refusal(StatusCode::UNPROCESSABLE_ENTITY, "the Content-Type must be that of Git LFS");
    }
    let Ok(Some(login)) = server::principal(shared, headers) else {
        let answer = refusal(StatusCode::UNAUTHORIZED, "credentials needed");
        return ([("LFS-Authenticate", "Basic realm=\"sandbox\"")], answer).into_response();
    };
    let state = shared.lock();
    let Ok(known) = state.repo(full_name) else { return refusal(StatusCode::NOT_FOUND, "no such repository") };
    if known.permission(&login) == "none" {
        return refusal(StatusCode::NOT_FOUND, "no such repository");
    }
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let transfers = asked["transfers"].as_array();
    let is_basic = transfers.is_none_or(|all| all.contains(&json!("basic")));
    let (Some("download"), true, Some(objects)) = (asked["operation"].as_str(), is_basic, asked["objects"].as_array())
    else {
        return refusal(StatusCode::UNPROCESSABLE_ENTITY, "a basic download of objects is all there is");
    };
    let mut answers = Vec::new();
    for object in objects {
        let (Some(oid), Some(size)) = (object["oid"].as_str(), object["size"].as_u64()) else {
            return refusal(StatusCode::UNPROCESSABLE_ENTITY, "an object needs oid and size");
        };
        answers.push(match known.large_files.get(oid) {
            Some(content) if content.len() as u64 == size => {
                let href = format!("{}{repo}{STORE}{oid}", shared.url);
                json!({"oid": oid, "size": size, "authenticated": true,
                       "actions": {"download": {"href": href, "header": {TICKET: oid}}}})
            }
            Some(_) => json!({"oid": oid, "size": size, "error": {"code": 422, "message": "the size is another"}}),
            None => json!({"oid": oid, "size": size, "error": {"code": 404, "message": "there is no such object"}}),
        });
    }
    let text = json!({"transfer": "basic", "objects": answers}).to_string();
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response()
}

fn download(shared: &Shared, parts: &request::Parts, full_name: &str, hash: &str) -> Response {
    if parts.headers.contains_key(header::AUTHORIZATION) {
        return refusal(StatusCode::BAD_REQUEST, "the store takes the ticket of the batch answer, and no token");
    }
    if parts.headers.get(TICKET).is_none_or(|ticket| ticket != hash) {
        return refusal(StatusCode::FORBIDDEN, "the ticket of the batch answer is missing");
    }
    let state = shared.lock();
    let found = state.repo(full_name).ok().and_then(|repo| repo.large_files.get(hash).cloned());
    found.map_or_else(|| refusal(StatusCode::NOT_FOUND, "there is no such object"), IntoResponse::into_response)
}

fn refusal(status: StatusCode, message: &str) -> Response {
    (status, [(header::CONTENT_TYPE, MEDIA_TYPE)], json!({"message": message}).to_string()).into_response()
}
