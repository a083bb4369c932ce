-cl-mad-enable -D N=3
typedef struct { float x; int y; } pair;
constant float table[4] = {1, 2, 3, 4};
__attribute__((reqd_work_group_size(16, 4, 1)))
kernel void k(global int* a, int n) {
  size_t i = get_global_id(0) + get_global_id(1) * get_global_size(0);
  float private_[16];
  for (int k = 0; k < 16; ++k) private_[k] = table[k & 3] * k;
  int e; float m = frexp(v[i].x, &e);
  switch (i & 7) { case 1: m += 1; break; case 3: m *= e; break; default: m = pow(m, 2.5f); }
  atomic_add((volatile global int*)&p[i].y, 3);
  t[get_local_id(0)] = m; barrier(CLK_LOCAL_MEM_FENCE);
  v[i] = vload4(i & 1, (global float*)v) + (float4)(m, (float)d, private_[i & 15], t[0]);
}
__kernel void scale(__global const float *in, __global float *out, int n, float s, __constant float* w) {
  size_t i = get_global_id(0);
  __local float t[64];
  t[get_local_id(0)] = in[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (i < n) out[i] = sqrt(t[get_local_id(0)]) * s + sin(w[i & 3]) + native_exp(s);
}
