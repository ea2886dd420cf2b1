//! The library behind text/quire_text.h: the C boundary.
//!
//! Every function catches panics, so that none crosses into C. The results of `**out` are malloc'd, and the caller
//! frees them.

mod bpe;
mod bytelevel;
mod chat;
mod cut;
mod detok;
mod error;
mod fit;
mod follow;
mod grammar;
mod jinja;
mod json;
mod json_ffi;
mod load;
mod marks;
mod memory;
mod normal;
mod normalizer;
mod pieces;
mod prefix;
mod python_json;
mod sentencepiece;
mod tokenize;

#[cfg(test)]
#[path = "../../tests/text/chat_test.rs"]
mod chat_test;
#[cfg(test)]
#[path = "../../tests/text/detok_test.rs"]
mod detok_test;
#[cfg(test)]
#[path = "../../tests/text/compile_bench.rs"]
mod compile_bench;
#[cfg(test)]
#[path = "../../tests/text/grammar_bench.rs"]
mod grammar_bench;
#[cfg(test)]
#[path = "../../tests/text/grammar_test.rs"]
mod grammar_test;
#[cfg(test)]
#[path = "../../tests/text/workers_test.rs"]
mod grammar_workers_test;
#[cfg(test)]
#[path = "../../tests/text/normal_test.rs"]
mod normal_test;
#[cfg(test)]
#[path = "../../tests/text/numbers_test.rs"]
mod numbers_test;
#[cfg(test)]
#[path = "../../tests/text/pieces_test.rs"]
mod pieces_test;
#[cfg(test)]
#[path = "../../tests/text/sentencepiece_test.rs"]
mod sentencepiece_test;
#[cfg(test)]
#[path = "../../tests/text/snippets_test.rs"]
mod snippets_test;
#[cfg(test)]
#[path = "../../tests/text/templates_test.rs"]
mod templates_test;

use std::ffi::{c_char, c_int, CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Once};

use detok::Detok;
use error::{Error, Result, Status};
use load::Text;
use pieces::{Piece, Pieces};

const ERROR_BYTES: usize = 512;

/// struct quire_error
#[repr(C)]
pub struct QuireError {
    text: [u8; ERROR_BYTES],
    parameter: *const c_char,
}

/// struct quire_text
pub struct QuireText(Arc<Text>);

/// struct quire_encoder
pub struct QuireEncoder {
    pieces: Pieces,
    input: *const u8,
    n_bytes: usize,
    piece: Piece,
}

/// struct quire_detok
pub struct QuireDetok {
    detok: Detok,
    piece: Vec<u8>,
}

/// struct quire_chat
#[repr(C)]
pub struct QuireChat {
    messages_json: *const c_char,
    tools_json: *const c_char,
    kwargs_json: *const c_char,
    template_name: *const c_char,
    add_generation_prompt: bool,
    continue_final: bool,
    specials: c_int,
}

/// Leaves the message, one line, cut at a character, and returns the status.
unsafe fn fail(err: *mut QuireError, error: &Error) -> c_int {
    if let Some(err) = err.as_mut() {
        let line: String = error
            .text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let mut n = line.len().min(ERROR_BYTES - 1);
        while !line.is_char_boundary(n) {
            n -= 1;
        }
        err.text[..n].copy_from_slice(&line.as_bytes()[..n]);
        err.text[n] = 0;
        err.parameter = std::ptr::null();
    }
    error.status as c_int
}

/// Runs f; a failure or a panic becomes a status.
pub(crate) unsafe fn boundary(err: *mut QuireError, f: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => fail(err, &error),
        Err(panic) => {
            let what = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            fail(
                err,
                &Error::new(Status::Internal, format!("text: internal error: {what}")),
            )
        }
    }
}

/// The library prints nothing, even if it panics.
pub(crate) fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

pub(crate) fn null(what: &str) -> Error {
    Error::invalid(format!("text: {what} is NULL"))
}

/// A copy of the bytes in malloc'ed memory, with `extra` zero bytes after it.
pub(crate) fn to_malloc<T: Copy>(items: &[T], extra: usize) -> Result<*mut T> {
    let bytes = std::mem::size_of_val(items);
    // SAFETY: the new block is as long as what is written to it.
    unsafe {
        let block = libc::malloc((bytes + extra).max(1)).cast::<u8>();
        if block.is_null() {
            return Err(Error::new(
                Status::NoMemory,
                format!("text: no {bytes} bytes"),
            ));
        }
        std::ptr::copy_nonoverlapping(items.as_ptr().cast::<u8>(), block, bytes);
        std::ptr::write_bytes(block.add(bytes), 0, extra);
        Ok(block.cast())
    }
}

