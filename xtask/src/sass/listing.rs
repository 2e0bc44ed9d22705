//! Reads the machine code that `cuobjdump --dump-sass` prints, and what it tells about one kernel.

use std::collections::{BTreeMap, HashMap};

/// One instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Byte offset in its kernel.
    pub address: u64,
    /// Guard, such as `@!P0`, or empty.
    guard: String,
    /// Operation with its modifiers: `HGMMA.64x128x16.F32.BF16`.
    pub op: String,
    operands: Vec<String>,
}

/// The machine code of one kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its symbol.
    pub name: String,
    /// In the order of their addresses.
    pub code: Vec<Instruction>,
}

/// A block of scores whose softmax runs beside the product of the block before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Where the scores are waited for.
    pub address: u64,
    /// Keys of the block.
    pub keys: u32,
    /// Fewest exponentials on any path from there to the wait for everything.
    pub before: usize,
    /// Fewest exponentials on any path from that wait to the end of the straight code.
    pub after: usize,
    /// A tile ends here: its O is stored after the wait.
    pub boundary: bool,
}

/// Registers R0 to R254, one bit each.
type Registers = [u64; 4];

/// Tensor-core products whose A registers may still be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct InFlight {
    /// Issued, and not yet part of a group.
    open: Registers,
    /// The newest group.
    newest: Registers,
    /// All groups before it.
    older: Registers,
}

/// Operations whose first operand is a register that they read.
const READERS: [&str; 10] =
    ["BAR", "WARPSYNC", "NANOSLEEP", "BRX", "JMX", "RET", "CALL", "R2P", "USETMAXREG", "WARPGROUP"];

impl Instruction {
    /// Parses `/*0120*/ @P0 FADD R1, R2, R3 ; /* 0x... */`; none if the line holds no instruction.
    fn parse(line: &str) -> Option<Self> {
        let (address, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let text = rest.split(';').next()?.trim();
        let (guard, text) = match text.strip_prefix('@') {
            Some(_) => text.split_once(' ')?,
            None => ("", text),
        };
        let (op, operands) = text.trim_start().split_once(' ').unwrap_or((text, ""));
        let operands = operands.split(',').map(|word| word.trim().to_string()).filter(|word| !word.is_empty());
        Some(Instruction { address, guard: guard.into(), op: op.into(), operands: operands.collect() })
    }

    /// Whether the operation, without its modifiers, is `name`.
    pub fn is(&self, name: &str) -> bool {
        self.op.split('.').next() == Some(name)
    }

    /// N of a tensor-core product.
    fn product_columns(&self) -> Option<u32> {
        self.op.strip_prefix("HGMMA.64x")?.split('x').next()?.parse().ok()
    }

    /// First A register of a product that takes A from registers.
    fn product_a(&self) -> Option<usize> {
        if self.is("HGMMA") { register(self.operands.get(1)?) } else { None }
    }

    fn closes_group(&self) -> bool {
        self.is("HGMMA") && self.operands.iter().any(|operand| operand == "gsb0")
    }

    /// Groups that may be unfinished after this instruction, if it waits for them.
    fn wait_group(&self) -> Option<u32> {
        let count = if self.op.starts_with("WARPGROUP.DEPBAR") { self.operands.last()? } else { return None };
        u32::from_str_radix(count.strip_prefix("0x")?, 16).ok()
    }

    fn is_exponential(&self) -> bool {
        self.op.starts_with("MUFU.EX2")
    }

    fn target(&self) -> Option<u64> {
        let jumps = self.is("BRA") || self.is("CALL");
        let target = if jumps { self.operands.last()? } else { return None };
        u64::from_str_radix(target.strip_prefix("0x")?, 16).ok()
    }

    /// Whether the next instruction never follows.
    fn ends_path(&self) -> bool {
        self.guard.is_empty() && (self.op == "BRA" && self.operands.len() == 1 || self.is("EXIT") || self.is("RET"))
    }

    /// The general registers that it writes, as first and count.
    fn writes(&self) -> Option<(usize, usize)> {
        if self.is("HGMMA") || READERS.iter().any(|name| self.is(name)) {
            return None;
        }
        let predicate = |operand: &&String| operand.as_str() == "PT" || register_of(operand, "P").is_some();
        let predicates = self.operands.iter().take_while(predicate).count();
        // One predicate result may come first (LOP3, SHFL); comparisons have two, and no register.
        let first = if predicates < 2 { register(self.operands.get(predicates)?)? } else { return None };
        let has = |modifier: &str| self.op.split('.').any(|part| part == modifier);
        let count = match () {
            () if has("128") || self.is("LDSM") && has("4") => 4,
            () if has("64") || has("WIDE") || self.is("LDSM") && has("2") => 2,
            () if self.is("CS2R") && !has("32") => 2,
            () => 1,
        };
        Some((first, count))
    }
}

impl Kernel {
    /// A kernel of these instructions.
    #[cfg(test)]
    pub fn of(name: &str, instructions: &[&str]) -> Kernel {
        let code = instructions.iter().enumerate().map(|(i, text)| format!("/*{:04x}*/ {text} ;\n", 16 * i));
        let text = format!("Function : {name}\n{}", code.collect::<String>());
        Kernel::parse(&text).pop().expect("one kernel")
    }

