//! Shared memory of a CTA: bytes, which of them are written, and who accessed each word last.

use super::clock::{Epoch, Knowledge, WHOLE};
use crate::error::{Fault, Kind, Result};
use crate::map::Map;
use crate::matrix::Swizzle;

/// Where user data starts; the bytes before are the system's.
pub const RESERVED: u32 = 0x400;

/// How an access reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    Generic,
    Async,
}

/// Who accesses, and what happened before it.
#[derive(Clone, Copy)]
pub struct Who<'a> {
    pub epoch: Epoch,
    pub knows: &'a Knowledge,
    pub proxy: Proxy,
    /// One of several atomic operations.
    pub atomic: bool,
    /// Swizzle of the async proxy's view, plus 1; 0: none in particular.
    pub swizzle: u8,
}

/// Numbers of the swizzles in `Who::swizzle`.
const SWIZZLES: [Swizzle; 7] = [
    Swizzle::None,
    Swizzle::B32,
    Swizzle::B64,
    Swizzle::B128,
    Swizzle::B128Atom32,
    Swizzle::B128Atom32Flip8,
    Swizzle::B128Atom64,
];

/// The number of a swizzle.
pub fn swizzle_number(swizzle: Swizzle) -> u8 {
    SWIZZLES.iter().position(|s| *s == swizzle).map_or(0, |at| at as u8 + 1)
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Word {
    writer: Epoch,
    readers: [Epoch; 2],
    /// Bytes that the last writer wrote.
    bytes: u8,
    generic: bool,
    atomic: bool,
    more: bool,
    swizzle: u8,
}

/// What the last access made of a word: neighbours mostly have the same history. Good for one `Who` and one kind of
/// access.
#[derive(Default)]
pub struct Memo(Option<(Word, Word)>);

impl Memo {
    /// Does the same to a word with the same history; whether it could.
    fn repeat(&self, word: &mut Word) -> bool {
        match self.0 {
            Some((before, after)) if before == *word => {
                *word = after;
                true
            }
            _ => false,
        }
    }

    /// Words whose readers are listed elsewhere are always looked at.
    fn keep(&mut self, before: Word, after: Word) {
        self.0 = (!before.more && !after.more).then_some((before, after));
    }
}

pub struct Shared {
    pub bytes: Vec<u8>,
    valid: Vec<u8>,
    words: Vec<Word>,
    /// Readers beyond two.
    more: Map<u32, Vec<Epoch>>,
}

impl Shared {
    /// `size` bytes with the reserved ones.
    pub fn new(size: u32) -> Self {
        let size = size as usize;
        let words = vec![Word::default(); size.div_ceil(4)];
        Shared { bytes: vec![0; size], valid: vec![0; size], words, more: Map::default() }
    }

    pub fn check(&self, offset: u32, bytes: u32) -> Result<()> {
        if offset < RESERVED || offset as usize + bytes as usize > self.bytes.len() {
            let end = self.bytes.len();
            return Fault::err(
                Kind::OutOfBounds,
                format!("{bytes} bytes at shared offset {offset:#x}: the CTA has [{RESERVED:#x}, {end:#x})"),
            );
        }
        Ok(())
    }

    /// Bytes that nothing wrote.
    pub fn check_written(&self, offset: u32, bytes: u32) -> Result<()> {
        let range = offset as usize..(offset + bytes) as usize;
        // All flags at once, because this is the path that vectorises.
        if self.valid[range.clone()].iter().fold(1, |all, v| all & v) == 1 {
            return Ok(());
        }
        let at = self.valid[range].iter().position(|&v| v == 0).unwrap_or(0);
        Fault::err(
            Kind::Uninitialised,
            format!("nothing has written the byte at shared offset {:#x}", offset as usize + at),
        )
    }

    pub fn mark_written(&mut self, offset: u32, bytes: u32, written: bool) {
        self.valid[offset as usize..(offset + bytes) as usize].fill(written.into());
    }

    /// Bytes that `who` may read.
    pub fn read(&mut self, offset: u32, bytes: u32, who: Who, agents: &[String]) -> Result<&[u8]> {
        self.read_on(offset, bytes, who, agents, &mut Memo::default())
    }

    /// One of several such reads of the same `who`.
    pub fn read_on(&mut self, offset: u32, bytes: u32, who: Who, agents: &[String], memo: &mut Memo) -> Result<&[u8]> {
        self.check(offset, bytes)?;
        self.check_written(offset, bytes)?;
        self.note_read(offset, bytes, who, agents, memo)?;
        Ok(&self.bytes[offset as usize..][..bytes as usize])
    }

    /// Records a read, or reports the write that it races with.
    fn note_read(&mut self, offset: u32, bytes: u32, who: Who, agents: &[String], memo: &mut Memo) -> Result<()> {
        let (first, last) = (offset / 4, (offset + bytes - 1) / 4);
        let whole = (offset | bytes).is_multiple_of(4);
        for index in first..=last {
            let word = &mut self.words[index as usize];
            if whole && memo.repeat(word) {
                continue;
            }
            let before = *word;
            if word.writer != who.epoch && !word.writer.never() && word.bytes & mask(offset, bytes, index) != 0 {
                ordered(word, index, who, false, agents)?;
            }
            if word.swizzle != 0 && who.swizzle != 0 && word.swizzle != who.swizzle {
                return Fault::err(
                    Kind::Descriptor,
                    format!(
                        "shared offset {:#x} was written by a copy with the swizzle {:?}, but is read with {:?}",
                        4 * index,
                        SWIZZLES[usize::from(word.swizzle) - 1],
                        SWIZZLES[usize::from(who.swizzle) - 1]
                    ),
                );
            }
            if word.readers[0] == who.epoch {
                if whole {
                    memo.keep(before, before);
                }
                continue;
            }
            // Readers of one agent share an entry; lanes that have not met since become the whole of it.
            let (epoch, known) = (who.epoch, &who.knows.all);
            let free = word.readers.iter().position(|&r| r.never() || r.agent() == epoch.agent() || known.covers(r));
            let joined =
                |old: Epoch| match old.agent() == epoch.agent() && !old.same_thread(epoch) && !known.covers(old) {
                    true => epoch.whole(),
                    false => epoch,
                };
            match free {
                Some(at) => word.readers[at] = joined(word.readers[at]),
                None => {
                    word.more = true;
                    let more = self.more.entry(index).or_default();
                    let own = more.iter().find(|r| r.agent() == epoch.agent()).map_or(epoch, |&old| joined(old));
                    more.retain(|&r| r.agent() != epoch.agent() && !known.covers(r));
                    more.push(own);
                }
            }
            if whole {
                memo.keep(before, *word);
            }
        }
        Ok(())
    }

    /// Records a write, or reports what it races with. `repeats`: the bytes stay what they are.
    pub fn note_write(&mut self, offset: u32, bytes: u32, who: Who, repeats: bool, agents: &[String]) -> Result<()> {
        let (first, last) = (offset / 4, (offset + bytes - 1) / 4);
        let whole = (offset | bytes).is_multiple_of(4);
        let mut memo = Memo::default();
        for index in first..=last {
            let word = &mut self.words[index as usize];
            if whole && memo.repeat(word) {
                continue;
            }
            let before = *word;
            let bytes = mask(offset, bytes, index);
            if word.writer != who.epoch
                && !word.writer.never()
                && word.bytes & bytes != 0
                && !(word.atomic && who.atomic)
                && !(repeats && word.writer.agent() == who.epoch.agent())
            {
                ordered(word, index, who, true, agents)?;
            }
            // Sub-word neighbours share an entry, so only whole words are checked against readers.
            if bytes == 15 {
                let atomic = word.atomic && who.atomic;
                let clash = |reader: &Epoch| {
                    !reader.never() && !reader.same_thread(who.epoch) && !who.knows.all.covers(*reader) && !atomic
                };
                if let Some(reader) = word.readers.iter().find(|r| clash(r)) {
                    return race(*reader, index, "read", who, agents);
                }
                if word.more {
                    if let Some(reader) = self.more.remove(&index).unwrap_or_default().iter().find(|r| clash(r)) {
                        return race(*reader, index, "read", who, agents);
                    }
                    word.more = false;
                }
                word.readers = [Epoch::default(); 2];
            }
            let same = word.writer == who.epoch;
            word.writer = who.epoch;
            word.bytes = if same { word.bytes | bytes } else { bytes };
            word.generic = who.proxy == Proxy::Generic;
            word.atomic = who.atomic;
            word.swizzle = who.swizzle;
            if whole {
                memo.keep(before, *word);
            }
        }
        Ok(())
    }
}

/// The bytes of word `index` within an access.
fn mask(offset: u32, bytes: u32, index: u32) -> u8 {
    let low = offset.saturating_sub(4 * index).min(4);
    let high = (offset + bytes - 4 * index).min(4);
    ((1u8 << high) - 1) & !((1u8 << low) - 1)
}

/// Whether the last write of a word is ordered before an access.
fn ordered(word: &Word, index: u32, who: Who, overwrites: bool, agents: &[String]) -> Result<()> {
    let writer = word.writer;
    if !(writer.same_thread(who.epoch) || who.knows.all.covers(writer) || word.atomic && who.atomic) {
        return race(writer, index, "written", who, agents);
    }
    // A copy over what was written generically is ordered by what orders the accesses, as compilers rely on.
    if !overwrites && word.generic && who.proxy == Proxy::Async && !who.knows.fenced.covers(writer) {
        return Fault::err(
            Kind::MissingProxyFence,
            format!(
                "shared offset {:#x} was written through the generic proxy by {}, and no fence.proxy.async lies between",
                4 * index,
                name(agents, writer)
            ),
        );
    }
    Ok(())
}

/// Who an epoch belongs to.
pub fn name(agents: &[String], epoch: Epoch) -> String {
    let agent = agents.get(epoch.agent() as usize).map_or("", |name| name);
    if epoch.lane() < WHOLE { format!("{agent} lane {}", epoch.lane()) } else { agent.to_string() }
}

fn race<T>(epoch: Epoch, index: u32, what: &str, who: Who, agents: &[String]) -> Result<T> {
    let hint = match epoch.agent() == who.epoch.agent() {
        true => ": the lanes of a warp are ordered by bar.warp.sync",
        false => "",
    };
    Fault::err(
        Kind::Race,
        format!(
            "shared offset {:#x} was {what} by {}, and nothing orders the two accesses{hint}",
            4 * index,
            name(agents, epoch)
        ),
    )
}
