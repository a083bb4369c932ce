// shadow_stack_wasm: median, sort
#pragma OPENCL FP_CONTRACT OFF
#ifdef __has_attribute
#if __has_attribute(may_alias)
#define ANY __attribute__((may_alias))
#endif
#endif
#ifndef ANY
#define ANY
#endif
typedef ushort ANY u16;
typedef uint ANY u32;
typedef ulong ANY u64;
typedef uint4 ANY u128;
// NVIDIA's compiler takes constants out of a 32-bit sum that wraps where the sum, extended, is a pointer's offset.
#ifdef __NV_CL_C_VERSION
#define AT(space, base, offset) ((space uchar*)((ulong)(base) + (offset)))
#else
#define AT(space, base, offset) ((base) + (offset))
#endif

// The first instance that traps fills in the launch's record.
#define HERE traps, trap_index, x, y, z
void record_trap(__global uint* traps, uint index, uint x, uint y, uint z, uint code, uint source, uint function,
                 uint address) {
  volatile __global uint* record = traps + 8ul * index;
  if (atomic_cmpxchg(record, 0u, 1u) == 0u) {
    record[1] = code;
    record[2] = x;
    record[3] = y;
    record[4] = z;
    record[5] = source;
    record[6] = function;
    record[7] = address;
  }
}