pub(crate) unsafe fn slice<'a, T>(items: *const T, n: usize, what: &str) -> Result<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    if items.is_null() {
        return Err(null(what));
    }
    Ok(std::slice::from_raw_parts(items, n))
}

unsafe fn text_ref<'a>(text: *const QuireText) -> Result<&'a Arc<Text>> {
    text.as_ref().map(|t| &t.0).ok_or_else(|| null("text"))
}

/// A C string that must be UTF-8; None for NULL.
pub(crate) unsafe fn c_str<'a>(s: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if s.is_null() {
        return Ok(None);
    }
    match CStr::from_ptr(s).to_str() {
        Ok(s) => Ok(Some(s)),
        Err(e) => Err(Error::invalid(format!(
            "{what}: not UTF-8 at byte {}",
            e.valid_up_to()
        ))),
    }
}

/// Text that must be UTF-8.
unsafe fn utf8_text<'a>(utf8: *const c_char, n_bytes: usize) -> Result<&'a str> {
    let bytes = slice(utf8.cast::<u8>(), n_bytes, "utf8")?;
    std::str::from_utf8(bytes)
        .map_err(|e| Error::invalid(format!("text: not UTF-8 at byte {}", e.valid_up_to())))
}

pub(crate) unsafe fn put_text(
    text: &str,
    out: *mut *mut c_char,
    n_bytes: *mut usize,
) -> Result<()> {
    *out = to_malloc(text.as_bytes(), 1)?.cast();
    *n_bytes = text.len();
    Ok(())
}

/// Gives what loading allocated for a moment back to the system.
fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim only returns free pages.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// # Safety
/// As text/quire_text.h says; so for every function here.
#[no_mangle]
pub unsafe extern "C" fn quire_text_open_dir(
    model_dir: *const c_char,
    out: *mut *mut QuireText,
    err: *mut QuireError,
) -> c_int {
    quiet_panics();
    let status = boundary(err, || {
        if model_dir.is_null() || out.is_null() {
            return Err(null("model_dir or out"));
        }
        let dir = Path::new(OsStr::from_bytes(CStr::from_ptr(model_dir).to_bytes()));
        let text = Text::open(dir)?;
        *out = Box::into_raw(Box::new(QuireText(Arc::new(text))));
        Ok(())
    });
    trim_heap();
    status
}

