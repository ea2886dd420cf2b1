/* Preloaded into a server: how long its event loop is away from epoll_wait(), turn by turn.
 *
 * LOOP_TURNS=FILE LD_PRELOAD=libloop_turns.so quire serve ...
 *
 * FILE is mapped, so it survives a killed process. Only the main thread is measured. A turn of a millisecond or more is
 * recorded with data to find its cause: its processor time, how often the thread waited (a lock, a disk), how often it
 * was preempted, and its longest call of a lock, a condition, a file or malloc. For a turn with 3 ms or more of
 * processor time, FILE.samples has its stack every quarter of a millisecond of that, including the kernel and its
 * interrupts as far as the kernel allows (perf_event_open). Host byte order; read by cache_faults.py.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_TURNS 65536u
#define LONG_NS UINT64_C(1000000)
#define WORK_US 3000u
#define SAMPLE_NS 250000u
#define RING_BYTES ((size_t)1 << 18)
#define MAX_CHAIN 64u

struct turn {
    uint64_t ended_ns; /* since 1970 */
    uint32_t wall_us, cpu_us, n_waits, n_preempted;
    uint64_t call_at; /* where in its program or library the longest call was made */
    uint32_t call_us, by_program; /* by_program: 0 if a library made it */
};
struct turns {
    uint64_t n, n_long;
    uint64_t by_log2_us[32]; /* wall time: [i] below 2^i µs, not below half of that */
    struct turn longest[MAX_TURNS]; /* the first of them; n_long is their number */
};

struct moment {
    uint64_t wall_ns, cpu_ns, n_waits, n_preempted;
};

static struct turns *turns;
static struct moment since;
static struct {
    uint64_t ns;
    const void *from;
} longest_call; /* of this turn */
static __thread bool is_loop;

static uint64_t clock_now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct moment now(void)
{
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return (struct moment){clock_now(CLOCK_MONOTONIC), clock_now(CLOCK_THREAD_CPUTIME_ID), (uint64_t)used.ru_nvcsw,
                           (uint64_t)used.ru_nivcsw};
}

/* ---- samples of the stack ---- */

static struct perf_event_mmap_page *ring; /* NULL: no samples */
static int sample_file;

static void samples_begin(const char *turns_path)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_SW_CPU_CLOCK,
                                   .sample_period = SAMPLE_NS,
                                   .sample_type = PERF_SAMPLE_CALLCHAIN,
                                   .sample_max_stack = MAX_CHAIN - 8};
    char path[4096];
    snprintf(path, sizeof path, "%s.samples", turns_path);
    const int event = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    sample_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (event < 0 || sample_file < 0)
        return;
    void *at = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE) + RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, event, 0);
    ring = at == MAP_FAILED ? NULL : at;
}

static void ring_copy(void *to, uint64_t at, size_t n)
{
    const char *bytes = (const char *)ring + ring->data_offset;
    for (size_t i = 0; i < n; i++)
        ((char *)to)[i] = bytes[(at + i) & (RING_BYTES - 1)];
}

/* A line: the turn's end, and the frames of one sample, innermost first; the kernel's as k:ADDRESS. */
static void write_sample(uint64_t ended_ns, const uint64_t *chain, uint64_t n)
{
    char line[4096];
    size_t at = (size_t)snprintf(line, sizeof line, "%llu", (unsigned long long)ended_ns);
    bool in_kernel = false;
    for (uint64_t i = 0; i < n && at < sizeof line - 300; i++) {
        Dl_info info = {0};
        const void *address = (const void *)(uintptr_t)chain[i];
        if (chain[i] >= (uint64_t)PERF_CONTEXT_MAX) {
            in_kernel = chain[i] == (uint64_t)PERF_CONTEXT_KERNEL;
            continue;
        }
        if (!in_kernel && dladdr(address, &info) && info.dli_fname)
            at += (size_t)snprintf(line + at, sizeof line - at, " %.200s:%llx", info.dli_fname,
                                   (unsigned long long)(chain[i] - (uint64_t)(uintptr_t)info.dli_fbase));
        else
            at += (size_t)snprintf(line + at, sizeof line - at, " %c:%llx", in_kernel ? 'k' : '?',
                                   (unsigned long long)chain[i]);
    }
    line[at++] = '\n';
    const ssize_t written = syscall(SYS_write, sample_file, line, at);
    (void)written;
}

/* Those since the last call; ended_ns 0: they are dropped. */
static void samples_end(uint64_t ended_ns)
{
    struct perf_event_header h;
    uint64_t n, chain[MAX_CHAIN];
    const uint64_t head = ring ? __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE) : 0;
    for (uint64_t at = ring ? ring->data_tail : 0; ended_ns && at < head; at += h.size) {
        ring_copy(&h, at, sizeof h);
        if (h.size < sizeof h)
            break;
        if (h.type != PERF_RECORD_SAMPLE)
            continue;
        ring_copy(&n, at + sizeof h, sizeof n);
        n = n < MAX_CHAIN ? n : MAX_CHAIN;
        ring_copy(chain, at + sizeof h + sizeof n, n * sizeof *chain);
        write_sample(ended_ns, chain, n);
    }
    if (ring)
        __atomic_store_n(&ring->data_tail, head, __ATOMIC_RELEASE);
}