__kernel void unchecked(__global const uchar* b0,
    ulong start0,
    __global uchar* b1,
    ulong start1,
    uint s2,
    uint s3,
    uint first_x,
    uint first_y,
    uint first_z,
    __global uint* traps,
    uint trap_index) {
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  ulong own0[4] = {0ul};
  uint g0 = 65536u;
  uint v4 = g0;
  uint v6 = v4 - 32u;
  g0 = v6;
  uint v8 = x;
  uint v10 = y;
  uint v12 = (uint)((int)v10 > (int)0u);
  uint v13 = (uint)((int)v10 <= (int)s3);
  uint v14 = v12 & v13;
  uint v16 = v8 + 0xffffffffu;
  uint v18 = v10 + 0xffffffffu;
  uint v19 = v18 * s2;
  uint v21 = v19 << 1u;
  uint v22 = 131072u + v21;
  uint v23;
  uint v24;
  uint v26 = (uint)((int)v8 >= (int)1u);
  if (v26 != 0u) {
    goto end1;
  }
  v23 = v6;
  v24 = 0u;
  goto end0;
 end1:;
  uint v28 = (uint)((int)v8 <= (int)s2);
  if (v28 != 0u) {
    goto end3;
  }
  v23 = v6;
  v24 = 0u;
  goto end0;
 end3:;
  uint v31 = (uint)(v14 == 0u);
  if (v31 != 0u) {
    v23 = v6;
    v24 = 0u;
    goto end0;
  }
  uint v34 = v16 << 1u;
  uint v35 = v22 + v34;
  uint v36 = v35 - 131072u;
  uint v37 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v36)));
  *(__private u16*)((__private uchar*)own0 + min((v6 + 0xffff0020u), 30u)) = (ushort)v37;
  uint v39 = v6 | 2u;
  v23 = v39;
  v24 = 1u;
 end0:;
  uint v40 = (uint)((int)v8 < (int)s2);
  uint v41;
  uint v43 = (uint)((int)v8 < (int)0u);
  if (v43 != 0u) {
    v41 = v24;
    goto end6;
  }
  uint v44 = v40 & v14;
  uint v45 = (uint)(v44 == 0u);
  if (v45 != 0u) {
    v41 = v24;
    goto end6;
  }
  uint v47 = v8 << 1u;
  uint v48 = v22 + v47;
  uint v49 = v48 - 131072u;
  uint v50 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v49)));
  *(__private u16*)((__private uchar*)own0 + min((v23 + 0xffff0020u), 30u)) = (ushort)v50;
  uint v52 = v24 + 1u;
  v41 = v52;
 end6:;
  uint v53;
  uint v55 = (uint)((int)v8 < (int)0xffffffffu);
  if (v55 != 0u) {
    v53 = v41;
    goto end9;
  }
  uint v57 = v8 + 1u;
  uint v58 = (uint)((int)v57 < (int)s2);
  uint v59 = v58 & v14;
  uint v60 = (uint)(v59 == 0u);
  if (v60 != 0u) {
    v53 = v41;
    goto end9;
  }
  uint v62 = v41 << 1u;
  uint v63 = v6 | v62;
  uint v65 = v57 << 1u;
  uint v66 = v22 + v65;
  uint v67 = v66 - 131072u;
  uint v68 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v67)));
  *(__private u16*)((__private uchar*)own0 + min((v63 + 0xffff0020u), 30u)) = (ushort)v68;
  uint v70 = v41 + 1u;
  v53 = v70;
 end9:;
  uint v72 = (uint)((int)v10 > (int)0xffffffffu);
  uint v73 = (uint)((int)v10 < (int)s3);
  uint v74 = v72 & v73;
  uint v75 = v10 * s2;
  uint v77 = v75 << 1u;
  uint v78 = 131072u + v77;
  uint v79;
  uint v81 = (uint)((int)v8 < (int)1u);
  if (v81 != 0u) {
    v79 = v53;
    goto end12;
  }
  uint v82 = (uint)((int)v8 > (int)s2);
  if (v82 != 0u) {
    v79 = v53;
    goto end12;
  }
  uint v83 = (uint)(v74 == 0u);
  if (v83 != 0u) {
    v79 = v53;
    goto end12;
  }
  uint v85 = v53 << 1u;
  uint v86 = v6 | v85;
  uint v88 = v16 << 1u;
  uint v89 = v78 + v88;
  uint v90 = v89 - 131072u;
  uint v91 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v90)));
  *(__private u16*)((__private uchar*)own0 + min((v86 + 0xffff0020u), 30u)) = (ushort)v91;
  uint v93 = v53 + 1u;
  v79 = v93;
 end12:;
  uint v94;
  uint v96 = (uint)((int)v8 < (int)0u);
  if (v96 != 0u) {
    v94 = v79;
    goto end16;
  }
  uint v97 = v40 & v74;
  uint v98 = (uint)(v97 == 0u);
  if (v98 != 0u) {
    v94 = v79;
    goto end16;
  }
  uint v100 = v79 << 1u;
  uint v101 = v6 + v100;
  uint v103 = v8 << 1u;
  uint v104 = v78 + v103;
  uint v105 = v104 - 131072u;
  uint v106 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v105)));
  *(__private u16*)((__private uchar*)own0 + min((v101 + 0xffff0020u), 30u)) = (ushort)v106;
  uint v108 = v79 + 1u;
  v94 = v108;
 end16:;
  uint v109;
  uint v111 = (uint)((int)v8 < (int)0xffffffffu);
  if (v111 != 0u) {
    v109 = v94;
    goto end19;
  }
  uint v113 = v8 + 1u;
  uint v114 = (uint)((int)v113 < (int)s2);
  uint v115 = v114 & v74;
  uint v116 = (uint)(v115 == 0u);
  if (v116 != 0u) {
    v109 = v94;
    goto end19;
  }
  uint v118 = v94 << 1u;
  uint v119 = v6 + v118;
  uint v121 = v113 << 1u;
  uint v122 = v78 + v121;
  uint v123 = v122 - 131072u;
  uint v124 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v123)));
  *(__private u16*)((__private uchar*)own0 + min((v119 + 0xffff0020u), 30u)) = (ushort)v124;
  uint v126 = v94 + 1u;
  v109 = v126;
 end19:;
  uint v128 = (uint)((int)v10 > (int)0xfffffffeu);
  uint v130 = v10 + 1u;
  uint v131 = (uint)((int)v130 < (int)s3);
  uint v132 = v128 & v131;
  uint v133 = v130 * s2;
  uint v135 = v133 << 1u;
  uint v136 = 131072u + v135;
  uint v137;
  uint v139 = (uint)((int)v8 < (int)1u);
  if (v139 != 0u) {
    v137 = v109;
    goto end22;
  }
  uint v140 = (uint)((int)v8 > (int)s2);
  if (v140 != 0u) {
    v137 = v109;
    goto end22;
  }
  uint v141 = (uint)(v132 == 0u);
  if (v141 != 0u) {
    v137 = v109;
    goto end22;
  }
  uint v143 = v109 << 1u;
  uint v144 = v6 + v143;
  uint v146 = v16 << 1u;
  uint v147 = v136 + v146;
  uint v148 = v147 - 131072u;
  uint v149 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v148)));
  *(__private u16*)((__private uchar*)own0 + min((v144 + 0xffff0020u), 30u)) = (ushort)v149;
  uint v151 = v109 + 1u;
  v137 = v151;
 end22:;
  uint v152;
  uint v154 = (uint)((int)v8 < (int)0u);
  if (v154 != 0u) {
    v152 = v137;
    goto end26;
  }
  uint v155 = v40 & v132;
  uint v156 = (uint)(v155 == 0u);
  if (v156 != 0u) {
    v152 = v137;
    goto end26;
  }
  uint v158 = v137 << 1u;
  uint v159 = v6 + v158;
  uint v161 = v8 << 1u;
  uint v162 = v136 + v161;
  uint v163 = v162 - 131072u;
  uint v164 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v163)));
  *(__private u16*)((__private uchar*)own0 + min((v159 + 0xffff0020u), 30u)) = (ushort)v164;
  uint v166 = v137 + 1u;
  v152 = v166;
 end26:;
  uint v167;
  uint v169 = (uint)((int)v8 < (int)0xffffffffu);
  if (v169 != 0u) {
    v167 = v152;
    goto end29;
  }
  uint v171 = v8 + 1u;
  uint v172 = (uint)((int)v171 < (int)s2);
  uint v173 = v172 & v132;
  uint v174 = (uint)(v173 == 0u);
  if (v174 != 0u) {
    v167 = v152;
    goto end29;
  }
  uint v176 = v152 << 1u;
  uint v177 = v6 + v176;
  uint v179 = v171 << 1u;
  uint v180 = v136 + v179;
  uint v181 = v180 - 131072u;
  uint v182 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v181)));
  *(__private u16*)((__private uchar*)own0 + min((v177 + 0xffff0020u), 30u)) = (ushort)v182;
  uint v184 = v152 + 1u;
  v167 = v184;
 end29:;
  uint v186 = (uint)((int)v167 < (int)2u);
  if (v186 != 0u) {
    goto end33;
  }
  uint v189 = v6;
  uint v190 = 2u;
  uint v191 = 1u;
  for (;;) {
    uint v193 = v191 << 1u;
    uint v194 = v6 + v193;
    if ((ulong)v194 - 65504ul > 30ul) { record_trap(HERE, 131074u, 826u, 1u, (uint)(ulong)v194); return; }
    uint v195 = (uint)((uint)*(__private u16*)((__private uchar*)own0 + ((ulong)v194 - 65504ul)));
    uint v197 = v195 & 65535u;
    uint v198;
    uint v199;
    uint v200 = v189;
    uint v201 = v190;
    for (;;) {
      if ((ulong)v200 - 65504ul > 30ul) { record_trap(HERE, 131074u, 854u, 1u, (uint)(ulong)v200); return; }
      uint v202 = (uint)((uint)*(__private u16*)((__private uchar*)own0 + ((ulong)v200 - 65504ul)));
      uint v203 = (uint)(v202 <= v197);
      if (v203 != 0u) {
        v199 = v201;
        goto end37;
      }
      uint v205 = v200 + 2u;
      if ((ulong)v205 - 65504ul > 30ul) { record_trap(HERE, 131074u, 871u, 1u, (uint)(ulong)v205); return; }
      *(__private u16*)((__private uchar*)own0 + ((ulong)v205 - 65504ul)) = (ushort)v202;
      uint v207 = v200 + 0xfffffffeu;
      uint v209 = v201 + 0xffffffffu;
      uint v211 = (uint)((int)v209 > (int)1u);
      if (v211 != 0u) {
        v200 = v207;
        v201 = v209;
        continue;
      }
      break;
    }
    v198 = 0u;
    goto end36;
   end37:;
    uint v214 = v199 + 0xffffffffu;
    v198 = v214;
   end36:;
    uint v216 = v198 << 1u;
    uint v217 = v6 + v216;
    if ((ulong)v217 - 65504ul > 30ul) { record_trap(HERE, 131074u, 919u, 1u, (uint)(ulong)v217); return; }
    *(__private u16*)((__private uchar*)own0 + ((ulong)v217 - 65504ul)) = (ushort)v195;
    uint v219 = v189 + 2u;
    uint v221 = v190 + 1u;
    uint v223 = v191 + 1u;
    uint v224 = (uint)(v223 != v167);
    if (v224 != 0u) {
      v189 = v219;
      v190 = v221;
      v191 = v223;
      continue;
    }
    break;
  }
 end33:;
  uint v226 = v75 << 1u;
  uint v227 = 131072u + v226;
  uint v229 = v8 << 1u;
  uint v230 = v227 + v229;
  uint v232 = v167 & 510u;
  uint v233 = v6 + v232;
  uint v234 = (uint)((uint)*(__private u16*)((__private uchar*)own0 + min((v233 + 0xffff0020u), 30u)));
  uint v235 = v230 - 131072u;
  *(__global u16*)(AT(__global, p1, (ulong)v235)) = (ushort)v234;
  uint v237 = v6 + 32u;
  g0 = v237;
}

