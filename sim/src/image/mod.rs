//! The PTX inside what an application loads: text, or a fatbin that holds text, perhaps compressed.

mod lz4;

use std::io::Read;

use crate::error::{Fault, Kind, Result};

const FATBIN_MAGIC: u32 = 0xBA55_ED50;
const WRAPPER_MAGIC: u32 = 0x4662_43B1;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The PTX of an image for a device of this architecture ("90a").
///
/// # Safety
/// `image` is a fatbin, a fatbin wrapper or text that ends with a null byte.
///
/// # Errors
/// `Malformed` if it is none of these, `Unsupported` if it holds no PTX for the architecture.
pub unsafe fn ptx(image: *const u8, arch: &str) -> Result<String> {
    if image.is_null() {
        return Fault::err(Kind::Malformed, "the image is null");
    }
    // SAFETY: each form is at least four bytes long, text with its end.
    let magic = unsafe { image.cast::<u32>().read_unaligned() };
    if magic == WRAPPER_MAGIC {
        // SAFETY: the wrapper holds a pointer to the fatbin at byte 8.
        return unsafe { ptx(image.cast::<*const u8>().add(1).read_unaligned(), arch) };
    }
    if magic == FATBIN_MAGIC {
        // SAFETY: the header holds its own size at byte 6 and that of what follows at byte 8.
        let bytes = unsafe {
            let header = usize::from(image.add(6).cast::<u16>().read_unaligned());
            let size = image.add(8).cast::<u64>().read_unaligned() as usize;
            std::slice::from_raw_parts(image, header + size)
        };
        return from_fatbin(bytes, arch);
    }
    if magic.to_le_bytes() == *b"\x7fELF" {
        return Fault::err(Kind::Unsupported, "the image is machine code without PTX");
    }
    // SAFETY: the caller's promise.
    let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) };
    match text.to_str() {
        Ok(text) => Ok(text.into()),
        Err(_) => Fault::err(Kind::Malformed, "the image is neither a fatbin nor text"),
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64> {
    let Some(field) = bytes.get(at..at + N) else {
        return Fault::err(Kind::Malformed, "the fatbin ends early");
    };
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(field);
    Ok(u64::from_le_bytes(wide))
}

/// Entries: kind u16 (1: PTX), version u16, header bytes u32, payload bytes u64, compressed bytes u32 at 16, architecture
/// u32 at 28, flags u64 at 40, uncompressed bytes u64 at 56.
fn from_fatbin(bytes: &[u8], arch: &str) -> Result<String> {
    let wanted: u64 = arch.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap_or(0);
    let mut at = number::<2>(bytes, 6)? as usize;
    let mut found = Vec::new();
    while at < bytes.len() {
        let (kind, header) = (number::<2>(bytes, at)?, number::<4>(bytes, at + 4)? as usize);
        let payload = number::<8>(bytes, at + 8)? as usize;
        let architecture = number::<4>(bytes, at + 28)?;
        found.push(architecture);
        let Some(body) = bytes.get(at + header..at + header + payload) else {
            return Fault::err(Kind::Malformed, "an entry of the fatbin ends beyond it");
        };
        if kind == 1 && architecture <= wanted {
            let text = uncompress(body, number::<4>(bytes, at + 16)? as usize, number::<8>(bytes, at + 56)? as usize)?;
            // Text for "90a" runs on 9.0 only, text for "100f" on all of 10.x from 10.0 on; the target line tells.
            let target = text.split_once(".target").map_or("", |(_, rest)| rest.trim_start());
            let target = target.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("");
            let specific = target.ends_with(|c: char| c.is_ascii_alphabetic());
            let family = target.ends_with('f') && architecture / 10 == wanted / 10;
            if !specific || family || architecture == wanted {
                return Ok(text);
            }
        }
        at += header + payload;
        if header + payload == 0 {
            break;
        }
    }
    Fault::err(Kind::Unsupported, format!("the fatbin holds no PTX for sm_{arch}; its entries are for {found:?}"))
}

fn uncompress(body: &[u8], compressed: usize, size: usize) -> Result<String> {
    let malformed = |what: String| Fault::new(Kind::Malformed, format!("compressed PTX: {what}"));
    let bytes = if size == 0 {
        body.to_vec()
    } else {
        let body = body.get(..compressed).ok_or_else(|| malformed("longer than its entry".into()))?;
        if body.starts_with(&ZSTD_MAGIC) {
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(body).map_err(|e| malformed(e.to_string()))?;
            let mut text = Vec::with_capacity(size);
            decoder.read_to_end(&mut text).map_err(|e| malformed(e.to_string()))?;
            text
        } else {
            lz4::decode(body, size).ok_or_else(|| malformed("neither zstd nor LZ4".into()))?
        }
    };
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8(bytes[..end].to_vec()).map_err(|e| malformed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fatbin whose entries are uncompressed PTX of these targets.
    fn fatbin(targets: &[(u32, &str)]) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes[6] = 16;
        for &(architecture, target) in targets {
            let text = format!(".version 9.0\n.target {target}\n");
            let mut header = [0u8; 64];
            (header[0], header[4], header[8]) = (1, 64, text.len() as u8);
            header[28..32].copy_from_slice(&architecture.to_le_bytes());
            bytes.extend(header);
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    #[test]
    fn text_for_an_architecture_its_family_or_all_later_ones() {
        let target = |targets: &[(u32, &str)], arch: &str| {
            from_fatbin(&fatbin(targets), arch).ok().and_then(|text| text.split(".target ").nth(1).map(str::to_string))
        };
        let both = [(90, "sm_90a"), (100, "sm_100f")];
        assert_eq!(target(&both, "90a").as_deref(), Some("sm_90a\n"));
        assert_eq!(target(&both, "100a").as_deref(), Some("sm_100f\n"));
        assert_eq!(target(&both, "103a").as_deref(), Some("sm_100f\n"));
        assert_eq!(target(&both, "120a"), None);
        assert_eq!(target(&[(100, "sm_100a")], "103a"), None);
        assert_eq!(target(&[(103, "sm_103f")], "100a"), None);
        assert_eq!(target(&[(90, "sm_90")], "103a").as_deref(), Some("sm_90\n"));
    }
}
