// SPDX-License-Identifier: Apache-2.0
// Records of odd sizes, found by bisection, pointers and trees: several accesses at one sum, constants added inside it
// and subtracted from it.
#include "common.h"
#include "hpvm.h"

typedef struct {
  double energy, q[5];
} Grid;  // 48 bytes.

HPVM_KERNEL void grid_build(const double* restrict energies, const double* restrict q, Grid* restrict grid,
                            int points) {
  int p = X, at = Y * points + p;
  grid[at].energy = energies[at];
  for (int k = 0; k < 5; ++k) {
    grid[at].q[k] = q[at * 5 + k];
  }
}

HPVM_KERNEL void lookup(const int* restrict count, const double* restrict amount, const int* restrict nuclide,
                        const Grid* restrict grid, int* restrict largest, int points, int nuclides_max) {
  int i = X;
  double energy = (double)(Mix64(2u * (uint32_t)i) >> 11) * 0x1p-53;
  int material = (int)(Mix64(2u * (uint32_t)i + 1) % 12);
  double sum[5] = {0, 0, 0, 0, 0};
  for (int j = 0; j < count[material]; ++j) {
    const Grid* first = grid + nuclide[material * nuclides_max + j] * points;
    int low = 0, high = points - 1;
    while (high - low > 1) {
      int middle = (low + high) / 2;
      if (first[middle].energy > energy) {
        high = middle;
      } else {
        low = middle;
      }
    }
    int place = low == points - 1 ? low - 1 : low;
    const Grid *below = first + place, *above = first + (place + 1);
    double weight = (above->energy - energy) / (above->energy - below->energy);
    for (int k = 0; k < 5; ++k) {
      sum[k] += (above->q[k] - weight * (above->q[k] - below->q[k])) * amount[material * nuclides_max + j];
    }
  }
  int best = 0;
  for (int k = 1; k < 5; ++k) {
    best = sum[k] > sum[best] ? k : best;
  }
  largest[i] = best + 1;
}

typedef struct {
  double at[3], speed[3];
  float mass, charge;
  int32_t kind, hits;
  double energy;
} Particle;  // 72 bytes.

HPVM_KERNEL void particle_make(const double* restrict numbers, Particle* restrict out) {
  int i = X;
  Particle p;
  for (int k = 0; k < 3; ++k) {
    p.at[k] = numbers[6 * i + k];
    p.speed[k] = numbers[6 * i + 3 + k] - 0.5;
  }
  p.mass = 1.0f + (float)(i % 7) * 0.25f;
  p.charge = i % 2 ? 1.0f : -1.0f;
  p.kind = i % 5;
  p.hits = 0;
  p.energy = 0;
  out[i] = p;
}

HPVM_KERNEL void particle_push(const Particle* restrict in, const double* restrict field, Particle* restrict out,
                               double dt) {
  int i = X;
  Particle p = in[i];
  if (p.mass == 0.0f) {
    p.mass = 1.0f + (float)(i % 7) * 0.25f;
    p.charge = i % 2 ? 1.0f : -1.0f;
    p.kind = i % 5;
  }
  for (int k = 0; k < 3; ++k) {
    int cell = (int)(p.at[k] * 16.0) & 15;
    p.speed[k] += dt * (double)p.charge / (double)p.mass * field[3 * cell + k];
    p.at[k] += dt * p.speed[k];
    if (p.at[k] < 0.0 || p.at[k] >= 1.0) {
      p.at[k] -= hpvm_floor_f64(p.at[k]);
      p.hits += 1 + p.kind;
    }
  }
  p.energy = 0.5 * (double)p.mass * (p.speed[0] * p.speed[0] + p.speed[1] * p.speed[1] + p.speed[2] * p.speed[2]);
  out[i] = p;
}

HPVM_KERNEL void particle_sum(const Particle* restrict in, double* restrict energy, int* restrict hits, int stride) {
  int i = X;
  double sum = 0;
  int count = 0;
  for (int k = 0; k < stride; ++k) {
    sum += in[i * stride + k].energy;
    count += in[i * stride + k].hits;
  }
  energy[i] = sum;
  hits[i] = count;
}

