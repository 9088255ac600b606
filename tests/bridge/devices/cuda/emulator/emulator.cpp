// SPDX-License-Identifier: Apache-2.0
// Launches, fibers, barriers and shuffles: see include/emulator.h. One launch at a time in a process.
#include "emulator.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

extern "C" void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);

using emulator::Cell;
using emulator::Launch;
using emulator::Region;

extern "C" {
uint3 threadIdx, blockIdx, blockDim, gridDim;
}
namespace emulator {
extern "C" {
Launch emulator_now;
int64_t emulator_launches = 0;
}
}  // namespace emulator
using emulator::emulator_launches;
using emulator::emulator_now;

namespace {

// ---- contexts: swapcontext asks the kernel for the signal mask twice a switch, which is most of its time ----

#ifdef __x86_64__
struct Context { void* stack_pointer; };

extern "C" void emulator_switch(void** from, void* to);
asm(R"(
.text
emulator_switch:
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
  ret
)");

void make(Context& c, char* stack, size_t size, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t(15));
  *--top = nullptr;  // where `entry`, which does not return, would return to
  *--top = reinterpret_cast<void*>(entry);
  for (int k = 0; k < 6; ++k) *--top = nullptr;
  c.stack_pointer = top;
}
void go(Context& from, Context& to) { emulator_switch(&from.stack_pointer, to.stack_pointer); }
#else
using Context = ucontext_t;
void make(Context& c, char* stack, size_t size, void (*entry)()) {
  getcontext(&c);
  c.uc_stack.ss_sp = stack;
  c.uc_stack.ss_size = size;
  c.uc_link = nullptr;
  makecontext(&c, entry, 0);
}
void go(Context& from, Context& to) { swapcontext(&from, &to); }
#endif

constexpr size_t STACK = 64 * 1024;
constexpr int MOST_THREADS = 1024;
constexpr uint64_t POISON = 0x7FF8DEAD7FC0DEADull;  // a NaN in float32 and in float64

std::mutex launching;
std::map<char*, int64_t> sizes;  // of the tensors that a kernel may be given, in bytes
std::map<char*, std::unique_ptr<char[]>> workspaces;

struct Watched { std::vector<Cell> cells; int64_t element_size; };
std::map<char*, Watched> watched;               // in this launch
std::vector<std::unique_ptr<Region>> regions;  // of this launch

enum class State { READY, BARRIER, ACTIVE, SHUFFLE, DONE };
struct Fiber {
  Context context;
  State state;
  int site;
  uint32_t mask;
  uint64_t value;
  int from;
  uint64_t result;
  uint32_t epoch;
};

struct Running {
  const char* kernel;
  void (*run)(void*);
  void* closure;
  bool has_fibers;
  Context scheduler;
  jmp_buf abandoned;
};
Running running;
Fiber fibers[MOST_THREADS];
char* stacks = nullptr;
int current = 0;
std::string message;

const bool watching = [] {
  const char* value = std::getenv("RELAXGRAD_EMULATOR_RACES");
  return value == nullptr || std::string(value) != "0";
}();

void set_thread(int t, uint32_t epoch) {
  current = t;
  threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
  emulator_now.thread = emulator_now.block * emulator_now.threads + uint32_t(t) + 1;
  emulator_now.epoch = epoch;
}

void entry() {
  running.run(running.closure);
  fibers[current].state = State::DONE;
  go(fibers[current].context, running.scheduler);
}

void wait_as(State state, int site) {
  Fiber& f = fibers[current];
  f.state = state;
  f.site = site;
  go(f.context, running.scheduler);
}

