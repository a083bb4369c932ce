// SPDX-License-Identifier: Apache-2.0
// Kernels of the chain, wide and dag cases; bench/workload.cc does the same in C++.

#define EXPORT(name) __attribute__((export_name(name)))

EXPORT("step") void step(unsigned* data) {
  for (int i = 0; i < 16; ++i) {
    data[i] = data[i] * 3 + 1;
  }
}

EXPORT("mix") void mix(const unsigned* other, unsigned* data) {
  for (int i = 0; i < 16; ++i) {
    data[i] = data[i] * 3 + other[i];
  }
}

// Executes data[15] steps of a generator, one after the other.
EXPORT("grind") void grind(const unsigned* other, unsigned* data) {
  unsigned value = data[0] ^ (other[0] & 0xfffffffeu);
  const unsigned steps = data[15];
  for (unsigned i = 0; i < steps; ++i) {
    value ^= value << 13;
    value ^= value >> 17;
    value ^= value << 5;
  }
  data[0] = value | 1;
}

// Copies 16-byte pieces, one per instance, for the cases run/N and transfer/N.
extern int instance_id(int dimension) __attribute__((import_module("hpvm"), import_name("instance_id")));

EXPORT("copy") void copy(const unsigned long long* source, unsigned long long* target) {
  const unsigned i = (unsigned)instance_id(0) * 2;
  target[i] = source[i];
  target[i + 1] = source[i + 1];
}

// Executes steps of a generator one after the other, as work that takes time. x: steps and number of rounds.
EXPORT("work") void work(const unsigned* x, unsigned* y) {
  unsigned value = 1;
  for (unsigned i = 0; i < x[1]; ++i) {
    for (unsigned j = 0; j < x[0]; ++j) {
      value = value * 1664525u + 1013904223u;
    }
  }
  y[0] = value;
}
