//! Gives registers slots. Compilers emit tens of thousands of virtual registers, each of which lives for a few
//! instructions; slots are shared so that a warp's registers stay in the cache.

use std::collections::{HashMap, HashSet};

use crate::ptx::ast::{Entry, Operand};

/// Where each register lies.
pub struct Slots {
    /// Slot of a value register, index of a predicate.
    pub of: Vec<u32>,
    pub values: u32,
    pub predicates: u32,
    /// How often each register is named.
    pub mentions: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Interval {
    first: u32,
    last: u32,
    /// The first occurrence defines it in every thread that gets there.
    defined: bool,
    /// Operand of an asynchronous instruction.
    asynchronous: bool,
}

pub fn visit(operand: &Operand, f: &mut impl FnMut(u32)) {
    match operand {
        Operand::Register(r) | Operand::Not(r) => f(*r),
        Operand::Pair(a, b) => [a, b].into_iter().flatten().for_each(|&r| f(r)),
        Operand::Vector(list) => list.iter().for_each(|o| visit(o, f)),
        Operand::Address(base, _, list) => {
            visit(base, f);
            list.iter().for_each(|o| visit(o, f));
        }
        _ => {}
    }
}

/// Whether the first operand is only written.
fn defines(opcode: &str) -> bool {
    let root = opcode.split('.').next().unwrap_or("");
    !matches!(root, "st" | "red" | "bra" | "bar" | "barrier" | "wgmma" | "stmatrix" | "mbarrier" | "cp" | "setmaxnreg")
}

/// Assigns slots by linear scan over the text; intervals that touch a loop they do not lie in cover it whole.
pub fn assign(entry: &Entry) -> Slots {
    let unused = Interval { first: u32::MAX, last: 0, defined: false, asynchronous: false };
    let mut intervals = vec![unused; entry.registers.len()];
    let (mut loops, mut waits) = (Vec::new(), vec![false; entry.instructions.len()]);
    let mut mentions = vec![0; intervals.len()];
    for (index, instruction) in entry.instructions.iter().enumerate() {
        let at = index as u32;
        let asynchronous = instruction.opcode.starts_with("wgmma.mma") || instruction.opcode.starts_with("tcgen05.ld");
        let mut defined = Vec::new();
        if instruction.guard.is_none()
            && defines(&instruction.opcode)
            && let Some(first) = instruction.operands.first()
        {
            visit(first, &mut |r| defined.push(r));
        }
        let mut touch = |r: u32, written: bool| {
            mentions[r as usize] += 1;
            let interval = &mut intervals[r as usize];
            if interval.first == u32::MAX {
                (interval.first, interval.defined) = (at, written);
            } else if interval.first == at && !written {
                interval.defined = false;
            }
            interval.last = at;
            interval.asynchronous |= asynchronous;
        };
        if let Some((predicate, _)) = instruction.guard {
            touch(predicate, false);
        }
        for (position, operand) in instruction.operands.iter().enumerate() {
            visit(operand, &mut |r| touch(r, position == 0 && defined.contains(&r)));
            if let Operand::Label(label) = operand {
                let target = entry.labels[*label as usize];
                if target <= at {
                    loops.push((target, at));
                }
            }
        }
        // A wait that leaves groups in flight may leave those that hold the register.
        let complete = matches!(instruction.operands.first(), None | Some(Operand::Immediate(0)));
        if complete && (instruction.opcode.starts_with("wgmma.wait") || instruction.opcode.starts_with("tcgen05.wait"))
        {
            waits[index] = true;
        }
    }
    // What an asynchronous instruction still holds cannot be given away before the next complete wait.
    let mut reaches = HashMap::new();
    for interval in intervals.iter_mut().filter(|i| i.asynchronous) {
        let (first, last) = *reaches.entry(interval.last).or_insert_with(|| reach(entry, &waits, interval.last));
        if first < interval.first {
            (interval.first, interval.defined) = (first, false);
        }
        interval.last = last;
    }
    loops.sort_by_key(|&(begin, end)| (end - begin, begin));
    for interval in intervals.iter_mut().filter(|i| i.first != u32::MAX) {
        loop {
            let before = (interval.first, interval.last);
            for &(begin, end) in &loops {
                let apart = interval.last < begin || interval.first > end;
                let inside = interval.first >= begin && interval.last <= end && interval.defined;
                if !apart && !inside {
                    interval.first = interval.first.min(begin);
                    interval.last = interval.last.max(end);
                    if interval.first == begin && before.0 != begin {
                        interval.defined = false;
                    }
                }
            }
            if before == (interval.first, interval.last) {
                break;
            }
        }
    }
    Slots { mentions, ..scan(entry, &intervals) }
}

/// The first and the last place of the text that is reached from `from` before a complete wait, the wait included.
fn reach(entry: &Entry, waits: &[bool], from: u32) -> (u32, u32) {
    let (mut first, mut last) = (from, from);
    let (mut seen, mut next) = (HashSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        let Some(instruction) = entry.instructions.get(at as usize) else { continue };
        if !seen.insert(at) {
            continue;
        }
        (first, last) = (first.min(at), last.max(at));
        if waits[at as usize] {
            continue;
        }
        let root = instruction.opcode.split('.').next().unwrap_or("");
        if instruction.guard.is_some() || !matches!(root, "bra" | "brx" | "ret" | "exit" | "trap") {
            next.push(at + 1);
        }
        for operand in &instruction.operands {
            if let Operand::Label(label) = operand {
                next.push(entry.labels[*label as usize]);
            }
        }
    }
    (first, last)
}

fn scan(entry: &Entry, intervals: &[Interval]) -> Slots {
    let mut slots = Slots { of: vec![0; intervals.len()], values: 0, predicates: 0, mentions: Vec::new() };
    let mut order: Vec<usize> = (0..intervals.len()).filter(|&r| intervals[r].first != u32::MAX).collect();
    order.sort_by_key(|&r| intervals[r].first);
    let (mut free, mut active) = (Vec::new(), std::collections::BinaryHeap::new());
    for r in order {
        let interval = intervals[r];
        match entry.registers[r].1 {
            1 => {
                slots.of[r] = slots.predicates;
                slots.predicates += 1;
            }
            128 => {
                slots.of[r] = slots.values;
                slots.values += 2;
            }
            _ => {
                while let Some(&(std::cmp::Reverse(last), slot)) = active.peek()
                    && last < interval.first
                {
                    active.pop();
                    free.push(slot);
                }
                // A register that may be read before it is written keeps a slot of its own, so that the read shows.
                let slot = match free.pop().filter(|_| interval.defined) {
                    Some(slot) => slot,
                    None => {
                        slots.values += 1;
                        slots.values - 1
                    }
                };
                slots.of[r] = slot;
                active.push((std::cmp::Reverse(interval.last), slot));
            }
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(body: &str) -> (Slots, Entry) {
        let text = format!(".version 9.0\n.target sm_90a\n.address_size 64\n.entry k()\n{{\n{body}\n}}\n");
        let entry = crate::ptx::parse(&text).unwrap().entries.remove(0);
        (assign(&entry), entry)
    }

    #[test]
    fn short_lives_share_a_slot() {
        let (slots, _) = slots(
            ".reg .b32 %r<4>;\nmov.u32 %r0, 1;\nadd.s32 %r1, %r0, 1;\nmov.u32 %r2, 2;\nadd.s32 %r3, %r2, 1;\nret;",
        );
        assert!(slots.values < 4);
    }

    #[test]
    fn what_a_loop_needs_outlives_it() {
        let body = ".reg .b32 %r<4>;\n.reg .pred %p;\nmov.u32 %r0, 1;\nmov.u32 %r3, 0;\nL: add.s32 %r1, %r0, 1;\n\
                    add.s32 %r3, %r3, %r1;\nmov.u32 %r2, 5;\nsetp.lt.s32 %p, %r3, %r2;\n@%p bra L;\nret;";
        let (slots, _) = slots(body);
        for other in 1..4 {
            assert_ne!(slots.of[0], slots.of[other], "r0 is read again in the next iteration");
        }
    }
    #[test]
    fn an_asynchronous_result_keeps_its_slot_until_the_wait_of_its_own_path() {
        let body = ".reg .b32 %r<5>;\nmov.u32 %r1, 0;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%r0}, [%r1];\nbra A;\n\
                    B: tcgen05.wait::ld.sync.aligned;\nmov.u32 %r2, 2;\nadd.s32 %r2, %r2, 1;\nbra E;\n\
                    A: mov.u32 %r3, 3;\nadd.s32 %r4, %r3, 1;\ntcgen05.wait::ld.sync.aligned;\nE: ret;";
        let (slots, _) = slots(body);
        for other in 3..5 {
            assert_ne!(slots.of[0], slots.of[other], "r0 is still being written");
        }
    }
}