typedef struct {
  double weight;
  float value;
  uint16_t tag;
  uint8_t low, high;
  int32_t next, pad;
} Link;  // 24 bytes.

HPVM_KERNEL void link_make(const int* restrict order, const float* restrict values, Link* restrict links, int n) {
  int i = X;
  links[i].weight = (double)values[n - 1 - i] * 0.75;
  links[i].value = values[i];
  links[i].tag = (uint16_t)(Mix32((uint32_t)i) >> 5);
  links[i].low = (uint8_t)(i * 3);
  links[i].high = (uint8_t)(255 - i);
  links[i].next = order[i];
  links[i].pad = -1;
}

HPVM_KERNEL void link_walk(const Link* restrict links, double* restrict sums, uint32_t* restrict tags, int steps) {
  int i = X, at = i;
  double sum = 0;
  uint32_t tag = 0;
  for (int s = 0; s < steps; ++s) {
    const Link* link = links + at;
    sum += link->high > link->low ? link->weight : (double)link->value;
    tag = tag * 31u + link->tag + ((uint32_t)link->low << 8) + link->high;
    at = link->next;
  }
  sums[i] = sum;
  tags[i] = tag;
}

typedef struct {
  float x, y;
  int16_t a, b;
  uint8_t code[4];
} Small;  // 16 bytes.

HPVM_KERNEL void small_make(const uint32_t* restrict bits, Small* restrict out) {
  int i = X;
  uint32_t r = bits[i];
  Small s = {(float)(r & 1023u),
             (float)(r >> 22),
             (int16_t)r,
             (int16_t)(r >> 16),
             {(uint8_t)r, (uint8_t)(r >> 8), (uint8_t)(r >> 16), (uint8_t)(r >> 24)}};
  out[i] = s;
}

HPVM_KERNEL void small_nearest(const Small* restrict all, int* restrict nearest, float* restrict distance, int n) {
  int i = X, best = -1;
  float least = 1e30f;
  for (int k = 0; k < n; ++k) {
    if (k == i || all[k].code[0] % 4 != all[i].code[1] % 4) {
      continue;
    }
    float dx = all[k].x - all[i].x, dy = all[k].y - all[i].y;
    float d = dx * dx + dy * dy + (float)(all[k].a > all[i].b);
    if (d < least) {
      least = d;
      best = k;
    }
  }
  nearest[i] = best;
  distance[i] = least;
}

typedef struct {
  int64_t low, high;
  double weight;
  int32_t group, count;
  float scale, shift;
} Span;  // 40 bytes.

HPVM_KERNEL void span_make(const int64_t* restrict starts, Span* restrict spans) {
  int i = X;
  uint32_t r = Mix32((uint32_t)i * 7u + 1u);
  Span s = {starts[i],      starts[i] + (int64_t)(r % 4096u), (double)(r % 97u) / 8.0, (int32_t)(r >> 28), 0, 0.5f,
            (float)(r % 5u)};
  spans[i] = s;
}

