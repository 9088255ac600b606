// SPDX-License-Identifier: Apache-2.0
// What CUDA source means on a processor: blocks one after the other, the threads of a block as fibers, and every access
// to memory checked. The source is TVM's, rewritten by source.py so that pointers and shared arrays have the types here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

struct uint3 { unsigned x, y, z; };

extern "C" {
extern uint3 threadIdx, blockIdx, blockDim, gridDim;
}

namespace emulator {

// ---- what a launch knows ----

// One element of memory in one launch: who wrote it and who read it, by number of thread in the grid, from 1 on.
struct Cell {
  uint32_t writer, written_in;  // the epoch: barriers that the writer had passed
  uint32_t reader, read_in;
};
constexpr uint32_t MANY_IN_BLOCK = 0xFFFFFFFEu, MANY_BLOCKS = 0xFFFFFFFFu, ATOMIC = 0xFFFFFFFDu;

struct Region {
  char* data;
  int64_t count;        // elements
  Cell* cells;          // one an element; null: not watched
  const char* name;  // of the kernel's argument or shared array
  uint32_t reader_block;  // of MANY_IN_BLOCK
  bool is_shared;
};

struct Launch {
  uint32_t thread;   // of the running thread, in the grid, from 1 on
  uint32_t block;    // of the running thread, in the grid, from 0 on
  uint32_t threads;  // in a block
  uint32_t epoch;    // barriers that the running thread has passed
  bool watch;
};

extern "C" {
extern Launch emulator_now;
[[noreturn]] void emulator_fail(const char* kind, const char* what, const char* where, int64_t index, int64_t count);
void emulator_barrier(int site);
uint32_t emulator_active(int site);
// Gives the lane's value, takes that of another lane: `from` counts in the warp.
uint64_t emulator_shuffle(int site, uint32_t mask, uint64_t value, int from);
Region* emulator_region(void* data, int64_t element_size, const char* name);
void emulator_register(void* data, int64_t bytes);
void* emulator_workspace(int64_t bytes);
int emulator_free_workspace(void* data);
int emulator_launch(const char* name, int most_threads, bool has_barriers, const int64_t* dims,
                    void (*prepare)(void*), void* prepared, void (*run)(void*), void* closure);
bool emulator_is_watching();
}

inline uint32_t block_of(uint32_t thread) { return (thread - 1) / emulator_now.threads; }

inline void race(const Region* r, int64_t i, const char* what) { emulator_fail("race", what, r->name, i, r->count); }

inline void read(Region* r, int64_t i) {
  if (__builtin_expect(i < 0 || i >= r->count, 0)) emulator_fail("out of bounds", "read", r->name, i, r->count);
  if (!r->cells) return;
  Cell& c = r->cells[i];
  const Launch& now = emulator_now;
  if (r->is_shared && c.writer == 0) emulator_fail("uninitialised", "read", r->name, i, r->count);
  if (c.writer && c.writer != now.thread) {
    if (c.writer == ATOMIC || block_of(c.writer) != now.block || c.written_in == now.epoch)
      race(r, i, "read of what another thread writes");
  }
  if (c.reader == 0) { c.reader = now.thread; c.read_in = now.epoch; return; }
  if (c.reader == MANY_BLOCKS || c.reader == now.thread) { if (c.reader == now.thread) c.read_in = now.epoch; return; }
  const uint32_t block = c.reader == MANY_IN_BLOCK ? r->reader_block : block_of(c.reader);
  if (block != now.block) { c.reader = MANY_BLOCKS; return; }
  if (c.read_in == now.epoch) { c.reader = MANY_IN_BLOCK; r->reader_block = now.block; }
  else { c.reader = now.thread; c.read_in = now.epoch; }
}

inline void write(Region* r, int64_t i) {
  if (__builtin_expect(i < 0 || i >= r->count, 0)) emulator_fail("out of bounds", "write", r->name, i, r->count);
  if (!r->cells) return;
  Cell& c = r->cells[i];
  const Launch& now = emulator_now;
  if (c.writer && c.writer != now.thread) {
    if (c.writer == ATOMIC || block_of(c.writer) != now.block || c.written_in == now.epoch)
      race(r, i, "write of what another thread writes");
  }
  if (c.reader && c.reader != now.thread) {
    if (c.reader == MANY_BLOCKS) race(r, i, "write of what other blocks read");
    else if (c.reader == MANY_IN_BLOCK) {
      if (c.read_in == now.epoch) race(r, i, "write of what another thread reads");
    } else if (block_of(c.reader) != now.block || c.read_in == now.epoch) {
      race(r, i, "write of what another thread reads");
    }
  }
  c.writer = now.thread;
  c.written_in = now.epoch;
}

// ---- memory ----

template <class T>
struct Ref {
  Region* r;
  int64_t i;
  operator T() const {
    read(r, i);
    T value;
    std::memcpy(&value, r->data + i * int64_t(sizeof(T)), sizeof(T));
    return value;
  }
  template <class U, class = std::enable_if_t<std::is_arithmetic<U>::value && !std::is_same<U, T>::value>>
  explicit operator U() const { return U(T(*this)); }
  const Ref& operator=(T value) const {
    write(r, i);
    std::memcpy(r->data + i * int64_t(sizeof(T)), &value, sizeof(T));
    return *this;
  }
  const Ref& operator=(const Ref& other) const { return *this = T(other); }
  template <class U> const Ref& operator+=(U value) const { return *this = T(T(*this) + value); }
  const T* operator&() const { read(r, i); return reinterpret_cast<const T*>(r->data) + i; }
};

template <class T>
struct Ptr {
  Region* r;
  int64_t offset;
  template <class I> Ref<T> operator[](I i) const { return {r, offset + int64_t(i)}; }
  template <class I> Ptr operator+(I i) const { return {r, offset + int64_t(i)}; }
  Ref<T> operator*() const { return {r, offset}; }
};

// An array of a block: what a thread has not written there, no thread may read.
template <class T, int64_t N>
struct Shared {
  T values[N];
  Cell cells[N];
  Region region;
  uint32_t block;
  int64_t launch;
  explicit Shared(const char* name) : region{reinterpret_cast<char*>(values), N, cells, name, 0, true}, block(0), launch(-1) {}
  Region* now();
  template <class I> Ref<T> operator[](I i) { return {now(), int64_t(i)}; }
  template <class I> Ptr<T> operator+(I i) { return {now(), int64_t(i)}; }
};

extern "C" { extern int64_t emulator_launches; }

template <class T, int64_t N>
Region* Shared<T, N>::now() {
  if (launch != emulator_launches || block != emulator_now.block) {
    std::memset(cells, 0, sizeof cells);
    std::memset(values, 0x7F, sizeof values);
    launch = emulator_launches;
    block = emulator_now.block;
  }
  return &region;
}

// The same memory as elements of another type of the same size, as TVM has arrays share it.
template <class U, class T> Ptr<U> as(Ptr<T> p) {
  static_assert(sizeof(U) == sizeof(T), "elements of another size");
  return {p.r, p.offset};
}
template <class U, class T, int64_t N> Ptr<U> as(Shared<T, N>& array) { return as<U>(array + 0); }

// An array of one thread.
template <class T, int64_t N>
struct Local {
  T values[N];
  T& operator[](int64_t i) {
    if (i < 0 || i >= N) emulator_fail("out of bounds", "use", "a local array", i, N);
    return values[i];
  }
};

// Several elements at once, where they are aligned for it.
template <class V, class T>
struct Wide {
  Region* r;
  int64_t i;
  static constexpr int64_t N = sizeof(V) / sizeof(T);
  void check() const {
    if (reinterpret_cast<uintptr_t>(r->data + i * int64_t(sizeof(T))) % sizeof(V))
      emulator_fail("misaligned", "access of several elements", r->name, i, r->count);
  }
  operator V() const {
    check();
    for (int64_t k = 0; k < N; ++k) read(r, i + k);
    V value;
    std::memcpy(static_cast<void*>(&value), r->data + i * int64_t(sizeof(T)), sizeof(V));
    return value;
  }
  const Wide& operator=(const V& value) const {
    check();
    for (int64_t k = 0; k < N; ++k) write(r, i + k);
    std::memcpy(r->data + i * int64_t(sizeof(T)), static_cast<const void*>(&value), sizeof(V));
    return *this;
  }
  const Wide& operator=(const Wide& other) const { return *this = V(other); }
};
template <class V, class T> Wide<V, T> at(Ptr<T> p) { return {p.r, p.offset}; }

// ---- a kernel called through TVM's calling convention ----

struct Any { int32_t type; uint32_t size; union { int64_t number; double real; void* pointer; }; };
constexpr int TENSOR = 70, DL_TENSOR = 7, TENSOR_OFFSET = 24;

// DLPack's tensor.
struct Tensor {
  void* data;
  struct { int32_t type, id; } device;
  int32_t rank;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t offset;
};
inline void register_tensors(const Any* args, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    if (args[i].type != TENSOR && args[i].type != DL_TENSOR) continue;
    const auto* t = reinterpret_cast<const Tensor*>(static_cast<char*>(args[i].pointer) + (args[i].type == TENSOR ? TENSOR_OFFSET : 0));
    int64_t bytes = (t->dtype.bits * t->dtype.lanes + 7) / 8;
    for (int32_t d = 0; d < t->rank; ++d) bytes *= t->shape[d];
    if (t->data) emulator_register(static_cast<char*>(t->data) + t->offset, bytes);
  }
}

