//! The library behind text/quire_json.h.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint};
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::error::{Error, Status};
use crate::json::{self, Fields, Writer};
use crate::{boundary, c_str, null, put_text, slice, QuireError};

/// struct quire_doc
pub struct QuireDoc {
    /// The caller's, and alive as long as this.
    text: &'static str,
    fields: Fields,
    /// What quire_doc_text() gave out.
    kept: RefCell<Vec<Box<[u8]>>>,
}

/// struct quire_value
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QuireValue {
    text: *const c_char,
    n: usize,
}

const NOTHING: QuireValue = QuireValue {
    text: std::ptr::null(),
    n: 0,
};

impl QuireValue {
    fn new(text: &[u8]) -> QuireValue {
        QuireValue {
            text: text.as_ptr().cast(),
            n: text.len(),
        }
    }

    unsafe fn bytes<'a>(self) -> &'a [u8] {
        match self.n {
            0 => &[],
            n => std::slice::from_raw_parts(self.text.cast(), n),
        }
    }

    /// The text of a string with its quotes; nothing else is one.
    unsafe fn string<'a>(self) -> Option<&'a str> {
        match self.bytes() {
            // SAFETY: a value is a piece of a document, which is UTF-8.
            text @ [b'"', .., b'"'] => Some(std::str::from_utf8_unchecked(text)),
            _ => None,
        }
    }
}

/// Runs f; a panic is `otherwise`.
fn quietly<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(otherwise)
}

/// # Safety
/// As text/quire_json.h says; so for every function here.
#[no_mangle]
pub unsafe extern "C" fn quire_doc_open(
    text: *const c_char,
    n_bytes: usize,
    max_depth: c_uint,
    what: *const c_char,
    out: *mut *mut QuireDoc,
    err: *mut QuireError,
) -> c_int {
    *out = std::ptr::null_mut();
    boundary(err, || {
        let what = c_str(what, "what")?.ok_or_else(|| null("what"))?;
        let bytes = slice(text.cast::<u8>(), n_bytes, "text")?;
        let (text, fields) = json::check(bytes, max_depth as usize)
            .map_err(|e| Error::new(e.status, format!("{what} {}", e.text)))?;
        *out = Box::into_raw(Box::new(QuireDoc {
            text,
            fields,
            kept: RefCell::default(),
        }));
        Ok(())
    })
}

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_json_is_pythons(
    text: *const c_char,
    n_bytes: usize,
    max_depth: c_uint,
) -> bool {
    quietly(false, || {
        let bytes = QuireValue { text, n: n_bytes }.bytes();
        json::check_of(Writer::Python, bytes, max_depth as usize).is_ok()
    })
}

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_doc_close(doc: *mut QuireDoc) {
    if !doc.is_null() {
        quietly((), || drop(Box::from_raw(doc)));
    }
}

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_doc_root(doc: *const QuireDoc) -> QuireValue {
    QuireValue::new((*doc).text.trim_ascii().as_bytes())
}

/// # Safety
/// See quire_doc_open; key is NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn quire_doc_field(doc: *const QuireDoc, key: *const c_char) -> QuireValue {
    quietly(NOTHING, || {
        let doc = &*doc;
        let found = doc.fields.get(doc.text, literal(key));
        found.map_or(NOTHING, |span| {
            QuireValue::new(span.of(doc.text).as_bytes())
        })
    })
}

/// A name that stands in our own source.
unsafe fn literal<'a>(text: *const c_char) -> &'a str {
    std::str::from_utf8_unchecked(std::ffi::CStr::from_ptr(text).to_bytes())
}

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_doc_text(
    doc: *const QuireDoc,
    string: QuireValue,
    n_bytes: *mut usize,
) -> *const c_char {
    quietly(std::ptr::null(), || {
        let Some(string) = string.string() else {
            return std::ptr::null();
        };
        let mut text = json::unescape(string).into_owned().into_bytes();
        *n_bytes = text.len();
        text.push(0);
        let text = text.into_boxed_slice();
        let at = text.as_ptr().cast();
        (*doc).kept.borrow_mut().push(text);
        at
    })
}

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_value_next(
    rest: *mut QuireValue,
    key: *mut QuireValue,
    value: *mut QuireValue,
) -> bool {
    quietly(false, || {
        let Some(member) = json::next((*rest).bytes()) else {
            return false;
        };
        *rest = QuireValue::new(member.rest);
        *value = QuireValue::new(member.value);
        if let Some(key) = key.as_mut() {
            *key = QuireValue::new(member.key);
        }
        true
    })
}

