//! The GPT-2 byte map: a byte-level vocabulary writes each byte as one printable character.

use std::sync::OnceLock;

/// Code points of the map end below this.
const N_CHARS: usize = 0x144;
const NOT_A_BYTE: u16 = 0x100;

/// Character → byte. The printable Latin-1 characters stand for themselves; the other 68 bytes
/// are written, in rising order, as U+0100 and up.
fn table() -> &'static [u16; N_CHARS] {
    static TABLE: OnceLock<[u16; N_CHARS]> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = [NOT_A_BYTE; N_CHARS];
        let mut next = 0x100;
        for byte in 0..=0xffu16 {
            let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
            let at = if printable { byte as usize } else { next };
            table[at] = byte;
            next += usize::from(!printable);
        }
        table
    })
}

/// The characters that stand for bytes.
pub fn alphabet() -> impl Iterator<Item = char> {
    let used = |(_, byte): &(u32, &u16)| **byte != NOT_A_BYTE;
    (0..)
        .zip(table())
        .filter(used)
        .filter_map(|(c, _)| char::from_u32(c))
}

/// Appends the bytes of a token; a token with a character outside the map stands for itself.
pub fn append_token(token: &str, out: &mut Vec<u8>) {
    let table = table();
    let start = out.len();
    for c in token.chars() {
        match table.get(c as usize) {
            Some(&byte) if byte != NOT_A_BYTE => out.push(byte as u8),
            _ => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let table = table();
        let mut seen = [0u32; 256];
        table
            .iter()
            .filter(|b| **b != NOT_A_BYTE)
            .for_each(|b| seen[*b as usize] += 1);
        assert!(seen.iter().all(|n| *n == 1));
    }

    #[test]
    fn known_characters() {
        let mut out = Vec::new();
        append_token("ĠHiĊĉ", &mut out);
        assert_eq!(out, b" Hi\n\t");
        out.clear();
        append_token("Ã©", &mut out);
        assert_eq!(out, "é".as_bytes());
        out.clear();
        append_token("Ġa b", &mut out);
        assert_eq!(out, "Ġa b".as_bytes());
    }
}
