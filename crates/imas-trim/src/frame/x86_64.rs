// SPDX-License-Identifier: Apache-2.0
//! Registers and signal frame of x86-64 (`arch/x86/kernel/signal_64.c`).

use std::io::Result;

use super::{ALL_SIGNALS, Before, Interrupted, Laid, NO_CHANGE};
use crate::trace::{Registers, Tracee};
use crate::waits::{Call, EINTR, RESTART_BLOCK, RESTART_UNLESS_HANDLED, is_interrupted};

/// Bytes of `rt_sigframe` without the extended registers: return address, context, mask, information.
const FRAME: usize = 440;
/// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS`, `UC_STRICT_RESTORE_SS`.
const CONTEXT_FLAGS: u64 = 7;
/// Where the extended registers say what they are (`struct _fpx_sw_bytes`), and the words of it.
const SOFTWARE: usize = 464;
const MAGIC_1: u32 = 0x4650_5853;
const MAGIC_2: u32 = 0x4650_5845;
/// The legacy part and its header: fewer bytes are no extended registers.
const LEAST_EXTENDED: usize = 512 + 64;
/// Bytes below the stack pointer that belong to the program.
pub(crate) const RED_ZONE: u64 = 128;
/// Mark of a signal frame on a stack: code and stack segment of 64 bits, side by side.
pub(crate) const SIGN: u64 = 0x002b_0000_0000_0033;
/// Code segment of a process of 64 bits.
const CODE_64: u64 = 0x33;
/// Bytes of the instruction for system calls.
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];

pub(crate) fn program_counter(registers: &Registers) -> u64 {
    registers.rip
}

pub(crate) fn stack_pointer(registers: &Registers) -> u64 {
    registers.rsp
}

pub(crate) fn thread_pointer(_: &Tracee, registers: &Registers) -> Result<u64> {
    Ok(registers.fs_base)
}

/// Address of glibc's record of the thread.
pub(crate) fn record(thread: u64) -> u64 {
    thread
}

/// Always false: the kernel says it of the process before one of its threads is touched ([`crate::process`]).
pub(crate) fn has_shadow_stack(_: &Tracee) -> bool {
    false
}

/// Result of the system call that the thread made; None where it is in none.
fn result(registers: &Registers) -> Option<i64> {
    let is_in_call = registers.orig_rax.cast_signed() >= 0 && registers.cs == CODE_64;
    is_in_call.then(|| registers.rax.cast_signed())
}

/// The interruption of a call; None where the thread is not in this call, or has its result.
pub(crate) fn interrupted(registers: &Registers, call: &Call) -> Option<Interrupted> {
    let result = result(registers).filter(|result| is_interrupted(*result))?;
    let is_same = registers.orig_rax.cast_signed() == call.number;
    let again = Registers {
        rip: registers.rip.wrapping_sub(SYSCALL.len() as u64),
        rax: registers.orig_rax,
        orig_rax: u64::MAX,
        ..*registers
    };
    let for_a_handler = for_a_handler(registers);
    is_same.then_some(Interrupted { again, for_a_handler, may_be_continued: result == RESTART_BLOCK })
}

/// The registers of an interrupted call, so that the kernel ends it if a handler runs that ends such a call, and else
/// makes it again: also one that it cannot continue by now, or that a stop alone has ended.
fn for_a_handler(registers: &Registers) -> Registers {
    let result = match registers.rax.cast_signed() {
        EINTR | RESTART_BLOCK => RESTART_UNLESS_HANDLED,
        result => result,
    };
    Registers { rax: result.cast_unsigned(), ..*registers }
}

/// Numbers by which a thread that makes its call again is known: it is in no call, and at its instruction.
pub(crate) fn goes_on_at(registers: &Registers) -> (u64, u64, u64) {
    (registers.rip, registers.rsp, registers.orig_rax)
}

/// The registers with which the thread goes on behind its call, where it leaves it; None where that was interrupted again.
pub(crate) fn left(registers: &Registers, _: &Registers) -> Option<Registers> {
    result(registers).filter(|result| !is_interrupted(*result))?;
    Some(Registers { orig_rax: u64::MAX, ..*registers })
}

/// Most bytes that [`lay`] takes below the red zone.
pub(crate) fn room(extended: usize) -> u64 {
    (extended + 2 * FRAME + 256) as u64
}

/// The two frames. None where the extended registers make no sense.
pub(crate) fn lay(before: &Before<'_>, malloc_trim: u64, sigreturn: u64) -> Option<Laid> {
    let mut extended = before.extended.to_vec();
    let size = u32::try_from(extended.len()).ok().filter(|size| *size as usize >= LEAST_EXTENDED)?;
    let features = <[u8; 8]>::try_from(extended.get(SOFTWARE..SOFTWARE + 8)?).ok()?;
    let mut software = vec![];
    software.extend(MAGIC_1.to_ne_bytes());
    software.extend((size + 4).to_ne_bytes());
    software.extend(features);
    software.extend(size.to_ne_bytes());
    software.resize(48, 0);
    extended[SOFTWARE..512].copy_from_slice(&software);
    extended.extend(MAGIC_2.to_ne_bytes());

    let at_extended = before.registers.rsp.checked_sub(RED_ZONE + extended.len() as u64)? & !63;
    // On entry of a function the stack pointer is 8 below a multiple of 16.
    let at_return = (at_extended.checked_sub(FRAME as u64 + 16)? & !15).checked_sub(8)?;
    let address = at_return.checked_sub(FRAME as u64)?;
    let begin = Registers {
        rip: malloc_trim,
        rsp: at_return,
        rdi: 0,
        rax: 0,
        eflags: before.registers.eflags & !0x400, // functions begin with the direction flag clear
        ..before.registers
    };
    let mut bytes = context(&begin, ALL_SIGNALS, sigreturn, at_extended);
    bytes.extend(context(&before.registers, before.blocked, sigreturn, at_extended));
    bytes.resize(usize::try_from(at_extended - address).ok()?, 0);
    bytes.extend(extended);
    // The kernel looks for the frame one word below the stack pointer: a return has taken that word.
    let registers = Registers { rip: sigreturn, rsp: address + 8, orig_rax: u64::MAX, ..begin };
    Some(Laid { address, bytes, registers })
}

