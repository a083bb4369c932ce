/* SPDX-License-Identifier: Apache-2.0 */
/* Interface of hpvmd for kernels in C and C++. A kernel is a function that returns nothing:
 *
 *   #include "hpvm.h"
 *   HPVM_KERNEL void scale(const float* in, float* out, float factor) {
 *     uint32_t i = hpvm_instance_id(0);
 *     out[i] = factor * in[i];
 *   }
 *
 * It takes one pointer per port and one int, long long, float or double per scalar, in the order of the graph's node.
 * It runs once per instance; instances of a launch run in any order and concurrently. Variables of the module belong to
 * the instance; only buffers, and memory from hpvm_local_alloc within a group, are shared. README.md has the command
 * that builds a kernel.
 */
#ifndef HPVM_KERNEL_HPVM_H_
#define HPVM_KERNEL_HPVM_H_

#if !defined(__wasm__)
#error "hpvm.h is for kernels: compile with clang --target=wasm32 (or wasm64)."
#endif
#if !defined(__clang__)
#error "hpvm.h needs clang: it names WebAssembly imports by attributes."
#endif

#include <stddef.h>
#include <stdint.h>

/* Without -matomics clang makes C11 and C++ atomics, and the builtins behind them, plain loads and stores, silently.
 * So this header refuses them: as a header included before, and as identifiers from here on. The functions below are
 * atomic either way. */
#if !defined(__wasm_atomics__)
#if defined(__CLANG_STDATOMIC_H) || defined(_LIBCPP_ATOMIC) || defined(_GLIBCXX_ATOMIC)
#error "Without -matomics these are not atomic. Use hpvm_atomic_ functions, or build with -matomics -mbulk-memory."
#else
#pragma clang poison _Atomic __atomic_load_n __atomic_store_n __atomic_exchange_n __atomic_compare_exchange_n
#pragma clang poison __atomic_fetch_add __atomic_fetch_sub __atomic_fetch_and __atomic_fetch_or __atomic_fetch_xor
#pragma clang poison __sync_fetch_and_add __sync_fetch_and_sub __sync_fetch_and_and __sync_fetch_and_or \
    __sync_fetch_and_xor
#pragma clang poison __sync_val_compare_and_swap __sync_bool_compare_and_swap __sync_lock_test_and_set
#endif
#endif

#ifdef __cplusplus
#define HPVM_EXTERN_ extern "C"
#define HPVM_NOTHROW_ noexcept
#else
#define HPVM_EXTERN_ extern
#define HPVM_NOTHROW_
#endif
#define HPVM_IMPORT_(name) HPVM_EXTERN_ __attribute__((import_module("hpvm"), import_name(#name), nothrow))

/* Marks a kernel. Link with -Wl,--export-dynamic, which exports visible symbols. */
#ifdef __cplusplus
#define HPVM_KERNEL extern "C" __attribute__((used, visibility("default")))
#else
#define HPVM_KERNEL __attribute__((used, visibility("default")))
#endif

/* Position of this instance. `dimension` is 0, 1 or 2 (x, y, z); any other reads 0 for ids, 1 for counts and sizes.
 * The forms without `64` wrap at 2^32. hpvm_group_size is the group as declared, also in a partial last group. */
HPVM_IMPORT_(instance_id) uint32_t hpvm_instance_id(int dimension) HPVM_NOTHROW_ __attribute__((const));
HPVM_IMPORT_(instance_count) uint32_t hpvm_instance_count(int dimension) HPVM_NOTHROW_ __attribute__((const));
HPVM_IMPORT_(group_id) uint32_t hpvm_group_id(int dimension) HPVM_NOTHROW_ __attribute__((const));
HPVM_IMPORT_(group_size) uint32_t hpvm_group_size(int dimension) HPVM_NOTHROW_ __attribute__((const));
HPVM_IMPORT_(local_id) uint32_t hpvm_local_id(int dimension) HPVM_NOTHROW_ __attribute__((const));
HPVM_IMPORT_(instance_id) uint64_t hpvm_instance_id64(int dimension) HPVM_NOTHROW_ __attribute__((const));
HPVM_IMPORT_(instance_count) uint64_t hpvm_instance_count64(int dimension) HPVM_NOTHROW_ __attribute__((const));