HPVM_KERNEL void span_find(const Span* restrict spans, const int64_t* restrict keys, double* restrict total,
                           int* restrict first, int n) {
  int i = X, low = 0, high = n;
  int64_t key = keys[i];
  while (low < high) {  // Finds the first record that begins behind the key.
    int middle = low + (high - low) / 2;
    if (spans[middle].low <= key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  double sum = 0;
  int found = -1;
  for (int k = low - 1; k >= 0 && k >= low - 12; --k) {
    if (spans[k].high > key) {
      sum += spans[k].weight * (double)spans[k].scale - (double)spans[k].shift;
      found = k;
    }
  }
  total[i] = sum;
  first[i] = found;
}

typedef struct {
  float low[3];
  int32_t left;
  float high[3];
  int32_t right;
} Box;  // 32 bytes; a heap of boxes.

HPVM_KERNEL void box_leaves(const float* restrict points, Box* boxes, int leaves) {
  int i = X;
  Box* box = boxes + (leaves - 1 + i);
  for (int k = 0; k < 3; ++k) {
    box->low[k] = points[3 * i + k];
    box->high[k] = points[3 * i + k] + 0.05f;
  }
  box->left = -1;
  box->right = i;
}

// One launch makes all inner boxes, each from its leaves.
HPVM_KERNEL void box_inner(Box* boxes, int leaves) {
  int i = X, first = i, last = i;
  while (first < leaves - 1) {
    first = 2 * first + 1;
    last = 2 * last + 2;
  }
  Box box = boxes[first];
  for (int at = first + 1; at <= last; ++at) {
    for (int k = 0; k < 3; ++k) {
      box.low[k] = hpvm_min_f32(box.low[k], boxes[at].low[k]);
      box.high[k] = hpvm_max_f32(box.high[k], boxes[at].high[k]);
    }
  }
  box.left = 2 * i + 1;
  box.right = 2 * i + 2;
  boxes[i] = box;
}

HPVM_KERNEL void box_query(const Box* restrict boxes, const float* restrict queries, int* restrict hits,
                           int* restrict sums) {
  int i = X, stack[32], top = 0, count = 0, sum = 0;
  float q[3] = {queries[3 * i], queries[3 * i + 1], queries[3 * i + 2]};
  stack[top++] = 0;
  while (top > 0) {
    const Box* box = boxes + stack[--top];
    int is_out = 0;
    for (int k = 0; k < 3; ++k) {
      is_out |= box->low[k] > q[k] + 0.1f || box->high[k] < q[k] - 0.1f;
    }
    if (is_out) {
      continue;
    }
    if (box->left < 0) {
      ++count;
      sum += box->right;
    } else {
      stack[top++] = box->left;
      stack[top++] = box->right;
    }
  }
  hits[i] = count;
  sums[i] = sum;
}

HPVM_KERNEL void table_insert(const uint32_t* restrict keys, int32_t* table, int mask) {
  int32_t key = (int32_t)(keys[X] | 1u);
  int at = (int)(Mix32((uint32_t)key) & (uint32_t)mask);
  for (int tries = 0; tries <= mask; ++tries) {
    int32_t old = hpvm_atomic_cmpxchg_i32(table + at, 0, key);
    if (old == 0 || old == key) {
      return;
    }
    at = (at + 1) & mask;
  }
}

HPVM_KERNEL void table_find(const int32_t* restrict table, const uint32_t* restrict keys, uint8_t* restrict found,
                            int mask) {
  int i = X;
  int32_t key = (int32_t)(keys[i] | 1u);
  int at = (int)(Mix32((uint32_t)key) & (uint32_t)mask);
  uint8_t is_found = 0;
  for (int tries = 0; tries <= mask && table[at] != 0 && !is_found; ++tries) {
    is_found = table[at] == key;
    at = (at + 1) & mask;
  }
  found[i] = is_found;
}

typedef struct {
  float r, g, b, a, u, v, w, x, y, z, s, t;
} Vertex;  // 48 bytes of floats.

HPVM_KERNEL void vertex_split(const Vertex* restrict in, float* restrict planes, int n) {
  int i = X;
  const Vertex* v = in + i;
  planes[i] = v->r + v->t;
  planes[n + i] = v->g - v->s;
  planes[2 * n + i] = v->b * v->z;
  planes[3 * n + i] = v->a + v->y;
  planes[4 * n + i] = v->u - v->x;
  planes[5 * n + i] = v->v * v->w;
}

HPVM_KERNEL void vertex_join(const float* restrict planes, const Vertex* restrict in, Vertex* restrict out, int n) {
  int i = X, j = i + 1 < n ? i + 1 : 0;
  Vertex v = in[j];
  v.r = planes[i];
  v.y = planes[5 * n + j];
  v.t = planes[3 * n + i] - planes[4 * n + j];
  out[i] = v;
}
