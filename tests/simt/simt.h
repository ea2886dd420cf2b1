// simt.h - run CUDA C++ kernels on the CPU under g++ (one fiber per CUDA thread); thin pass-through under nvcc.
// Exactly one TU defines SIMT_IMPL before including this (that TU is never instrumented).
#pragma once
#include <stdint.h>
#include <string.h>
#ifdef __CUDACC__
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define SIMT_LAUNCH(k, g, b, smem, st, ...) k<<<g, b, smem, st>>>(__VA_ARGS__)
#else
#include <string>
#include <tuple>
#include <vector>
#include <cuda_runtime_api.h>
#include "tests/simt/device/qualifiers.h"
#include "tests/simt/device/vector_types.h"
#include "tests/simt/device/scalar.h"
#include "tests/simt/device/half.h"
// ---------------------------------------------------------------- fibers, launch
namespace simt {
struct Blk; struct Warp;
struct Cp { void* dst; const void* src; unsigned n, group; };
struct alignas(128) Fiber {
  void* sp; uint3 tid; Warp* w; Blk* b; unsigned lane, lin; char *slo, *shi;
  std::vector<Cp> cp; unsigned cp_group; const char* wop; const char* wfile; int wline;
};
struct BlkPub { uint3 bid; dim3 bdim, grid; };
struct Launch { dim3 grid, block; size_t smem; void (*fn)(void*); void* arg; size_t argsz; };
void launch(const Launch&);
void* dev_alloc(size_t);            // cudaMalloc twin: registered, red-zoned, NaN-filled
void dev_free(void*);
bool in_arena(const void*);         // of device memory, given out or not
void dev_free_all();
std::vector<std::string> take_faults();
extern int order;                   // 0 forward, 1 reverse, 2 random (lane and warp schedule)
extern int os_threads;
template <class... P, class... A> void launch_k(dim3 g, dim3 b, size_t s, void (*k)(P...), A&&... a) {
  struct C { void (*k)(P...); std::tuple<P...> t; } c{k, std::tuple<P...>((P)a...)};
  launch(Launch{g, b, s, [](void* p) { std::apply(((C*)p)->k, ((C*)p)->t); }, &c, sizeof c});
}
// The runtime's half of a launch (stream.cc): checks it, copies the arguments and queues it.
cudaError_t queue_kernel(cudaStream_t stream, const char* name, const void* kernel, const Launch&);
template <class... P, class... A> cudaError_t launch_on(cudaStream_t st, dim3 g, dim3 b, size_t s, const char* name, void (*k)(P...), A&&... a) {
  static_assert((std::is_trivially_copyable_v<P> && ...), "a kernel's arguments are copied as bytes");
  struct C { void (*k)(P...); std::tuple<P...> t; } c{k, std::tuple<P...>((P)a...)};
  return queue_kernel(st, name, (const void*)k, Launch{g, b, s, [](void* p) { std::apply(((C*)p)->k, ((C*)p)->t); }, &c, sizeof c});
}
enum Op { SHFL, BALLOT, REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, SYNCWARP, LDSM, LDSMT, MMA_F16, MMA_BF16 };
struct ShflArg { uint64_t v, out; int src; };
struct BallotArg { int pred; unsigned out; };
struct ReduceArg { unsigned v, out; };
unsigned active_mask();
struct LdsmArg { const void* row; uint32_t* r; };
struct MmaArg { float* d; const uint32_t *a, *b; };
void collective(Op, unsigned mask, void* arg, int line, const char* file);
int syncthreads(int pred, int line, const char* file);   // how many gave pred != 0
void cp_async(void* dst, const void* src, unsigned nsrc, void* pc);
void cp_commit();
void cp_wait(unsigned keep, bool all);
}
extern __thread simt::Fiber* simt_cur;
#define threadIdx (simt_cur->tid)
#define blockIdx (((simt::BlkPub*)simt_cur->b)->bid)
#define blockDim (((simt::BlkPub*)simt_cur->b)->bdim)
#define gridDim (((simt::BlkPub*)simt_cur->b)->grid)
#define warpSize 32
#define SIMT_LAUNCH(k, g, b, smem, st, ...) simt::launch_k(g, b, smem, k, __VA_ARGS__)
// Source line, not return address, identifies a sync site: g++ may clone calls (jump threading, unrolling).
#define SIMT_LOC int line = __builtin_LINE(), const char *file = __builtin_FILE()
inline void __syncthreads(SIMT_LOC) { simt::syncthreads(0, line, file); }
inline int __syncthreads_count(int p, SIMT_LOC) { return simt::syncthreads(p, line, file); }
inline int __syncthreads_or(int p, SIMT_LOC) { return simt::syncthreads(p, line, file) != 0; }
inline int __syncthreads_and(int p, SIMT_LOC) { return simt::syncthreads(!p, line, file) == 0; }
inline void __syncwarp(unsigned m = ~0u, SIMT_LOC) { simt::collective(simt::SYNCWARP, m, nullptr, line, file); }
template <class T> inline T simt_shfl(unsigned m, T v, int src, int line, const char* file) {
  simt::ShflArg a{0, 0, src}; memcpy(&a.v, &v, sizeof v);
  simt::collective(simt::SHFL, m, &a, line, file);
  memcpy(&v, &a.out, sizeof v); return v;
}
#define SIMT_LANE ((int)simt_cur->lane)
template <class T> T __shfl_sync(unsigned m, T v, int s, int w = 32, SIMT_LOC) { return simt_shfl(m, v, (SIMT_LANE & ~(w - 1)) | (s & (w - 1)), line, file); }
template <class T> T __shfl_xor_sync(unsigned m, T v, int x, int w = 32, SIMT_LOC) { int s = SIMT_LANE ^ x; return simt_shfl(m, v, (s & ~(w - 1)) > (SIMT_LANE & ~(w - 1)) ? SIMT_LANE : s, line, file); }
template <class T> T __shfl_down_sync(unsigned m, T v, int x, int w = 32, SIMT_LOC) { int s = SIMT_LANE + x; return simt_shfl(m, v, (s & ~(w - 1)) == (SIMT_LANE & ~(w - 1)) ? s : SIMT_LANE, line, file); }
template <class T> T __shfl_up_sync(unsigned m, T v, int x, int w = 32, SIMT_LOC) { int s = SIMT_LANE - x; return simt_shfl(m, v, s >= (SIMT_LANE & ~(w - 1)) ? s : SIMT_LANE, line, file); }
inline unsigned __ballot_sync(unsigned m, int p, SIMT_LOC) { simt::BallotArg a{p, 0}; simt::collective(simt::BALLOT, m, &a, line, file); return a.out; }
inline int __any_sync(unsigned m, int p, SIMT_LOC) { return __ballot_sync(m, p, line, file) != 0; }
inline int __all_sync(unsigned m, int p, SIMT_LOC) { return __ballot_sync(m, p, line, file) == m; }
#include "tests/simt/device/atomic.h"
inline unsigned __activemask() { return simt::active_mask(); }
inline unsigned __reduce_add_sync(unsigned m, unsigned v, SIMT_LOC) { simt::ReduceArg a{v, 0}; simt::collective(simt::REDUCE_ADD, m, &a, line, file); return a.out; }
inline unsigned __reduce_min_sync(unsigned m, unsigned v, SIMT_LOC) { simt::ReduceArg a{v, 0}; simt::collective(simt::REDUCE_MIN, m, &a, line, file); return a.out; }
inline unsigned __reduce_max_sync(unsigned m, unsigned v, SIMT_LOC) { simt::ReduceArg a{v, 0}; simt::collective(simt::REDUCE_MAX, m, &a, line, file); return a.out; }
inline int __reduce_add_sync(unsigned m, int v, SIMT_LOC) { return (int)__reduce_add_sync(m, (unsigned)v, line, file); }
inline int __reduce_min_sync(unsigned m, int v, SIMT_LOC) { return (int)(__reduce_min_sync(m, (unsigned)v ^ 1u << 31, line, file) ^ 1u << 31); }
inline int __reduce_max_sync(unsigned m, int v, SIMT_LOC) { return (int)(__reduce_max_sync(m, (unsigned)v ^ 1u << 31, line, file) ^ 1u << 31); }
inline void __threadfence_block() {}
void __threadfence();
#endif  // !__CUDACC__

