//! The files of a TLS connection: which authority is trusted, and which certificate this side shows.

use std::path::PathBuf;

use redis::{Client, ConnectionInfo};

use super::call_error::CallError;
use crate::error::Error;

/// PEM files. They are read with each new connection, so a renewed certificate needs no restart.
#[derive(Clone, Default)]
pub(crate) struct TlsPaths {
    /// The certificates to trust, instead of those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate of this side, and its key.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl TlsPaths {
    fn given(&self) -> [(&'static str, &Option<PathBuf>); 3] {
        [("tls-ca", &self.ca), ("tls-cert", &self.cert), ("tls-key", &self.key)]
    }

    /// Checks that the files fit together and to the address.
    pub fn check(&self, uses_tls: bool) -> Result<(), Error> {
        let given = self.given().into_iter().find(|(_, file)| file.is_some());
        match (given, &self.cert, &self.key) {
            (Some((name, _)), ..) if !uses_tls => {
                Err(Error::expected(name, "a URL with rediss beside it", "one without TLS"))
            }
            (_, Some(_), None) => Err(Error::expected("tls-cert", "tls-key beside it", "none")),
            (_, None, Some(_)) => Err(Error::expected("tls-key", "tls-cert beside it", "none")),
            _ => Ok(()),
        }
    }

    #[cfg(feature = "tls")]
    pub fn client(&self, info: ConnectionInfo) -> Result<Client, CallError> {
        // This fails only if the program has already chosen a provider, and that one works just as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if self.given().into_iter().all(|(_, file)| file.is_none()) {
            return Ok(Client::open(info)?);
        }
        let read = |name: &str, file: &Option<PathBuf>| {
            let read = |file: &PathBuf| {
                let shown = file.display();
                std::fs::read(file)
                    .map_err(|error| CallError::Refused(format!("{name}: cannot read {shown}: {error}")))
            };
            file.as_ref().map(read).transpose()
        };
        let root_cert = read("tls-ca", &self.ca)?;
        let client = read("tls-cert", &self.cert)?.zip(read("tls-key", &self.key)?);
        let client_tls =
            client.map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
        let built = Client::build_with_tls(info, redis::TlsCertificates { client_tls, root_cert });
        built.map_err(|error| CallError::Refused(format!("a file of TLS cannot be used: {error}")))
    }

    #[cfg(not(feature = "tls"))]
    pub fn client(&self, info: ConnectionInfo) -> Result<Client, CallError> {
        Ok(Client::open(info)?)
    }
}
