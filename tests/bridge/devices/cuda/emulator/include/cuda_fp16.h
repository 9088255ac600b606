// SPDX-License-Identifier: Apache-2.0
// The halves of cuda_fp16.h and cuda_bf16.h: rounded to nearest even after each operation, as the hardware does.
#pragma once
#include "emulator.h"

namespace emulator {

struct Float16 {
  static uint16_t round(float x) { return uint16_t(bits_of(_Float16(x))); }
  static float widen(uint16_t b) { return float(of_bits<_Float16>(b)); }
};
struct BFloat16 {
  static uint16_t round(float x) {
    uint32_t b = uint32_t(bits_of(x));
    if (x != x) return uint16_t((b >> 16) | 0x40);
    return uint16_t((b + 0x7FFF + ((b >> 16) & 1)) >> 16);
  }
  static float widen(uint16_t b) { return of_bits<float>(uint32_t(b) << 16); }
};

template <class Format>
struct Half {
  uint16_t bits;
  Half() = default;
  Half(float x) : bits(Format::round(x)) {}
  Half(double x) : bits(Format::round(float(x))) {}
  Half(int x) : bits(Format::round(float(x))) {}
  Half(unsigned x) : bits(Format::round(float(x))) {}
  Half(long x) : bits(Format::round(float(x))) {}
  Half(long long x) : bits(Format::round(float(x))) {}
  Half(bool x) : bits(Format::round(float(x))) {}
  operator float() const { return Format::widen(bits); }
  friend Half operator+(Half a, Half b) { return Half(float(a) + float(b)); }
  friend Half operator-(Half a, Half b) { return Half(float(a) - float(b)); }
  friend Half operator*(Half a, Half b) { return Half(float(a) * float(b)); }
  friend Half operator/(Half a, Half b) { return Half(float(a) / float(b)); }
  friend Half operator-(Half a) { return Half(-float(a)); }
  friend bool operator<(Half a, Half b) { return float(a) < float(b); }
  friend bool operator>(Half a, Half b) { return float(a) > float(b); }
  friend bool operator<=(Half a, Half b) { return float(a) <= float(b); }
  friend bool operator>=(Half a, Half b) { return float(a) >= float(b); }
  friend bool operator==(Half a, Half b) { return float(a) == float(b); }
  friend bool operator!=(Half a, Half b) { return float(a) != float(b); }
};

}  // namespace emulator

using half = emulator::Half<emulator::Float16>;
using nv_bfloat16 = emulator::Half<emulator::BFloat16>;
using __half = half;
using __nv_bfloat16 = nv_bfloat16;
struct half2 { half x, y; };
struct nv_bfloat162 { nv_bfloat16 x, y; nv_bfloat162() = default; nv_bfloat162(nv_bfloat16 a, nv_bfloat16 b) : x(a), y(b) {} };
using __half2 = half2;
inline float __half2float(half x) { return float(x); }
inline half __float2half(float x) { return half(x); }
inline half __float2half_rn(float x) { return half(x); }
inline float __bfloat162float(nv_bfloat16 x) { return float(x); }
inline nv_bfloat16 __float2bfloat16(float x) { return nv_bfloat16(x); }
inline nv_bfloat16 __float2bfloat16_rn(float x) { return nv_bfloat16(x); }
#define EMULATOR_HALF(T) \
  inline bool __hgt(T a, T b) { return float(a) > float(b); } \
  inline bool __hlt(T a, T b) { return float(a) < float(b); } \
  inline T __habs(T a) { return T(std::fabs(float(a))); } \
  inline T hexp(T a) { return T(std::exp(float(a))); } \
  inline T hlog(T a) { return T(std::log(float(a))); } \
  inline T hsqrt(T a) { return T(std::sqrt(float(a))); } \
  inline T hrsqrt(T a) { return T(float(1.0 / std::sqrt(double(float(a))))); } \
  inline T htanh(T a) { return T(std::tanh(float(a))); } \
  inline T hsin(T a) { return T(std::sin(float(a))); } \
  inline T hcos(T a) { return T(std::cos(float(a))); } \
  inline T hfloor(T a) { return T(std::floor(float(a))); } \
  inline T hceil(T a) { return T(std::ceil(float(a))); } \
  inline T htrunc(T a) { return T(std::trunc(float(a))); } \
  inline T hrint(T a) { return T(std::nearbyint(float(a))); }
EMULATOR_HALF(half)
EMULATOR_HALF(nv_bfloat16)
