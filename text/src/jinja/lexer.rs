//! The text, comments and tags of a template, and the tokens of a tag, as Jinja2's lexer finds them.

/// A part of a template. Joined, the parts are the template.
#[derive(Debug)]
pub enum Part<'a> {
    /// Text, a comment, or all of a `raw` block: what no rule rewrites.
    Text(&'a str),
    Tag(Tag<'a>),
}

#[derive(Debug)]
pub struct Tag<'a> {
    pub open: &'a str,
    pub tokens: Vec<Token<'a>>,
    /// With the white space before it.
    pub close: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Name,
    Number,
    String,
    Operator,
}

#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    pub kind: Kind,
    pub space: &'a str,
    pub text: &'a str,
}

impl Tag<'_> {
    pub fn is_block(&self) -> bool {
        self.open.starts_with("{%")
    }

    /// The name of a statement, or "".
    pub fn statement(&self) -> &str {
        match self.tokens.first() {
            Some(token) if self.is_block() && token.kind == Kind::Name => token.text,
            _ => "",
        }
    }
}

/// A tag that does not end, or has a character that begins no token, is text together with all that follows it: the engine
/// reports it.
pub fn parts(source: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = source;
    while let Some(at) = tag_at(rest) {
        let (text, tag) = rest.split_at(at);
        let end = if tag.starts_with("{#") {
            tag.find("#}").map(|end| end + 2)
        } else {
            raw_block(tag)
        };
        if let Some(end) = end {
            parts.push(Part::Text(&rest[..at + end]));
            rest = &rest[at + end..];
            continue;
        }
        let Some((lexed, after)) = lex_tag(tag) else {
            break;
        };
        parts.push(Part::Text(text));
        parts.push(Part::Tag(lexed));
        rest = after;
    }
    parts.push(Part::Text(rest));
    parts
}

fn tag_at(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(brace) = text[from..].find('{') {
        let at = from + brace;
        if matches!(bytes.get(at + 1), Some(b'{' | b'%' | b'#')) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// How long a block `raw` is with its ends; None: this tag begins none.
fn raw_block(tag: &str) -> Option<usize> {
    let word = |text: &str, word: &str| -> Option<usize> {
        let body = text.strip_prefix("{%")?.trim_start_matches(['-', '+']);
        let body = body.trim_start().strip_prefix(word)?.trim_start();
        let body = body.trim_start_matches(['-', '+']).strip_prefix("%}")?;
        Some(text.len() - body.len())
    };
    let mut at = word(tag, "raw")?;
    while let Some(found) = tag[at..].find("{%") {
        at += found;
        if let Some(len) = word(&tag[at..], "endraw") {
            return Some(at + len);
        }
        at += 2;
    }
    Some(tag.len())
}

/// A tag and what follows it.
fn lex_tag(tag: &str) -> Option<(Tag<'_>, &str)> {
    let (ends, sign) = if tag.starts_with("{%") {
        (["-%}", "+%}", "%}"], ['-', '+'].as_slice())
    } else {
        (["-}}", "+}}", "}}"], ['-', '+'].as_slice())
    };
    let open = 2 + usize::from(tag[2..].starts_with(sign));
    let mut tokens = Vec::new();
    let mut depth = 0usize;
    let mut at = open;
    loop {
        let text = tag[at..].trim_start();
        let space = &tag[at..tag.len() - text.len()];
        if depth == 0 {
            if let Some(end) = ends.iter().find(|end| text.starts_with(**end)) {
                let close = &tag[at..at + space.len() + end.len()];
                let after = &text[end.len()..];
                return Some((
                    Tag {
                        open: &tag[..open],
                        tokens,
                        close,
                    },
                    after,
                ));
            }
        }
        let (kind, len) = token(text)?;
        let text = &text[..len];
        match text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        tokens.push(Token { kind, space, text });
        at += space.len() + len;
    }
}

/// The kind of the token that text begins with, and its length.
fn token(text: &str) -> Option<(Kind, usize)> {
    let first = text.chars().next()?;
    if first == '\'' || first == '"' {
        let mut escaped = false;
        let end = text[1..].find(|c| {
            let ends = c == first && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        return Some((Kind::String, end + 2));
    }
    if first.is_ascii_digit() {
        return Some((Kind::Number, number(text)));
    }
    if first == '_' || first.is_alphabetic() {
        let end = text.find(|c: char| c != '_' && !c.is_alphanumeric());
        return Some((Kind::Name, end.unwrap_or(text.len())));
    }
    let two = text.get(..2).unwrap_or_default();
    if ["//", "**", "==", "!=", ">=", "<="].contains(&two) {
        return Some((Kind::Operator, 2));
    }
    "+-*/%~|=<>.:,;()[]{}!"
        .contains(first)
        .then_some((Kind::Operator, 1))
}

/// Digits with `_`, a base's prefix, a fraction, an exponent. `1.` is the integer 1 and a point.
fn number(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes
            .get(at)
            .is_some_and(|b| b.is_ascii_digit() || *b == b'_')
        {
            at += 1;
        }
        at
    };
    if bytes[0] == b'0' && matches!(bytes.get(1), Some(b'x' | b'X' | b'b' | b'B' | b'o' | b'O')) {
        return text
            .find(|c: char| c != '_' && !c.is_alphanumeric())
            .unwrap_or(text.len());
    }
    let mut at = digits(0);
    if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at = digits(at + 1);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        if bytes.get(at + 1 + sign).is_some_and(u8::is_ascii_digit) {
            at = digits(at + 1 + sign);
        }
    }
    at
}
