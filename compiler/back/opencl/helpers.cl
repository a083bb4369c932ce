// SPDX-License-Identifier: Apache-2.0
// What programs call, in OpenCL C. A text stands behind a line with its name and the name of another one that it needs,
// and ends at an empty line; what stands in front of that line is not part of a program. Texts for other address spaces
// are made of those for __global.

// Accesses of all types reach the same bytes.
//# prelude
#ifdef __has_attribute
#if __has_attribute(may_alias)
#define ANY __attribute__((may_alias))
#endif
#endif
#ifndef ANY
#define ANY
#endif
typedef ushort ANY u16;
typedef uint ANY u32;
typedef ulong ANY u64;
typedef uint4 ANY u128;
// NVIDIA's compiler takes constants out of a 32-bit sum that wraps where the sum, extended, is a pointer's offset.
#ifdef __NV_CL_C_VERSION
#define AT(space, base, offset) ((space uchar*)((ulong)(base) + (offset)))
#else
#define AT(space, base, offset) ((base) + (offset))
#endif

//# record_trap
// The first instance that traps fills in the launch's record.
#define HERE traps, trap_index, x, y, z
void record_trap(__global uint* traps, uint index, uint x, uint y, uint z, uint code, uint source, uint function,
                 uint address) {
  volatile __global uint* record = traps + 8ul * index;
  if (atomic_cmpxchg(record, 0u, 1u) == 0u) {
    record[1] = code;
    record[2] = x;
    record[3] = y;
    record[4] = z;
    record[5] = source;
    record[6] = function;
    record[7] = address;
  }
}

//# fmin_f32
float fmin_f32(float a, float b) {
  if (a != a || b != b) return a + b;
  return a == b ? as_float(as_uint(a) | as_uint(b)) : a < b ? a : b;
}

//# fmax_f32
float fmax_f32(float a, float b) {
  if (a != a || b != b) return a + b;
  return a == b ? as_float(as_uint(a) & as_uint(b)) : a > b ? a : b;
}

//# fmin_f64
double fmin_f64(double a, double b) {
  if (a != a || b != b) return a + b;
  return a == b ? as_double(as_ulong(a) | as_ulong(b)) : a < b ? a : b;
}

//# fmax_f64
double fmax_f64(double a, double b) {
  if (a != a || b != b) return a + b;
  return a == b ? as_double(as_ulong(a) & as_ulong(b)) : a > b ? a : b;
}

// A significand with its highest bit at 23 and an exponent, rounded to nearest even. `low`: bits below, of which
// the highest is at 31 and any other bit says only that there is something.
//# pack_f32
float pack_f32(uint sign, int exponent, uint high, uint low) {
  if (exponent < 1) {
    int by = 1 - exponent;
    if (by > 25) by = 25;
    ulong both = ((ulong)high << 32) | low;
    uint lost = (both & ((1ul << by) - 1ul)) != 0ul;
    both >>= by;
    high = (uint)(both >> 32);
    low = (uint)both | lost;
    exponent = 0;
  } else {
    high -= 0x800000u;
  }
  if (exponent >= 255) return as_float(sign | 0x7f800000u);
  uint bits = ((uint)exponent << 23) + high;
  if (low > 0x80000000u || (low == 0x80000000u && (bits & 1u) != 0u)) bits += 1u;
  return as_float(sign | bits);
}

//# div_f32 pack_f32
// Correctly rounded, by integers, for devices whose division is not.
float div_f32(float x, float y) {
  uint a = as_uint(x), b = as_uint(y);
  const uint sign = (a ^ b) & 0x80000000u;
  a &= 0x7fffffffu;
  b &= 0x7fffffffu;
  if (a > 0x7f800000u || b > 0x7f800000u || (a == b && (a == 0u || a == 0x7f800000u))) return as_float(0x7fc00000u);
  if (a == 0x7f800000u || b == 0u) return as_float(sign | 0x7f800000u);
  if (b == 0x7f800000u || a == 0u) return as_float(sign);
  int ea = (int)(a >> 23), eb = (int)(b >> 23);
  uint ma = a & 0x7fffffu, mb = b & 0x7fffffu;
  if (ea == 0) { const int by = (int)clz(ma) - 8; ma <<= by; ea = 1 - by; } else { ma |= 0x800000u; }
  if (eb == 0) { const int by = (int)clz(mb) - 8; mb <<= by; eb = 1 - by; } else { mb |= 0x800000u; }
  int exponent = ea - eb + 127;
  if (ma < mb) { ma <<= 1; exponent -= 1; }
  const ulong scaled = (ulong)ma << 32;
  const ulong quotient = scaled / mb;
  const ulong rest = scaled - quotient * mb;
  const ulong kept = quotient << 23;
  const uint lower = (rest << 23) != 0ul ? (uint)((rest << 23) / mb) : 0u;
  const ulong whole = kept + lower;
  const uint inexact = (rest << 23) - (ulong)lower * mb != 0ul;
  return pack_f32(sign, exponent, (uint)(whole >> 32), (uint)whole | inexact);
}