/// # Safety
/// See quire_text_open_dir: the same of two files in memory, tokenizer.json and tokenizer_config.json.
#[no_mangle]
pub unsafe extern "C" fn quire_text_open_made(
    tokenizer: *const c_char,
    n_tokenizer: usize,
    config: *const c_char,
    n_config: usize,
    out: *mut *mut QuireText,
    err: *mut QuireError,
) -> c_int {
    quiet_panics();
    let status = boundary(err, || {
        let tokenizer = utf8_text(tokenizer, n_tokenizer)?;
        let text = Text::made(tokenizer, utf8_text(config, n_config)?)?;
        *out = Box::into_raw(Box::new(QuireText(Arc::new(text))));
        Ok(())
    });
    trim_heap();
    status
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_close(text: *mut QuireText) {
    if !text.is_null() {
        boundary(std::ptr::null_mut(), || {
            drop(Box::from_raw(text));
            Ok(())
        });
    }
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_n_ids(text: *const QuireText) -> u32 {
    text_ref(text).map_or(0, |t| t.vocabulary.n_ids())
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_token_id(
    text: *const QuireText,
    content: *const c_char,
) -> i64 {
    let mut id = -1;
    boundary(std::ptr::null_mut(), || {
        if let Some(content) = c_str(content, "content")? {
            id = text_ref(text)?
                .vocabulary
                .token_id(content)
                .map_or(-1, i64::from);
        }
        Ok(())
    });
    id
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_encode(
    text: *const QuireText,
    utf8: *const c_char,
    n_bytes: usize,
    add_special: bool,
    ids: *mut *mut u32,
    n_ids: *mut usize,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let input = utf8_text(utf8, n_bytes)?;
        let mut pieces = Pieces::new(text_ref(text)?.clone(), add_special);
        let mut encoded = Vec::new();
        while let Some(piece) = pieces.next(input)? {
            encoded.extend(piece.ids);
        }
        *ids = to_malloc(&encoded, 0)?;
        *n_ids = encoded.len();
        Ok(())
    })
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_pair_specials(
    text: *const QuireText,
    ids: *mut *mut u32,
    n_ids: *mut usize,
    second_type: *mut bool,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let (specials, second) = text_ref(text)?.vocabulary.pair_specials()?;
        *ids = to_malloc(&specials, 0)?;
        *n_ids = specials.len();
        *second_type = second;
        Ok(())
    })
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_least_tokens(
    text: *const QuireText,
    utf8: *const c_char,
    n_bytes: usize,
) -> usize {
    let mut least = 0;
    boundary(std::ptr::null_mut(), || {
        let input = utf8_text(utf8, n_bytes)?;
        least = text_ref(text)?.vocabulary.least_tokens(input);
        Ok(())
    });
    least
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_encoder_open(
    text: *const QuireText,
    utf8: *const c_char,
    n_bytes: usize,
    add_special: bool,
    out: *mut *mut QuireEncoder,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        utf8_text(utf8, n_bytes)?;
        *out = Box::into_raw(Box::new(QuireEncoder {
            pieces: Pieces::new(text_ref(text)?.clone(), add_special),
            input: utf8.cast(),
            n_bytes,
            piece: Piece::default(),
        }));
        Ok(())
    })
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_encoder_mark(encoder: *mut QuireEncoder, mark: u32) {
    if let (Some(encoder), Some(mark)) = (encoder.as_mut(), char::from_u32(mark)) {
        encoder.pieces.set_mark(mark);
    }
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_encoder_place(encoder: *mut QuireEncoder) {
    if let Some(encoder) = encoder.as_mut() {
        encoder.pieces.set_placed();
    }
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_encoder_places(encoder: *const QuireEncoder) -> *const u32 {
    match encoder.as_ref() {
        Some(e) if e.piece.places.len() == e.piece.ids.len() => e.piece.places.as_ptr(),
        _ => std::ptr::null(),
    }
}

/// # Safety
/// See quire_text_open; the text is still as it was at quire_encoder_open().
#[no_mangle]
pub unsafe extern "C" fn quire_encoder_next(
    encoder: *mut QuireEncoder,
    ids: *mut *const u32,
    n_ids: *mut usize,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let encoder = encoder.as_mut().ok_or_else(|| null("encoder"))?;
        let bytes = slice(encoder.input, encoder.n_bytes, "utf8")?;
        // It was checked when the encoder was opened.
        let piece = encoder.pieces.next(std::str::from_utf8_unchecked(bytes))?;
        let is_end = piece.is_none();
        encoder.piece = piece.unwrap_or_default();
        *ids = if is_end {
            std::ptr::null()
        } else {
            encoder.piece.ids.as_ptr()
        };
        *n_ids = encoder.piece.ids.len();
        Ok(())
    })
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_encoder_close(encoder: *mut QuireEncoder) {
    if !encoder.is_null() {
        boundary(std::ptr::null_mut(), || {
            drop(Box::from_raw(encoder));
            Ok(())
        });
    }
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_decode(
    text: *const QuireText,
    ids: *const u32,
    n_ids: usize,
    skip_special: bool,
    out: *mut *mut c_char,
    n_bytes: *mut usize,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let ids = slice(ids, n_ids, "ids")?;
        let decoded = detok::decode(&text_ref(text)?.vocabulary, ids, skip_special)?;
        put_text(&decoded, out, n_bytes)
    })
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_token_bytes(
    text: *const QuireText,
    id: u32,
    out: *mut *mut u8,
    n_bytes: *mut usize,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let bytes = text_ref(text)?.vocabulary.token_bytes(id);
        *out = to_malloc(&bytes, 1)?;
        *n_bytes = bytes.len();
        Ok(())
    })
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_detok_open(
    text: *const QuireText,
    prompt: *const u32,
    n_prompt: usize,
    skip_special: bool,
    out: *mut *mut QuireDetok,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let prompt = slice(prompt, n_prompt, "prompt")?;
        let detok = Detok::open(text_ref(text)?.clone(), prompt, skip_special)?;
        *out = Box::into_raw(Box::new(QuireDetok {
            detok,
            piece: Vec::new(),
        }));
        Ok(())
    })
}

