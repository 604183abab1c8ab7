//! git over HTTP: `git http-backend` as a CGI program, whose output is streamed. After a push, pull requests are updated.

use super::git::{GitRepo, git_command};
use super::{Shared, app, bitbucket_data_center, repo, server};
use anyhow::{Context, bail};
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header, request};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout};

/// Limit of the headers that git sends, in bytes.
const MAX_HEADERS: usize = 16 << 10;

/// Time limit for git's headers.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(60);

/// Most bytes that are sent at once.
const CHUNK: usize = 64 << 10;

/// Limit of the answer to a push, in bytes. The answer is held until the pull requests are updated.
const MAX_PUSH_ANSWER: usize = 4 << 20;

pub(super) const SERVICES: [&str; 3] = ["info/refs", "git-upload-pack", "git-receive-pack"];

/// Returns true if a path is one of git's requests.
pub(super) fn is_git(path: &str) -> bool {
    split(path).is_some()
}

/// `owner/name` in the path of a repository.
pub(super) fn name_of(path: &str) -> &str {
    let path = path.strip_prefix(bitbucket_data_center::CLONES).unwrap_or(path);
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_suffix(".git").unwrap_or(path)
}

/// Splits a path into `owner/name` and the service.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let (path, service) =
        SERVICES.iter().find_map(|service| Some((path.strip_suffix(service)?.strip_suffix('/')?, *service)))?;
    let full_name = name_of(path);
    (full_name.split('/').count() == 2).then_some((full_name, service))
}

/// Answers a request of git: 401 without a valid token, 404 without read access, 403 for a push without write access.
pub(super) async fn answer(shared: &Arc<Shared>, parts: &request::Parts, body: Bytes, fetches: Fetches) -> Response {
    let Some((full_name, service)) = split(parts.uri.path()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let query = parts.uri.query().unwrap_or_default();
    if let Some(now) = shared.lock().moved.get(&full_name.to_lowercase()) {
        let location = format!("{}/{now}.git/{service}?{query}", shared.url);
        return (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, location)]).into_response();
    }
    let push = service == "git-receive-pack" || query.contains("git-receive-pack");
    let Ok(Some(login)) = server::principal(shared, &parts.headers) else {
        let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"sandbox\"")];
        return (StatusCode::UNAUTHORIZED, ask, "a user name and token is required\n").into_response();
    };
    let git = {
        let state = shared.lock();
        match state.repo(full_name) {
            Ok(_) if !app::may_see(&state, &parts.headers, full_name) => return StatusCode::NOT_FOUND.into_response(),
            Ok(_) if push && app::only_reads(&state, &parts.headers) => return StatusCode::FORBIDDEN.into_response(),
            Ok(found) if found.permission(&login) == "none" => return StatusCode::NOT_FOUND.into_response(),
            Ok(found) if push && !found.can_write(&login) => {
                return (StatusCode::FORBIDDEN, format!("{login} may not write to {full_name}\n")).into_response();
            }
            Ok(found) => found.git.clone(),
            Err(_) => return StatusCode::NOT_FOUND.into_response(),
        }
    };
    serve(shared, &git, full_name, service, parts, body, &login, fetches).await
}

/// Objects that fetches may request.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fetches {
    /// Every commit, by the requested protocol.
    Anything,
    /// Only tips of branches, by the old protocol and without filters.
    Tips,
}