/* ---- turns ---- */

static void write_turn(struct moment m, uint32_t wall_us)
{
    Dl_info at = {0}, program = {0};
    struct turn *t = &turns->longest[turns->n_long];
    if (longest_call.from && dladdr(longest_call.from, &at) && dladdr((void *)getauxval(AT_ENTRY), &program))
        t->call_at = (uint64_t)((const char *)longest_call.from - (char *)at.dli_fbase);
    t->ended_ns = clock_now(CLOCK_REALTIME);
    t->wall_us = wall_us;
    t->cpu_us = (uint32_t)((m.cpu_ns - since.cpu_ns) / 1000);
    t->n_waits = (uint32_t)(m.n_waits - since.n_waits);
    t->n_preempted = (uint32_t)(m.n_preempted - since.n_preempted);
    t->call_us = (uint32_t)(longest_call.ns / 1000);
    t->by_program = at.dli_fbase && at.dli_fbase == program.dli_fbase;
    if (t->cpu_us >= WORK_US)
        samples_end(t->ended_ns);
}

static void end_turn(void)
{
    const struct moment m = now();
    const uint64_t wall_ns = m.wall_ns - since.wall_ns, wall_us = wall_ns / 1000;
    unsigned log2 = 0;
    while (wall_us >> log2)
        log2++;
    turns->n++;
    turns->by_log2_us[log2 < 31 ? log2 : 31]++;
    if (wall_ns >= LONG_NS) {
        if (turns->n_long < MAX_TURNS)
            write_turn(m, (uint32_t)wall_us);
        turns->n_long++;
    }
    samples_end(0);
}

static void begin(void)
{
    const char *path = getenv("LOOP_TURNS");
    const int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof *turns) != 0)
        abort();
    turns = mmap(NULL, sizeof *turns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (turns == MAP_FAILED)
        abort();
    close(file);
    samples_begin(path);
}

__attribute__((visibility("default"))) int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    if (syscall(SYS_gettid) != getpid())
        return real(fd, events, n, timeout);
    if (!turns)
        begin();
    else
        end_turn();
    is_loop = false;
    const int got = real(fd, events, n, timeout);
    is_loop = true;
    longest_call.ns = 0;
    longest_call.from = NULL;
    since = now();
    return got;
}

static void note_call(uint64_t begun_ns, const void *from)
{
    const uint64_t ns = clock_now(CLOCK_MONOTONIC) - begun_ns;
    if (ns <= longest_call.ns)
        return;
    longest_call.ns = ns;
    longest_call.from = from;
}

/* Calls in which the loop may wait. */
#define TIMED(result, NAME, parameters, call, find) \
    __attribute__((visibility("default"))) result NAME parameters \
    { \
        static __typeof__(&NAME) real; \
        if (!real) \
            *(void **)&real = find; \
        if (!is_loop) \
            return real call; \
        const uint64_t begun_ns = clock_now(CLOCK_MONOTONIC); \
        result got = real call; \
        note_call(begun_ns, __builtin_return_address(0)); \
        return got; \
    }
TIMED(int, pthread_mutex_lock, (pthread_mutex_t * m), (m), dlsym(RTLD_NEXT, "pthread_mutex_lock"))
/* Conditions had another layout under the same names. */
TIMED(int, pthread_cond_signal, (pthread_cond_t * c), (c), dlvsym(RTLD_NEXT, "pthread_cond_signal", "GLIBC_2.3.2"))
TIMED(int, pthread_cond_broadcast, (pthread_cond_t * c), (c),
      dlvsym(RTLD_NEXT, "pthread_cond_broadcast", "GLIBC_2.3.2"))
TIMED(int, fsync, (int fd), (fd), dlsym(RTLD_NEXT, "fsync"))
TIMED(int, fdatasync, (int fd), (fd), dlsym(RTLD_NEXT, "fdatasync"))
TIMED(ssize_t, write, (int fd, const void *bytes, size_t n), (fd, bytes, n), dlsym(RTLD_NEXT, "write"))

/* Memory that one thread allocates and another frees is a shared lock. dlsym() itself allocates. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);
TIMED(void *, malloc, (size_t n), (n), (void *)__libc_malloc)
TIMED(void *, calloc, (size_t n, size_t size), (n, size), (void *)__libc_calloc)
TIMED(void *, realloc, (void *p, size_t n), (p, n), (void *)__libc_realloc)

__attribute__((visibility("default"))) void free(void *p)
{
    if (!is_loop) {
        __libc_free(p);
        return;
    }
    const uint64_t begun_ns = clock_now(CLOCK_MONOTONIC);
    __libc_free(p);
    note_call(begun_ns, __builtin_return_address(0));
}
