//! Identifiers as the text that columns hold.

use crate::domain::{DeliveryId, JobId, PlanId, RunId};
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};

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

column!(DeliveryId, PlanId, RunId, JobId);

impl FromSql for JobId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<JobId> {
        String::column_result(value).map(JobId::stored)
    }
}