//# sqrt_f32 pack_f32
// Correctly rounded, by integers, for devices whose square root is not.
float sqrt_f32(float x) {
  const uint a = as_uint(x);
  if ((a & 0x7fffffffu) == 0u || a == 0x7f800000u) return x;
  if (a > 0x7f800000u) return as_float(0x7fc00000u);
  int e = (int)(a >> 23);
  uint m = a & 0x7fffffu;
  if (e == 0) { const int by = (int)clz(m) - 8; m <<= by; e = 1 - by; } else { m |= 0x800000u; }
  e -= 127;
  ulong rest = (ulong)m << ((e & 1) != 0 ? 40 : 39);
  ulong root = 0ul, bit = 1ul << 62;
  while (bit != 0ul) {
    if (rest >= root + bit) { rest -= root + bit; root = (root >> 1) + bit; } else { root >>= 1; }
    bit >>= 2;
  }
  return pack_f32(0u, (e >> 1) + 127, (uint)(root >> 8), ((uint)root << 24) | (uint)(rest != 0ul));
}

// Constant memory serves one place at a time. What work items look up at different places goes by the generic
// address, through the cache that serves many.
//# table32
uint table32(__constant const uchar* p) {
#if defined(__NV_CL_C_VERSION)
  ulong at;
  uint word;
  asm("cvta.const.u64 %0, %1;" : "=l"(at) : "l"(p));
  asm("ld.u32 %0, [%1];" : "=r"(word) : "l"(at));
  return word;
#else
  return *(__constant const u32*)p;
#endif
}

//# table64
ulong table64(__constant const uchar* p) {
#if defined(__NV_CL_C_VERSION)
  ulong at, word;
  asm("cvta.const.u64 %0, %1;" : "=l"(at) : "l"(p));
  asm("ld.u64 %0, [%1];" : "=l"(word) : "l"(at));
  return word;
#else
  return *(__constant const u64*)p;
#endif
}

// Quotients and roots that may be rounded less well (docs/KERNELS.md, "Fast math"). The program's others are exact.
// As 1 / b where a reciprocal is taken in front of a loop. Without .ftz, so that large divisors have one.
//# fast_divide
float fast_divide(float a, float b) {
#if defined(__NV_CL_C_VERSION)
  float reciprocal;
  asm("rcp.approx.f32 %0, %1;" : "=f"(reciprocal) : "f"(b));
  return a * reciprocal;
#else
  return a / b;
#endif
}

// A sum asks once for the work items of the subgroup that are here: until the total is made, others may join them,
// whose address is another.
// Adds up the words of the work items that are here. True for one of them, which has the total; elsewhere, where
// nobody adds for others, for all. Those that are here need not be neighbours: in each round whoever is left adds
// what the next one of those left has, and every other one leaves.
//# from32
uint from32(uint word, uint lane, uint here) {
#if defined(__NV_CL_C_VERSION)
  uint other;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, %3;" : "=r"(other) : "r"(word), "r"(lane), "r"(here));
  return other;
#else
  return word;
#endif
}
uint here32(uint* lane) {
  uint here = 1u;
  *lane = 0u;
#if defined(__NV_CL_C_VERSION)
  asm volatile("activemask.b32 %0;" : "=r"(here));
  asm("mov.u32 %0, %%laneid;" : "=r"(*lane));
#endif
  return here;
}
uint first32(uint set) { return 31u - clz(set & (~set + 1u)); }
uint half32(uint set) {
  uint odd = set ^ set << 1;
  odd ^= odd << 2;
  odd ^= odd << 4;
  odd ^= odd << 8;
  odd ^= odd << 16;
  return set & odd;
}

