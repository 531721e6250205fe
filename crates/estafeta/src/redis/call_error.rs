//! The reasons why a call to Redis can fail, as far as they decide what the caller does next.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The reason why a call failed.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// The connection is gone or silent. The caller cannot know whether Redis carried out the call.
    Broken(String),
    /// This server does not keep the ring, or no longer: it is a replica, or another node of its cluster owns the slot.
    /// Redis did not carry out the call.
    Elsewhere(String),
    /// Redis carried out the call, but too few replicas, or not the disk, have confirmed it in time.
    Unconfirmed(String),
    /// Redis does not know the script, or has forgotten it.
    NoScript,
    /// A key of the ring holds a value of another type, or one that a script cannot use. The text is what Redis or the
    /// script says about it.
    WrongType(String),
    /// Redis answered with an error.
    Refused(String),
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        let detail = || error.detail().map_or_else(|| error.category().to_owned(), ToOwned::to_owned);
        match (error.kind(), error.code()) {
            (ErrorKind::Server(ServerErrorKind::NoScript), _) => Self::NoScript,
            (_, Some("WRONGTYPE")) => Self::WrongType(without_place(&detail()).to_owned()),
            (_, Some(code @ ("READONLY" | "MOVED" | "MASTERDOWN" | "UNBLOCKED"))) => {
                Self::Elsewhere(format!("{code} {}", without_place(&detail())))
            }
            (ErrorKind::Io, _) => Self::Broken(error.to_string()),
            (ErrorKind::Parse, _) => {
                Self::Broken("it does not speak the Redis protocol, so this is probably no Redis".into())
            }
            (_, Some("NOAUTH")) => Self::Refused("NOAUTH: it wants a password, and none was given".into()),
            (ErrorKind::AuthenticationFailed, _) => {
                Self::Refused(format!("authentication failed: {}", detail()))
            }
            (_, Some(code)) => Self::Refused(format!("{code} {}", detail())),
            _ if error.is_unrecoverable_error() => Self::Broken(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// An error of a script without the line at which it happened. Redis appends that as ` script: NAME, on LINE.`
fn without_place(error: &str) -> &str {
    error.rsplit_once(" script: ").map_or(error, |(error, _)| error)
}

impl CallError {
    /// Whether only a new connection can help.
    pub fn ends_session(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Elsewhere(_))
    }

    /// Whether a cluster refuses only until it has settled who owns the slot of the ring.
    pub fn is_passing(&self) -> bool {
        const PASSING: [&str; 4] = ["ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING"];
        match self {
            Self::Elsewhere(_) => true,
            Self::Refused(reason) => reason.split(' ').next().is_some_and(|code| PASSING.contains(&code)),
            _ => false,
        }
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Broken(reason)
            | Self::Elsewhere(reason)
            | Self::Unconfirmed(reason)
            | Self::WrongType(reason)
            | Self::Refused(reason) => f.write_str(reason),
            Self::NoScript => f.write_str("it does not keep our scripts"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> CallError {
        let value = redis::parse_redis_value(line.as_bytes()).unwrap();
        value.extract_error().expect_err("a refusal").into()
    }

    #[test]
    fn what_is_to_be_done_about_a_failure_is_read_from_its_kind() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(matches!(RedisError::from(reset).into(), CallError::Broken(_)));
        let garbled = RedisError::from((ErrorKind::Parse, "not the protocol"));
        assert!(
            matches!(garbled.into(), CallError::Broken(_)),
            "what follows on it cannot be understood either"
        );
        let nowhere = RedisError::from((ErrorKind::ClusterConnectionNotFound, "nobody has this slot"));
        assert!(matches!(nowhere.into(), CallError::Broken(_)), "a new connection may help");
        let odd = RedisError::from((ErrorKind::UnexpectedReturnType, "another type"));
        assert!(matches!(odd.into(), CallError::Refused(_)), "a new connection would not");
        assert!(matches!(refusal("-NOSCRIPT No matching script.\r\n"), CallError::NoScript));
        for place in ["", " script: 0123456789abcdef, on @user_script:17."] {
            let wrong = refusal(&format!("-WRONGTYPE Operation against a key{place}\r\n"));
            assert!(
                matches!(&wrong, CallError::WrongType(text) if text == "Operation against a key"),
                "{wrong:?}"
            );
        }
        let reason = |error: CallError| match error {
            CallError::Refused(reason) => reason,
            other => panic!("{other:?}"),
        };
        let no_password = reason(refusal("-NOAUTH Authentication required.\r\n"));
        assert_eq!(no_password, "NOAUTH: it wants a password, and none was given");
        let wrong = RedisError::from((ErrorKind::AuthenticationFailed, "wrong", "user or password".into()));
        assert_eq!(reason(wrong.into()), "authentication failed: user or password");
        assert_eq!(reason(refusal("-OOM command not allowed\r\n")), "OOM command not allowed");
    }

    #[test]
    fn a_server_that_does_not_keep_the_ring_ends_the_session_and_one_that_only_pauses_does_not() {
        let elsewhere = [
            "READONLY You can't write against a read only replica.",
            "MOVED 3999 127.0.0.1:6381",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        ];
        for line in elsewhere {
            let error = refusal(&format!("-{line} script: 0123456789abcdef, on @user_script:17.\r\n"));
            assert!(matches!(&error, CallError::Elsewhere(reason) if reason == line), "{error:?}");
            assert!(error.ends_session());
        }
        let waits = [
            "ASK 3999 127.0.0.1:6381",
            "TRYAGAIN x",
            "CLUSTERDOWN x",
            "LOADING x",
            "NOREPLICAS x",
            "BUSY x",
            "OOM x",
        ];
        for line in waits {
            let error = refusal(&format!("-{line}\r\n"));
            assert!(matches!(&error, CallError::Refused(reason) if reason == line), "{error:?}");
            assert!(!error.ends_session(), "{line}");
        }
        assert!(CallError::Broken("gone".into()).ends_session());
    }
}
