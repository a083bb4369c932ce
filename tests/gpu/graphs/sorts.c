// SPDX-License-Identifier: Apache-2.0
// Sorting, scans, histograms and compaction: group memory, barriers, atomics, offsets from data.
#include "common.h"
#include "hpvm.h"

// Blocks of 512 in groups of 512, with 4 KiB of group memory.
HPVM_KERNEL void bitonic(const uint64_t* restrict in, uint64_t* restrict out, int n) {
  uint64_t* keys = hpvm_local_alloc(512 * sizeof(uint64_t));
  int t = (int)hpvm_local_id(0), at = X;
  keys[t] = at < n ? in[at] : ~0ull;
  for (int size = 2; size <= 512; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      hpvm_barrier();
      int other = t ^ step;
      if (other > t) {
        uint64_t a = keys[t], b = keys[other];
        if (((t & size) == 0) == (a > b)) {
          keys[t] = b;
          keys[other] = a;
        }
      }
    }
  }
  hpvm_barrier();
  out[at] = keys[t];
}

static int RankIn(const uint64_t* keys, int low, int high, uint64_t key, int takes_equal) {
  int first = low;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (takes_equal ? keys[middle] <= key : keys[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - first;
}

// Sorted runs of `width` become runs of twice that: each element computes its position.
HPVM_KERNEL void merge_runs(const uint64_t* restrict in, const int* restrict width, uint64_t* restrict out,
                            int* restrict next_width, int n) {
  int i = X, w = width[0], run = i / w, pair = run ^ 1;
  int low = Least(pair * w, n), high = Least(pair * w + w, n);
  int rank = RankIn(in, low, high, in[i], run & 1);
  out[(run & ~1) * w + (i - run * w) + rank] = in[i];
  if (i == 0) {
    next_width[0] = 2 * w;
  }
}

enum { kBlock = 64 };

HPVM_KERNEL void radix_count(const uint32_t* restrict keys, const int* restrict shift, int* restrict counts, int n,
                             int blocks) {
  int b = X, digit[16];
  for (int d = 0; d < 16; ++d) {
    digit[d] = 0;
  }
  for (int i = b * kBlock; i < Least(n, (b + 1) * kBlock); ++i) {
    ++digit[keys[i] >> shift[0] & 15u];
  }
  for (int d = 0; d < 16; ++d) {
    counts[d * blocks + b] = digit[d];
  }
}

// A single instance suffices: the table is short.
HPVM_KERNEL void radix_scan(int* counts, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) {
    int here = counts[i];
    counts[i] = sum;
    sum += here;
  }
}

HPVM_KERNEL void radix_scatter(const uint32_t* restrict keys, const int* restrict shift, const int* restrict starts,
                               uint32_t* restrict out, int* restrict next_shift, int n, int blocks) {
  int b = X, at[16];
  for (int d = 0; d < 16; ++d) {
    at[d] = starts[d * blocks + b];
  }
  for (int i = b * kBlock; i < Least(n, (b + 1) * kBlock); ++i) {
    out[at[keys[i] >> shift[0] & 15u]++] = keys[i];
  }
  if (b == 0) {
    next_shift[0] = (shift[0] + 4) & 31;
  }
}

typedef struct {
  int32_t key;
  float payload[2];
} Item;  // 12 bytes.

HPVM_KERNEL void odd_even(const Item* restrict in, Item* restrict out, int n) {
  Item* items = hpvm_local_alloc(100 * sizeof(Item));
  int t = (int)hpvm_local_id(0), base = X - t, count = Least(100, n - base);
  items[t] = in[X];
  for (int round = 0; round < 100; ++round) {
    hpvm_barrier();
    if ((t & 1) == (round & 1) && t + 1 < count && items[t].key > items[t + 1].key) {
      Item swap = items[t];
      items[t] = items[t + 1];
      items[t + 1] = swap;
    }
  }
  hpvm_barrier();
  out[X] = items[t];
}

HPVM_KERNEL void scan_block(const uint32_t* restrict in, uint32_t* restrict out, uint32_t* restrict sums) {
  uint32_t* both = hpvm_local_alloc(2 * 128 * sizeof(uint32_t));
  int t = (int)hpvm_local_id(0), side = 0;
  both[t] = in[X];
  for (int step = 1; step < 128; step *= 2) {
    hpvm_barrier();
    uint32_t v = both[side * 128 + t];
    side ^= 1;
    both[side * 128 + t] = t >= step ? v + both[(side ^ 1) * 128 + t - step] : v;
  }
  out[X] = both[side * 128 + t];
  hpvm_barrier();
  if (t == 0) {
    int count = Least(128, (int)hpvm_instance_count(0) - X);
    sums[(int)hpvm_group_id(0)] = both[side * 128 + count - 1];
  }
}

HPVM_KERNEL void scan_add(const uint32_t* restrict blocks, const uint32_t* restrict sums, uint32_t* restrict out) {
  int i = X;
  uint32_t before = 0;
  for (int b = 0; b < i / 128; ++b) {
    before += sums[b];
  }
  out[i] = blocks[i] + before;
}

// Up and down a tree of 256 doubles: the order of additions is fixed, so the bits are.
HPVM_KERNEL void scan_tree(const double* restrict in, double* restrict out) {
  double* tree = hpvm_local_alloc(256 * sizeof(double));
  int t = (int)hpvm_local_id(0), base = (int)hpvm_group_id(0) * 256;
  tree[2 * t] = in[base + 2 * t];
  tree[2 * t + 1] = in[base + 2 * t + 1];
  int offset = 1;
  for (int d = 128; d > 0; d /= 2) {
    hpvm_barrier();
    if (t < d) {
      tree[offset * (2 * t + 2) - 1] += tree[offset * (2 * t + 1) - 1];
    }
    offset *= 2;
  }
  if (t == 0) {
    tree[255] = 0;
  }
  for (int d = 1; d < 256; d *= 2) {
    offset /= 2;
    hpvm_barrier();
    if (t < d) {
      double left = tree[offset * (2 * t + 1) - 1];
      tree[offset * (2 * t + 1) - 1] = tree[offset * (2 * t + 2) - 1];
      tree[offset * (2 * t + 2) - 1] += left;
    }
  }
  hpvm_barrier();
  out[base + 2 * t] = tree[2 * t];
  out[base + 2 * t + 1] = tree[2 * t + 1];
}

HPVM_KERNEL void histogram(const uint8_t* restrict in, int32_t* counts, int n) {
  for (int i = X; i < n; i += (int)hpvm_instance_count(0)) {
    hpvm_atomic_add_i32(counts + in[i], 1);
  }
}

HPVM_KERNEL void histogram_group(const uint16_t* restrict in, int32_t* counts, int n) {
  int32_t* own = hpvm_local_alloc(64 * sizeof(int32_t));
  if (X < n) {
    hpvm_atomic_add_i32(own + (in[X] >> 10), 1 + (in[X] & 1));
  }
  hpvm_barrier();
  hpvm_atomic_add_i32(counts + hpvm_local_id(0), own[hpvm_local_id(0)]);
}

HPVM_KERNEL void equalize(const uint8_t* restrict in, const int32_t* restrict counts, uint8_t* restrict out, int n) {
  int i = X, sum = 0;
  for (int k = 0; k <= in[i]; ++k) {
    sum += counts[k];
  }
  out[i] = (uint8_t)((int64_t)sum * 255 / n);
}

HPVM_KERNEL void extremes(const int64_t* restrict in, int64_t* ends) {
  hpvm_atomic_min_s_i64(ends, in[X]);
  hpvm_atomic_max_s_i64(ends + 1, in[X]);
  hpvm_atomic_xor_i64(ends + 2, in[X]);
  hpvm_atomic_add_i64(ends + 3, in[X] >> 7);
}

HPVM_KERNEL void keep_count(const int* restrict in, int* restrict counts, int n) {
  int b = X, count = 0;
  for (int i = b * 32; i < Least(n, b * 32 + 32); ++i) {
    count += in[i] % 3 == 0;
  }
  counts[b] = count;
}

HPVM_KERNEL void keep_place(const int* restrict counts, int* restrict starts, uint32_t* restrict total, int blocks) {
  int sum = 0;
  for (int b = 0; b < blocks; ++b) {
    starts[b] = sum;
    sum += counts[b];
  }
  total[0] = (uint32_t)sum;
}

HPVM_KERNEL void keep_move(const int* restrict in, const int* restrict starts, int* restrict out, int n) {
  int b = X, at = starts[b];
  for (int i = b * 32; i < Least(n, b * 32 + 32); ++i) {
    if (in[i] % 3 == 0) {
      out[at++] = in[i];
    }
  }
}

// Launched with as many instances as elements were kept.
HPVM_KERNEL void keep_use(const uint32_t* restrict total, const int* restrict kept, int* restrict out) {
  int i = X, n = (int)total[0];
  out[i] = kept[i] - kept[n - 1 - i] + (int)hpvm_instance_count(0);
}

// The largest 16 of a row, in a heap on the stack.
HPVM_KERNEL void largest16(const float* restrict in, float* restrict out, int n) {
  float heap[16];
  const float* row = in + X * n;
  for (int i = 0; i < 16; ++i) {
    heap[i] = -1e30f;
  }
  for (int i = 0; i < n; ++i) {
    if (row[i] <= heap[0]) {
      continue;
    }
    int at = 0;
    for (;;) {
      int child = 2 * at + 1;
      if (child >= 16) {
        break;
      }
      if (child + 1 < 16 && heap[child + 1] < heap[child]) {
        ++child;
      }
      if (heap[child] >= row[i]) {
        break;
      }
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = row[i];
  }
  for (int i = 0; i < 16; ++i) {
    out[X * 16 + i] = heap[i];
  }
}

HPVM_KERNEL void segment_sum(const double* restrict in, const int* restrict starts, double* restrict sums) {
  int s = X;
  double sum = 0;
  for (int i = starts[s]; i < starts[s + 1]; ++i) {
    sum += in[i];
  }
  sums[s] = sum;
}

HPVM_KERNEL void segment_share(const double* restrict in, const int* restrict starts, const double* restrict sums,
                               double* restrict out, int n) {
  int i = X, low = 0, high = n;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (starts[middle] <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  out[i] = in[i] / (1.0 + sums[low]);
}