template <class T> Ptr<T> pointer(const Any& value, const char* name) {
  return {emulator_region(value.type ? value.pointer : nullptr, sizeof(T), name), 0};
}
template <class T> T number(const Any& value) {
  if constexpr (std::is_floating_point<T>::value) return T(value.type == 3 ? value.real : double(value.number));
  else return T(value.number);
}
template <class F> void call(void* f) { (*static_cast<F*>(f))(); }
// `prepare` looks the arguments up, `body` is one thread.
template <class P, class F>
int launch(const char* name, int most_threads, bool has_barriers, const int64_t* dims, P prepare, F body) {
  return emulator_launch(name, most_threads, has_barriers, dims, call<P>, &prepare, call<F>, &body);
}

template <class T> uint64_t bits_of(T v) { uint64_t b = 0; std::memcpy(&b, &v, sizeof(T)); return b; }
template <class T> T of_bits(uint64_t b) { T v; std::memcpy(static_cast<void*>(&v), &b, sizeof(T)); return v; }

template <class T> T shuffle(int site, uint32_t mask, T value, int from, int width) {
  static_assert(sizeof(T) <= 8, "a shuffle of more than 8 bytes");
  const int lane = int(emulator_now.thread - 1) % int(emulator_now.threads) % 32;
  const int first = lane / width * width;
  if (from < first || from >= first + width) from = lane;  // the lane keeps its own value
  return of_bits<T>(emulator_shuffle(site, mask, bits_of(value), from));
}