#if defined(SIMT_IMPL) && !defined(__CUDACC__)
#ifdef __SANITIZE_THREAD__
#error "the SIMT_IMPL TU must not be instrumented"
#endif
#include <immintrin.h>
#include <elf.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
extern __thread unsigned char k_shared[];
alignas(1024) __thread unsigned char k_shared[232448];   // 227 KiB, the sm_90 opt-in maximum
__thread simt::Fiber* simt_cur;
extern "C" void simt_switch(void** from, void* to);
asm(R"(
.text
.p2align 5
.globl simt_switch
.type simt_switch,@function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size simt_switch,.-simt_switch
)");  // pop+jmp and ret measured the same
namespace simt {
int order = 0, os_threads = 0;
bool instr = false;                                   // set by __tsan_init of any instrumented TU
constexpr size_t STK = 64 * 1024;
constexpr unsigned MAXT = 1024;
struct Rv { unsigned mask, arrived; Op op; int line; const char* file; void* arg[32]; };
struct Warp { unsigned ready, alive, epoch; Rv rv[4]; };
// Shadow: one cell per 2 bytes of shared memory. Epochs only grow (per OS thread), so blocks need no reset.
struct Cell { uint32_t we, re; uint16_t wt, rt, ww, rw; };
enum : uint16_t { TID = 0x3ff, PEND = 0x8000, ATOM = 0x4000, MT = 0x8000, MW = 0x4000 };
struct Blk : BlkPub {
  unsigned nthr, nwarp, nready, exited, bar_n; int bar_count, bar_result; int bar_line; const char* bar_file;
  uint32_t epoch = 1, start; bool aborted, ticket, acq; uint32_t launch, id; void* main_sp; const Launch* L; unsigned rnd = 12345;
  Warp warps[32]; Fiber fib[MAXT]; char* stacks = nullptr;
  char *tls = nullptr; std::vector<Cell> shadow;
};
static thread_local Blk* my_blk;
// ---- device heap: 256-byte granules, each owned by at most one allocation, >=256 bytes of red zone between
constexpr size_t ARENA = 16ull << 30;
struct GCell { uint32_t wl, wb, rl, rb; };            // per 2 bytes: launch and block of last write, last read (~0: several)
static char* arena; static size_t arena_top; static uint32_t* gran; static GCell* gsh; static std::atomic<uint32_t> launches;
static std::vector<std::pair<char*, size_t>> allocs; static std::map<size_t, std::vector<char*>> freed; // by granules
void* dev_alloc(size_t n) {
  if (!arena) {
    auto mm = [](size_t s) { return mmap(0, s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); };
    arena = (char*)mm(ARENA); gran = (uint32_t*)mm(ARENA / 256 * 4); gsh = (GCell*)mm(ARENA / 2 * sizeof(GCell)); allocs.emplace_back(nullptr, 0); arena_top = 256;
  }
  size_t g = (n + 255) / 256; auto& again = freed[g]; char* p = arena + arena_top;
  if (!again.empty()) p = again.back(), again.pop_back(); else arena_top += (g + 1) * 256;
  if (arena_top > ARENA) abort();
  for (size_t i = 0; i < g; i++) gran[(p - arena) / 256 + i] = allocs.size();
  allocs.emplace_back(p, n); memset(p, 0xff, (g + 1) * 256);
  return p;
}
void dev_free(void* p) {           // memory of equal size gets it again; until then an access is out of bounds
  size_t at = ((char*)p - arena) / 256, n = allocs[gran[at]].second, g = (n + 255) / 256;
  for (size_t i = 0; i < g; i++) gran[at + i] = 0;
  freed[g].push_back((char*)p);
  if (n >= 1 << 20) for (auto [lo, hi] : {std::pair{(char*)p, (char*)p + n}, std::pair{(char*)(gsh + at * 128), (char*)(gsh + at * 128 + n / 2)}})
    madvise((char*)(((uintptr_t)lo + 4095) & ~4095ull), ((uintptr_t)hi & ~4095ull) - (((uintptr_t)lo + 4095) & ~4095ull), MADV_DONTNEED);
}
bool in_arena(const void* p) { return arena && (uintptr_t)p - (uintptr_t)arena < ARENA; }
void dev_free_all() { freed.clear(); if (arena) { memset(gran, 0, arena_top / 256 * 4); allocs.resize(1); arena_top = 256; } }
// ---- faults
static std::mutex fmx; static std::vector<std::string> faults; static std::map<std::pair<std::string, void*>, int> seen;
static uintptr_t exe_base, img_lo, img_hi;
static std::string where(void* pc) {
  char cmd[256], out[512] = "?";
  snprintf(cmd, sizeof cmd, "addr2line -s -e /proc/%d/exe %#lx", (int)getpid(), (uintptr_t)pc - 1 - exe_base);
  if (FILE* f = popen(cmd, "r")) { if (fgets(out, sizeof out, f)) out[strcspn(out, "\n (")] = 0; pclose(f); }
  return out;
}
static void fault(const char* kind, bool fatal, void* pc, const char* fmt, ...) {
  Fiber* f = simt_cur; simt_cur = nullptr;
  {
    std::lock_guard<std::mutex> l(fmx);
    if (!seen[{kind, pc}]++ || fatal) {
      char m[512], h[160]; va_list ap; va_start(ap, fmt); vsnprintf(m, sizeof m, fmt, ap); va_end(ap);
      if (f) snprintf(h, sizeof h, "block (%u,%u,%u) thread %u", f->b->bid.x, f->b->bid.y, f->b->bid.z, f->lin); else strcpy(h, "host");
      faults.push_back(std::string(kind) + " at " + (pc ? where(pc) : std::string("-")) + " by " + h + ": " + m);
    }
  }
  if (fatal) { if (!f) abort(); f->b->aborted = true; void* junk; simt_switch(&junk, f->b->main_sp); }
  simt_cur = f;
}
std::vector<std::string> take_faults() { std::lock_guard<std::mutex> l(fmx); seen.clear(); return std::move(faults); }
// ---- TLS map: STT_TLS symbols of this executable tell which bytes are `__shared__` objects. 0 gap 1 static 2 runtime 3 dynamic
static std::vector<uint8_t> tmap; static std::vector<std::pair<size_t, size_t>> statics;
static int phdr_cb(dl_phdr_info* i, size_t, void* out) {
  exe_base = i->dlpi_addr; *(char**)out = (char*)i->dlpi_tls_data;
  for (int k = 0; k < i->dlpi_phnum; k++) {
    auto& p = i->dlpi_phdr[k];
    if (p.p_type == PT_TLS) tmap.resize(p.p_memsz);
    if (p.p_type == PT_LOAD) { uintptr_t a = exe_base + p.p_vaddr; if (!img_lo) img_lo = a; img_hi = a + p.p_memsz; }
  }
  return 1;                                            // first entry is the executable
}
static char* tls_base() {
  static std::mutex m; std::lock_guard<std::mutex> l(m);
  char* t; bool first = tmap.empty(); dl_iterate_phdr(phdr_cb, &t);
  if (first) {
    FILE* f = fopen("/proc/self/exe", "rb"); fseek(f, 0, SEEK_END); std::vector<char> e(ftell(f)); rewind(f);
    if (fread(e.data(), 1, e.size(), f) != e.size()) abort();
    fclose(f); auto* eh = (Elf64_Ehdr*)e.data(); auto* sh = (Elf64_Shdr*)(e.data() + eh->e_shoff);
    for (int i = 0; i < eh->e_shnum; i++) if (sh[i].sh_type == SHT_SYMTAB) {
      auto* s = (Elf64_Sym*)(e.data() + sh[i].sh_offset); const char* str = e.data() + sh[sh[i].sh_link].sh_offset;
      for (size_t k = 0; k < sh[i].sh_size / sizeof *s; k++) if (ELF64_ST_TYPE(s[k].st_info) == STT_TLS && s[k].st_size) {
        const char* n = str + s[k].st_name; int kind = !strcmp(n, "k_shared") ? 3 : !strncmp(n, "_ZZ", 3) ? 1 : 2;
        memset(&tmap[s[k].st_value], kind, s[k].st_size);
        if (kind == 1) statics.emplace_back(s[k].st_value, s[k].st_size);
      }
    }
  }
  return t;
}
// ---- checked access
static void shared_access(Fiber* f, uintptr_t off, size_t n, int wr, void* pc) {   // wr: 0 read 1 write 2 atomic 3 cp.async issue 4 cp.async land
  Blk* b = f->b; uint32_t e = b->epoch; uint16_t me = f->lin, we = f->w->epoch;
  for (size_t c = off >> 1; c <= (off + n - 1) >> 1; c++) {
    Cell& s = b->shadow[c]; unsigned wt = s.wt & TID;
    auto other = [&](unsigned t, uint16_t wep) { return t != me && (t >> 5 != me >> 5u || wep == we); };   // unordered?
    if ((s.wt & PEND) && s.we >= b->start && wr != 4) fault("CP_ASYNC_IN_FLIGHT", false, pc, "%s of shared+%#lx before the copy issued by thread %u was waited for", wr ? "write" : "read", c * 2, wt);
    else if (s.we < b->start) { if (wr == 0 || wr == 2) fault("UNINIT_SHARED", false, pc, "read of shared+%#lx never written in this block", c * 2); }
    else if (s.we == e && !(wr == 2 && (s.wt & ATOM)) && wr != 4 && other(wt, s.ww))
      fault("RACE", false, pc, "%s of shared+%#lx after unordered write by thread %u", wr ? "write" : "read", c * 2, wt);
    if (wr == 0) {
      if (s.re != e) { s.re = e; s.rt = me; s.rw = we; }
      else { unsigned o = s.rt & TID; uint16_t fl = s.rt & (MT | MW);
        if (o != me) { if (o >> 5 != me >> 5u) fl |= MW; else if (s.rw == we) fl |= MT; else fl &= ~MT; }
        s.rt = me | fl; s.rw = we; }
    } else {
      unsigned o = s.rt & TID;
      if (s.re == e && s.re >= b->start && wr != 4 && ((s.rt & MW) || (o >> 5 != me >> 5u) || (s.rw == we && ((s.rt & MT) || o != me))))
        fault("RACE", false, pc, "write of shared+%#lx after unordered read by thread %u", c * 2, o);
      s.we = e; s.ww = we; s.wt = me | (wr == 2 ? ATOM : 0) | (wr == 3 ? PEND : 0);
    }
  }
}
static inline void access(const void* p, size_t n, int wr, void* pc) {
  Fiber* f = simt_cur;
  if (!f) return;
  uintptr_t a = (uintptr_t)p;
  if (a - (uintptr_t)f->slo < STK || (!wr && a - (uintptr_t)f->b < sizeof(Blk))) return;   // own stack; threadIdx & co
  uintptr_t o = a - (uintptr_t)f->b->tls;
  if (o < tmap.size()) {
    uint8_t k = tmap[o];
    if (k == 3) {
      size_t d = a - (uintptr_t)k_shared;
      if (d + n > f->b->L->smem) { fault("OOB_SHARED", true, pc, "%s of %zu bytes at dynamic shared offset %zu, launch gave %zu", wr ? "write" : "read", n, d, f->b->L->smem); return; }
    } else if (k == 2) return;
    else if (k == 0 || o + n > tmap.size() || tmap[o + n - 1] != 1) { fault("OOB_SHARED", true, pc, "%s of %zu bytes between static shared objects", wr ? "write" : "read", n); return; }
    shared_access(f, o, n, wr, pc); return;
  }
  o = a - (uintptr_t)arena;
  if (o < ARENA) {
    auto& al = allocs[gran[o >> 8]];
    if (!al.first || p < (void*)al.first || (char*)p + n > al.first + al.second) {
      uint32_t id = 0; for (uintptr_t g = (o >> 8) + 1; g-- > 0 && !id;) id = gran[g];
      fault("OOB_GLOBAL", true, pc, "%s of %zu bytes at offset %ld of a %zu-byte allocation", wr ? "write" : "read", n, (long)((char*)p - allocs[id].first), allocs[id].second);
    }
    if (wr == 2) { f->b->ticket = true; return; }
    for (size_t c = o >> 1, L = f->b->launch, B = f->b->id; c <= (o + n - 1) >> 1; c++) {      // blocks of one launch are unordered
      GCell& g = gsh[c];
      if (g.wl == L && g.wb != B && (wr || !f->b->acq)) fault("RACE_BLOCKS", false, pc, "%s of global memory written by block #%u of the same launch", wr ? "write" : "read", g.wb);
      if (wr && g.rl == L && g.rb != B) fault("RACE_BLOCKS", false, pc, "write of global memory read by block #%d of the same launch", (int)g.rb);
      if (wr) g.wl = L, g.wb = B; else if (g.rl != L) g.rl = L, g.rb = B; else if (g.rb != B) g.rb = ~0u;
    }
    return;
  }
  if (a - (uintptr_t)f->b->L->arg < f->b->L->argsz || a - img_lo < img_hi - img_lo) return;
  fault("WILD", true, pc, "%s of %zu bytes at %p: not device memory", wr ? "write" : "read", n, p);
}
// ---- scheduler
static Fiber* pick(Blk* b, Fiber* f) {
  unsigned wi = f->lin >> 5;
  if (order == 2) {
    if (!b->nready) return nullptr;
    auto rnd = [&](unsigned m) { b->rnd = b->rnd * 1664525u + 1013904223u; unsigned s = b->rnd >> 27; unsigned r = s ? (m >> s) | (m << (32 - s)) : m; return (__builtin_ctz(r) + s) & 31; };
    wi = rnd(b->nready); return &b->fib[wi * 32 + rnd(b->warps[wi].ready)];
  }
  unsigned r = b->warps[wi].ready;
  if (!r) { if (!b->nready) return nullptr; wi = order ? 31 - __builtin_clz(b->nready) : __builtin_ctz(b->nready); r = b->warps[wi].ready; }
  else if (!order) { unsigned hi = r & ~((2u << f->lane) - 1); if (hi) r = hi; }
  return &b->fib[wi * 32 + (order ? 31 - __builtin_clz(r) : __builtin_ctz(r))];
}
static void unready(Fiber* f) { if (!(f->w->ready &= ~(1u << f->lane))) f->b->nready &= ~(1u << (f->lin >> 5)); }
static void deadlock(Blk* b) {
  std::map<std::string, int> at; std::string m;
  for (unsigned i = 0; i < b->nthr; i++) { auto& f = b->fib[i]; if (f.w->alive >> f.lane & 1) at[std::string(f.wop) + " " + f.wfile + ":" + std::to_string(f.wline)]++; }
  for (auto& [k, v] : at) m += std::to_string(v) + " threads wait in " + k + "; ";
  fault("DEADLOCK", true, nullptr, "%s%u exited", m.c_str(), b->exited);
}
static void block_here(Fiber* f, const char* op, int line, const char* file) {
  f->wop = op; f->wfile = file; f->wline = line; unready(f);
  unsigned hi = f->w->ready & ~((2u << f->lane) - 1);
  Fiber* n = hi && !order ? f - f->lane + __builtin_ctz(hi) : pick(f->b, f);
  if (__builtin_expect(!n, 0)) deadlock(f->b);
  simt_cur = n; simt_switch(&f->sp, n->sp);
}
int syncthreads(int pred, int line, const char* file) {
  Fiber* f = simt_cur; Blk* b = f->b;
  if (b->exited) fault("DIVERGENT_BARRIER", true, nullptr, "__syncthreads at %s:%d after %u threads exited", file, line, b->exited);
  if (!b->bar_n) { b->bar_line = line; b->bar_file = file; }
  else if (b->bar_line != line || (b->bar_file != file && strcmp(b->bar_file, file))) fault("DIVERGENT_BARRIER", true, nullptr, "__syncthreads at %s:%d while %u threads wait at %s:%d", file, line, b->bar_n, b->bar_file, b->bar_line);
  b->bar_count += pred != 0;
  if (++b->bar_n < b->nthr) { block_here(f, "__syncthreads", line, file); return b->bar_result; }
  b->bar_result = b->bar_count; b->bar_count = 0; b->bar_n = 0; b->epoch++;
  for (unsigned i = 0; i < b->nwarp; i++) b->warps[i].ready = b->warps[i].alive;
  b->nready = b->nwarp == 32 ? ~0u : (1u << b->nwarp) - 1;
  return b->bar_result;
}
static void fiber_main() {
  { Fiber* f = simt_cur; f->b->L->fn(f->b->L->arg); }
  Fiber* f = simt_cur; Blk* b = f->b;
  if (b->bar_n) fault("DIVERGENT_BARRIER", true, nullptr, "thread exits while %u threads wait in __syncthreads at %s:%d", b->bar_n, b->bar_file, b->bar_line);
  if (!f->cp.empty()) fault("CP_ASYNC_LEFT", false, nullptr, "thread exits with %zu copies never waited for", f->cp.size());
  b->exited++; f->w->alive &= ~(1u << f->lane); unready(f);
  Fiber* n = pick(b, f); void* to;
  if (n) { simt_cur = n; to = n->sp; } else { if (b->exited < b->nthr) deadlock(b); simt_cur = nullptr; to = b->main_sp; }
  void* junk; simt_switch(&junk, to); __builtin_unreachable();
}
static void run_block(const Launch& L, unsigned idx) {
  Blk* b = my_blk;
  if (!b) {
    b = my_blk = new Blk; b->tls = tls_base(); b->stacks = (char*)mmap(0, MAXT * (STK + 4096), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (instr) b->shadow.resize(tmap.size() / 2 + 1);
  }
  b->L = &L; b->grid = L.grid; b->bdim = L.block; b->bid = {idx % L.grid.x, idx / L.grid.x % L.grid.y, idx / L.grid.x / L.grid.y};
  b->nthr = L.block.x * L.block.y * L.block.z; b->nwarp = (b->nthr + 31) / 32; b->exited = b->bar_n = 0; b->bar_count = 0; b->aborted = b->ticket = b->acq = false; b->nready = 0; b->id = idx; b->launch = launches;
  b->start = ++b->epoch;
  memset(k_shared, 0xff, L.smem); for (auto& s : statics) memset(b->tls + s.first, 0xff, s.second);   // NaN-poison
  for (unsigned w = 0; w < b->nwarp; w++) {
    unsigned n = b->nthr - w * 32; b->warps[w].ready = b->warps[w].alive = n >= 32 ? ~0u : (1u << n) - 1; b->warps[w].epoch = 0; b->nready |= 1u << w;
    for (auto& r : b->warps[w].rv) r.arrived = 0;
  }
  for (unsigned i = 0; i < b->nthr; i++) {
    Fiber& f = b->fib[i]; f.tid = {i % L.block.x, i / L.block.x % L.block.y, i / L.block.x / L.block.y}; f.lin = i; f.lane = i & 31; f.w = &b->warps[i >> 5]; f.b = b;
    f.cp.clear(); f.cp_group = 0; f.slo = b->stacks + i * (STK + 320);       // +320: stacks must not alias in L1
    f.slo = (char*)((uintptr_t)f.slo & ~63ull); f.shi = f.slo + STK;
    void** sp = (void**)f.shi; *--sp = nullptr; *--sp = (void*)fiber_main; sp -= 6; f.sp = sp;
  }
  Fiber dummy{}; dummy.lin = 0; dummy.lane = 31; Fiber* n = pick(b, &dummy);
  simt_cur = n; simt_switch(&b->main_sp, n->sp); simt_cur = nullptr;
}
struct Pool {
  std::mutex m; std::condition_variable cv, dn; std::vector<std::thread> t; const Launch* L = nullptr; std::atomic<unsigned> next{0}; unsigned gen = 0, busy = 0; bool stop = false;
  void work(const Launch& l) { unsigned tot = l.grid.x * l.grid.y * l.grid.z, i; while ((i = next++) < tot) run_block(l, i); }
  Pool(int n) { for (int k = 1; k < n; k++) t.emplace_back([this] { unsigned g = 0; std::unique_lock<std::mutex> u(m);
    for (;;) { cv.wait(u, [&] { return stop || gen != g; }); if (stop) return; g = gen; u.unlock(); work(*L); u.lock(); if (!--busy) dn.notify_one(); } }); }
  ~Pool() { { std::lock_guard<std::mutex> l(m); stop = true; } cv.notify_all(); for (auto& x : t) x.join(); }
  void run(const Launch& l) { { std::lock_guard<std::mutex> g(m); L = &l; next = 0; busy = t.size(); gen++; } cv.notify_all(); work(l);
    std::unique_lock<std::mutex> u(m); dn.wait(u, [&] { return !busy; }); }
};
void launch(const Launch& L) {
  static Pool pool(os_threads ? os_threads : (int)std::thread::hardware_concurrency());
  unsigned n = L.block.x * L.block.y * L.block.z;
  if (!n || n > MAXT || L.smem > sizeof k_shared || L.grid.x * L.grid.y * L.grid.z == 0) { fault("BAD_LAUNCH", false, nullptr, "threads %u smem %zu", n, L.smem); return; }
  launches++;
  pool.run(L);
}
// ---- warp collectives: the last lane to arrive computes for all
typedef float v8 __attribute__((vector_size(32)));
static void do_mma(Rv& r, bool bf) {
  alignas(32) uint32_t A[16][8], B[8][8]; alignas(32) v8 Af[16][2], Bf[16], C[16];
  float(*c)[8] = (float(*)[8])C;
  for (int l = 0; l < 32; l++) {
    auto* p = (MmaArg*)r.arg[l]; int g = l >> 2, t = l & 3;
    A[g][t] = p->a[0]; A[g + 8][t] = p->a[1]; A[g][t + 4] = p->a[2]; A[g + 8][t + 4] = p->a[3];
    B[t][g] = p->b[0]; B[t + 4][g] = p->b[1];                                 // pair (k=2t,2t+1), column g
    c[g][2 * t] = p->d[0]; c[g][2 * t + 1] = p->d[1]; c[g + 8][2 * t] = p->d[2]; c[g + 8][2 * t + 1] = p->d[3];
  }
  auto cvt = [bf](__m128i h) { return bf ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)) : _mm256_cvtph_ps(h); };
  for (int i = 0; i < 16; i++) for (int h = 0; h < 2; h++) Af[i][h] = (v8)cvt(_mm_load_si128((__m128i*)&A[i][h * 4]));
  for (int k = 0; k < 8; k++) {
    __m256i x = _mm256_load_si256((__m256i*)B[k]), lo = _mm256_and_si256(x, _mm256_set1_epi32(0xffff)), hi = _mm256_srli_epi32(x, 16);
    auto pk = [](__m256i y) { y = _mm256_permute4x64_epi64(_mm256_packus_epi32(y, y), 0x88); return _mm256_castsi256_si128(y); };
    Bf[2 * k] = (v8)cvt(pk(lo)); Bf[2 * k + 1] = (v8)cvt(pk(hi));
  }
  for (int i = 0; i < 16; i += 4) {
    v8 s[4] = {C[i], C[i + 1], C[i + 2], C[i + 3]};
    for (int k = 0; k < 16; k++) for (int j = 0; j < 4; j++) s[j] = (v8)_mm256_fmadd_ps(_mm256_set1_ps(((float*)Af[i + j])[k]), (__m256)Bf[k], (__m256)s[j]);
    for (int j = 0; j < 4; j++) C[i + j] = s[j];
  }
  for (int l = 0; l < 32; l++) {
    auto* p = (MmaArg*)r.arg[l]; int g = l >> 2, t = l & 3;
    p->d[0] = c[g][2 * t]; p->d[1] = c[g][2 * t + 1]; p->d[2] = c[g + 8][2 * t]; p->d[3] = c[g + 8][2 * t + 1];
  }
}
static void do_ldsm(Rv& r, bool tr) {
  uint16_t m[4][8][8];
  for (int l = 0; l < 32; l++) memcpy(m[l >> 3][l & 7], ((LdsmArg*)r.arg[l])->row, 16);
  for (int l = 0; l < 32; l++) for (int j = 0; j < 4; j++) { int a = l >> 2, b = 2 * (l & 3);
    ((LdsmArg*)r.arg[l])->r[j] = tr ? m[j][b][a] | (uint32_t)m[j][b + 1][a] << 16 : m[j][a][b] | (uint32_t)m[j][a][b + 1] << 16; }
}
static const char* const opname[] = {"shfl", "ballot", "reduce_add", "reduce_min", "reduce_max", "__syncwarp", "ldmatrix", "ldmatrix.trans", "mma.f16", "mma.bf16"};
void collective(Op op, unsigned mask, void* arg, int line, const char* file) {
  Fiber* f = simt_cur; Warp* w = f->w; unsigned bit = 1u << f->lane, full = f->b->nthr - (f->lin & ~31u) >= 32 ? ~0u : (1u << (f->b->nthr & 31)) - 1;
  if (op == SYNCWARP) mask &= full;
  if (!(mask & bit) || (mask & ~w->alive) || (op >= LDSM && mask != ~0u)) fault("BAD_MASK", true, nullptr, "%s mask %#x at %s:%d: lane absent, exited or warp not full", opname[op], mask, file, line);
  if (op == LDSM || op == LDSMT) { const void* p = ((LdsmArg*)arg)->row;
    if ((uintptr_t)p & 15) fault("MISALIGNED", true, nullptr, "ldmatrix row address %p at %s:%d", p, file, line);
    if (instr) access(p, 16, 0, __builtin_return_address(0)); }
  Rv* r = w->rv;
  if (!(r->arrived && r->mask == mask)) { r = nullptr; for (auto& x : w->rv) if (x.arrived && (x.mask & mask)) { r = &x; break; } }
  if (!r) { for (auto& x : w->rv) if (!x.arrived) { r = &x; break; } r->mask = mask; r->op = op; r->line = line; r->file = file; }
  else if (r->mask != mask || r->op != op || r->line != line) fault("DIVERGENT_WARP_OP", true, nullptr, "%s (mask %#x) at %s:%d while lanes %#x are in %s (mask %#x) at %s:%d", opname[op], mask, file, line, r->arrived, opname[r->op], r->mask, r->file, r->line);
  r->arg[f->lane] = arg; r->arrived |= bit;
  if (r->arrived != mask) return block_here(f, opname[op], line, file);
  r->arrived = 0; w->ready |= mask; f->b->nready |= 1u << (f->lin >> 5);
  switch (op) {
    case SHFL: for (unsigned m = mask; m; m &= m - 1) { auto* a = (ShflArg*)r->arg[__builtin_ctz(m)]; int s = a->src;
        if (!(mask >> s & 1)) fault("BAD_MASK", true, nullptr, "shfl from lane %d not in mask %#x at %s:%d", s, mask, file, line);
        a->out = ((ShflArg*)r->arg[s])->v; } break;
    case BALLOT: { unsigned o = 0; for (unsigned m = mask; m; m &= m - 1) { int l = __builtin_ctz(m); if (((BallotArg*)r->arg[l])->pred) o |= 1u << l; }
        for (unsigned m = mask; m; m &= m - 1) ((BallotArg*)r->arg[__builtin_ctz(m)])->out = o; } break;
    case REDUCE_ADD: case REDUCE_MIN: case REDUCE_MAX: {
        unsigned o = op == REDUCE_MIN ? ~0u : 0; for (unsigned m = mask; m; m &= m - 1) { unsigned v = ((ReduceArg*)r->arg[__builtin_ctz(m)])->v; o = op == REDUCE_ADD ? o + v : op == REDUCE_MIN ? ::min(o, v) : ::max(o, v); }
        for (unsigned m = mask; m; m &= m - 1) ((ReduceArg*)r->arg[__builtin_ctz(m)])->out = o; } break;
    case SYNCWARP: w->epoch++; break;
    case LDSM: do_ldsm(*r, false); break;
    case LDSMT: do_ldsm(*r, true); break;
    case MMA_F16: do_mma(*r, false); break;
    case MMA_BF16: do_mma(*r, true); break;
  }
}
// ---- cp.async: destination is NaN-poisoned at issue, the bytes land only in wait_group
void cp_async(void* dst, const void* src, unsigned n, void* pc) {
  if (((uintptr_t)dst | (uintptr_t)src) & 15) fault("MISALIGNED", true, pc, "cp.async 16: dst %p src %p", dst, src);
  if (instr) { access(dst, 16, 3, pc); if (n) access(src, n, 0, pc); }
  memset(dst, 0xff, 16); simt_cur->cp.push_back({dst, src, n, simt_cur->cp_group});
}
void cp_commit() { simt_cur->cp_group++; }
void cp_wait(unsigned keep, bool all) {
  Fiber* f = simt_cur; size_t i = 0;
  for (; i < f->cp.size() && (all || f->cp[i].group + keep < f->cp_group); i++) {
    auto& c = f->cp[i]; memset((char*)c.dst + c.n, 0, 16 - c.n); memcpy(c.dst, c.src, c.n);
    if (instr) shared_access(f, (char*)c.dst - f->b->tls, 16, 4, nullptr);
  }
  f->cp.erase(f->cp.begin(), f->cp.begin() + i);
}
template <class T> static inline T cas(T* p, T e, T d, void* pc) {
  if ((uintptr_t)p % sizeof(T)) fault("MISALIGNED", true, pc, "atomic of %zu bytes at %p", sizeof(T), (void*)p);
  if (instr) access(p, sizeof(T), 2, pc);
  __atomic_compare_exchange(p, &e, &d, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); return e;
}
unsigned compare_and_swap(unsigned* p, unsigned e, unsigned d) { return cas(p, e, d, __builtin_return_address(0)); }
unsigned long long compare_and_swap(unsigned long long* p, unsigned long long e, unsigned long long d) { return cas(p, e, d, __builtin_return_address(0)); }
unsigned active_mask() { return simt_cur->w->alive; }
}  // namespace simt
// atomic then fence = acquire: the block may read what other blocks released ("last block merges")
void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); if (simt_cur && simt_cur->b->ticket) simt_cur->b->acq = true; }
#define SIMT_RA __builtin_return_address(0)
// ---- our own sanitizer runtime: g++ -fsanitize=thread,alignment,bounds emits these calls; libtsan/libubsan are not linked
extern "C" {
void __tsan_init() { simt::instr = true; }
void __tsan_func_entry(void*) {} void __tsan_func_exit() {}
#define SIMT_H(n) void __tsan_read##n(void* p) { simt::access(p, n, 0, SIMT_RA); } void __tsan_write##n(void* p) { simt::access(p, n, 1, SIMT_RA); } \
  void __tsan_volatile_read##n(void* p) { simt::access(p, n, 0, SIMT_RA); } void __tsan_volatile_write##n(void* p) { simt::access(p, n, 1, SIMT_RA); }
SIMT_H(1) SIMT_H(2) SIMT_H(4) SIMT_H(8) SIMT_H(16)
void __tsan_read_range(void* p, size_t n) { simt::access(p, n, 0, SIMT_RA); }
void __tsan_write_range(void* p, size_t n) { simt::access(p, n, 1, SIMT_RA); }
void __tsan_vptr_update(void*, void*) {}
void __ubsan_handle_type_mismatch_v1(void* d, uintptr_t p) {
  struct D { const char* file; unsigned line, col; void* ty; uint8_t la; }* x = (D*)d;
  simt::fault("MISALIGNED", true, SIMT_RA, "%s:%u: address %#lx needs %u-byte alignment", x->file, x->line, p, 1u << x->la);
}
void __ubsan_handle_out_of_bounds(void* d, uintptr_t i) {
  struct D { const char* file; unsigned line, col; }* x = (D*)d;
  simt::fault("OOB_INDEX", true, SIMT_RA, "%s:%u: index %ld out of the array's bounds", x->file, x->line, (long)i);
}
}
#endif