// Has the lanes of one warp go on that wait for each other; whether there were any.
bool release_warp(int first, int end) {
  int active = -1, shuffle = -1;
  for (int t = first; t < end; ++t) {
    if (fibers[t].state == State::READY) return false;
    if (fibers[t].state == State::ACTIVE && active < 0) active = t;
    if (fibers[t].state == State::SHUFFLE && shuffle < 0) shuffle = t;
  }
  if (active >= 0) {
    const int site = fibers[active].site;
    uint32_t mask = 0;
    for (int t = first; t < end; ++t)
      if (fibers[t].state == State::ACTIVE && fibers[t].site == site) mask |= 1u << (t - first);
    for (int t = first; t < end; ++t)
      if (mask >> (t - first) & 1) { fibers[t].result = mask; fibers[t].state = State::READY; }
    return true;
  }
  if (shuffle < 0) return false;
  const uint32_t mask = fibers[shuffle].mask;
  const int site = fibers[shuffle].site;
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    const int t = first + lane;
    if (t >= end || fibers[t].state != State::SHUFFLE || fibers[t].site != site || fibers[t].mask != mask)
      emulator::emulator_fail("divergent", "a shuffle names a lane that does not take part", running.kernel, t, end);
  }
  for (int t = first; t < end; ++t) {
    if (!(mask >> (t - first) & 1)) continue;
    const int from = fibers[t].from;
    const bool is_given = from >= 0 && from < 32 && first + from < end && (mask >> from & 1);
    fibers[t].result = is_given ? fibers[first + from].value : POISON;
  }
  for (int t = first; t < end; ++t)
    if (mask >> (t - first) & 1) fibers[t].state = State::READY;
  return true;
}

