//! LZ4 blocks.

/// Decodes one block of `size` bytes; `None` if it is malformed.
pub fn decode(block: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::with_capacity(size);
    let mut input = block.iter().copied();
    let extended = |first: u8, input: &mut dyn Iterator<Item = u8>| {
        let mut length = usize::from(first);
        if first == 15 {
            loop {
                let more = input.next()?;
                length += usize::from(more);
                if more != 255 {
                    break;
                }
            }
        }
        Some(length)
    };
    while let Some(token) = input.next() {
        let literals = extended(token >> 4, &mut input)?;
        for _ in 0..literals {
            out.push(input.next()?);
        }
        if out.len() >= size {
            break;
        }
        let distance = usize::from(input.next()?) | usize::from(input.next()?) << 8;
        let length = extended(token & 15, &mut input)? + 4;
        let start = out.len().checked_sub(distance).filter(|_| distance > 0)?;
        for i in start..start + length {
            out.push(out[i]);
        }
    }
    (out.len() == size).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn literals_and_overlapping_matches() {
        // "ab", then 6 bytes from 2 back, then "c" as the closing literals.
        let block = [0x22, b'a', b'b', 2, 0, 0x10, b'c'];
        assert_eq!(decode(&block, 9).unwrap(), b"ababababc");
        assert!(decode(&block[..4], 9).is_none());
        assert!(decode(&[0x02, 1, 0], 6).is_none());
    }
}
