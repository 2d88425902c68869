// SPDX-License-Identifier: Apache-2.0
//! Registers and signal frame of aarch64 (`arch/arm64/kernel/signal.c`).
//!
//! A thread in a system call has the vector registers of 128 bits alone: the kernel discards the rest of SVE's at each
//! call, and ends the streaming mode of SME. So the frame has those, and no other record. Where a record is missing
//! (ZA, TPIDR2, permissions of pages), the kernel leaves that state as it is, and malloc_trim does not change it.

use std::io::Result;

use super::{ALL_SIGNALS, Before, Interrupted, Laid, NO_CHANGE, RECORD};
use crate::trace::{Registers, Tracee};
use crate::waits::{Call, EINTR, is_interrupted};

/// Bytes below the stack pointer that belong to the program.
pub(crate) const RED_ZONE: u64 = 0;
/// Mark of a signal frame on a stack: the head of its record of vector registers.
pub(crate) const SIGN: u64 = (VECTORS as u64) << 32 | MAGIC;
/// `FPSIMD_MAGIC`, and the bytes of that record: head, status, control, 32 registers.
const MAGIC: u64 = 0x4650_8001;
const VECTORS: usize = 8 + 8 + REGISTERS;
const REGISTERS: usize = 32 * 16;
/// Words of `rt_sigframe` before its records: information of the signal (16), flags, link, alternative stack (3), mask
/// with its reserve (16) and an alignment, fault address, 34 registers and an alignment.
const HEAD: usize = 16 + 5 + 16 + 1 + 36;
/// Bytes of `rt_sigframe`: its records have 4096.
const FRAME: usize = HEAD * 8 + 4096;
/// Bytes of a frame that the kernel reads: behind the vector registers is an empty record, the last one.
const READ: usize = HEAD * 8 + VECTORS + 16;
/// Bytes of the instruction for system calls.
pub(crate) const SYSCALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];
/// Bits of the guarded stack: it is enabled.
const GUARDED: u64 = 1;

pub(crate) fn program_counter(registers: &Registers) -> u64 {
    registers.pc
}

pub(crate) fn stack_pointer(registers: &Registers) -> u64 {
    registers.sp
}

pub(crate) fn thread_pointer(tracee: &Tracee, _: &Registers) -> Result<u64> {
    tracee.thread_pointer()
}

/// Address of what may be glibc's record of the thread: it ends at the thread pointer.
pub(crate) fn record(thread: u64) -> u64 {
    thread.wrapping_sub(RECORD as u64)
}

/// Whether the processor keeps return addresses on a stack of its own (GCS).
pub(crate) fn has_shadow_stack(tracee: &Tracee) -> bool {
    tracee.guarded_stack().is_ok_and(|enabled| enabled & GUARDED != 0)
}

/// The interruption of a call; None where the thread is not in this call, or has its result.
///
/// Before a tracer sees it, the kernel has turned back the program counter and the first argument of a call that it
/// makes again, and of one that it continues. What EINTR has ended has lost its first argument.
pub(crate) fn interrupted(registers: &Registers, call: &Call) -> Option<Interrupted> {
    let is_same = i64::try_from(registers.regs[8]) == Ok(call.number);
    let instruction = call.instruction.checked_sub(SYSCALL.len() as u64).filter(|_| is_same)?;
    let mut again = Registers { pc: instruction, ..*registers };
    again.regs[0] = call.arguments[0];
    let mut ended = Registers { pc: call.instruction, ..*registers };
    ended.regs[0] = EINTR.cast_unsigned();
    let is_turned_back = registers.pc == instruction && registers.regs[0] == again.regs[0];
    let has_ended = registers.pc == call.instruction && is_interrupted(registers.regs[0].cast_signed());
    let for_a_handler = if has_ended || ends_by_any_handler(call) { ended } else { again };
    (is_turned_back || has_ended).then_some(Interrupted {
        again,
        for_a_handler,
        may_be_continued: is_turned_back,
    })
}