/* Size in bytes of the buffer of the entry's parameter number `parameter`, counted from 0; 0 for a scalar. */
HPVM_IMPORT_(buffer_size) uint32_t hpvm_buffer_size(int parameter) HPVM_NOTHROW_ __attribute__((const));
HPVM_IMPORT_(buffer_size) uint64_t hpvm_buffer_size64(int parameter) HPVM_NOTHROW_ __attribute__((const));

/* Waits until every instance of the group has arrived; their earlier writes are then visible. Every instance must reach
 * the same barriers, or the launch traps. `convergent` keeps the compiler from moving a call into a branch. */
HPVM_IMPORT_(barrier) void hpvm_barrier(void) HPVM_NOTHROW_ __attribute__((convergent));
/* Zeroed memory shared by the group, 16-byte aligned: all instances get the same address from the same call. At most 64
 * KiB per group. */
HPVM_IMPORT_(local_alloc) void* hpvm_local_alloc(size_t bytes) HPVM_NOTHROW_ __attribute__((convergent));

/* Traps when the condition is false; the job then fails and names this instance. */
#define hpvm_assert(...) hpvm_assert_((__VA_ARGS__) ? 1 : 0)
HPVM_IMPORT_(assert) void hpvm_assert_(int condition) HPVM_NOTHROW_;

/* Prints to the job's log, with the instance's id; C's printf otherwise. The format and the
 * arguments of %s are string literals in this very call. README.md has the details. */
HPVM_IMPORT_(print) void hpvm_print(const char* format, ...) HPVM_NOTHROW_ __attribute__((format(printf, 1, 2)));

/* Atomics on buffers and group memory: sequentially consistent, naturally aligned or they trap. Updates return the old
 * value. */