/// Answers a request of git for a repository that this person may use.
#[expect(clippy::too_many_arguments, reason = "a request, and what is known of it")]
pub(super) async fn serve(
    shared: &Arc<Shared>,
    git: &GitRepo,
    full_name: &str,
    service: &str,
    parts: &request::Parts,
    body: Bytes,
    login: &str,
    fetches: Fetches,
) -> Response {
    let answered = match (service, fetches) {
        ("git-receive-pack", _) => receive(shared, git, full_name, service, parts, body, login).await,
        (_, Fetches::Anything) => cgi(git, service, parts, body, login, &[]).await,
        (_, Fetches::Tips) => {
            let mut parts = parts.clone();
            parts.headers.remove("git-protocol");
            let config = [
                ("uploadpack.allowAnySHA1InWant", "false"),
                ("uploadpack.allowFilter", "false"),
                ("uploadpack.hideRefs", "refs/pull"),
            ];
            cgi(git, service, &parts, body, login, &config).await
        }
    };
    answered.unwrap_or_else(|error| {
        tracing::warn!("sandbox: git over HTTP: {error:#}");
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response()
    })
}

/// Handles a push. No other refs change meanwhile, and webhooks are queued before the pusher gets the answer.
async fn receive(
    shared: &Arc<Shared>,
    git: &GitRepo,
    full_name: &str,
    service: &str,
    parts: &request::Parts,
    body: Bytes,
    login: &str,
) -> anyhow::Result<Response> {
    let _refs = shared.refs.lock().await;
    let (head, stream) = cgi(git, service, parts, body, login, &[]).await?.into_parts();
    let bytes = axum::body::to_bytes(stream, MAX_PUSH_ANSWER).await?;
    repo::follow_refs(shared, full_name, login).await?;
    Ok(Response::from_parts(head, Body::from(bytes)))
}

async fn cgi(
    git: &GitRepo,
    service: &str,
    parts: &request::Parts,
    body: Bytes,
    login: &str,
    config: &[(&str, &str)],
) -> anyhow::Result<Response> {
    let mut command = git_command();
    command.env("GIT_CONFIG_COUNT", config.len().to_string());
    for (number, (key, value)) in config.iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{number}"), key).env(format!("GIT_CONFIG_VALUE_{number}"), value);
    }
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", git.path())
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", format!("/{service}"))
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_USER", login)
        .env("REMOTE_ADDR", "127.0.0.1")
        .stderr(std::process::Stdio::null());
    let mut child = command.spawn().context("cannot start git")?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        bail!("git has no pipes");
    };
    // The task ends by itself: git reads all of the body, or ends with the answer's stream and closes the pipe.
    tokio::spawn(async move {
        let _ = stdin.write_all(&body).await;
    });
    let mut stdout = BufReader::with_capacity(CHUNK, stdout);
    let (status, headers) = tokio::time::timeout(HEADERS_TIMEOUT, read_headers(&mut stdout))
        .await
        .context("git did not answer in time")??;
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    Ok(response.body(stream(child, stdout))?)
}

type Headers = Vec<(String, String)>;

async fn read_headers(stdout: &mut BufReader<ChildStdout>) -> anyhow::Result<(u16, Headers)> {
    let (mut status, mut headers, mut total) = (200, Headers::new(), 0);
    loop {
        let mut line = String::new();
        let read = (&mut *stdout).take((MAX_HEADERS - total) as u64).read_line(&mut line).await?;
        total += read;
        if read == 0 {
            bail!("git ended before its headers did");
        }
        let line = line.trim_end();
        match line.split_once(':') {
            _ if line.is_empty() => return Ok((status, headers)),
            Some((name, value)) if name.eq_ignore_ascii_case("status") => {
                status = value.split_whitespace().next().and_then(|code| code.parse().ok()).unwrap_or(500);
            }
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => bail!("not a header from git: {line:?}"),
        }
    }
}

/// Streams the rest of git's output. The child ends with the stream.
fn stream(child: Child, stdout: BufReader<ChildStdout>) -> Body {
    let chunks = futures::stream::try_unfold((child, stdout), |(mut child, mut stdout)| async move {
        let bytes = Bytes::copy_from_slice(stdout.fill_buf().await?);
        if bytes.is_empty() {
            child.wait().await?;
            return Ok::<_, std::io::Error>(None);
        }
        stdout.consume(bytes.len());
        Ok(Some((bytes, (child, stdout))))
    });
    Body::from_stream(chunks)
}
