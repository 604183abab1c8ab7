//! JsonMembers of objects of Terraform's JSON syntax, with their places. Terraform merges members of the same name, so that none may be lost.

use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Most lists around the objects of a value. Terraform accepts a list of blocks as an item of the list of their labels.
const MAX_LISTS: usize = 2;

/// JsonMembers of an object, or of the objects of a list, in order.
pub(super) struct JsonMembers<'a>(pub(super) Vec<(String, &'a RawValue)>);

/// Returns the members of a value: none for texts, numbers and the like.
pub(super) fn members(value: &RawValue) -> Result<JsonMembers<'_>, serde_json::Error> {
    serde_json::Deserializer::from_str(value.get()).deserialize_any(MembersVisitor { lists: 0 })
}

/// Returns the text of a value, if it is one.
pub(super) fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

struct MembersVisitor {
    /// Number of lists around the value.
    lists: usize,
}

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = JsonMembers<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(member) = map.next_entry::<String, &RawValue>()? {
            found.push(member);
        }
        Ok(JsonMembers(found))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let lists = self.lists + 1;
        if lists > MAX_LISTS {
            return Err(serde::de::Error::custom("there are too many lists in one another"));
        }
        let mut found = Vec::new();
        while let Some(item) = list.next_element::<&RawValue>()? {
            let inner = serde_json::Deserializer::from_str(item.get()).deserialize_any(MembersVisitor { lists });
            found.extend(inner.map_err(serde::de::Error::custom)?.0);
        }
        Ok(JsonMembers(found))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(JsonMembers(Vec::new()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(JsonMembers(Vec::new()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(JsonMembers(Vec::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(JsonMembers(Vec::new()))
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(JsonMembers(Vec::new()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(JsonMembers(Vec::new()))
    }
}
