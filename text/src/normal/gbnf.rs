use super::lark::Lark; use crate::error::*;
pub fn add(_l: &mut Lark, _v: &str) -> Result<String> { Err(Error::invalid("todo")) }
