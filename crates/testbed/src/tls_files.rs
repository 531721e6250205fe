use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// A private certificate authority, and what it issued: a certificate for servers on `localhost`, and one for clients.
///
/// The files are removed with the last clone.
#[derive(Clone, Debug)]
pub struct TlsFiles(Arc<TempDir>);

impl TlsFiles {
    /// Makes the authority and its certificates.
    pub fn new() -> Self {
        let files = Self(Arc::new(tempfile::Builder::new().prefix("est-").tempdir().unwrap()));
        let mut authority = CertificateParams::default();
        // A certificate whose subject and issuer have one name would count as self-signed.
        authority.distinguished_name.push(DnType::CommonName, "authority of a test");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        files.write("ca.pem", &authority.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap();
            let certificate = certificate.signed_by(&key, &authority).unwrap();
            files.write(&format!("{name}.pem"), &certificate.pem());
            files.write(&format!("{name}-key.pem"), &key.serialize_pem());
        }
        files
    }

    /// The certificate of the authority.
    pub fn ca(&self) -> PathBuf {
        self.path().join("ca.pem")
    }

    /// The certificate of a client, for servers with `--tls-auth-clients yes`.
    pub fn client_certificate(&self) -> PathBuf {
        self.path().join("client.pem")
    }

    /// The private key of that client.
    pub fn client_key(&self) -> PathBuf {
        self.path().join("client-key.pem")
    }

    /// The settings of a server, of a replica and of a node of a cluster.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.path().join(name).to_str().unwrap().to_owned();
        vec![
            ("--tls-cert-file", path("server.pem")),
            ("--tls-key-file", path("server-key.pem")),
            ("--tls-ca-cert-file", path("ca.pem")),
            ("--tls-auth-clients", "no".to_owned()),
            ("--tls-replication", "yes".to_owned()),
            ("--tls-cluster", "yes".to_owned()),
        ]
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Default for TlsFiles {
    fn default() -> Self {
        Self::new()
    }
}
