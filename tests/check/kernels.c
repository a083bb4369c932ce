// SPDX-License-Identifier: Apache-2.0
// Kernels for check_test.cc, which knows the findings that a checked launch must report for each: none for the correct
// ones, however clang compiles them. 64 instances in groups of 8; x has 128 floats, y as many, n is 64.
#include <stdarg.h>

#include "hpvm.h"

void* memcpy(void* to, const void* from, size_t bytes) {
  char* target = to;
  for (const char* source = from; bytes > 0; --bytes) {
    *target++ = *source++;
  }
  return to;
}
void* memset(void* to, int value, size_t bytes) {
  for (char* target = to; bytes > 0; --bytes) {
    *target++ = (char)value;
  }
  return to;
}

typedef struct {
  char tag;
  int a;
  double b;
  short s;
} Record;  // With padding.

static Record MakeRecord(int i) {
  Record record;
  record.tag = (char)i;
  record.a = i * 3;
  record.b = i * 0.5;
  record.s = (short)i;
  return record;
}

HPVM_KERNEL void stencil(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  y[i] = x[i] + x[i + 1] + x[i + 2] + (float)n;
}

HPVM_KERNEL void structs(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  Record records[4];
  for (int k = 0; k < 4; ++k) {
    records[k] = MakeRecord(i + k);
  }
  Record first = records[i & 3], second;
  second = first;
  records[1] = second;
  y[i] = (float)(second.a + second.b + second.s + second.tag + records[1].a) + x[i] + (float)n;
}

HPVM_KERNEL void copies(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  float tile[16], sum = (float)n;
  memcpy(tile, x + i, 8 * sizeof(float));
  memset(tile + 8, 0, 8 * sizeof(float));
  for (int k = 0; k < 16; ++k) {
    sum += tile[k];
  }
  y[i] = sum;
}

HPVM_KERNEL void strides(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0), count = (int)hpvm_instance_count(0);
  float* to = y + i;
  for (const float* from = x + i; from < x + n; from += count, to += count) {
    *to = *from * 2;
  }
}

// Walks two buffers with one difference of their addresses, as compilers do.
HPVM_KERNEL void differences(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  ptrdiff_t apart = (const char*)y - (const char*)x;
  for (const float* from = x + i; from < x + i + 1; ++from) {
    *(float*)((char*)from + apart) = *from + (float)n;
  }
}

typedef float (*Function)(float);
static float Twice(float value) { return value * 2; }
static float Negative(float value) { return -value; }
static Function functions[2] = {Twice, Negative};

HPVM_KERNEL void pointers(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  const float* sources[2] = {x, x + n / 2};
  float local[3] = {1, 2, 3};
  float* targets[2] = {&y[i], &local[i % 3]};
  *targets[0] = functions[i & 1](*sources[i & 1]);
  *targets[1] += 1;
  y[i] += local[0];
}

HPVM_KERNEL void lengths(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0), count = (i & 7) + 1;
  float values[count], sum = (float)n;
  for (int k = 0; k < count; ++k) {
    values[k] = x[k];
  }
  for (int k = count - 1; k >= 0; --k) {
    sum += values[k];
  }
  y[i] = sum;
}

static int Fibonacci(int k, float* sum) {
  float here[2] = {(float)k, (float)k};
  *sum += here[k & 1];
  return k < 2 ? k : Fibonacci(k - 1, sum) + Fibonacci(k - 2, sum);
}
HPVM_KERNEL void recursion(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  float sum = x[i] + (float)n;
  y[i] = (float)Fibonacci(i & 7, &sum) + sum;
}

static float SumOf(int count, ...) {
  va_list list;
  va_start(list, count);
  double sum = 0;
  for (int k = 0; k < count; ++k) {
    sum += (k & 1) != 0 ? va_arg(list, int) : va_arg(list, double);
  }
  va_end(list);
  return (float)sum;
}
HPVM_KERNEL void variadic(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  y[i] = SumOf(3, (double)x[i], n, 0.5);
}

HPVM_KERNEL void sorting(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  float values[8];
  for (int k = 0; k < 8; ++k) {
    values[k] = x[(i + k) % n];
  }
  for (int a = 1; a < 8; ++a) {
    for (int b = a; b > 0 && values[b] < values[b - 1]; --b) {
      float swapped = values[b];
      values[b] = values[b - 1];
      values[b - 1] = swapped;
    }
  }
  y[i] = values[3];
}