/// Whether each signal handler ends the call. Of the others the handler's own flags say it (SA_RESTART), which the kernel
/// shows to nobody: these are made again.
fn ends_by_any_handler(call: &Call) -> bool {
    let is_made_again = [libc::SYS_wait4, libc::SYS_waitid, libc::SYS_mq_timedreceive];
    !call.receives() && !is_made_again.contains(&call.number)
}

/// Numbers by which a thread that makes its call again is known: it is at its instruction.
pub(crate) fn goes_on_at(registers: &Registers) -> (u64, u64, u64) {
    (registers.pc, registers.sp, registers.regs[8])
}

/// The registers with which the thread goes on behind its call, where it leaves it; None where that was interrupted again.
///
/// At that stop x7 says which stop it is, and x8 has the number of the call that continues calls: both are taken from
/// the interruption.
pub(crate) fn left(registers: &Registers, interrupted: &Registers) -> Option<Registers> {
    let mut left = *registers;
    left.regs[7..9].copy_from_slice(&interrupted.regs[7..9]);
    (!is_interrupted(left.regs[0].cast_signed())).then_some(left)
}

/// Most bytes that [`lay`] takes below the stack pointer.
pub(crate) fn room(_: usize) -> u64 {
    (READ + FRAME) as u64 + 16
}

/// The two frames. None where the vector registers make no sense.
pub(crate) fn lay(before: &Before<'_>, malloc_trim: u64, sigreturn: u64) -> Option<Laid> {
    let vectors = before.extended.get(..REGISTERS + 8)?;
    let at_return = before.registers.sp.checked_sub(FRAME as u64)? & !15;
    let address = at_return.checked_sub(READ as u64)?;
    let mut begin = Registers { pc: malloc_trim, sp: at_return, ..before.registers };
    begin.regs[0] = 0;
    begin.regs[30] = sigreturn;
    let mut bytes = frame(&begin, ALL_SIGNALS, vectors);
    bytes.resize(READ, 0);
    bytes.extend(frame(&before.registers, before.blocked, vectors));
    bytes.resize(READ + FRAME, 0);
    let registers = Registers { pc: sigreturn, sp: address, ..begin };
    Some(Laid { address, bytes, registers })
}

