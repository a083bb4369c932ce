// SPDX-License-Identifier: Apache-2.0
// Dynamic programming: rows on the stack, rows passed from one repetition to the next, wavefronts within a group.
#include "common.h"
#include "hpvm.h"

enum { kLetters = 48 };

// One pair of sequences for each instance; the row is private to the instance.
HPVM_KERNEL void smith_waterman(const uint8_t* restrict a, const uint8_t* restrict b, int* restrict score,
                                int* restrict place, int length, int gap) {
  int i = X, best = 0, where = -1;
  int16_t row[kLetters + 1];
  for (int k = 0; k <= length; ++k) {
    row[k] = 0;
  }
  for (int y = 0; y < length; ++y) {
    int diagonal = 0, left = 0;
    for (int x = 1; x <= length; ++x) {
      int up = row[x];
      int v = diagonal + (a[i * length + y] == b[i * length + x - 1] ? 5 : -3);
      v = Most(Most(v, 0), Most(up - gap, left - gap));
      diagonal = up;
      left = v;
      row[x] = (int16_t)v;
      if (v > best) {
        best = v;
        where = y * length + x - 1;
      }
    }
  }
  score[i] = best;
  place[i] = where;
}

// One item for each repetition.
HPVM_KERNEL void knapsack(const int* restrict old, const int* restrict weights, const int* restrict values,
                          const int* restrict item, int* restrict next, int* restrict next_item, int items) {
  int c = X, k = item[0] % items, w = weights[k];
  int without = old[c], with = c >= w ? old[c - w] + values[k] : 0;
  next[c] = Most(with, without);
  if (c == 0) {
    next_item[0] = k + 1;
  }
}

// Bit-parallel longest common subsequence: 64 letters a word, the carry of additions from word to word.
HPVM_KERNEL void lcs_bits(const uint8_t* restrict a, const uint8_t* restrict b, int* restrict length, int n, int m) {
  int i = X;
  uint64_t match[4][2], row[2] = {~0ull, ~0ull};
  for (int c = 0; c < 4; ++c) {
    match[c][0] = match[c][1] = 0;
  }
  for (int k = 0; k < n; ++k) {
    match[a[i * n + k]][k >> 6] |= 1ull << (k & 63);
  }
  for (int k = 0; k < m; ++k) {
    uint64_t carry = 0;
    for (int w = 0; w < 2; ++w) {
      uint64_t u = row[w] & match[b[i * m + k]][w], sum = row[w] + u, all = sum + carry;
      carry = (sum < u) | (all < sum);
      row[w] = all | (row[w] & ~match[b[i * m + k]][w]);
    }
  }
  int zeros = 0;
  for (int k = 0; k < n; ++k) {
    zeros += (int)(~row[k >> 6] >> (k & 63) & 1);
  }
  length[i] = zeros;
}

// A group of 32 processes the diagonals of a square of distances.
HPVM_KERNEL void edit_wave(const uint8_t* restrict a, const uint8_t* restrict b, int* restrict distance) {
  int* cells = hpvm_local_alloc(3 * 33 * sizeof(int));
  int t = (int)hpvm_local_id(0), pair = (int)hpvm_group_id(0);
  for (int d = 0; d <= 64; ++d) {
    int* now = cells + d % 3 * 33;
    const int *last = cells + (d + 2) % 3 * 33, *before = cells + (d + 1) % 3 * 33;
    // Row r, column d - r; instance t handles row t, and the first one also row 32.
    for (int r = t; r <= 32; r += 32) {
      int c = d - r;
      if (c < 0 || c > 32) {
        continue;
      }
      if (r == 0 || c == 0) {
        now[r] = r + c;
      } else {
        int swap = before[r - 1] + (a[pair * 32 + r - 1] != b[pair * 32 + c - 1]);
        now[r] = Least(swap, Least(last[r - 1], last[r]) + 1);
      }
    }
    hpvm_barrier();
  }
  if (t == 0) {
    distance[pair] = cells[64 % 3 * 33 + 32];
  }
}

HPVM_KERNEL void viterbi(const double* restrict score, const double* restrict moves, const double* restrict emits,
                         const int* restrict step, double* restrict next, int* restrict from, int* restrict next_step,
                         int states, int steps) {
  int s = X, t = step[0] % steps, best = 0;
  double least = score[0] + moves[s];
  for (int k = 1; k < states; ++k) {
    double v = score[k] + moves[k * states + s];
    if (v < least) {
      least = v;
      best = k;
    }
  }
  next[s] = least + emits[t * states + s];
  from[s] = best;
  if (s == 0) {
    next_step[0] = t + 1;
  }
}

HPVM_KERNEL void shortest(const int* restrict d, const int* restrict step, int* restrict next, int* restrict next_step,
                          int n) {
  int x = X, y = Y, k = step[0] % n;
  next[y * n + x] = Least(d[y * n + x], d[y * n + k] + d[k * n + x]);
  if (x == 0 && y == 0) {
    next_step[0] = k + 1;
  }
}

// Folds a sequence of 40 letters: a group of 40, one diagonal of the triangle at a time.
HPVM_KERNEL void fold(const uint8_t* restrict letters, int* restrict pairs) {
  uint8_t* most = hpvm_local_alloc(40 * 40);
  int i = (int)hpvm_local_id(0), g = (int)hpvm_group_id(0);
  const uint8_t* s = letters + 40 * g;
  for (int d = 4; d < 40; ++d) {
    int j = i + d;
    if (j < 40) {
      int best = Most(most[(i + 1) * 40 + j], most[i * 40 + j - 1]);
      if (s[i] + s[j] == 3) {
        best = Most(best, most[(i + 1) * 40 + j - 1] + 1);
      }
      for (int k = i + 1; k < j; ++k) {
        best = Most(best, most[i * 40 + k] + most[(k + 1) * 40 + j]);
      }
      most[i * 40 + j] = (uint8_t)best;
    }
    hpvm_barrier();
  }
  if (i == 0) {
    pairs[g] = most[39];
  }
}

// Ways to give change, 64-bit, modulo a prime; the row is on the stack.
HPVM_KERNEL void change_ways(const int* restrict coins, uint64_t* restrict ways, int sum) {
  uint64_t row[96];
  for (int k = 0; k <= sum; ++k) {
    row[k] = k == 0;
  }
#pragma clang loop unroll(disable)
  for (int c = 0; c < 6; ++c) {
    int coin = coins[X * 6 + c];
    for (int k = coin; k <= sum; ++k) {
      row[k] = (row[k] * 3u + row[k - coin]) % 1000000007u;
    }
  }
  ways[X] = row[sum];
}
