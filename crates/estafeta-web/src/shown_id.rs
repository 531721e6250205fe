//! The number of a message or a member as JSON: a number, or text with its partition.

use std::borrow::Cow;

use estafeta::MemberId;
use estafeta_lab::message_id::MessageId;
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::api::WholeNumber;

/// The number of a message or a member: `17`, or `"2:17"` in a ring with partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ShownId {
    Number(u64),
    InPartition(String),
}

impl From<MessageId> for ShownId {
    fn from(id: MessageId) -> Self {
        match id.partition {
            None => Self::Number(id.id),
            Some(_) => Self::InPartition(id.to_string()),
        }
    }
}

impl From<MemberId> for ShownId {
    fn from(member: MemberId) -> Self {
        match member.partition() {
            None => Self::Number(member.0),
            Some(_) => Self::InPartition(member.to_string()),
        }
    }
}

/// The id of a message in a request: `17`, or `"2:17"` in a ring with partitions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum GivenId {
    Number(WholeNumber),
    InPartition(PartitionId),
}

/// The id of a message with its partition: `2:17`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(String);

impl PartialSchema for PartitionId {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).pattern(Some(r"^\d{1,4}:\d{1,15}$")).into()
    }
}

impl ToSchema for PartitionId {
    fn name() -> Cow<'static, str> {
        "PartitionId".into()
    }
}

impl GivenId {
    /// Reads an id from an address.
    pub fn parse(text: &str) -> Option<Self> {
        match text.contains(':') {
            true => Some(Self::InPartition(PartitionId(text.to_owned()))),
            false => WholeNumber::parse(text).map(Self::Number),
        }
    }

    /// None if it is text without a partition, or no id at all.
    pub fn message(&self) -> Option<MessageId> {
        match self {
            Self::Number(id) => Some(MessageId { partition: None, id: id.0 }),
            Self::InPartition(PartitionId(text)) => {
                text.parse().ok().filter(|id: &MessageId| id.partition.is_some())
            }
        }
    }
}