    /// All kernels of a listing.
    pub fn parse(text: &str) -> Vec<Kernel> {
        let mut kernels: Vec<Kernel> = Vec::new();
        for line in text.lines() {
            if let Some(name) = line.trim().strip_prefix("Function : ") {
                kernels.push(Kernel { name: name.into(), code: Vec::new() });
            } else if let (Some(kernel), Some(instruction)) = (kernels.last_mut(), Instruction::parse(line)) {
                kernel.code.push(instruction);
            }
        }
        kernels
    }

    /// One more than the highest register that is named.
    pub fn registers(&self) -> usize {
        let named = |i: &Instruction| {
            let words = i.operands.iter().flat_map(|operand| operand.split(|c: char| !c.is_ascii_alphanumeric()));
            let highest = words.filter_map(register).max();
            let accumulators =
                i.product_columns().and_then(|n| Some(register(i.operands.first()?)? + n as usize / 2 - 1));
            highest.max(accumulators)
        };
        self.code.iter().filter_map(named).max().map_or(0, |highest| highest + 1)
    }

    /// Tensor-core products by shape, with A from shared memory (`ss`) or registers (`rs`):
    /// `64x128x16.F32.BF16 ss`.
    pub fn products(&self) -> BTreeMap<String, usize> {
        let mut count = BTreeMap::new();
        for i in self.code.iter().filter(|i| i.is("HGMMA")) {
            let source = if i.product_a().is_some() { "rs" } else { "ss" };
            *count.entry(format!("{} {source}", i.op.trim_start_matches("HGMMA."))).or_default() += 1;
        }
        count
    }

    /// Products of Blackwell's tensor cores, and how often more than `gap` instructions lie from one to the next.
    pub fn tensor_products(&self, gap: usize) -> (usize, usize) {
        let places: Vec<usize> = (0..self.code.len()).filter(|&at| self.code[at].is("UTCHMMA")).collect();
        (places.len(), places.windows(2).filter(|pair| pair[1] - pair[0] > gap).count())
    }

    /// What is wrong if there are accesses to local memory.
    pub fn local_fault(&self) -> Option<String> {
        let accesses = self.local_accesses();
        (accesses > 0).then(|| format!("accesses local memory {accesses} times"))
    }

    /// Instructions that load from or store to local memory.
    pub fn local_accesses(&self) -> usize {
        self.code.iter().filter(|i| i.is("LDL") || i.is("STL")).count()
    }

    /// Every wait for scores alone, with the exponentials up to and after the wait for everything.
    pub fn overlaps(&self) -> Vec<Overlap> {
        let waits = |count| move |i: &Instruction| i.wait_group() == Some(count);
        let mut found = Vec::new();
        for (start, scores) in self.code.iter().enumerate().filter(|(_, i)| waits(1)(i)) {
            let Some(wait) = self.code[start..].iter().position(waits(0)).map(|n| start + n) else { continue };
            let is_end = |i: &Instruction| i.ends_path() || i.is("HGMMA") || i.wait_group().is_some();
            let straight = self.code[wait + 1..].iter().position(is_end).map_or(self.code.len() - 1, |n| wait + 1 + n);
            let product = self.code[..start].iter().rfind(|i| i.is("HGMMA") && i.product_a().is_none());
            let stores = |i: &Instruction| i.is("STSM") || i.is("STG") || i.is("ST");
            found.push(Overlap {
                address: scores.address,
                keys: product.and_then(Instruction::product_columns).unwrap_or(0),
                before: self.fewest_exponentials(start, wait),
                after: self.fewest_exponentials(wait, straight),
                boundary: self.code[wait..straight].iter().any(stores),
            });
        }
        found
    }