/// Runs one step of a stream and hands its text out.
unsafe fn detok_step(
    detok: *mut QuireDetok,
    piece: *mut *const c_char,
    n_bytes: *mut usize,
    err: *mut QuireError,
    step: impl FnOnce(&mut Detok) -> Result<&str>,
) -> c_int {
    boundary(err, || {
        let stream = detok.as_mut().ok_or_else(|| null("detok"))?;
        let text = step(&mut stream.detok)?;
        stream.piece.clear();
        stream.piece.extend_from_slice(text.as_bytes());
        stream.piece.push(0);
        *piece = stream.piece.as_ptr().cast();
        *n_bytes = stream.piece.len() - 1;
        Ok(())
    })
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_detok_push(
    detok: *mut QuireDetok,
    id: u32,
    piece: *mut *const c_char,
    n_bytes: *mut usize,
    err: *mut QuireError,
) -> c_int {
    detok_step(detok, piece, n_bytes, err, |d| d.push(id))
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_detok_finish(
    detok: *mut QuireDetok,
    piece: *mut *const c_char,
    n_bytes: *mut usize,
    err: *mut QuireError,
) -> c_int {
    detok_step(detok, piece, n_bytes, err, Detok::finish)
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_detok_held(detok: *const QuireDetok, next: i64) -> usize {
    let mut held = 0;
    boundary(std::ptr::null_mut(), || {
        let detok = detok.as_ref().ok_or_else(|| null("detok"))?;
        held = detok.detok.held(u32::try_from(next).ok());
        Ok(())
    });
    held
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_detok_close(detok: *mut QuireDetok) {
    if !detok.is_null() {
        boundary(std::ptr::null_mut(), || {
            drop(Box::from_raw(detok));
            Ok(())
        });
    }
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_chat(
    text: *const QuireText,
    chat: *const QuireChat,
    out: *mut *mut c_char,
    n_bytes: *mut usize,
    mark: *mut u32,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let chat = chat.as_ref().ok_or_else(|| null("chat"))?;
        let request = chat::Request {
            messages: c_str(chat.messages_json, "messages")?
                .ok_or_else(|| null("messages_json"))?,
            tools: c_str(chat.tools_json, "tools")?,
            kwargs: c_str(chat.kwargs_json, "chat_template_kwargs")?,
            template: c_str(chat.template_name, "chat_template")?,
            add_generation_prompt: chat.add_generation_prompt,
            continue_final: chat.continue_final,
            spelled: match chat.specials {
                0 => marks::Spelled::Encode,
                1 => marks::Spelled::Refuse,
                2 if !mark.is_null() => marks::Spelled::Text,
                _ => return Err(null("mark")),
            },
        };
        let text = text_ref(text)?;
        let rendered = text
            .templates
            .render_marked(&request, &text.vocabulary.spelled)?;
        if let Some(mark) = mark.as_mut() {
            *mark = rendered.mark.map_or(0, u32::from);
        }
        put_text(&rendered.text, out, n_bytes)
    })
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_has_chat(text: *const QuireText) -> bool {
    text_ref(text).is_ok_and(|t| !t.templates.is_empty())
}

/// # Safety
/// See quire_text_open.
#[no_mangle]
pub unsafe extern "C" fn quire_text_about(
    text: *const QuireText,
    out: *mut *mut c_char,
    n_bytes: *mut usize,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || put_text(&text_ref(text)?.about, out, n_bytes))
}

/// # Safety
/// See quire_text_open; words is NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn quire_text_chat_mentions(
    text: *const QuireText,
    words: *const c_char,
) -> bool {
    if words.is_null() {
        return false;
    }
    let words = CStr::from_ptr(words).to_str();
    text_ref(text).is_ok_and(|t| words.is_ok_and(|w| t.templates.mention(w)))
}

/// # Safety
/// See quire_text_open; name has n_bytes.
#[no_mangle]
pub unsafe extern "C" fn quire_text_chat_uses(
    text: *const QuireText,
    name: *const c_char,
    n_bytes: usize,
) -> bool {
    if name.is_null() {
        return false;
    }
    let name = std::str::from_utf8(std::slice::from_raw_parts(name.cast(), n_bytes));
    text_ref(text).is_ok_and(|t| name.is_ok_and(|n| t.templates.use_name(n)))
}

/// # Safety
/// See quire_text_open; sha256 has 32 bytes.
#[no_mangle]
pub unsafe extern "C" fn quire_text_digest(text: *const QuireText, sha256: *mut u8) {
    if let (Ok(text), false) = (text_ref(text), sha256.is_null()) {
        std::ptr::copy_nonoverlapping(text.digest.as_ptr(), sha256, text.digest.len());
    }
}

/// # Safety
/// See quire_text_open; sha256 has 32 bytes.
#[no_mangle]
pub unsafe extern "C" fn quire_text_identity_dir(
    model_dir: *const c_char,
    sha256: *mut u8,
    err: *mut QuireError,
) -> c_int {
    quiet_panics();
    boundary(err, || {
        if model_dir.is_null() || sha256.is_null() {
            return Err(null("model_dir or sha256"));
        }
        let dir = Path::new(OsStr::from_bytes(CStr::from_ptr(model_dir).to_bytes()));
        let identity = load::identity(dir)?;
        std::ptr::copy_nonoverlapping(identity.as_ptr(), sha256, identity.len());
        Ok(())
    })
}

/// # Safety
/// See quire_text_open_made; sha256 has 32 bytes.
#[no_mangle]
pub unsafe extern "C" fn quire_text_identity_made(
    tokenizer: *const c_char,
    n_tokenizer: usize,
    config: *const c_char,
    n_config: usize,
    sha256: *mut u8,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let identity = load::identity_made(
            utf8_text(tokenizer, n_tokenizer)?,
            utf8_text(config, n_config)?,
        );
        std::ptr::copy_nonoverlapping(identity.as_ptr(), sha256, identity.len());
        Ok(())
    })
}