/// A frame up to its vector registers.
fn frame(r: &Registers, blocked: u64, vectors: &[u8]) -> Vec<u8> {
    let mut words = vec![0; 16];
    words.extend([0, 0, 0, NO_CHANGE, 0, blocked]);
    words.resize(16 + 5 + 16 + 1, 0);
    words.push(0);
    words.extend(r.regs);
    words.extend([r.sp, r.pc, r.pstate, 0]);
    words.push(SIGN);
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(&vectors[REGISTERS..]);
    bytes.extend(&vectors[..REGISTERS]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    /// # Panics
    /// When the offset is outside.
    fn word(laid: &Laid, offset: usize) -> u64 {
        u64::from_ne_bytes(laid.bytes[offset..offset + 8].try_into().unwrap())
    }

    /// Registers with a number of their own each.
    fn registers(stack: u64, seed: u64) -> Registers {
        let regs = std::array::from_fn(|number| seed.wrapping_mul(31).wrapping_add(number as u64));
        Registers { regs, sp: stack, pc: seed.wrapping_add(40), pstate: 0x6000_0000 }
    }

    proptest! {
        #[test]
        fn the_frame_is_below_the_stack_pointer_and_as_the_kernels_header_has_it(
            stack in 0x1_0000u64..0x7fff_ffff_f000, seed in any::<u64>(),
        ) {
            let (registers, state) = (registers(stack, seed), (0..=u8::MAX).cycle().take(528).collect::<Vec<_>>());
            let before = Before { registers, extended: &state, blocked: seed };
            let laid = lay(&before, 0x7f01, 0x7f02).unwrap();
            prop_assert!(laid.address + laid.bytes.len() as u64 <= stack && laid.address.is_multiple_of(16));
            prop_assert!(stack - laid.address <= RED_ZONE + room(528));
            prop_assert_eq!((laid.registers.sp, laid.registers.pc), (laid.address, 0x7f02));
            // In the first frame: malloc_trim with its stack, and with all signals blocked.
            let second = laid.address + READ as u64;
            prop_assert_eq!((word(&laid, 8 * 70), word(&laid, 8 * 71), second % 16), (second, 0x7f01, 0));
            prop_assert_eq!((word(&laid, 8 * 39), word(&laid, 8 * 69)), (0, 0x7f02));
            prop_assert_eq!((word(&laid, 8 * 21), word(&laid, 8 * HEAD)), (u64::MAX, SIGN));
            prop_assert_eq!(word(&laid, READ - 16), 0);
            let context = READ + size_of::<libc::siginfo_t>();
            let of = |offset| word(&laid, context + offset);
            let machine = std::mem::offset_of!(libc::ucontext_t, uc_mcontext);
            prop_assert_eq!(of(std::mem::offset_of!(libc::ucontext_t, uc_sigmask)), seed);
            prop_assert_eq!(of(std::mem::offset_of!(libc::ucontext_t, uc_stack) + 8), NO_CHANGE);
            for (number, value) in registers.regs.iter().enumerate() {
                prop_assert_eq!(of(machine + 8 + 8 * number), *value);
            }
            let behind = machine + 8 + 8 * 31;
            prop_assert_eq!((of(behind), of(behind + 8), of(behind + 16)), (stack, registers.pc, registers.pstate));
            // The record of vector registers, and the last one, which is empty.
            let records = context + machine + 288;
            prop_assert_eq!(word(&laid, records), SIGN);
            prop_assert_eq!(&laid.bytes[records + 8..records + 16], &state[512..520]);
            prop_assert_eq!(&laid.bytes[records + 16..records + VECTORS], &state[..512]);
            prop_assert_eq!(word(&laid, records + VECTORS), 0);
            prop_assert_eq!(laid.bytes.len(), records + 4096);
        }
    }

    #[test]
    fn a_call_is_made_again_by_its_instruction() {
        let call = Call { number: 63, arguments: [5, 0, 0, 0, 0, 0], stack: 0x7000, instruction: 0x1004 };
        let mut turned_back = Registers { pc: 0x1000, ..registers(0x7000, 3) };
        (turned_back.regs[0], turned_back.regs[8]) = (5, 63);
        let Interrupted { again, for_a_handler, may_be_continued } =
            interrupted(&turned_back, &call).unwrap();
        assert_eq!((again.pc, again.regs, may_be_continued), (0x1000, turned_back.regs, true));
        assert_eq!(
            (for_a_handler.pc, for_a_handler.regs),
            (0x1000, turned_back.regs),
            "as SA_RESTART has it"
        );
        let mut ended = Registers { pc: 0x1004, ..turned_back };
        ended.regs[0] = (-4i64).cast_unsigned();
        let Interrupted { again, for_a_handler, may_be_continued } = interrupted(&ended, &call).unwrap();
        assert_eq!((again.pc, again.regs, may_be_continued), (0x1000, turned_back.regs, false));
        assert_eq!((for_a_handler.pc, for_a_handler.regs), (0x1004, ended.regs));
        ended.regs[0] = 0;
        assert!(interrupted(&ended, &call).is_none(), "it has its result");
        assert!(interrupted(&turned_back, &Call { number: 64, ..call }).is_none());
    }

    #[test]
    fn a_call_that_was_continued_leaves_no_trace_of_that() {
        let interrupted = registers(0x7000, 3);
        let mut stopped = Registers { pc: 0x1004, ..interrupted };
        (stopped.regs[0], stopped.regs[7], stopped.regs[8]) = (0, 1, 128);
        let left = left(&stopped, &interrupted).unwrap();
        assert_eq!((left.regs[0], left.pc), (0, 0x1004));
        assert_eq!(left.regs[1..], interrupted.regs[1..]);
        stopped.regs[0] = (-516i64).cast_unsigned();
        assert!(super::left(&stopped, &interrupted).is_none());
    }

    #[test]
    fn what_cannot_be_vector_registers_is_refused() {
        let before = Before { registers: registers(0x7000_0000, 1), extended: &[0; 100], blocked: 0 };
        assert!(lay(&before, 1, 2).is_none());
        let low = Before { registers: registers(100, 1), extended: &[0; 528], blocked: 0 };
        assert!(lay(&low, 1, 2).is_none());
    }
}
