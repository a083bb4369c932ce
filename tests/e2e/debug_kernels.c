// SPDX-License-Identifier: Apache-2.0
// Kernels that print, trap and race, built with debug information, for tests/e2e/debug.py. Rebuilt by build.sh; the
// .wasm is committed. Comments "at: name" mark the lines that messages must name.
#include "hpvm.h"

static inline int fetch(const int* from, int index) {
  return from[index];  // at: fetch
}

HPVM_KERNEL void lookup(const int* in, int* out, int distance) {
  int i = hpvm_instance_id(0);
  out[i] = fetch(in, i * distance);
}

HPVM_KERNEL void chatty(const int* in, int* out) {
  int i = hpvm_instance_id(0);
  hpvm_print("in[%d] is %d, half of it %.1f\n", i, in[i], in[i] * 0.5);
  out[i] = in[i];
}

HPVM_KERNEL void verbose(int* out, int lines) {
  for (int i = 0; i < lines; ++i) {
    hpvm_print("line %d of %s", i, "many");
  }
  out[hpvm_instance_id(0)] = lines;
}

// Prints bytes that must not reach a terminal.
HPVM_KERNEL void steer(int* out) {
  hpvm_print("\x1b[2J%c\xff done\nsecond line", 7);
  out[0] = 1;
}

HPVM_KERNEL void claims(const int* in, int* out) {
  int i = hpvm_instance_id(0);
  hpvm_print("looking at %d", in[i]);
  hpvm_assert(in[i] > 0);  // at: assert
  out[i] = in[i];
}

HPVM_KERNEL void race(const int* in, int* out) {
  out[0] = in[hpvm_instance_id(0)];  // at: race
}

HPVM_KERNEL void accumulate(const int* in, int* out) {
  int i = hpvm_instance_id(0);
  out[i] += in[i];  // at: uninitialised
}

// One buffer lies 128 KiB after another if that one is smaller than 64 KiB (docs/KERNELS.md).
HPVM_KERNEL void stray(const int* in, int* out) {
  int i = hpvm_instance_id(0);
  out[i] = 1;
  out[i] = in[128 * 1024 / 4 + i];  // at: stray
}

HPVM_KERNEL void good(const int* in, int* out) {
  int i = hpvm_instance_id(0);
  out[i] = 2 * in[i];
}

// Instances whose element is 0 do not wait for the others of their group.
HPVM_KERNEL void skip(const int* in, int* out) {
  int i = hpvm_instance_id(0);
  if (in[i] != 0) {
    hpvm_barrier();  // at: barrier
  }
  out[i] = in[i];
}

HPVM_KERNEL void wave(const float* in, float* out, int n) {
  int i = hpvm_instance_id(0);
  if (i < n) {
    out[i] = hpvm_sin_f32(in[i]) * hpvm_exp_f32(-in[i]);  // at: wave
  }
}

HPVM_KERNEL void tally(const float* in, float* out) {
  hpvm_atomic_add_f32(out, in[hpvm_instance_id(0)]);  // at: tally
}
