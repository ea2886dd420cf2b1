use super::lark::Lark; use serde_json::Value; use crate::error::*;
pub fn add(_l: &mut Lark, _v: &Value) -> Result<String> { Err(Error::invalid("todo")) }