static int counter;
static float scratch[64];
HPVM_KERNEL void statics(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  scratch[i] = x[i];
  counter += n;
  y[i] = scratch[i] + scratch[0] + (float)counter;
}

HPVM_KERNEL void histogram(const float* x, int* y, int n) {
  int i = (int)hpvm_instance_id(0);
  hpvm_atomic_add_i32(&y[(int)(x[i] * 4) & 7], n);
}

HPVM_KERNEL void reduction(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0), local = (int)hpvm_local_id(0), size = (int)hpvm_group_size(0);
  float* part = hpvm_local_alloc((size_t)size * sizeof(float));
  part[local] = x[i] + (float)n;
  hpvm_barrier();
  for (int step = size / 2; step > 0; step /= 2) {
    if (local < step) {
      part[local] += part[local + step];
    }
    hpvm_barrier();
  }
  if (local == 0) {
    y[hpvm_group_id(0)] = part[0];
  }
}

// Two buffers in group memory, one barrier for each step.
HPVM_KERNEL void scan(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0), local = (int)hpvm_local_id(0), size = (int)hpvm_group_size(0), now = 0;
  float* part = hpvm_local_alloc(2 * (size_t)size * sizeof(float));
  part[local] = x[i] + (float)n;
  hpvm_barrier();
  for (int step = 1; step < size; step *= 2, now = 1 - now) {
    float before = local >= step ? part[now * size + local - step] : 0;
    part[(1 - now) * size + local] = part[now * size + local] + before;
    hpvm_barrier();
  }
  y[i] = part[now * size + local];
}

// The group's tile is filled again: all readers must have finished first.
HPVM_KERNEL void tiles(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0), local = (int)hpvm_local_id(0), size = (int)hpvm_group_size(0);
  float* tile = hpvm_local_alloc((size_t)size * sizeof(float));
  float sum = 0;
  for (int first = 0; first < n; first += size) {
    tile[local] = x[first + local];
    hpvm_barrier();
    for (int k = 0; k < size; ++k) {
      sum += tile[k];
    }
    hpvm_barrier();
  }
  y[i] = sum;
}

// Each kernel from here on has a fault.

HPVM_KERNEL void bad_tiles(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0), local = (int)hpvm_local_id(0), size = (int)hpvm_group_size(0);
  float* tile = hpvm_local_alloc((size_t)size * sizeof(float));
  float sum = 0;
  for (int first = 0; first < n; first += size) {
    tile[local] = x[first + local];
    hpvm_barrier();
    for (int k = 0; k < size; ++k) {
      sum += tile[k];
    }
  }
  y[i] = sum;
}

HPVM_KERNEL void bad_halves(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  y[i / 2] = x[i] + (float)n;
}

HPVM_KERNEL void bad_in_place(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  y[i + 1] = x[i];
  y[i] = (float)n;
}

HPVM_KERNEL void bad_mixed_atomics(const float* x, int* y, int n) {
  int i = (int)hpvm_instance_id(0);
  hpvm_atomic_add_i32(&y[0], n);
  if (x[i] < 0) {
    y[0] = 0;
  }
  if (i == 63) {
    y[0] = 1;
  }
}

static void SetSometimes(float* value, int i) {
  if (i != 5) {
    *value = 1;
  }
}
HPVM_KERNEL void bad_unset(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  volatile float values[2];
  SetSometimes((float*)&values[0], i);
  y[i] = values[0] + x[i] + (float)n;
}

HPVM_KERNEL void bad_output_read(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  y[i] += x[i] + (float)n;
}

HPVM_KERNEL void bad_group_read(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0), local = (int)hpvm_local_id(0), size = (int)hpvm_group_size(0);
  float* part = hpvm_local_alloc((size_t)(size + 1) * sizeof(float));
  part[local] = x[i] + (float)n;
  hpvm_barrier();
  y[i] = part[local + 1];
}

HPVM_KERNEL void bad_far(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  ((float*)x)[i + (1 << 15)] = (float)n;
  y[i + 64] = 0;
}

HPVM_KERNEL void bad_near(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  y[i] = ((const float*)0 + 1024)[i] + ((const float*)((const char*)x - 131072) + 1024)[i] + (float)n;
}

HPVM_KERNEL void bad_barrier(const float* x, float* y, int n) {
  int i = (int)hpvm_instance_id(0);
  y[i] = (float)n;
  if (x[i] < 16) {
    hpvm_barrier();
  }
}
