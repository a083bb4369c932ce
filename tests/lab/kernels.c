// SPDX-License-Identifier: Apache-2.0
// Kernels of attackers, and of tenants with valid work, for tests/lab. Rebuilt by build.sh; the .wasm is committed.
#include "hpvm.h"

HPVM_KERNEL void add(const int* in, int* out, int amount) {
  int i = hpvm_instance_id(0);
  out[i] = in[i] + amount;
}

// Never computed in the attack's executor: only its name matters.
HPVM_KERNEL void strike(const unsigned char* attack, unsigned char* report) {
  report[hpvm_instance_id(0)] = attack[hpvm_instance_id(0)];
}

// Takes about a millisecond for each of `rounds`.
HPVM_KERNEL void busy(const int* in, int* out, int rounds) {
  const int i = hpvm_instance_id(0);
  unsigned chain = in[i];
  for (long long n = 0; n < rounds * 400000LL; ++n) {
    chain = (chain ^ chain >> 15) * 1664525 + 1013904223;
  }
  out[i] = in[i] + (chain == 1 ? 1 : 0);
}

HPVM_KERNEL void peek(const int* in, int* out, int distance) {
  const int i = hpvm_instance_id(0);
  out[i] = *(const volatile int*)((const char*)&in[i] + distance);
}

HPVM_KERNEL void poke(const int* in, int* out, int distance) {
  const int i = hpvm_instance_id(0);
  *(volatile int*)((char*)&out[i] + distance) = in[i];
}

// An atomic access takes another path through the compiler.
HPVM_KERNEL void poke_atomic(const int* in, int* out, int distance) {
  const int i = hpvm_instance_id(0);
  hpvm_atomic_add_i32((int*)((char*)&out[i] + distance), in[i]);
}

HPVM_KERNEL void shout(const int* in, int* out) {
  const int i = hpvm_instance_id(0);
  hpvm_print("\x1b[2J\x1b]0;lab-injected\x07\r\nlab-injected %d and a tail that makes it long, long, long, long, long\n", in[i]);
  out[i] = in[i];
}

HPVM_KERNEL void spin(volatile int* out) {
  while (out[0] == 0) {
  }
}

static int deep(volatile int* out, int n) { return n == 0 ? out[0] : deep(out, n + 1) + out[n & 3]; }
HPVM_KERNEL void recurse(volatile int* out) { out[0] = deep(out, 1); }

// Reads group memory before anything was written to it.
HPVM_KERNEL void listen(int* out) {
  int* scratch = hpvm_local_alloc(sizeof(int) * hpvm_group_size(0));
  out[hpvm_instance_id(0)] = ((volatile int*)scratch)[hpvm_local_id(0)];
}
HPVM_KERNEL void leave(const int* in, int* out) {
  int* scratch = hpvm_local_alloc(sizeof(int) * hpvm_group_size(0));
  ((volatile int*)scratch)[hpvm_local_id(0)] = in[hpvm_instance_id(0)];
  hpvm_barrier();
  out[hpvm_instance_id(0)] = scratch[hpvm_local_id(0)];
}

// Odd instances rewrite the indices that even ones look up, continuously: alternately with positions in the table and far
// beyond it. Where the kernel compares an index itself before it uses it, no lookup may leave the table.
HPVM_KERNEL void rewrite(volatile int* index, const int* table, int* out, int n, int turns, int compares) {
  const int i = hpvm_instance_id(0);
  int sum = 0;
  for (int t = 0; t < turns; ++t) {
    if (i & 1) {
      index[t & 7] = t & 8 ? (unsigned)t % n : t << 20 | i;
    } else {
      const int k = index[t & 7];
      if (!compares || (unsigned)k < (unsigned)n) sum += table[k];
    }
  }
  out[i] = sum;
}

// Sixteen lookups for each instance, so that there is time to rewrite the indices meanwhile.
HPVM_KERNEL void lookup(const int* index, const int* table, int* out) {
  const int i = hpvm_instance_id(0);
  int sum = 0;
  for (int t = 0; t < 16; ++t) {
    sum += table[index[(i & -16) + t]];
  }
  out[i] = sum;
}
