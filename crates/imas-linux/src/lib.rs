// SPDX-License-Identifier: Apache-2.0
//! What IMAS asks of Linux, and nothing else of IMAS.
//!
//! - [`prefault`]: touches free memory before a run, so that the host provides it
//! - [`boot`]: which boot this is, as programs see it
//! - [`catalogue`]: the list of candidates, read from TOML, and whether each loads here
//! - [`clock`]: the time of day
//! - [`contract`]: whether a library that we did not build keeps malloc's contract here
//! - [`elf`]: what an executable is, so that a preload is never given to one that cannot bear it
//! - [`program_file`]: opening a program's file, whatever a user has put in its place
//! - [`program`]: from the words of a command line to the program they name
//! - [`conditions`]: the machine's CPU and memory pressure now
//! - [`control_group`]: how near its limits this process' group is
//! - [`environment`]: the environment of a start under a candidate, and how it is undone inside
//! - [`file_stamp`]: whether a file is the same as before, unchanged
//! - [`fnv`]: the hash that Rust and C code share
//! - [`foreground`]: the program before which this command stands
//! - [`user_preloads`]: libraries with a malloc that a user preloads himself
//! - [`foreign_process`]: what the kernel shows of the memory of somebody else's process, read beside it
//! - [`footprint`]: memory of one process, resident and address space, less what is ours
//! - [`heap`]: what glibc's heaps hold in another process, and what a trim would return
//! - [`process_heaps`]: the same of a process that somebody else may own, read beside it
//! - [`package`]: which package of the distribution a file belongs to
//! - [`resident`]: what the resident memory of a process consists of
//! - [`running`]: running processes
//! - [`runtime`]: language runtimes, whose memory managers take settings
//! - [`runtime_start`]: settings of a runtime for one program
//! - [`serving`]: which allocator serves a process, and who chose it
//! - [`jvm_heap`]: what the heap of a running JVM holds, from its own counters
//! - [`running_runtime`]: the language runtime of a running process
//! - [`named_memory`]: resident memory by the names of mappings
//! - [`loader`]: the machine's dynamic linkers, and what each puts for `$LIB`
//! - [`preload_folder`]: libraries as LD_PRELOAD names them for children too
//! - [`page`]: making trial pages and finding the finished ones
//! - [`measure`]: running a whole process tree and reading what it cost
//! - [`one_cpu`]: keeping a run on one CPU, where it is measured more steadily
//! - [`host`]: what machine this is
//! - [`ingest`]: the bytes of a trial page to a sample
//! - [`interpreter_target`]: what an interpreter is given to run
//! - [`in_time`]: work on files of others, in a thread that may be given up
//! - [`index`]: the decisions that libimas-preload.so looks up, written and read
//! - [`replace_file`]: replacing a file that others may be reading
//! - [`standstill`]: whether a process is idle, waiting for a lock
//! - [`started_name`]: the name by which a file was started, where it makes another program of it
//! - [`start_program`]: a program in place of this process or as its child, with its environment as an array
//! - [`variables`]: the environment of a process, entry by entry
//! - [`trim_word`]: asking a running process to give pages back
//! - [`trust`]: whether others could change a file
//! - [`watcher`]: a thread that looks again and again until it is stopped
//! - [`work_counter`]: how much work a service has done, by a command of the user
//! - [`catalogue_table`]: the candidates that root approved for it

pub mod activity;
pub mod arenas;
pub mod boot;
pub mod catalogue;
pub mod catalogue_table;
pub mod clock;
pub mod conditions;
pub mod contract;
pub mod control_group;
pub mod counters;
pub mod elf;
pub mod environment;
pub mod executable;
mod field;
pub mod file_stamp;
mod file_time;
pub mod fnv;
pub mod footprint;
pub mod foreground;
pub mod foreign_process;
pub mod heap;
pub mod host;
pub mod in_time;
pub mod index;
pub mod ingest;
pub mod interpreter_target;
pub mod jvm_heap;
pub mod loader;
pub mod measure;
pub mod one_cpu;
mod owner_time;
pub mod pace;
pub mod package;
pub mod named_memory;
pub mod page;
pub mod plain_file;
pub mod prefault;
pub mod preload_folder;
pub mod process;
pub mod process_heaps;
pub mod program;
pub mod program_file;
pub mod replace_file;
pub mod resident;
pub mod running;
pub mod running_runtime;
pub mod runtime;
pub mod runtime_start;
pub mod sampler;
pub mod serving;
pub mod standstill;
pub mod start_program;
pub mod started_name;
pub mod taken;
mod timed_command;
pub mod trim_word;
pub mod trust;
pub mod user_preloads;
pub mod variables;
pub mod watcher;
pub mod work_counter;
