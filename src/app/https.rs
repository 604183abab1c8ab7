//! HTTPS: the port speaks TLS with the pair of `ssl-cert-file` and `ssl-key-file`. The server reads the pair again when its files have
//! changed, so that a renewed certificate needs no restart. Handshakes run concurrently: a slow one delays no other connection.

use super::file_stamp::{FileStamp, file_stamp};
use crate::settings::HttpsFiles;
use anyhow::{Context as _, Result, bail};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// First byte of a TLS connection: a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Response to a request without TLS. The `HEALTHCHECK` of the image compares its first line.
const NO_TLS: &str = "HTTP/1.0 400 This port speaks HTTPS\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    This port speaks HTTPS (--ssl-cert-file): ask for https://.\n";

/// The pair for new connections.
pub(super) struct Certificate {
    files: HttpsFiles,
    known: Mutex<PairInUse>,
}

/// The pair that was read last.
struct PairInUse {
    /// Versions of both files; absent if its metadata could not be read.
    stamps: [Option<FileStamp>; 2],
    config: Arc<ServerConfig>,
}

impl Certificate {
    /// Reads the pair.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is invalid, or if the two do not belong together. The error names the file.
    pub(super) fn load(files: &HttpsFiles) -> Result<Certificate> {
        let stamps = stamps(files);
        let config = config(files)?;
        Ok(Certificate { files: files.clone(), known: Mutex::new(PairInUse { stamps, config }) })
    }

    /// Returns the pair in its files' present version. If they cannot be used, such as during a write, returns the previous pair.
    fn now(&self) -> Arc<ServerConfig> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the files: a change in between is noticed the next time.
        let stamps = stamps(&self.files);
        if stamps != known.stamps {
            known.stamps = stamps;
            match config(&self.files) {
                Ok(config) => {
                    tracing::info!(file = %self.files.certificate.display(), "the certificate was read again");
                    known.config = config;
                }
                Err(error) => tracing::warn!("the certificate stays the one before: {error:#}"),
            }
        }
        Arc::clone(&known.config)
    }
}

fn stamps(files: &HttpsFiles) -> [Option<FileStamp>; 2] {
    [&files.certificate, &files.key].map(|path| file_stamp(path))
}

/// Builds the configuration for TLS 1.2 or newer with this pair.
fn config(files: &HttpsFiles) -> Result<Arc<ServerConfig>> {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let chain = std::fs::read(&files.certificate).with_context(|| format!("--ssl-cert-file: {certificate}"))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.with_context(|| format!("--ssl-cert-file: {certificate} is no certificate in PEM"))?;
    if chain.is_empty() {
        bail!(
            "--ssl-cert-file: {certificate} has no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----"
        );
    }
    let private =
        private_key(&files.key).with_context(|| format!("--ssl-key-file: {key} has no usable private key"))?;
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(ring).with_safe_default_protocol_versions()?;
    let pair = builder.with_no_client_auth().with_single_cert(chain, private);
    let mut config = pair.with_context(|| {
        format!("--ssl-cert-file and --ssl-key-file: {certificate} and {key} are no pair that can be used")
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let text = std::fs::read(path)?;
    if String::from_utf8_lossy(&text).contains("ENCRYPTED") {
        bail!("it is encrypted: store it without a passphrase, readable by the server's user alone");
    }
    Ok(PrivateKeyDer::from_pem_slice(&text)?)
}

/// Performs the TLS handshake. Absent if the client speaks no TLS; it has received [`NO_TLS`] then.
pub(super) async fn handshake(
    certificate: Arc<Certificate>,
    mut stream: TcpStream,
) -> std::io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    if stream.peek(&mut first).await? > 0 && first[0] != HANDSHAKE_RECORD {
        stream.write_all(NO_TLS.as_bytes()).await?;
        stream.shutdown().await?;
        return Ok(None);
    }
    let config = tokio::task::spawn_blocking(move || certificate.now()).await.map_err(std::io::Error::other)?;
    TlsAcceptor::from(config).accept(stream).await.map(Some)
}