fn context(r: &Registers, blocked: u64, sigreturn: u64, at_extended: u64) -> Vec<u8> {
    let segments = r.cs & 0xffff | (r.ss & 0xffff) << 48;
    let mut words = vec![sigreturn, CONTEXT_FLAGS, 0, 0, NO_CHANGE, 0];
    words.extend([r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]);
    words.extend([r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags]);
    words.extend([segments, 0, 0, 0, 0, at_extended]);
    words.extend([0; 8]);
    words.push(blocked);
    words.extend([0; 16]);
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
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
        let n = |k: u64| seed.wrapping_mul(31).wrapping_add(k);
        Registers {
            r15: n(1),
            r14: n(2),
            r13: n(3),
            r12: n(4),
            rbp: n(5),
            rbx: n(6),
            r11: n(7),
            r10: n(8),
            r9: n(9),
            r8: n(10),
            rax: n(11),
            rcx: n(12),
            rdx: n(13),
            rsi: n(14),
            rdi: n(15),
            orig_rax: 0,
            rip: n(16),
            cs: 0x33,
            eflags: 0x246,
            rsp: stack,
            ss: 0x2b,
            fs_base: n(17),
            gs_base: n(18),
            ds: 0,
            es: 0,
            fs: 0,
            gs: 0,
        }
    }

    proptest! {
        #[test]
        fn the_frame_is_below_the_red_zone_and_aligned_as_the_kernel_wants_it(
            stack in 0x1_0000u64..0x7fff_ffff_f000, extended in 576usize..12_000, seed in any::<u64>(),
        ) {
            let (registers, state) = (registers(stack, seed), vec![7; extended]);
            let before = Before { registers, extended: &state, blocked: seed };
            let laid = lay(&before, 0x7f01, 0x7f02).unwrap();
            let end = laid.address + laid.bytes.len() as u64;
            prop_assert!(end <= stack - RED_ZONE);
            prop_assert!(stack - laid.address <= RED_ZONE + room(extended));
            prop_assert_eq!((laid.registers.rsp, laid.registers.rip), (laid.address + 8, 0x7f02));
            // In the first frame: malloc_trim with its stack, and with all signals blocked.
            prop_assert_eq!((word(&laid, 8 * 22), word(&laid, 8 * 38)), (0x7f01, u64::MAX));
            prop_assert_eq!((word(&laid, 8 * 21), word(&laid, 8 * 14)), (laid.address + FRAME as u64, 0));
            prop_assert_eq!((laid.address + FRAME as u64 + 8) % 16, 0);
            let second = |number: usize| word(&laid, FRAME + 8 * number);
            prop_assert_eq!(second(0), 0x7f02);
            let at_extended = second(29);
            prop_assert_eq!((at_extended % 64, word(&laid, 8 * 29)), (0, at_extended));
            prop_assert!(at_extended >= laid.address + 2 * FRAME as u64 && at_extended < end);
            // The mask behind the context, and the registers in the kernel's order.
            prop_assert_eq!(second(38), seed);
            prop_assert_eq!((second(21), second(22), second(19)), (registers.rsp, registers.rip, registers.rax));
            let state_at = usize::try_from(at_extended - laid.address).unwrap();
            prop_assert_eq!(&laid.bytes[state_at..state_at + SOFTWARE], &state[..SOFTWARE]);
            prop_assert_eq!(&laid.bytes[state_at + 512..state_at + extended], &state[512..]);
        }
    }

    #[test]
    fn a_call_is_made_again_by_its_instruction() {
        let call = Call { number: 7, arguments: [0; 6], stack: 0x7000, instruction: 0 };
        let before = Registers { orig_rax: 7, rax: (-514i64).cast_unsigned(), ..registers(0x7000, 3) };
        let Interrupted { again, may_be_continued, .. } = interrupted(&before, &call).unwrap();
        assert_eq!((again.rip, again.rax, may_be_continued), (before.rip - 2, 7, false));
        assert_eq!(again.orig_rax, u64::MAX, "the kernel makes it again no second time");
        assert!(interrupted(&again, &call).is_none() && left(&before, &before).is_none());
        assert!(interrupted(&before, &Call { number: 8, ..call }).is_none());
        let limited = Registers { rax: RESTART_BLOCK.cast_unsigned(), ..before };
        assert!(interrupted(&limited, &call).unwrap().may_be_continued);
        let ended = Registers { rax: 0, ..before };
        assert!(interrupted(&ended, &call).is_none());
        let left = left(&ended, &before).unwrap();
        assert_eq!((left.rip, left.rax, left.orig_rax), (ended.rip, 0, u64::MAX));
    }

    #[test]
    fn what_cannot_be_extended_registers_is_refused() {
        let before = Before { registers: registers(0x7000_0000, 1), extended: &[0; 100], blocked: 0 };
        assert!(lay(&before, 1, 2).is_none());
        let low = Before { registers: registers(100, 1), extended: &[0; 1000], blocked: 0 };
        assert!(lay(&low, 1, 2).is_none());
    }
}