    /// Fewest exponentials on a path from one instruction to a later one. Branches backwards or beyond the end are
    /// waits for a barrier that come back, and are not followed.
    fn fewest_exponentials(&self, from: usize, to: usize) -> usize {
        let index: HashMap<u64, usize> = (from..=to).map(|i| (self.code[i].address, i)).collect();
        let mut fewest = vec![usize::MAX; to - from + 1];
        fewest[0] = 0;
        for i in from..to {
            let instruction = &self.code[i];
            let Some(count) = fewest[i - from].checked_add(instruction.is_exponential().into()) else { continue };
            let target = instruction.target().and_then(|address| index.get(&address).copied()).filter(|&t| t > i);
            let next = (!instruction.ends_path()).then_some(i + 1);
            for successor in target.into_iter().chain(next) {
                let known = &mut fewest[successor - from];
                *known = count.min(*known);
            }
        }
        if fewest[to - from] == usize::MAX { 0 } else { fewest[to - from] }
    }

    /// Instructions that write a register which a product in flight may still read as its A. The hardware does not
    /// guard against it: the product would see the new value.
    pub fn overwritten_products(&self) -> Vec<&Instruction> {
        let index: HashMap<u64, usize> = self.code.iter().enumerate().map(|(i, x)| (x.address, i)).collect();
        let mut states: Vec<Option<InFlight>> = vec![None; self.code.len()];
        let mut work = Vec::new();
        if let Some(first) = states.first_mut() {
            *first = Some(InFlight::default());
            work.push(0);
        }
        while let Some(i) = work.pop() {
            let Some(state) = states[i].map(|state| state.after(&self.code[i])) else { continue };
            let next = (!self.code[i].ends_path()).then_some(i + 1).filter(|&next| next < self.code.len());
            let target = self.code[i].target().and_then(|address| index.get(&address).copied());
            for successor in next.into_iter().chain(target) {
                let merged = states[successor].map_or(state, |known| known.union(&state));
                if states[successor] != Some(merged) {
                    states[successor] = Some(merged);
                    work.push(successor);
                }
            }
        }
        let broken = |(i, state): (&Instruction, &Option<InFlight>)| {
            let ((first, count), state) = (i.writes()?, state.as_ref()?);
            (first..first + count).any(|r| state.reads(r)).then_some(())
        };
        self.code.iter().zip(&states).filter(|&pair| broken(pair).is_some()).map(|(i, _)| i).collect()
    }
}

impl InFlight {
    fn after(mut self, i: &Instruction) -> Self {
        if let Some(a) = i.product_a() {
            (a..a + 4).filter(|&r| r < 256).for_each(|r| self.open[r / 64] |= 1 << (r % 64));
        }
        if i.closes_group() {
            self.older = union(&self.older, &self.newest);
            self.newest = std::mem::take(&mut self.open);
        }
        match i.wait_group() {
            Some(0) => InFlight { open: self.open, ..InFlight::default() },
            Some(1) => InFlight { older: Registers::default(), ..self },
            _ => self,
        }
    }

    fn union(&self, other: &Self) -> Self {
        InFlight {
            open: union(&self.open, &other.open),
            newest: union(&self.newest, &other.newest),
            older: union(&self.older, &other.older),
        }
    }

