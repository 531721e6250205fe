//! `rediss://`: a ring works over TLS, and an untrusted certificate is refused.

use std::net::TcpListener;

use estafeta_testbed::RedisServer;
use tempfile::TempDir;

use crate::support::{SOON, run, start};

/// A Redis that speaks TLS, with a certificate for localhost.
struct TlsRedis {
    _server: RedisServer,
    files: TempDir,
    port: u16,
}

impl TlsRedis {
    fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let path = |name: &str| files.path().join(name).display().to_string();
        std::fs::write(path("cert.pem"), certified.cert.pem()).unwrap();
        std::fs::write(path("key.pem"), certified.signing_key.serialize_pem()).unwrap();
        // The port is free at this moment. If another program takes it first, the server does not start and the test
        // fails with its log.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = RedisServer::builder()
            .arg("--tls-port", &port.to_string())
            .arg("--tls-cert-file", &path("cert.pem"))
            .arg("--tls-key-file", &path("key.pem"))
            .arg("--tls-ca-cert-file", &path("cert.pem"))
            .arg("--tls-auth-clients", "no")
            .start();
        Self { _server: server, files, port }
    }

    fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }
}

#[test]
fn a_ring_works_over_tls() {
    let redis = TlsRedis::start();
    let (url, trusted) = (redis.url(), redis.files.path().join("cert.pem"));
    let envs = [("REDIS_URL", url.as_str()), ("SSL_CERT_FILE", trusted.to_str().unwrap())];
    let one = start(&["run", "--interval", "20ms", "--error-rate", "0"], &envs);
    one.wait_for_line(SOON, |line| line.starts_with("generated #1 "));
    let other = start(&["run", "--error-rate", "0"], &envs);
    other.wait_for_line(SOON, |line| line.starts_with("handled #1 "));
    one.kill();
    other.wait_for_line(SOON, |line| line.starts_with("took over from 1"));
}

#[test]
fn an_untrusted_certificate_is_refused() {
    let redis = TlsRedis::start();
    let output = run(&["status"], &[("REDIS_URL", &redis.url())]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("certificate") && stderr.lines().count() == 1, "{stderr}");
}