inline int lane() { return int(emulator_now.thread - 1) % int(emulator_now.threads) % 32; }

template <class T> T atomic_add(Ref<T> place, T value) {
  Region* r = place.r;
  if (place.i < 0 || place.i >= r->count) emulator_fail("out of bounds", "atomic", r->name, place.i, r->count);
  if (r->cells) {
    Cell& c = r->cells[place.i];
    if (c.writer && c.writer != ATOMIC && c.writer != emulator_now.thread) race(r, place.i, "atomic on what another thread writes");
    c.writer = ATOMIC;
  }
  T before;
  char* data = r->data + place.i * int64_t(sizeof(T));
  std::memcpy(&before, data, sizeof(T));
  T after = T(before + value);
  std::memcpy(data, &after, sizeof(T));
  return before;
}

}  // namespace emulator

// ---- CUDA's words ----

#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __syncthreads() emulator::emulator_barrier(__LINE__)
#define __activemask() emulator::emulator_active(__LINE__)
#define __shfl_sync(mask, v, from, width) \
  emulator::shuffle(__LINE__, mask, v, emulator::lane() / (width) * (width) + (from) % (width), width)
#define __shfl_down_sync(mask, v, by, width) emulator::shuffle(__LINE__, mask, v, emulator::lane() + int(by), width)
#define __shfl_up_sync(mask, v, by, width) emulator::shuffle(__LINE__, mask, v, emulator::lane() - int(by), width)
#define __shfl_xor_sync(mask, v, by, width) emulator::shuffle(__LINE__, mask, v, emulator::lane() ^ int(by), width)

struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct double2 { double x, y; };
struct longlong2 { long long x, y; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct ushort2 { unsigned short x, y; };
struct ushort4 { unsigned short x, y, z, w; };
struct uchar4 { unsigned char x, y, z, w; };
struct char4 { signed char x, y, z, w; };
inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }

#define EMULATOR_EXTREMES(T) \
  inline T max(T a, T b) { return a > b ? a : b; } \
  inline T min(T a, T b) { return a < b ? a : b; }
EMULATOR_EXTREMES(int)
EMULATOR_EXTREMES(unsigned)
EMULATOR_EXTREMES(long)
EMULATOR_EXTREMES(unsigned long)
EMULATOR_EXTREMES(long long)
EMULATOR_EXTREMES(unsigned long long)
// CUDA's take the other number where one is NaN
inline float max(float a, float b) { return std::fmax(a, b); }
inline float min(float a, float b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline float rsqrtf(float x) { return float(1.0 / std::sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline double __longlong_as_double(long long x) { return emulator::of_bits<double>(uint64_t(x)); }
inline long long __double_as_longlong(double x) { return int64_t(emulator::bits_of(x)); }
inline float __int_as_float(int x) { return emulator::of_bits<float>(uint32_t(x)); }
inline float __uint_as_float(unsigned x) { return emulator::of_bits<float>(x); }
inline int __float_as_int(float x) { return int(emulator::bits_of(x)); }
inline unsigned __float_as_uint(float x) { return unsigned(emulator::bits_of(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline void __trap() { emulator::emulator_fail("assert", "a check", "the kernel", 0, 0); }
