//! The memory of threads that compile grammars. Nothing stops such a thread, and some texts make it allocate 10 MB a
//! second for hours. A thread that has more than its bound stands still for good, inside the call that allocates: it keeps
//! its bound and computes nothing. Allocators may not unwind, and an allocation that fails ends the process.
//!
//! Such a thread holds no lock that another needs: it is not stopped while it panics, because a backtrace has one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NOT_COUNTED: isize = isize::MAX;

thread_local! {
    /// Bytes that this thread may still allocate. What it frees counts, too.
    static LEFT: Cell<isize> = const { Cell::new(NOT_COUNTED) };
}

/// From now on, this thread may have this many bytes more than now.
pub fn bound_this_thread(bytes: usize) {
    LEFT.set(bytes as isize);
}

fn take(bytes: isize) {
    // Threads that end have no variables any more.
    let left = LEFT.try_with(Cell::get).unwrap_or(NOT_COUNTED);
    if left == NOT_COUNTED {
        return;
    }
    if bytes > left && !std::thread::panicking() {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    LEFT.set(left - bytes);
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size() as isize);
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size() as isize);
        System.alloc_zeroed(layout)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        take(-(layout.size() as isize));
        System.dealloc(block, layout);
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size as isize - layout.size() as isize);
        System.realloc(block, layout, size)
    }
}
