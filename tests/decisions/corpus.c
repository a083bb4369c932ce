// SPDX-License-Identifier: Apache-2.0
// Kernels as users write them, of kinds that a compiler may handle well or badly, built in the ways in which users build.
#include "hpvm.h"

#define ROW (int)hpvm_y()
#define COLUMN (int)hpvm_x()

HPVM_KERNEL void axpy(const float* x, float* y, float a) { y[hpvm_x()] += a * x[hpvm_x()]; }

// Neighbouring fields of a record, as compilers address them.
struct Particle {
  float x, y, z, mass;
};
HPVM_KERNEL void records(const struct Particle* particles, float* out) {
  const struct Particle p = particles[hpvm_x()];
  out[hpvm_x()] = p.mass * (p.x * p.x + p.y * p.y + p.z * p.z);
}

// A record that is larger than those that compilers copy field by field.
struct Large {
  float values[48];
};
HPVM_KERNEL void copied_record(const struct Large* from, struct Large* to) { to[hpvm_x()] = from[hpvm_x()]; }

// An array on the stack whose indices are known once loops are unrolled.
HPVM_KERNEL void sort_in_registers(float* values) {
  float a[8];
  float* mine = values + 8 * hpvm_x();
  for (int i = 0; i < 8; ++i) a[i] = mine[i];
  for (int i = 0; i < 8; ++i) {
    for (int k = 0; k + 1 < 8 - i; ++k) {
      const float low = a[k] < a[k + 1] ? a[k] : a[k + 1], high = a[k] < a[k + 1] ? a[k + 1] : a[k];
      a[k] = low;
      a[k + 1] = high;
    }
  }
  for (int i = 0; i < 8; ++i) mine[i] = a[i];
}

// An array on the stack whose indices come from data.
HPVM_KERNEL void stack_histogram(const int* values, int* counts, int n) {
  int bins[16] = {0};
  for (int i = 0; i < n; ++i) ++bins[values[hpvm_x() * n + i] & 15];
  for (int i = 0; i < 16; ++i) counts[hpvm_x() * 16 + i] = bins[i];
}

// Arrays whose length comes from the launch, whose address is passed on, and of bytes.
HPVM_KERNEL void stack_variable_length(const int* values, int* sums, int n) {
  int row[n];
  for (int i = 0; i < n; ++i) row[i] = values[hpvm_x()] ^ i;
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += row[(i * 7) % n] * i;
  sums[hpvm_x()] = sum;
}

__attribute__((noinline)) static int running_sum(int* row, int n) {
  for (int i = 1; i < n; ++i) row[i] += row[i - 1];
  return row[n - 1];
}
HPVM_KERNEL void stack_passed_on(const int* values, int* sums) {
  int row[8];
  for (int i = 0; i < 8; ++i) row[i] = values[hpvm_x()] + i;
  const int sum = running_sum(row, 8);
  sums[hpvm_x()] = sum ^ row[sum & 7];
}

HPVM_KERNEL void stack_bytes(const int* values, int* sums) {
  unsigned char bytes[32];
  short shorts[8];
  for (int i = 0; i < 32; ++i) bytes[i] = (unsigned char)(values[hpvm_x()] >> (i & 7));
  for (int i = 0; i < 8; ++i) shorts[i] = (short)(bytes[i * 3] * bytes[values[hpvm_x()] & 31]);
  sums[hpvm_x()] = shorts[values[hpvm_x()] >> 5 & 7] + bytes[7];
}

// Rows whose ends are read from memory.
HPVM_KERNEL void sparse_rows(const int* starts, const int* columns, const float* values, const float* x, float* y) {
  float sum = 0;
  for (int k = starts[hpvm_x()]; k < starts[hpvm_x() + 1]; ++k) sum += values[k] * x[columns[k]];
  y[hpvm_x()] = sum;
}

// One instance for each row: no parallelism along x.
HPVM_KERNEL void along_y(const float* a, float* out, int n) { out[ROW] = a[ROW] * (float)n; }

HPVM_KERNEL void strided_store(const float* a, float* out) {
  out[3 * hpvm_x()] = a[hpvm_x()];
  out[3 * hpvm_x() + 1] = a[hpvm_x()] * 2;
  out[3 * hpvm_x() + 2] = a[hpvm_x()] * 3;
}

// A stencil whose borders are clamped.
static int Clamped(int i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }
HPVM_KERNEL void clamped(const float* u, float* v, int n) {
  float sum = 0;
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) sum += u[Clamped(ROW + dy, n) * n + Clamped(COLUMN + dx, n)];
  }
  v[ROW * n + COLUMN] = sum / 9;
}

// Addresses of 64 bits, beyond 2 GiB.
HPVM_KERNEL void far(const float* a, float* b, long long offset) { b[offset + hpvm_x()] = a[offset + hpvm_x()] + 1; }

HPVM_KERNEL void guarded(const float* a, float* b, int n) {
  if (COLUMN < n && ROW < n) b[ROW * n + COLUMN] = a[ROW * n + COLUMN] + 1;
}

HPVM_KERNEL void grouped(const float* a, float* sums) {
  float* leaves = (float*)hpvm_local_alloc(96 * sizeof(float));
  const int i = (int)hpvm_local_id(0);
  leaves[i] = a[hpvm_x()];
  for (int stride = 48; stride > 2; stride /= 2) {
    hpvm_barrier();
    if (i < stride) leaves[i] += leaves[i + stride];
  }
  hpvm_barrier();
  if (i == 0) sums[hpvm_group_id(0)] = leaves[0] + leaves[1] + leaves[2];
}

// Complex numbers, real and imaginary parts side by side: compilers write 2 * i + 1 as `or`.
HPVM_KERNEL void complex_product(const float* a, const float* b, float* c) {
  const int i = COLUMN;
  c[2 * i] = a[2 * i] * b[2 * i] - a[2 * i + 1] * b[2 * i + 1];
  c[2 * i + 1] = a[2 * i] * b[2 * i + 1] + a[2 * i + 1] * b[2 * i];
}

// Periodic borders, by a remainder and by a choice.
HPVM_KERNEL void periodic(const float* in, float* out, int n) {
  const int i = COLUMN;
  out[i] = in[(i + n - 1) % n] + in[i] + in[(i + 1) % n];
}
HPVM_KERNEL void next_or_first(const float* in, float* out, int n) {
  const int i = COLUMN;
  out[i] = in[i == 0 ? n - 1 : i - 1] + in[i] + in[i == n - 1 ? 0 : i + 1];
}

// Clamped indices, in loops whose length comes from the launch.
HPVM_KERNEL void clamped_window(const float* in, float* out, int width, int height, int reach) {
  const int x = COLUMN, y = ROW;
  float sum = 0;
  for (int dy = -reach; dy <= reach; ++dy) {
    for (int dx = -reach; dx <= reach; ++dx) {
      const int row = y + dy < 0 ? 0 : y + dy < height ? y + dy : height - 1;
      const int column = x + dx < 0 ? 0 : x + dx < width ? x + dx : width - 1;
      sum += in[row * width + column];
    }
  }
  out[y * width + x] = sum;
}

// A one-dimensional launch over two dimensions.
HPVM_KERNEL void coordinates(const float* rows, const float* columns, float* out, int width) {
  const unsigned i = hpvm_x();
  out[i] = rows[i / width] * columns[i % width];
}

HPVM_KERNEL void printed(const float* in, float* out) {
  const float value = in[hpvm_x()];
  if (value < 0) hpvm_print("in[%d] is %g\n", COLUMN, value);
  out[hpvm_x()] = value < 0 ? 0 : value;
}
