// SPDX-License-Identifier: Apache-2.0
//! `imas learn`: predicts by replays of one recorded run which candidates a program's trials may leave out.

mod lesson;
pub(crate) mod recordings;
mod shown;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use imas_linux::clock::now_unix_s;
use imas_linux::program::Command;
use imas_replay::recording::{Recording, RecordingLimits};
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_store::Store;
use imas_store::recordings::{AskedRecording, ProgramRecording, RefusedRecording};
use imas_store::samples::StoredProgram;

use crate::apply::overrides;
use crate::command_line::cli::Places;
use crate::command_line::learn_args::LearnArgs;
use crate::command_line::wrapper;
use crate::measure::record;
use imas_cli::message::Hinted;
use imas_engine::context::Context;
use lesson::{Lesson, LessonSource};

/// What became of one program.
enum Outcome {
    /// The program's next start is recorded; false: that was asked for before.
    Asked(bool),
    /// The process that is recorded and has not ended: this one, or one that it started.
    Running(u32),
    Learned(Lesson),
    /// Nothing could be learned from its recording.
    Failed(anyhow::Error),
    /// The wish or the recording was taken back; false: there was nothing to take back.
    Cancelled(bool),
}

/// All that one call works with.
pub(crate) struct Learner<'a> {
    args: &'a LearnArgs,
    context: &'a Context,
    store: &'a Store,
    interruption: &'a Interruption,
}

pub(crate) fn run(args: &LearnArgs, places: &Places) -> Result<ExitCode> {
    let context = Context::new(places)?;
    if context.of_the_system && args.trace.is_none() {
        return Err(Hinted::error(
            "the programs of the system are not recorded when they start",
            "record a run, then learn from it: imas record -o FILE -- COMMAND; imas learn --system PROGRAM --trace FILE",
        ));
    }
    let store = context.open_store()?;
    let interruption = Interruption::watch()?;
    let learner = Learner { args, context: &context, store: &store, interruption: &interruption };
    let made = match &args.program {
        Some(word) => learner.program(word).map(|one| vec![one]),
        None if args.pending => learner.pending(),
        None => learner.command().map(|one| vec![one]),
    };
    match made {
        Ok(made) => shown::show(&learner, &made),
        Err(error) => match error.downcast_ref::<InterruptedBy>() {
            Some(by) => Ok(ExitCode::from(by.exit_status())),
            None => Err(error),
        },
    }
}