void run_block(int threads) {
  if (!running.has_fibers) {
    for (int t = 0; t < threads; ++t) {
      set_thread(t, 0);
      running.run(running.closure);
    }
    return;
  }
  if (stacks == nullptr)
    stacks = static_cast<char*>(
        mmap(nullptr, STACK * MOST_THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  for (int t = 0; t < threads; ++t) {
    Fiber& f = fibers[t];
    make(f.context, stacks + STACK * t, STACK, entry);
    f.state = State::READY;
    f.epoch = 0;
  }
  for (;;) {
    int done = 0, at_barrier = 0;
    for (int t = 0; t < threads; ++t) {
      Fiber& f = fibers[t];
      if (f.state == State::READY) {
        set_thread(t, f.epoch);
        go(running.scheduler, f.context);
      }
      done += f.state == State::DONE;
      at_barrier += f.state == State::BARRIER;
    }
    if (done == threads) return;
    bool released = false;
    for (int first = 0; first < threads; first += 32)
      released |= release_warp(first, first + 32 < threads ? first + 32 : threads);
    if (released) continue;
    if (at_barrier != threads)
      emulator::emulator_fail("divergent", "a barrier that not every thread of the block reaches", running.kernel, at_barrier, threads);
    for (int t = 1; t < threads; ++t)
      if (fibers[t].site != fibers[0].site)
        emulator::emulator_fail("divergent", "threads of a block wait at different barriers", running.kernel, t, threads);
    for (int t = 0; t < threads; ++t) {
      fibers[t].state = State::READY;
      ++fibers[t].epoch;
    }
  }
}

}  // namespace

namespace emulator {
extern "C" {

void emulator_fail(const char* kind, const char* what, const char* where, int64_t index, int64_t count) {
  char text[512];
  std::snprintf(text, sizeof text,
                "%s: %s of %s[%lld] (it has %lld) in kernel %s by thread (%u, %u, %u) of block (%u, %u, %u)", kind, what, where,
                static_cast<long long>(index), static_cast<long long>(count), running.kernel ? running.kernel : "none",
                threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z);
  message = text;
  // the thread, and every other one of the launch, is abandoned where it is: kernels own nothing
  longjmp(running.abandoned, 1);
}

void emulator_barrier(int site) { wait_as(State::BARRIER, site); }

uint32_t emulator_active(int site) {
  wait_as(State::ACTIVE, site);
  return uint32_t(fibers[current].result);
}

uint64_t emulator_shuffle(int site, uint32_t mask, uint64_t value, int from) {
  Fiber& f = fibers[current];
  f.mask = mask;
  f.value = value;
  f.from = from;
  wait_as(State::SHUFFLE, site);
  return fibers[current].result;
}

const char* emulator_message() { return message.c_str(); }

void emulator_register(void* data, int64_t bytes) {
  std::lock_guard<std::mutex> lock(launching);
  if (data != nullptr) sizes[static_cast<char*>(data)] = bytes;
}

void* emulator_workspace(int64_t bytes) {
  std::unique_ptr<char[]> memory(new char[bytes + 64]);
  std::memset(memory.get(), 0x7F, bytes + 64);
  char* start = memory.get();
  start += (64 - reinterpret_cast<uintptr_t>(start) % 64) % 64;
  emulator_register(start, bytes);
  std::lock_guard<std::mutex> lock(launching);
  workspaces[start] = std::move(memory);
  return start;
}

int emulator_free_workspace(void* data) {
  std::lock_guard<std::mutex> lock(launching);
  sizes.erase(static_cast<char*>(data));
  workspaces.erase(static_cast<char*>(data));
  return 0;
}

// To be called within a launch.
Region* emulator_region(void* data, int64_t element_size, const char* name) {
  char* start = static_cast<char*>(data);
  auto region = std::make_unique<Region>(Region{start, 0, nullptr, name, 0, false});
  if (start != nullptr) {
    auto found = sizes.find(start);
    if (found == sizes.end()) emulator_fail("unknown pointer", "argument", name, 0, 0);
    region->count = found->second / element_size;
    if (watching) {
      Watched& w = watched[start];
      if (w.element_size == 0) { w.element_size = element_size; w.cells.resize(size_t(region->count)); }
      if (w.element_size == element_size) region->cells = w.cells.data();
    }
  }
  regions.push_back(std::move(region));
  return regions.back().get();
}

int emulator_launch(const char* name, int most_threads, bool has_barriers, const int64_t* dims, void (*prepare)(void*), void* prepared, void (*run)(void*), void* closure) {
  std::lock_guard<std::mutex> lock(launching);
  ++emulator_launches;
  running.kernel = name;
  running.run = run;
  running.closure = closure;
  running.has_fibers = has_barriers;
  const auto finish = [](int code) {
    watched.clear();
    regions.clear();
    if (code != 0) TVMFFIErrorSetRaisedFromCStr("RuntimeError", message.c_str());
    return code;
  };
  threadIdx = blockIdx = {0, 0, 0};
  if (setjmp(running.abandoned)) return finish(-1);
  const int64_t threads = dims[3] * dims[4] * dims[5];
  for (int k = 0; k < 6; ++k)
    if (dims[k] < 1) emulator_fail("launch", "a grid or block of no size", name, k, dims[k]);
  if (dims[0] > 0x7FFFFFFF || dims[1] > 65535 || dims[2] > 65535) emulator_fail("launch", "too many blocks", name, 0, dims[0]);
  if (threads > MOST_THREADS || dims[5] > 64) emulator_fail("launch", "too many threads in a block", name, threads, MOST_THREADS);
  if (most_threads > 0 && threads > most_threads) emulator_fail("launch", "more threads than the kernel was compiled for", name, threads, most_threads);
  if (dims[0] * dims[1] * dims[2] * threads >= 0xFFFFFF00ll) emulator_fail("launch", "too many threads for the emulator", name, threads, 0);
  gridDim = {unsigned(dims[0]), unsigned(dims[1]), unsigned(dims[2])};
  blockDim = {unsigned(dims[3]), unsigned(dims[4]), unsigned(dims[5])};
  emulator_now = {1, 0, uint32_t(threads), 0, watching};
  prepare(prepared);
  uint32_t block = 0;
  for (unsigned z = 0; z < gridDim.z; ++z)
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        emulator_now.block = block++;
        run_block(int(threads));
      }
  return finish(0);
}

}  // extern "C"
}  // namespace emulator
