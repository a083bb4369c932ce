// SPDX-License-Identifier: Apache-2.0
// Graphs of nodes and edges, in rows of neighbours: levels, ranks, labels, distances, triangles.
#include "common.h"
#include "hpvm.h"

// A node's neighbours are computed from its number, so that no list is read.
HPVM_KERNEL void edges_make(const int* restrict starts, int* restrict ends, int n) {
  for (int k = starts[X]; k < starts[X + 1]; ++k) {
    ends[k] = (int)(Mix32((uint32_t)(X * 31 + (k - starts[X]))) % (uint32_t)n);
  }
}

// Sets `done` when a repetition has reached no new node.
HPVM_KERNEL void bfs_level(const int* restrict starts, const int* restrict ends, const int* restrict level,
                           const int* restrict depth, int* restrict next, int* restrict reached,
                           int* restrict next_depth) {
  int d = depth[0], here = level[X];
  if (X == 0) {
    here = 1;
    next_depth[0] = d + 1;
  }
  int is_new = 0;
  for (int k = starts[X]; here == 0 && k < starts[X + 1]; ++k) {
    int other = ends[k] == 0 ? 1 : level[ends[k]];
    if (other != 0 && other <= d + 1) {
      here = d + 2;
      is_new = 1;
    }
  }
  next[X] = here;
  reached[X] = is_new;
}

HPVM_KERNEL void bfs_done(const int* restrict reached, int32_t* restrict done, int n) {
  int any = 0;
  for (int i = 0; i < n; ++i) {
    any |= reached[i];
  }
  done[0] = any == 0;
}

HPVM_KERNEL void rank_share(const int* restrict starts, const double* restrict rank, double* restrict share) {
  int degree = starts[X + 1] - starts[X];
  share[X] = degree == 0 ? 0.0 : rank[X] / (double)degree;
}

HPVM_KERNEL void rank_pull(const int* restrict starts, const int* restrict ends, const double* restrict share,
                           double* restrict rank, int n) {
  double sum = 0;
  for (int k = starts[X]; k < starts[X + 1]; ++k) {
    sum += share[ends[k]];
  }
  rank[X] = 0.15 / (double)n + 0.85 * sum;
}

HPVM_KERNEL void label_least(const int* restrict starts, const int* restrict ends, const int* restrict labels,
                             int32_t* next) {
  int least = labels[X];
  for (int k = starts[X]; k < starts[X + 1]; ++k) {
    least = Least(least, labels[ends[k]]);
  }
  hpvm_atomic_min_s_i32(next + X, least);
  for (int k = starts[X]; k < starts[X + 1]; ++k) {
    hpvm_atomic_min_s_i32(next + ends[k], least);
  }
}

typedef struct {
  int32_t from, to, cost;
} Edge;  // 12 bytes.

HPVM_KERNEL void relax_edge(const Edge* restrict edges, const int* restrict distance, int32_t* next, int n) {
  const Edge* e = edges + X;
  int from = e->from % n, to = e->to % n;
  hpvm_atomic_min_s_i32(next + to, (from == 0 ? 0 : distance[from]) + e->cost);
}

HPVM_KERNEL void rows_sort(const int* restrict starts, int* ends) {
  for (int i = starts[X] + 1; i < starts[X + 1]; ++i) {
    int v = ends[i], k = i;
    for (; k > starts[X] && ends[k - 1] > v; --k) {
      ends[k] = ends[k - 1];
    }
    ends[k] = v;
  }
}

HPVM_KERNEL void triangles(const int* restrict starts, const int* restrict ends, int* restrict count) {
  int sum = 0;
  for (int a = starts[X]; a < starts[X + 1]; ++a) {
    int y = ends[a];
    for (int b = starts[y]; b < starts[y + 1]; ++b) {
      int z = ends[b], low = starts[X], high = starts[X + 1];
      while (low < high) {
        int middle = low + (high - low) / 2;
        if (ends[middle] < z) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      sum += low < starts[X + 1] && ends[low] == z;
    }
  }
  count[X] = sum;
}

// Colours in the order of nodes' hashes: the least colour that no neighbour of a higher hash has.
HPVM_KERNEL void color(const int* restrict starts, const int* restrict ends, const int8_t* restrict colors,
                       int8_t* restrict next) {
  uint64_t used = 0;
  int waits = 0;
  uint32_t own = Mix32((uint32_t)X);
  for (int k = starts[X]; k < starts[X + 1]; ++k) {
    int other = ends[k];
    if (other != X && Mix32((uint32_t)other) > own) {
      waits |= colors[other] == 0;
      used |= 1ull << colors[other];
    }
  }
  next[X] = colors[X] != 0 || waits ? colors[X] : (int8_t)__builtin_ctzll(~(used | 1u));
}
