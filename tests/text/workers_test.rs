//! Compilations that do not end: their callers return, others compile, and nothing is freed that they use.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Status};
use crate::grammar::cache::{Grammars, Source};
use crate::grammar::compile::Patience;
use crate::grammar::workers::{Caller, Workers, MOST, MOST_OF_OWNER};
use crate::grammar::Limits;
use crate::load::Text;

const MINUTE: Duration = Duration::from_secs(60);

/// Waits for a state that threads reach soon.
fn wait_for(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < MINUTE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Gives up a thread that stands at a gate. The gate opens when the sender is dropped; what the thread owns is dropped
/// with it.
fn give_up(workers: &Arc<Workers>, owner: u32, owned: &Arc<()>) -> Result<Sender<()>, Error> {
    let (gate, stands): (Sender<()>, Receiver<()>) = channel();
    let owned = owned.clone();
    let work = move || {
        let _ = stands.recv();
        owned
    };
    let caller = Caller::new(None, None, owner);
    let patience = Patience::new(Duration::from_millis(1));
    match workers.run(&patience, &caller, work, || ()) {
        Err(e) if e.status == Status::Exhausted => Ok(gate),
        Err(e) => Err(e),
        Ok(_) => panic!("the gate is open"),
    }
}

/// The nice values of the threads of this name.
fn nice_values(name: &str) -> Vec<i32> {
    let mut values = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        if stat.contains(&format!("({name})")) && fields.len() > 16 {
            values.push(fields[16].parse().unwrap());
        }
    }
    values
}

#[test]
fn threads_that_are_given_up_hold_no_other() {
    let workers: Arc<Workers> = Arc::default();
    let owned = Arc::new(());
    let mut gates = Vec::new();
    for owner in 0..MOST / MOST_OF_OWNER {
        for _ in 0..MOST_OF_OWNER {
            let other = Caller::new(None, None, 77);
            let patience = Patience::new(MINUTE);
            assert_eq!(workers.run(&patience, &other, || 5, || ()).unwrap(), 5);
            gates.push(give_up(&workers, owner as u32, &owned).unwrap());
        }
        if gates.len() < MOST {
            let error = give_up(&workers, owner as u32, &owned).err().unwrap();
            assert_eq!(error.status, Status::Unavailable);
            assert!(error.text.contains("2 compilations of this key"), "{}", error.text);
        }
    }
    let error = give_up(&workers, 77, &owned).err().unwrap();
    assert_eq!(error.status, Status::Unavailable);
    assert!(error.text.contains("4 compilations that"), "{}", error.text);
    assert_eq!(workers.given_up(), (MOST as u64, MOST as u64));
    // A thread may be given up before it has begun.
    wait_for(|| nice_values("grammar").iter().filter(|nice| **nice == 19).count() >= MOST);
    assert_eq!(Arc::strong_count(&owned), 1 + MOST);
    gates.clear();
    wait_for(|| workers.given_up() == (MOST as u64, 0));
    assert_eq!(Arc::strong_count(&owned), 1);
    drop(give_up(&workers, 0, &owned).unwrap());
}

/// A caller that cancels waits for its thread, which looks at the flag between phases; one that leaves does not.
#[test]
fn callers_may_leave() {
    let workers: Arc<Workers> = Arc::default();
    let patience = Patience::new(MINUTE);
    let (flag, theirs) = (AtomicBool::new(true), patience.clone());
    let cancels = Caller::new(Some(&flag), None, 0);
    let until_cancelled = move || wait_for(|| theirs.check().is_err());
    workers.run(&patience, &cancels, until_cancelled, || ()).unwrap();
    assert_eq!(workers.given_up(), (0, 0));
    let (gate, stands): (Sender<()>, Receiver<()>) = channel();
    let leaves = Caller::new(None, Some(&flag), 0);
    let (work, mut is_told) = (move || stands.recv().is_ok(), false);
    let patience = Patience::new(MINUTE);
    let error = workers.run(&patience, &leaves, work, || is_told = true).unwrap_err();
    assert_eq!(error.status, Status::Unavailable);
    assert!(is_told);
    assert_eq!(workers.given_up(), (1, 1));
    drop(gate);
    wait_for(|| workers.given_up() == (1, 0));
}

/// A thread that wants more memory than it may have stands still, and others compile.
#[test]
fn memory_is_bounded() {
    let workers: Arc<Workers> = Arc::default();
    let (sender, sizes) = channel();
    let work = move || {
        let mut blocks = Vec::new();
        // No page of them is touched.
        for n in 1..100 {
            blocks.push(Vec::<u8>::with_capacity(64 << 20));
            drop(Vec::<u8>::with_capacity(64 << 20));
            let _ = sender.send(n * 64);
        }
        blocks.len()
    };
    let patience = Patience::new(Duration::from_secs(2));
    let error = workers.run(&patience, &Caller::PATIENT, work, || ()).unwrap_err();
    assert_eq!(error.status, Status::Exhausted);
    // With the eighth, or the one that is dropped, more than 512 MiB. The thread may reach that later.
    while sizes.recv().unwrap() < 384 {}
    assert!(matches!(sizes.recv_timeout(Duration::from_millis(200)), Ok(448) | Err(_)));
    assert!(sizes.recv_timeout(Duration::from_millis(200)).is_err());
    let same = workers.run(&Patience::new(MINUTE), &Caller::PATIENT, || 5, || ());
    assert_eq!(same.unwrap(), 5);
    assert_eq!(workers.given_up(), (1, 1));
}

#[test]
fn a_panic_comes_to_the_caller() {
    let workers: Arc<Workers> = Arc::default();
    let run = || {
        let patience = Patience::new(MINUTE);
        workers.run(&patience, &Caller::PATIENT, || panic!("here"), || ())
    };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"here"));
    assert_eq!(workers.given_up(), (0, 0));
}

/// Intersections of this many texts take the crate seconds.
fn slow(first: usize) -> String {
    let parts: Vec<String> = (first..first + 12)
        .map(|n| format!("/.*[ab]*a[ab]{{{n}}}c.*/"))
        .collect();
    format!("start: A\nA: {}\n", parts.join(" & "))
}

/// Through the cache: the text is not compiled twice at once, others are, and the grammars may go first.
#[test]
fn a_slow_grammar_is_given_up() {
    let mut dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    dir.push("../tests/text/data/bytelevel");
    let limits = Limits::default();
    let source = Source {
        text: Arc::new(Text::open(&dir).unwrap()),
        n_vocab: 430,
        eos: vec![421],
        limits: limits.parser(),
    };
    let mut bounds = limits.bounds(0, 0);
    bounds.deadline = Duration::from_millis(300);
    let grammars = Arc::new(Grammars::new(source, bounds).unwrap());
    grammars.tokens().unwrap();
    let compile = |text: &str| grammars.compile(text.as_bytes(), &Caller::PATIENT);
    let error = compile(&slow(10)).err().unwrap();
    assert_eq!(error.status, Status::Exhausted, "{}", error.text);
    // Without a thread of its own, while the first still runs.
    assert_eq!(compile(&slow(10)).err().unwrap().status, Status::Exhausted);
    assert_eq!(grammars.workers.given_up(), (1, 1));
    assert_eq!(compile(&slow(11)).err().unwrap().status, Status::Exhausted);
    assert_eq!(grammars.workers.given_up().0, 2);
    let weak = Arc::downgrade(&grammars);
    drop(grammars);
    assert!(weak.upgrade().is_some(), "the threads have references");
}