__kernel void checked(__global const uchar* b0,
    ulong n0,
    ulong start0,
    uint a0,
    __global uchar* b1,
    ulong n1,
    ulong start1,
    uint a1,
    uint s2,
    uint s3,
    uint first_x,
    uint first_y,
    uint first_z,
    __global uint* traps,
    uint trap_index) {
  const uint places0_2 = n0 >= 2ul ? (uint)(n0 - 1ul) : 0u;
  const uint places1_2 = n1 >= 2ul ? (uint)(n1 - 1ul) : 0u;
  __global const uchar* p0 = b0 + start0;
  __global uchar* p1 = b1 + start1;
  const uint x = first_x + (uint)get_global_id(0);
  const uint y = first_y + (uint)get_global_id(1);
  const uint z = first_z + (uint)get_global_id(2);
  ulong own0[4] = {0ul};
  uint g0 = 65536u;
  uint v4 = g0;
  uint v6 = v4 - 32u;
  g0 = v6;
  uint v8 = x;
  uint v10 = y;
  uint v12 = (uint)((int)v10 > (int)0u);
  uint v13 = (uint)((int)v10 <= (int)s3);
  uint v14 = v12 & v13;
  uint v16 = v8 + 0xffffffffu;
  uint v18 = v10 + 0xffffffffu;
  uint v19 = v18 * s2;
  uint v21 = v19 << 1u;
  uint v22 = 131072u + v21;
  uint v23;
  uint v24;
  uint v26 = (uint)((int)v8 >= (int)1u);
  if (v26 != 0u) {
    goto end1;
  }
  v23 = v6;
  v24 = 0u;
  goto end0;
 end1:;
  uint v28 = (uint)((int)v8 <= (int)s2);
  if (v28 != 0u) {
    goto end3;
  }
  v23 = v6;
  v24 = 0u;
  goto end0;
 end3:;
  uint v31 = (uint)(v14 == 0u);
  if (v31 != 0u) {
    v23 = v6;
    v24 = 0u;
    goto end0;
  }
  uint v34 = v16 << 1u;
  uint v35 = v22 + v34;
  uint v36 = v35 - 131072u;
  if (v36 >= places0_2) { record_trap(HERE, 131074u, 257u, 0u, (uint)(a0 + (ulong)v36)); return; }
  uint v37 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v36)));
  *(__private u16*)((__private uchar*)own0 + min((v6 + 0xffff0020u), 30u)) = (ushort)v37;
  uint v39 = v6 | 2u;
  v23 = v39;
  v24 = 1u;
 end0:;
  uint v40 = (uint)((int)v8 < (int)s2);
  uint v41;
  uint v43 = (uint)((int)v8 < (int)0u);
  if (v43 != 0u) {
    v41 = v24;
    goto end6;
  }
  uint v44 = v40 & v14;
  uint v45 = (uint)(v44 == 0u);
  if (v45 != 0u) {
    v41 = v24;
    goto end6;
  }
  uint v47 = v8 << 1u;
  uint v48 = v22 + v47;
  uint v49 = v48 - 131072u;
  if (v49 >= places0_2) { record_trap(HERE, 131074u, 305u, 0u, (uint)(a0 + (ulong)v49)); return; }
  uint v50 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v49)));
  *(__private u16*)((__private uchar*)own0 + min((v23 + 0xffff0020u), 30u)) = (ushort)v50;
  uint v52 = v24 + 1u;
  v41 = v52;
 end6:;
  uint v53;
  uint v55 = (uint)((int)v8 < (int)0xffffffffu);
  if (v55 != 0u) {
    v53 = v41;
    goto end9;
  }
  uint v57 = v8 + 1u;
  uint v58 = (uint)((int)v57 < (int)s2);
  uint v59 = v58 & v14;
  uint v60 = (uint)(v59 == 0u);
  if (v60 != 0u) {
    v53 = v41;
    goto end9;
  }
  uint v62 = v41 << 1u;
  uint v63 = v6 | v62;
  uint v65 = v57 << 1u;
  uint v66 = v22 + v65;
  uint v67 = v66 - 131072u;
  if (v67 >= places0_2) { record_trap(HERE, 131074u, 360u, 0u, (uint)(a0 + (ulong)v67)); return; }
  uint v68 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v67)));
  *(__private u16*)((__private uchar*)own0 + min((v63 + 0xffff0020u), 30u)) = (ushort)v68;
  uint v70 = v41 + 1u;
  v53 = v70;
 end9:;
  uint v72 = (uint)((int)v10 > (int)0xffffffffu);
  uint v73 = (uint)((int)v10 < (int)s3);
  uint v74 = v72 & v73;
  uint v75 = v10 * s2;
  uint v77 = v75 << 1u;
  uint v78 = 131072u + v77;
  uint v79;
  uint v81 = (uint)((int)v8 < (int)1u);
  if (v81 != 0u) {
    v79 = v53;
    goto end12;
  }
  uint v82 = (uint)((int)v8 > (int)s2);
  if (v82 != 0u) {
    v79 = v53;
    goto end12;
  }
  uint v83 = (uint)(v74 == 0u);
  if (v83 != 0u) {
    v79 = v53;
    goto end12;
  }
  uint v85 = v53 << 1u;
  uint v86 = v6 | v85;
  uint v88 = v16 << 1u;
  uint v89 = v78 + v88;
  uint v90 = v89 - 131072u;
  if (v90 >= places0_2) { record_trap(HERE, 131074u, 439u, 0u, (uint)(a0 + (ulong)v90)); return; }
  uint v91 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v90)));
  *(__private u16*)((__private uchar*)own0 + min((v86 + 0xffff0020u), 30u)) = (ushort)v91;
  uint v93 = v53 + 1u;
  v79 = v93;
 end12:;
  uint v94;
  uint v96 = (uint)((int)v8 < (int)0u);
  if (v96 != 0u) {
    v94 = v79;
    goto end16;
  }
  uint v97 = v40 & v74;
  uint v98 = (uint)(v97 == 0u);
  if (v98 != 0u) {
    v94 = v79;
    goto end16;
  }
  uint v100 = v79 << 1u;
  uint v101 = v6 + v100;
  uint v103 = v8 << 1u;
  uint v104 = v78 + v103;
  uint v105 = v104 - 131072u;
  if (v105 >= places0_2) { record_trap(HERE, 131074u, 486u, 0u, (uint)(a0 + (ulong)v105)); return; }
  uint v106 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v105)));
  *(__private u16*)((__private uchar*)own0 + min((v101 + 0xffff0020u), 30u)) = (ushort)v106;
  uint v108 = v79 + 1u;
  v94 = v108;
 end16:;
  uint v109;
  uint v111 = (uint)((int)v8 < (int)0xffffffffu);
  if (v111 != 0u) {
    v109 = v94;
    goto end19;
  }
  uint v113 = v8 + 1u;
  uint v114 = (uint)((int)v113 < (int)s2);
  uint v115 = v114 & v74;
  uint v116 = (uint)(v115 == 0u);
  if (v116 != 0u) {
    v109 = v94;
    goto end19;
  }
  uint v118 = v94 << 1u;
  uint v119 = v6 + v118;
  uint v121 = v113 << 1u;
  uint v122 = v78 + v121;
  uint v123 = v122 - 131072u;
  if (v123 >= places0_2) { record_trap(HERE, 131074u, 541u, 0u, (uint)(a0 + (ulong)v123)); return; }
  uint v124 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v123)));
  *(__private u16*)((__private uchar*)own0 + min((v119 + 0xffff0020u), 30u)) = (ushort)v124;
  uint v126 = v94 + 1u;
  v109 = v126;
 end19:;
  uint v128 = (uint)((int)v10 > (int)0xfffffffeu);
  uint v130 = v10 + 1u;
  uint v131 = (uint)((int)v130 < (int)s3);
  uint v132 = v128 & v131;
  uint v133 = v130 * s2;
  uint v135 = v133 << 1u;
  uint v136 = 131072u + v135;
  uint v137;
  uint v139 = (uint)((int)v8 < (int)1u);
  if (v139 != 0u) {
    v137 = v109;
    goto end22;
  }
  uint v140 = (uint)((int)v8 > (int)s2);
  if (v140 != 0u) {
    v137 = v109;
    goto end22;
  }
  uint v141 = (uint)(v132 == 0u);
  if (v141 != 0u) {
    v137 = v109;
    goto end22;
  }
  uint v143 = v109 << 1u;
  uint v144 = v6 + v143;
  uint v146 = v16 << 1u;
  uint v147 = v136 + v146;
  uint v148 = v147 - 131072u;
  if (v148 >= places0_2) { record_trap(HERE, 131074u, 623u, 0u, (uint)(a0 + (ulong)v148)); return; }
  uint v149 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v148)));
  *(__private u16*)((__private uchar*)own0 + min((v144 + 0xffff0020u), 30u)) = (ushort)v149;
  uint v151 = v109 + 1u;
  v137 = v151;
 end22:;
  uint v152;
  uint v154 = (uint)((int)v8 < (int)0u);
  if (v154 != 0u) {
    v152 = v137;
    goto end26;
  }
  uint v155 = v40 & v132;
  uint v156 = (uint)(v155 == 0u);
  if (v156 != 0u) {
    v152 = v137;
    goto end26;
  }
  uint v158 = v137 << 1u;
  uint v159 = v6 + v158;
  uint v161 = v8 << 1u;
  uint v162 = v136 + v161;
  uint v163 = v162 - 131072u;
  if (v163 >= places0_2) { record_trap(HERE, 131074u, 670u, 0u, (uint)(a0 + (ulong)v163)); return; }
  uint v164 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v163)));
  *(__private u16*)((__private uchar*)own0 + min((v159 + 0xffff0020u), 30u)) = (ushort)v164;
  uint v166 = v137 + 1u;
  v152 = v166;
 end26:;
  uint v167;
  uint v169 = (uint)((int)v8 < (int)0xffffffffu);
  if (v169 != 0u) {
    v167 = v152;
    goto end29;
  }
  uint v171 = v8 + 1u;
  uint v172 = (uint)((int)v171 < (int)s2);
  uint v173 = v172 & v132;
  uint v174 = (uint)(v173 == 0u);
  if (v174 != 0u) {
    v167 = v152;
    goto end29;
  }
  uint v176 = v152 << 1u;
  uint v177 = v6 + v176;
  uint v179 = v171 << 1u;
  uint v180 = v136 + v179;
  uint v181 = v180 - 131072u;
  if (v181 >= places0_2) { record_trap(HERE, 131074u, 725u, 0u, (uint)(a0 + (ulong)v181)); return; }
  uint v182 = (uint)((uint)*(__global const u16*)(AT(__global const, p0, (ulong)v181)));
  *(__private u16*)((__private uchar*)own0 + min((v177 + 0xffff0020u), 30u)) = (ushort)v182;
  uint v184 = v152 + 1u;
  v167 = v184;
 end29:;
  uint v186 = (uint)((int)v167 < (int)2u);
  if (v186 != 0u) {
    goto end33;
  }
  uint v189 = v6;
  uint v190 = 2u;
  uint v191 = 1u;
  for (;;) {
    uint v193 = v191 << 1u;
    uint v194 = v6 + v193;
    if ((ulong)v194 - 65504ul > 30ul) { record_trap(HERE, 131074u, 826u, 1u, (uint)(ulong)v194); return; }
    uint v195 = (uint)((uint)*(__private u16*)((__private uchar*)own0 + ((ulong)v194 - 65504ul)));
    uint v197 = v195 & 65535u;
    uint v198;
    uint v199;
    uint v200 = v189;
    uint v201 = v190;
    for (;;) {
      if ((ulong)v200 - 65504ul > 30ul) { record_trap(HERE, 131074u, 854u, 1u, (uint)(ulong)v200); return; }
      uint v202 = (uint)((uint)*(__private u16*)((__private uchar*)own0 + ((ulong)v200 - 65504ul)));
      uint v203 = (uint)(v202 <= v197);
      if (v203 != 0u) {
        v199 = v201;
        goto end37;
      }
      uint v205 = v200 + 2u;
      if ((ulong)v205 - 65504ul > 30ul) { record_trap(HERE, 131074u, 871u, 1u, (uint)(ulong)v205); return; }
      *(__private u16*)((__private uchar*)own0 + ((ulong)v205 - 65504ul)) = (ushort)v202;
      uint v207 = v200 + 0xfffffffeu;
      uint v209 = v201 + 0xffffffffu;
      uint v211 = (uint)((int)v209 > (int)1u);
      if (v211 != 0u) {
        v200 = v207;
        v201 = v209;
        continue;
      }
      break;
    }
    v198 = 0u;
    goto end36;
   end37:;
    uint v214 = v199 + 0xffffffffu;
    v198 = v214;
   end36:;
    uint v216 = v198 << 1u;
    uint v217 = v6 + v216;
    if ((ulong)v217 - 65504ul > 30ul) { record_trap(HERE, 131074u, 919u, 1u, (uint)(ulong)v217); return; }
    *(__private u16*)((__private uchar*)own0 + ((ulong)v217 - 65504ul)) = (ushort)v195;
    uint v219 = v189 + 2u;
    uint v221 = v190 + 1u;
    uint v223 = v191 + 1u;
    uint v224 = (uint)(v223 != v167);
    if (v224 != 0u) {
      v189 = v219;
      v190 = v221;
      v191 = v223;
      continue;
    }
    break;
  }
 end33:;
  uint v226 = v75 << 1u;
  uint v227 = 131072u + v226;
  uint v229 = v8 << 1u;
  uint v230 = v227 + v229;
  uint v232 = v167 & 510u;
  uint v233 = v6 + v232;
  uint v234 = (uint)((uint)*(__private u16*)((__private uchar*)own0 + min((v233 + 0xffff0020u), 30u)));
  uint v235 = v230 - 131072u;
  if (v235 >= places1_2) { record_trap(HERE, 131074u, 775u, 0u, (uint)(a1 + (ulong)v235)); return; }
  *(__global u16*)(AT(__global, p1, (ulong)v235)) = (ushort)v234;
  uint v237 = v6 + 32u;
  g0 = v237;
}