/// # Safety
/// See quire_doc_open; key is NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn quire_value_member(object: QuireValue, key: *const c_char) -> QuireValue {
    quietly(NOTHING, || {
        let mut rest = object.bytes();
        if rest.first() != Some(&b'{') {
            return NOTHING;
        }
        let key = literal(key);
        while let Some(member) = json::next(rest) {
            // SAFETY: a value is a piece of a document, which is UTF-8.
            if json::says(std::str::from_utf8_unchecked(member.key), key) {
                return QuireValue::new(member.value);
            }
            rest = member.rest;
        }
        NOTHING
    })
}

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_value_count(value: QuireValue) -> usize {
    quietly(0, || match value.bytes() {
        [b'[' | b'{', ..] => items(value.bytes()).count(),
        _ => 0,
    })
}

/// The values of an array or an object.
fn items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = value;
    std::iter::from_fn(move || {
        let member = json::next(rest)?;
        rest = member.rest;
        Some(member.value)
    })
}

/// # Safety
/// See quire_doc_open; text is NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn quire_value_says(value: QuireValue, text: *const c_char) -> bool {
    quietly(false, || match value.string() {
        Some(string) => json::says(string, literal(text)),
        None => false,
    })
}

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_value_text(
    string: QuireValue,
    out: *mut *mut c_char,
    n_bytes: *mut usize,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let string = string
            .string()
            .ok_or_else(|| Error::invalid("not a string"))?;
        put_text(&json::unescape(string), out, n_bytes)
    })
}

const INTEGER: c_int = 0;
const NO_INTEGER: c_int = 1;
const TOO_LARGE: c_int = 2;

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_value_integer(
    value: QuireValue,
    negative: *mut bool,
    magnitude: *mut u64,
) -> c_int {
    let Some(whole) = json::whole(value.bytes()) else {
        return NO_INTEGER;
    };
    *negative = whole.negative;
    *magnitude = whole.magnitude.unwrap_or(u64::MAX);
    match whole.magnitude {
        Some(_) => INTEGER,
        None => TOO_LARGE,
    }
}

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_value_double(value: QuireValue) -> f64 {
    match value.bytes() {
        number @ [b'-' | b'0'..=b'9', ..] => {
            let number = std::str::from_utf8(number).ok();
            number.and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
        }
        _ => f64::NAN,
    }
}

fn id(item: &[u8], end: u32) -> Option<u32> {
    let plain = item.iter().try_fold(0u64, |id, c| match c {
        b'0'..=b'9' if item.len() <= 10 => Some(id * 10 + u64::from(c - b'0')),
        _ => None,
    });
    let id = plain.or_else(|| match json::whole(item)? {
        json::Whole { magnitude, negative } if !negative || magnitude == Some(0) => magnitude,
        _ => None,
    })?;
    u32::try_from(id).ok().filter(|id| *id < end)
}

/// # Safety
/// See quire_doc_open.
#[no_mangle]
pub unsafe extern "C" fn quire_value_ids(
    array: QuireValue,
    end: u32,
    out: *mut *mut u32,
    n: *mut usize,
) -> c_int {
    *out = std::ptr::null_mut();
    *n = 0;
    boundary(std::ptr::null_mut(), || {
        let text = array.bytes();
        let n_bytes = 4 * quire_value_count(array);
        let ids = libc::malloc(n_bytes.max(1)).cast::<u32>();
        if ids.is_null() {
            let why = format!("no {n_bytes} bytes");
            return Err(Error::new(Status::NoMemory, why));
        }
        for item in items(text) {
            let Some(id) = id(item, end) else {
                libc::free(ids.cast());
                return Err(Error::invalid("not an id"));
            };
            *ids.add(*n) = id;
            *n += 1;
        }
        *out = ids;
        Ok(())
    })
}
