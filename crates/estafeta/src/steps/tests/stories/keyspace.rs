//! The whole keyspace as plain values. What the model expects and what Redis holds have the same type. They are
//! compared key by key, and a difference is printed as *expected* and *found*.

use std::collections::BTreeMap;
use std::fmt;

use redis::{FromRedisValue, Value};

/// Reads every key with its type and value in one step.
pub(super) const DUMP: &str = "
local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local value
  if kind == 'string' then
    value = { redis.call('GET', key) }
  elseif kind == 'list' then
    value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'hash' then
    value = redis.call('HGETALL', key)
  elseif kind == 'set' then
    value = redis.call('SMEMBERS', key)
  elseif kind == 'zset' then
    value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else
    value = {}
    for i, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
      value[i] = table.concat(entry[2], '|')
    end
  end
  all[#all + 1] = { key, kind, value }
end
return all";

pub(super) type Keyspace = BTreeMap<String, Content>;

#[derive(Clone, PartialEq)]
pub(super) enum Content {
    /// A list, a set, the entries of a stream without their ids, or a single string.
    Row(Vec<Vec<u8>>),
    /// A hash, or a sorted set with its scores.
    Table(BTreeMap<String, String>),
}

impl Content {
    pub fn row<T: Into<Vec<u8>>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::Row(items.into_iter().map(Into::into).collect())
    }

    pub fn table<N: ToString, V: ToString>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        Self::Table(pairs.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Row(items) => items.is_empty(),
            Self::Table(pairs) => pairs.is_empty(),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(items) => {
                let texts: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(item)).collect();
                write!(f, "{texts:?}")
            }
            Self::Table(pairs) => {
                let texts: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
                f.write_str(&texts.join(" "))
            }
        }
    }
}

/// Reads the answer of [`DUMP`].
pub(super) fn read(value: Value) -> Keyspace {
    let rows = Vec::<(String, String, Vec<Vec<u8>>)>::from_redis_value(value).expect("the answer of DUMP");
    rows.into_iter()
        .map(|(key, kind, items)| {
            let text = |item: &Vec<u8>| String::from_utf8_lossy(item).into_owned();
            let content = match kind.as_str() {
                "hash" | "zset" => {
                    Content::table(items.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))))
                }
                _ => Content::Row(items),
            };
            (key, content)
        })
        .map(without_zeros)
        .collect()
}

/// Removes counts of the ledger that are zero, and an empty line of idle members. They mean the same as missing fields.
pub(super) fn without_zeros((key, mut content): (String, Content)) -> (String, Content) {
    if let Content::Table(pairs) = &mut content
        && key.ends_with(":ledger")
    {
        pairs.retain(|_, count| count != "0" && !count.is_empty());
    }
    (key, content)
}

/// One text per key that differs. Redis stores no empty lists, so an empty list equals none.
pub(super) fn differences(expected: &Keyspace, found: &Keyspace) -> Vec<String> {
    static NOTHING: Content = Content::Row(Vec::new());
    fn of<'a>(keyspace: &'a Keyspace, key: &str) -> &'a Content {
        keyspace.get(key).filter(|content| !content.is_empty()).unwrap_or(&NOTHING)
    }
    let only_found = found.keys().filter(|key| !expected.contains_key(*key));
    expected
        .keys()
        .chain(only_found)
        .map(|key| (key, of(expected, key), of(found, key)))
        .filter(|(_, expected, found)| expected != found)
        .map(|(key, expected, found)| format!("{key}\n      expected {expected}\n      found    {found}"))
        .collect()
}

/// The list at `key`, empty if there is none.
pub(super) fn list<'a>(keyspace: &'a Keyspace, key: &str) -> &'a [Vec<u8>] {
    match keyspace.get(key) {
        Some(Content::Row(items)) => items,
        _ => &[],
    }
}

/// The fields of a hash, or the members of a sorted set with their scores. Empty if the key does not exist.
pub(super) fn table(keyspace: &Keyspace, key: &str) -> BTreeMap<String, String> {
    match keyspace.get(key) {
        Some(Content::Table(pairs)) => pairs.clone(),
        _ => BTreeMap::new(),
    }
}

/// One value of the hash or sorted set at `key`.
pub(super) fn field<'a>(keyspace: &'a Keyspace, key: &str, name: &str) -> Option<&'a str> {
    match keyspace.get(key) {
        Some(Content::Table(pairs)) => pairs.get(name).map(String::as_str),
        _ => None,
    }
}

/// The same value as a number, or 0 if there is none.
pub(super) fn number(keyspace: &Keyspace, key: &str, name: &str) -> u64 {
    field(keyspace, key, name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The sum of a count over the hashes of all members.
pub(super) fn sum_over_members(keyspace: &Keyspace, name: &str) -> u64 {
    let members = keyspace.keys().filter(|key| key.contains(":member:"));
    members.map(|member| number(keyspace, member, name)).sum()
}
