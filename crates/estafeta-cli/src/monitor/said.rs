//! What a copy tells the monitor: one JSON object a line.

use serde::Deserialize;

/// One object of a copy. Kinds that the monitor has no use for are `Other`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "msg", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Said {
    CreatedTaskId {
        task_id: u64,
    },
    Generated {
        total: u64,
    },
    Processed {
        total: u64,
        errors: u64,
    },
    RedisLost {
        reason: String,
    },
    RedisBack,
    DeclaredDead,
    Stopping,
    LimitReached {
        limit: u64,
    },
    #[serde(other)]
    Other,
}

impl Said {
    /// None for a line that is no object of the protocol.
    pub fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line.trim_ascii()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Said;

    #[test]
    fn the_protocol_is_read_word_for_word() {
        let cases = [
            (&b"{\"msg\":\"createdTaskId\",\"taskId\":7}\r\n"[..], Said::CreatedTaskId { task_id: 7 }),
            (b"{\"msg\":\"generated\",\"total\":3}\r\n", Said::Generated { total: 3 }),
            (b"{\"msg\":\"processed\",\"total\":5,\"errors\":1}", Said::Processed { total: 5, errors: 1 }),
            (b"{\"msg\":\"switchedToGeneratorMode\"}", Said::Other),
            (b"{\"msg\":\"redisLost\",\"reason\":\"gone\"}", Said::RedisLost { reason: "gone".into() }),
        ];
        for (line, meant) in cases {
            assert_eq!(Said::read(line), Some(meant));
        }
        assert_eq!(Said::read(b"Segmentation fault"), None);
    }
}
