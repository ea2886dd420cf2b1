//! The threads that compile. Nothing stops a compilation while it is inside the crate. So each has a thread of its own,
//! and a caller whose patience ends gives the thread up: the thread goes on at the lowest priority, and its result is
//! dropped when it is there.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use super::compile::Patience;
use crate::chat::STACK_BYTES;
use crate::error::{Error, Result, Status};
use crate::memory::bound_this_thread;

/// How often a caller looks at its flags.
pub const TICK: Duration = Duration::from_millis(20);
/// Threads that were given up and still run: each has its memory, and beside requests that compute the part of a CPU
/// that the weakest priority has. Checked when a compilation begins: the three that may run at once can be added.
pub const MOST: usize = 4;
/// The pool of a front end has two threads, so that one owner can lose as many at once. Others still have two.
pub const MOST_OF_OWNER: usize = 2;
/// Of one thread, in addition to its texts. A grammar of 2 MiB with 65,000 symbols took 230 MB.
const THREAD_BYTES: usize = 512 << 20;
/// Weakest of the normal policy, 1.5 % of a busy CPU. SCHED_IDLE would be 0.3 %, and the thread would end that much later.
const WEAKEST: libc::c_int = 19;

/// struct quire_grammar_caller
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Caller {
    cancel: *const AtomicBool,
    leave: *const AtomicBool,
    owner: u32,
}

impl Caller {
    /// Waits as long as a compilation may take.
    pub const PATIENT: Caller = Caller {
        cancel: std::ptr::null(),
        leave: std::ptr::null(),
        owner: u32::MAX,
    };

    #[cfg(test)]
    pub fn new(cancel: Option<&AtomicBool>, leave: Option<&AtomicBool>, owner: u32) -> Caller {
        let pointer = |flag: Option<&AtomicBool>| flag.map_or(std::ptr::null(), |f| f);
        Caller {
            cancel: pointer(cancel),
            leave: pointer(leave),
            owner,
        }
    }

    pub fn cancels(&self) -> bool {
        // SAFETY: the flags stay as long as the call, and no other thread has the Caller.
        unsafe { self.cancel.as_ref() }.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    pub fn leaves(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.leave.as_ref() }.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

type Outcome<T> = std::result::Result<T, Box<dyn Any + Send>>;

/// What a caller and its thread share.
struct Desk<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// 0: the thread has not begun.
    tid: libc::pid_t,
    is_given_up: bool,
    outcome: Option<Outcome<T>>,
}

#[derive(Default)]
struct Counts {
    /// The owner of each thread that was given up and still runs.
    owners: Vec<u32>,
    total: u64,
}

/// The threads of one `Grammars`.
#[derive(Default)]
pub struct Workers(Mutex<Counts>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workers {
    /// How many threads were given up since the start, and how many of them still run.
    pub fn given_up(&self) -> (u64, u64) {
        let counts = locked(&self.0);
        (counts.total, counts.owners.len() as u64)
    }

    /// Whether this owner may begin a compilation.
    fn admit(&self, owner: u32) -> Result<()> {
        let counts = locked(&self.0);
        let (all, own) = (
            counts.owners.len(),
            counts.owners.iter().filter(|o| **o == owner).count(),
        );
        let (n, whose) = match own >= MOST_OF_OWNER {
            true => (own, " of this key"),
            false => (all, ""),
        };
        if all < MOST && own < MOST_OF_OWNER {
            return Ok(());
        }
        Err(Error::new(
            Status::Unavailable,
            format!("{n} compilations{whose} that exceeded their limit have not ended: try again later"),
        ))
    }

    /// Runs `work` on a thread of its own. Returns its result; or, when the patience ends or the caller leaves, an error
    /// while the thread still runs. `given_up` is called then, before the thread can drop what `work` owns or returns.
    pub fn run<T: Send + 'static>(
        self: &Arc<Workers>,
        patience: &Patience,
        caller: &Caller,
        work: impl FnOnce() -> T + Send + 'static,
        given_up: impl FnOnce(),
    ) -> Result<T> {
        self.admit(caller.owner)?;
        let desk = Arc::new(Desk {
            state: Mutex::new(State {
                tid: 0,
                is_given_up: false,
                outcome: None,
            }),
            changed: Condvar::new(),
        });
        let (workers, theirs, owner) = (self.clone(), desk.clone(), caller.owner);
        let thread = Builder::new()
            .name("grammar".to_owned())
            .stack_size(STACK_BYTES + (1 << 20))
            .spawn(move || serve(&workers, &theirs, owner, work))
            .map_err(|e| Error::new(Status::NoMemory, format!("grammar: no thread: {e}")))?;
        let outcome = self.wait(&desk, patience, caller, given_up)?;
        // It has nothing left to do.
        let _ = thread.join();
        match outcome {
            Ok(result) => Ok(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn wait<T>(
        &self,
        desk: &Desk<T>,
        patience: &Patience,
        caller: &Caller,
        given_up: impl FnOnce(),
    ) -> Result<Outcome<T>> {
        let mut state = locked(&desk.state);
        loop {
            if let Some(outcome) = state.outcome.take() {
                return Ok(outcome);
            }
            if caller.cancels() {
                patience.cancel();
            }
            let end = match caller.leaves() {
                true => Err(Error::new(Status::Unavailable, "grammar: cancelled")),
                false => patience.has_time(),
            };
            if let Err(error) = end {
                state.is_given_up = true;
                patience.cancel();
                weaken(state.tid);
                let mut counts = locked(&self.0);
                counts.owners.push(caller.owner);
                counts.total += 1;
                given_up();
                return Err(error);
            }
            let waited = desk.changed.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn end(&self, owner: u32) {
        let mut counts = locked(&self.0);
        if let Some(at) = counts.owners.iter().position(|o| *o == owner) {
            counts.owners.swap_remove(at);
        }
    }
}

/// On the thread.
fn serve<T>(workers: &Workers, desk: &Desk<T>, owner: u32, work: impl FnOnce() -> T) {
    // SAFETY: has no conditions.
    let tid = unsafe { libc::gettid() };
    {
        let mut state = locked(&desk.state);
        state.tid = tid;
        if state.is_given_up {
            weaken(tid);
        }
    }
    bound_this_thread(THREAD_BYTES);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let mut state = locked(&desk.state);
    if state.is_given_up {
        drop(state);
        drop(outcome);
        workers.end(owner);
    } else {
        state.outcome = Some(outcome);
        desk.changed.notify_one();
    }
}

/// The thread has not ended: its caller has the lock that its end needs, or it is the caller.
fn weaken(tid: libc::pid_t) {
    if tid > 0 {
        // SAFETY: changes only the priority.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as libc::id_t, WEAKEST) };
    }
}
