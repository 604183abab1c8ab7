//! A minimal provider for Terraform, so that a test need not download one. It speaks the plugin protocol, version 5, over gRPC
//! (<https://developer.hashicorp.com/terraform/plugin/terraform-plugin-protocol>). It has one resource, `record_line`, whose state is its
//! configuration. The test's own program is the provider: Terraform starts a script that starts it again.

use crate::support::make_executable;
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::io::Write;
use std::path::Path;

/// Variable that makes the program the provider.
const IS_PROVIDER: &str = "TIDELOCK_TEST_IS_PROVIDER";
/// Descriptor of the script's standard output, as the test's own prints more than Terraform expects.
const TERRAFORM: i32 = 3;
/// gRPC's code for an unknown method.
const UNIMPLEMENTED: &str = "12";

/// Installs the provider `contoso/record` 1.0.0 in a mirror of providers.
pub(super) fn put_into(mirror: &Path) {
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let folder = mirror.join(format!("registry.terraform.io/contoso/record/1.0.0/{}_{machine}", std::env::consts::OS));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("terraform-provider-record_v1.0.0");
    let itself = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\nexec {TERRAFORM}>&1 >/dev/null 2>&1\n{IS_PROVIDER}=1 exec '{}' --exact examples::provider::serves_terraform --nocapture\n",
        itself.display()
    );
    std::fs::write(&program, script).unwrap();
    make_executable(&program);
}

/// Not a test unless [`IS_PROVIDER`] is set.
#[test]
fn serves_terraform() {
    if std::env::var_os(IS_PROVIDER).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hello = format!("1|5|tcp|{}|grpc\n", listener.local_addr().unwrap());
        let mut terraform = std::fs::File::options().write(true).open(format!("/dev/fd/{TERRAFORM}")).unwrap();
        terraform.write_all(hello.as_bytes()).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(answer);
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                // It ends when Terraform does.
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
}

type Frames = futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>;

async fn answer(request: Request<Incoming>) -> Result<Response<StreamBody<Frames>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    if path == "/plugin.GRPCController/Shutdown" {
        std::process::exit(0);
    }
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let mut frames = Vec::new();
    // A streamed request is not read: it never ends.
    let message = match path.strip_prefix("/tfplugin5.Provider/") {
        None => None,
        Some(method) => {
            let body = request.into_body().collect().await?.to_bytes();
            // One message: a byte for compression, and four for its length.
            called(method, body.get(5..).unwrap_or_default())
        }
    };
    match message {
        Some(message) => {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            frames.push(Ok(Frame::data([&[0], length.as_slice(), &message].concat().into())));
            frames.push(Ok(Frame::trailers(
                [("grpc-status".parse().unwrap(), "0".parse().unwrap())].into_iter().collect(),
            )));
        }
        None => drop(response.headers_mut().insert("grpc-status", UNIMPLEMENTED.parse().unwrap())),
    }
    Ok(response.map(|()| StreamBody::new(futures::stream::iter(frames))))
}

/// Returns the answer of a method; the numbers are those of the protocol's fields.
fn called(method: &str, request: &[u8]) -> Option<Vec<u8>> {
    let same = |number| field(request, number).map_or_else(Vec::new, |value| put(1, value));
    Some(match method {
        "GetSchema" => {
            let required = [0x20, 1];
            let attribute = [put(1, b"text"), put(2, b"\"string\""), required.to_vec()].concat();
            let schema = |block: &[u8]| put(2, block);
            let line = [put(1, b"record_line"), put(2, &schema(&put(2, &attribute)))].concat();
            [put(1, &schema(&[])), put(2, &line)].concat()
        }
        // An empty answer means no errors.
        "ValidateResourceTypeConfig" | "Configure" | "Stop" => Vec::new(),
        "PrepareProviderConfig" => same(1),
        "ReadResource" => same(2),
        "PlanResourceChange" | "ApplyResourceChange" => same(3),
        "UpgradeResourceState" => put(1, &put(2, field(field(request, 3)?, 1)?)),
        _ => return None,
    })
}

/// Encodes a field of bytes in a message of Protocol Buffers.
fn put(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length > 0x7f {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(value);
    out
}

/// Returns the bytes of a field.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    loop {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            0 => {
                varint(&mut message)?;
                continue;
            }
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                message.split_off(..length)?
            }
            _ => return None,
        };
        if key >> 3 == number {
            return Some(value);
        }
    }
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