    fn reads(&self, register: usize) -> bool {
        let sets = [&self.open, &self.newest, &self.older];
        register < 256 && sets.iter().any(|set| set[register / 64] >> (register % 64) & 1 == 1)
    }
}

fn union(a: &Registers, b: &Registers) -> Registers {
    std::array::from_fn(|i| a[i] | b[i])
}

/// Index of a general register; none for RZ, uniform registers and everything else.
fn register(operand: &str) -> Option<usize> {
    register_of(operand, "R")
}

fn register_of(operand: &str, kind: &str) -> Option<usize> {
    let digits = operand.strip_prefix(kind)?;
    let digits = digits.split('.').next()?;
    if digits.starts_with(|c: char| c.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel whose instructions lie 16 bytes apart, as in a listing.
    fn kernel(lines: &[&str]) -> Kernel {
        let mut text = String::from("\t\tFunction : k\n\t.headerflags\t@\"EF_CUDA_SM90\"\n");
        for (i, line) in lines.iter().enumerate() {
            text += &format!("        /*{:04x}*/                   {line} ;      /* 0x00e0 */\n", 16 * i);
            text += "                                                        /* 0x000fe20000000800 */\n";
        }
        Kernel::parse(&text).pop().expect("one kernel")
    }

    const SCORES: &str = "HGMMA.64x128x16.F32.BF16 R88, gdesc[UR8], RZ, !UPT, gsb0";
    const OUTPUT: &str = "HGMMA.64x64x16.F32.BF16 R24, R152, gdesc[UR8].tnspB, R24, gsb0";
    const WAIT_SCORES: &str = "WARPGROUP.DEPBAR.LE gsb0, 0x1";
    const WAIT_ALL: &str = "WARPGROUP.DEPBAR.LE gsb0, 0x0";

    #[test]
    fn instructions_and_products_are_counted() {
        let k = kernel(&[SCORES, OUTPUT, OUTPUT, "@!P0 STL [R1+0x8], R4", "EXIT"]);
        assert_eq!((k.name.as_str(), k.code.len(), k.local_accesses()), ("k", 5, 1));
        assert_eq!(
            k.products().into_iter().collect::<Vec<_>>(),
            [("64x128x16.F32.BF16 ss".to_string(), 1), ("64x64x16.F32.BF16 rs".to_string(), 2)]
        );
        assert_eq!(k.registers(), 156 - 3, "R152 is named; R88 holds 64 accumulators");
        assert_eq!(kernel(&[SCORES]).registers(), 88 + 64);
    }

    #[test]
    fn exponentials_count_on_the_cheapest_path() {
        let exp = "MUFU.EX2 R4, R5";
        // The branch at 0x50 leaves out the exact path.
        let k = kernel(&[SCORES, OUTPUT, WAIT_SCORES, exp, exp, "@!P0 BRA 0x80", exp, exp, WAIT_ALL, exp, "EXIT"]);
        let expected = Overlap { address: 0x20, keys: 128, before: 2, after: 1, boundary: false };
        assert_eq!(k.overlaps(), [expected]);
        // A spin on a barrier leaves the straight code, and is no way round.
        let k = kernel(&[SCORES, WAIT_SCORES, "@!P0 BRA 0x60", exp, WAIT_ALL, "STSM.16.M88.4 [R2], R4", "EXIT"]);
        let expected = Overlap { address: 0x10, keys: 128, before: 1, after: 0, boundary: true };
        assert_eq!(k.overlaps(), [expected]);
    }

    #[test]
    fn overwriting_a_register_of_a_product_in_flight_is_found() {
        let found =
            |lines: &[&str]| -> Vec<u64> { kernel(lines).overwritten_products().iter().map(|i| i.address).collect() };
        assert_eq!(found(&[OUTPUT, "F2FP.BF16.F32.PACK_AB R155, R4, R5", WAIT_ALL, "EXIT"]), [0x10]);
        assert_eq!(found(&[OUTPUT, WAIT_ALL, "F2FP.BF16.F32.PACK_AB R155, R4, R5", "EXIT"]), [0u64; 0]);
        // Waiting for the older group leaves the newest in flight.
        assert_eq!(found(&[OUTPUT, SCORES, WAIT_SCORES, "MOV R152, R1", "EXIT"]), [0u64; 0]);
        assert_eq!(found(&[SCORES, OUTPUT, WAIT_SCORES, "MOV R152, R1", "EXIT"]), [0x30]);
        // Reached by a branch over the wait, and by a pair of registers.
        assert_eq!(found(&[OUTPUT, "@P0 BRA 0x30", WAIT_ALL, "IMAD.WIDE R150, R2, R3, R4", "EXIT"]), [0u64; 0]);
        assert_eq!(found(&[OUTPUT, "@P0 BRA 0x30", WAIT_ALL, "IMAD.WIDE R154, R2, R3, R4", "EXIT"]), [0x30]);
        // Reads, comparisons and stores.
        for reader in
            ["ISETP.NE.AND P0, PT, R152, RZ, PT", "STG.E [R152], R153", "BAR.SYNC R152, 0x80", "R2UR UR4, R152"]
        {
            assert_eq!(found(&[OUTPUT, reader, "EXIT"]), [0u64; 0], "{reader}");
        }
        assert_eq!(found(&[OUTPUT, "SHFL.BFLY PT, R152, R4, 0x1, 0x1f", "EXIT"]), [0x10]);
        assert_eq!(found(&[OUTPUT, "LOP3.LUT P0, R153, R4, 0x1, RZ, 0xc0, !PT", "EXIT"]), [0x10]);
    }
}
