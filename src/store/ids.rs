//! Identifiers as the text that columns hold.

use crate::domain::{DeliveryId, PlanId, RunId};
use rusqlite::ToSql;
use rusqlite::types::ToSqlOutput;

/// Columns hold the identifier's text.
macro_rules! column {
    ($($name:ident),*) => {
        $(impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                self.as_str().to_sql()
            }
        })*
    };
}

column!(DeliveryId, PlanId, RunId);