impl Learner<'_> {
    /// The program is named: its trace, its recording, or the wish for one.
    fn program(&self, word: &OsStr) -> Result<(StoredProgram, Outcome)> {
        let program = overrides::find_or_make(self.context, self.store, word)?;
        let outcome = match (&self.args.trace, self.args.cancel) {
            (Some(trace), _) => self.trace(&program, trace)?,
            (None, true) => Outcome::Cancelled(recordings::cancel(self.store, program.id)?),
            (None, false) => match self.store.recording(program.id)? {
                Some(recording) if recording.refused.is_none() => self.recording(&program, &recording)?,
                _ => self.ask(&program)?,
            },
        };
        Ok((program, outcome))
    }

    fn ask(&self, program: &StoredProgram) -> Result<Outcome> {
        if self.store.is_excluded(&program.path, &program.detail)? {
            return Err(Hinted::error(
                format!("{program} is excluded: it runs untouched"),
                format!("imas exclude remove {}", program.path),
            ));
        }
        let window_s = self.args.duration.map(|length| length.as_secs_f64());
        let asked = AskedRecording { at_s: now_unix_s(), limit_bytes: self.args.limit, window_s };
        Ok(Outcome::Asked(self.store.ask_recording(program.id, &asked)?))
    }

    fn trace(&self, program: &StoredProgram, trace: &Path) -> Result<Outcome> {
        let build_id = self.present_build(program)?;
        let source = LessonSource { trace, build_id: &build_id, is_window: true };
        Ok(Outcome::Learned(self.lesson(program, &source)?))
    }

    /// Build-id of the program as it is on disk now.
    fn present_build(&self, program: &StoredProgram) -> Result<String> {
        let command = imas_view::program_view::stored_command(program);
        Ok(imas_engine::inspect::stored(program, &command, self.store)?.build_id)
    }

    fn recording(&self, program: &StoredProgram, recording: &ProgramRecording) -> Result<Outcome> {
        let Some(begun) = recording.waiting() else { return Ok(Outcome::Asked(false)) };
        if recordings::is_running(recording, begun) {
            return Ok(Outcome::Running(begun.pid));
        }
        let place = tempfile::Builder::new().prefix("imas-learn-").tempdir()?;
        let trace = place.path().join("trace");
        let learned = recordings::write_trace(begun, &trace).and_then(|()| {
            let is_window = recording.asked.window_s.is_some();
            self.lesson(program, &LessonSource { trace: &trace, build_id: &begun.build_id, is_window })
        });
        match learned {
            Ok(lesson) => {
                recordings::remove(Path::new(&begun.folder))?;
                self.store.end_recording(program.id)?;
                Ok(Outcome::Learned(lesson))
            }
            Err(error) if error.is::<InterruptedBy>() => Err(error), // it is replayed the next time
            Err(error) => {
                let refused = RefusedRecording { at_s: now_unix_s(), why: format!("{error:#}") };
                self.store.refuse_recording(program.id, &begun.build_id, &refused)?;
                recordings::remove(Path::new(&begun.folder))?;
                Ok(Outcome::Failed(error))
            }
        }
    }

    fn pending(&self) -> Result<Vec<(StoredProgram, Outcome)>> {
        let mut made = vec![];
        let recordings = self.store.recordings()?;
        for recording in recordings.into_iter().filter(|one| one.refused.is_none()) {
            let Some(program) = self.store.program_numbered(recording.program)? else { continue };
            let outcome = self.recording(&program, &recording)?;
            made.push((program, outcome));
        }
        Ok(made)
    }

    /// The command is recorded now.
    fn command(&self) -> Result<(StoredProgram, Outcome)> {
        let words = &self.args.command;
        if wrapper::unwrap(words, imas_linux::variables::Variables::inherited()).inner.is_some() {
            return Err(Hinted::error(
                format!("{} starts another program", words[0].to_string_lossy()),
                "put 'imas learn --' before the program that it starts",
            ));
        }
        let command = Command::resolve(words, std::env::var_os("PATH").as_deref())?;
        let executable = imas_engine::inspect::command(&command, Some(self.store))?;
        if let Some(why) = &executable.unfit {
            return Err(Hinted::error(
                format!("{}: cannot be recorded: {why}", command.program.path.display()),
                "it keeps its own allocator",
            ));
        }
        let folder = tempfile::Builder::new().prefix("imas-learn-").tempdir()?;
        let limits = RecordingLimits { bytes: self.args.limit, duration: self.args.duration };
        let recording = Recording::begin(folder.path(), limits)?;
        let trace = folder.path().join("trace");
        let header = record::recorded(&command, &recording, &trace, self.context)?;
        if header.exit != 0 && !self.args.ignore_failure {
            return Err(Hinted::error(
                format!("the command ended with {} while it was recorded: nothing is learned", header.exit),
                "--ignore-failure learns from it all the same",
            ));
        }
        let program = self.store.program(&command.program.path.to_string_lossy(), &command.program.detail)?;
        let is_window = self.args.duration.is_some();
        let source = LessonSource { trace: &trace, build_id: &executable.build_id, is_window };
        let lesson = self.lesson(&program, &source)?;
        Ok((program, Outcome::Learned(lesson)))
    }

    fn lesson(&self, program: &StoredProgram, source: &LessonSource<'_>) -> Result<Lesson> {
        lesson::learn(self, program, source).with_context(|| program.to_string())
    }
}