//# total32 from32
bool total32(uint* word, uint lane, uint here) {
  float sum = as_float(*word);
  if (here == ~0u) {
    for (uint by = 16u; by != 0u; by >>= 1) sum += as_float(from32(as_uint(sum), lane ^ by, here));
  } else {
    for (uint left = here; (left & (left - 1u)) != 0u; left = half32(left)) {
      const uint above = left & (~1u << lane);
      const float other = as_float(from32(as_uint(sum), above != 0u ? first32(above) : lane, here));
      if (above != 0u) sum += other;
    }
  }
  *word = as_uint(sum);
  return lane == first32(here);
}

//# total64 from32
double from64(double value, uint lane, uint here) {
  const uint2 words = as_uint2(value);
  return as_double((uint2)(from32(words.x, lane, here), from32(words.y, lane, here)));
}
bool total64(ulong* word, uint lane, uint here) {
  double sum = as_double(*word);
  if (here == ~0u) {
    for (uint by = 16u; by != 0u; by >>= 1) sum += from64(sum, lane ^ by, here);
  } else {
    for (uint left = here; (left & (left - 1u)) != 0u; left = half32(left)) {
      const uint above = left & (~1u << lane);
      const double other = from64(sum, above != 0u ? first32(above) : lane, here);
      if (above != 0u) sum += other;
    }
  }
  *word = as_ulong(sum);
  return lane == first32(here);
}

// True if words differ among the work items that are here.
//# differ32
bool differ32(uint word, uint here) {
#if defined(__NV_CL_C_VERSION)
  uint least, most;
  asm volatile("redux.sync.min.u32 %0, %1, %2;" : "=r"(least) : "r"(word), "r"(here));
  asm volatile("redux.sync.max.u32 %0, %1, %2;" : "=r"(most) : "r"(word), "r"(here));
  return least != most;
#else
  return true;
#endif
}

// A value that was loaded, which no compiler can see to be so: it would be free to load it again.
//# once32
uint once32(uint v) {
#if defined(__NV_CL_C_VERSION)
  uint same;
  asm("mov.b32 %0, %1;" : "=r"(same) : "r"(v));
  return same;
#elif defined(__x86_64__) || defined(__aarch64__)
  __asm__("" : "+r"(v));
  return v;
#else
  volatile uint same = v;
  return same;
#endif
}

//# once64
ulong once64(ulong v) {
#if defined(__NV_CL_C_VERSION)
  ulong same;
  asm("mov.b64 %0, %1;" : "=l"(same) : "l"(v));
  return same;
#elif defined(__x86_64__) || defined(__aarch64__)
  __asm__("" : "+r"(v));
  return v;
#else
  volatile ulong same = v;
  return same;
#endif
}

// Loads and stores of any alignment.
//# load16_global
uint load16_global(__global const uchar* p) { return (uint)p[0] | (uint)p[1] << 8; }

//# load32_global
uint load32_global(__global const uchar* p) {
  if (((size_t)p & 3) == 0) return *(__global const u32*)p;
  return (uint)p[0] | (uint)p[1] << 8 | (uint)p[2] << 16 | (uint)p[3] << 24;
}

//# load64_global load32_global
ulong load64_global(__global const uchar* p) {
  if (((size_t)p & 7) == 0) return *(__global const u64*)p;
  return (ulong)load32_global(p) | (ulong)load32_global(p + 4) << 32;
}

//# store16_global
void store16_global(__global uchar* p, uint v) {
  p[0] = (uchar)v;
  p[1] = (uchar)(v >> 8);
}

//# store32_global
void store32_global(__global uchar* p, uint v) {
  if (((size_t)p & 3) == 0) {
    *(__global u32*)p = v;
    return;
  }
  p[0] = (uchar)v;
  p[1] = (uchar)(v >> 8);
  p[2] = (uchar)(v >> 16);
  p[3] = (uchar)(v >> 24);
}

//# store64_global store32_global
void store64_global(__global uchar* p, ulong v) {
  if (((size_t)p & 7) == 0) {
    *(__global u64*)p = v;
    return;
  }
  store32_global(p, (uint)v);
  store32_global(p + 4, (uint)(v >> 32));
}