#define HPVM_ATOMIC_UPDATE_(name, type) \
  HPVM_IMPORT_(atomic_##name) type hpvm_atomic_##name(volatile type* at, type value) HPVM_NOTHROW_
#define HPVM_ATOMICS_(bits)                                                                                          \
  HPVM_IMPORT_(atomic_load_i##bits)                                                                                  \
  int##bits##_t hpvm_atomic_load_i##bits(const volatile int##bits##_t* at) HPVM_NOTHROW_;                            \
  HPVM_IMPORT_(atomic_store_i##bits)                                                                                 \
  void hpvm_atomic_store_i##bits(volatile int##bits##_t* at, int##bits##_t value) HPVM_NOTHROW_;                     \
  HPVM_IMPORT_(atomic_cmpxchg_i##bits)                                                                               \
  int##bits##_t hpvm_atomic_cmpxchg_i##bits(volatile int##bits##_t* at, int##bits##_t expected, int##bits##_t value) \
      HPVM_NOTHROW_;                                                                                                 \
  HPVM_ATOMIC_UPDATE_(add_i##bits, int##bits##_t);                                                                   \
  HPVM_ATOMIC_UPDATE_(sub_i##bits, int##bits##_t);                                                                   \
  HPVM_ATOMIC_UPDATE_(and_i##bits, int##bits##_t);                                                                   \
  HPVM_ATOMIC_UPDATE_(or_i##bits, int##bits##_t);                                                                    \
  HPVM_ATOMIC_UPDATE_(xor_i##bits, int##bits##_t);                                                                   \
  HPVM_ATOMIC_UPDATE_(xchg_i##bits, int##bits##_t);                                                                  \
  HPVM_ATOMIC_UPDATE_(min_s_i##bits, int##bits##_t);                                                                 \
  HPVM_ATOMIC_UPDATE_(max_s_i##bits, int##bits##_t);                                                                 \
  HPVM_ATOMIC_UPDATE_(min_u_i##bits, uint##bits##_t);                                                                \
  HPVM_ATOMIC_UPDATE_(max_u_i##bits, uint##bits##_t)
HPVM_ATOMICS_(32);
HPVM_ATOMICS_(64);
HPVM_ATOMIC_UPDATE_(add_f32, float);
HPVM_ATOMIC_UPDATE_(add_f64, double);

#undef HPVM_ATOMICS_
#undef HPVM_ATOMIC_UPDATE_

/* The same for unsigned integers: hpvm_atomic_add_u32, hpvm_atomic_min_u64 and so on. */
#define HPVM_UNSIGNED_UPDATE_(update, bits)                                                                        \
  static inline uint##bits##_t hpvm_atomic_##update##_u##bits(volatile uint##bits##_t* at, uint##bits##_t value) { \
    return (uint##bits##_t)hpvm_atomic_##update##_i##bits((volatile int##bits##_t*)at, (int##bits##_t)value);      \
  }
#define HPVM_UNSIGNED_ATOMICS_(bits)                                                                             \
  static inline uint##bits##_t hpvm_atomic_load_u##bits(const volatile uint##bits##_t* at) {                      \
    return (uint##bits##_t)hpvm_atomic_load_i##bits((const volatile int##bits##_t*)at);                           \
  }                                                                                                              \
  static inline void hpvm_atomic_store_u##bits(volatile uint##bits##_t* at, uint##bits##_t value) {               \
    hpvm_atomic_store_i##bits((volatile int##bits##_t*)at, (int##bits##_t)value);                                 \
  }                                                                                                              \
  static inline uint##bits##_t hpvm_atomic_cmpxchg_u##bits(volatile uint##bits##_t* at, uint##bits##_t expected,  \
                                                           uint##bits##_t value) {                               \
    return (uint##bits##_t)hpvm_atomic_cmpxchg_i##bits((volatile int##bits##_t*)at, (int##bits##_t)expected,      \
                                                       (int##bits##_t)value);                                    \
  }                                                                                                              \
  static inline uint##bits##_t hpvm_atomic_min_u##bits(volatile uint##bits##_t* at, uint##bits##_t value) {       \
    return hpvm_atomic_min_u_i##bits(at, value);                                                                 \
  }                                                                                                              \
  static inline uint##bits##_t hpvm_atomic_max_u##bits(volatile uint##bits##_t* at, uint##bits##_t value) {       \
    return hpvm_atomic_max_u_i##bits(at, value);                                                                 \
  }                                                                                                              \
  HPVM_UNSIGNED_UPDATE_(add, bits)                                                                               \
  HPVM_UNSIGNED_UPDATE_(sub, bits)                                                                               \
  HPVM_UNSIGNED_UPDATE_(and, bits)                                                                               \
  HPVM_UNSIGNED_UPDATE_(or, bits)                                                                                \
  HPVM_UNSIGNED_UPDATE_(xor, bits)                                                                               \
  HPVM_UNSIGNED_UPDATE_(xchg, bits)
HPVM_UNSIGNED_ATOMICS_(32)
HPVM_UNSIGNED_ATOMICS_(64)

/* The same for float and double. Compare-exchange compares bits: -0 is not +0, and a NaN equals itself. min and max
 * order -0 before +0; neither the value nor the old value may be a NaN. */
#define HPVM_REAL_ATOMICS_(bits, real)                                                                               \
  static inline real hpvm_real_of_bits##bits##_(int##bits##_t value) {                                                \
    real result;                                                                                                     \
    __builtin_memcpy(&result, &value, sizeof(result));                                                               \
    return result;                                                                                                   \
  }                                                                                                                  \
  static inline int##bits##_t hpvm_bits_of_real##bits##_(real value) {                                                \
    int##bits##_t result;                                                                                            \
    __builtin_memcpy(&result, &value, sizeof(result));                                                               \
    return result;                                                                                                   \
  }                                                                                                                  \
  static inline real hpvm_atomic_load_f##bits(const volatile real* at) {                                              \
    return hpvm_real_of_bits##bits##_(hpvm_atomic_load_i##bits((const volatile int##bits##_t*)at));                   \
  }                                                                                                                  \
  static inline void hpvm_atomic_store_f##bits(volatile real* at, real value) {                                       \
    hpvm_atomic_store_i##bits((volatile int##bits##_t*)at, hpvm_bits_of_real##bits##_(value));                        \
  }                                                                                                                  \
  static inline real hpvm_atomic_xchg_f##bits(volatile real* at, real value) {                                        \
    return hpvm_real_of_bits##bits##_(                                                                               \
        hpvm_atomic_xchg_i##bits((volatile int##bits##_t*)at, hpvm_bits_of_real##bits##_(value)));                    \
  }                                                                                                                  \
  static inline real hpvm_atomic_cmpxchg_f##bits(volatile real* at, real expected, real value) {                      \
    return hpvm_real_of_bits##bits##_(hpvm_atomic_cmpxchg_i##bits((volatile int##bits##_t*)at,                        \
                                                                  hpvm_bits_of_real##bits##_(expected),              \
                                                                  hpvm_bits_of_real##bits##_(value)));               \
  }                                                                                                                  \
  /* Bits of nonnegative numbers are ordered like signed integers, those of negative numbers in reverse. */          \
  static inline real hpvm_atomic_min_f##bits(volatile real* at, real value) {                                         \
    int##bits##_t word = hpvm_bits_of_real##bits##_(value);                                                          \
    return hpvm_real_of_bits##bits##_(                                                                               \
        word >= 0 ? hpvm_atomic_min_s_i##bits((volatile int##bits##_t*)at, word)                                      \
                  : (int##bits##_t)hpvm_atomic_max_u_i##bits((volatile uint##bits##_t*)at, (uint##bits##_t)word));    \
  }                                                                                                                  \
  static inline real hpvm_atomic_max_f##bits(volatile real* at, real value) {                                         \
    int##bits##_t word = hpvm_bits_of_real##bits##_(value);                                                          \
    return hpvm_real_of_bits##bits##_(                                                                               \
        word >= 0 ? hpvm_atomic_max_s_i##bits((volatile int##bits##_t*)at, word)                                      \
                  : (int##bits##_t)hpvm_atomic_min_u_i##bits((volatile uint##bits##_t*)at, (uint##bits##_t)word));    \
  }
HPVM_REAL_ATOMICS_(32, float)
HPVM_REAL_ATOMICS_(64, double)

#undef HPVM_UNSIGNED_UPDATE_
#undef HPVM_UNSIGNED_ATOMICS_
#undef HPVM_REAL_ATOMICS_

/* Short vectors, for records and arithmetic by element: hpvm_f32x4 v; v.x, v.xy, v * 2, v[i]. Their size is that of
 * their elements, and so is their alignment, as for hosts' SIMD types; buffers begin at multiples of 64 KiB. */
#define HPVM_VECTOR_(name, type, count) typedef type hpvm_##name __attribute__((ext_vector_type(count)))
#define HPVM_VECTORS_(name, type) \
  HPVM_VECTOR_(name##x2, type, 2); \
  HPVM_VECTOR_(name##x4, type, 4)
HPVM_VECTORS_(f32, float);
HPVM_VECTORS_(f64, double);
HPVM_VECTORS_(i32, int32_t);
HPVM_VECTORS_(u32, uint32_t);
HPVM_VECTORS_(i64, int64_t);
HPVM_VECTORS_(u64, uint64_t);
HPVM_VECTORS_(i16, int16_t);
HPVM_VECTORS_(u16, uint16_t);
HPVM_VECTORS_(i8, int8_t);
HPVM_VECTORS_(u8, uint8_t);
#undef HPVM_VECTORS_
#undef HPVM_VECTOR_

/* Mathematics: hpvm_exp_f32 (float), hpvm_exp_f64 (double) and so on, with C's meaning and the same bits on every
 * device. README.md has the error bounds. */
#define HPVM_MATH_(name, f32, f64)                                                           \
  HPVM_IMPORT_(name##_f32) float hpvm_##name##_f32 f32 HPVM_NOTHROW_ __attribute__((const)); \
  HPVM_IMPORT_(name##_f64) double hpvm_##name##_f64 f64 HPVM_NOTHROW_ __attribute__((const))
#define HPVM_MATH_1_(name) HPVM_MATH_(name, (float x), (double x))
#define HPVM_MATH_2_(name) HPVM_MATH_(name, (float x, float y), (double x, double y))
#define HPVM_MATH_3_(name) HPVM_MATH_(name, (float x, float y, float z), (double x, double y, double z))
HPVM_MATH_1_(exp);
HPVM_MATH_1_(exp2);
HPVM_MATH_1_(exp10);
HPVM_MATH_1_(expm1);
HPVM_MATH_1_(log);
HPVM_MATH_1_(log2);
HPVM_MATH_1_(log10);
HPVM_MATH_1_(log1p);
HPVM_MATH_2_(pow);
HPVM_MATH_1_(sin);
HPVM_MATH_1_(cos);
HPVM_MATH_1_(tan);
HPVM_MATH_1_(asin);
HPVM_MATH_1_(acos);
HPVM_MATH_1_(atan);
HPVM_MATH_2_(atan2); /* C's atan2(y, x): the ordinate comes first. */
HPVM_MATH_1_(sinh);
HPVM_MATH_1_(cosh);
HPVM_MATH_1_(tanh);
HPVM_MATH_1_(asinh);
HPVM_MATH_1_(acosh);
HPVM_MATH_1_(atanh);
HPVM_MATH_1_(erf);
HPVM_MATH_1_(erfc);
HPVM_MATH_1_(tgamma);
HPVM_MATH_1_(lgamma);
HPVM_MATH_1_(cbrt);
HPVM_MATH_2_(hypot);
HPVM_MATH_2_(fmod);
HPVM_MATH_2_(remainder);
HPVM_MATH_3_(fma); /* Rounded once. */

#undef HPVM_MATH_1_
#undef HPVM_MATH_2_
#undef HPVM_MATH_3_
#undef HPVM_MATH_

/* Single instructions, exact or correctly rounded. hpvm_min and hpvm_max give a NaN when an operand is one, and order
 * -0 before +0, unlike C's fmin and fmax. hpvm_nearest rounds to the nearest integral value, ties to even. */
#define HPVM_INSTRUCTIONS_(bits, type)                                                                            \
  static inline type hpvm_sqrt_f##bits(type x) { return __builtin_elementwise_sqrt(x); }                          \
  static inline type hpvm_floor_f##bits(type x) { return __builtin_elementwise_floor(x); }                        \
  static inline type hpvm_ceil_f##bits(type x) { return __builtin_elementwise_ceil(x); }                          \
  static inline type hpvm_trunc_f##bits(type x) { return __builtin_elementwise_trunc(x); }                        \
  static inline type hpvm_nearest_f##bits(type x) { return __builtin_elementwise_roundeven(x); }                  \
  static inline type hpvm_abs_f##bits(type x) { return __builtin_elementwise_abs(x); }                            \
  static inline type hpvm_copysign_f##bits(type x, type sign) { return __builtin_elementwise_copysign(x, sign); } \
  static inline type hpvm_min_f##bits(type x, type y) { return __builtin_wasm_min_f##bits(x, y); }                \
  static inline type hpvm_max_f##bits(type x, type y) { return __builtin_wasm_max_f##bits(x, y); }                \
  /* 1 / sqrt(x) in two rounded steps: within 1.5 ulp. */                                                         \
  static inline type hpvm_rsqrt_f##bits(type x) { return (type)1 / __builtin_elementwise_sqrt(x); }
HPVM_INSTRUCTIONS_(32, float)
HPVM_INSTRUCTIONS_(64, double)
#undef HPVM_INSTRUCTIONS_

/* Short forms for the common case of one index per dimension. */
static inline uint32_t hpvm_x(void) { return hpvm_instance_id(0); }
static inline uint32_t hpvm_y(void) { return hpvm_instance_id(1); }
static inline uint32_t hpvm_z(void) { return hpvm_instance_id(2); }

#endif /* HPVM_KERNEL_HPVM_H_ */
