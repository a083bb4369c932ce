; SPDX-License-Identifier: Apache-2.0
; What libclc takes from NVIDIA's library.
;
; Logarithms: x = 2^e * m with m in [sqrt(1/2), sqrt(2)); with s = (m - 1) / (m + 1), log m = 2 s (1 + s^2/3 + s^4/5 +
; ...), whose terms fall by s^2 < 0.0295 each. Floats are computed in doubles, so that they come out rounded right but
; for ties. sinpi takes the distance to the nearest whole number, which is exact, and the series of the sine of pi
; times it.
declare float @llvm.nvvm.sqrt.rn.f(float)
declare double @llvm.nvvm.sqrt.rn.d(double)
declare i1 @llvm.is.fpclass.f32(float, i32)
declare i1 @llvm.is.fpclass.f64(double, i32)
declare double @llvm.rint.f64(double)
declare double @llvm.trunc.f64(double)
declare double @llvm.fma.f64(double, double, double)
declare double @llvm.copysign.f64(double, double)
define float @__nv_sqrtf(float %x) alwaysinline {
  %r = call float @llvm.nvvm.sqrt.rn.f(float %x)
  ret float %r
}
define double @__nv_sqrt(double %x) alwaysinline {
  %r = call double @llvm.nvvm.sqrt.rn.d(double %x)
  ret double %r
}
define float @__nv_rsqrtf(float %x) alwaysinline {
  %s = call float @llvm.nvvm.sqrt.rn.f(float %x)
  %r = fdiv float 1.0, %s
  ret float %r
}
define double @__nv_rsqrt(double %x) alwaysinline {
  %s = call double @llvm.nvvm.sqrt.rn.d(double %x)
  %r = fdiv double 1.0, %s
  ret double %r
}
define i32 @__nv_isinff(float %x) alwaysinline {
  %c = call i1 @llvm.is.fpclass.f32(float %x, i32 516)
  %r = zext i1 %c to i32
  ret i32 %r
}
define i32 @__nv_isinfd(double %x) alwaysinline {
  %c = call i1 @llvm.is.fpclass.f64(double %x, i32 516)
  %r = zext i1 %c to i32
  ret i32 %r
}
define float @__nv_logf(float %x) {
  %d = fpext float %x to double
  %l = call double @__nv_log(double %d)
  %r = fptrunc double %l to float
  ret float %r
}
define float @__nv_sinpif(float %x) {
  %d = fpext float %x to double
  %l = call double @__nv_sinpi(double %d)
  %r = fptrunc double %l to float
  ret float %r
}
define double @__nv_log(double %x) {
  %is_nan = fcmp uno double %x, %x
  %is_zero = fcmp oeq double %x, 0.0
  %is_negative = fcmp olt double %x, 0.0
  %is_infinite = fcmp oeq double %x, 0x7FF0000000000000
  %is_small = fcmp olt double %x, 0x0010000000000000
  %scaled = fmul double %x, 0x4350000000000000
  %y = select i1 %is_small, double %scaled, double %x
  %bias = select i1 %is_small, i64 1077, i64 1023
  %bits = bitcast double %y to i64
  ; Adding 1 - sqrt(1/2) to the fraction carries into the exponent from sqrt(2) on.
  %offset = add i64 %bits, 2638147582215219
  %power = lshr i64 %offset, 52
  %e_biased = sub i64 %power, %bias
  %e = sitofp i64 %e_biased to double
  %shift = sub i64 %power, 1023
  %shifted = shl i64 %shift, 52
  %m_bits = sub i64 %bits, %shifted
  %m = bitcast i64 %m_bits to double
  %f = fsub double %m, 1.0
  %sum = fadd double %m, 1.0
  %s = fdiv double %f, %sum
  %s2 = fmul double %s, %s
  %p11 = call double @llvm.fma.f64(double %s2, double 0x3FA47AE147AE147B, double 0x3FA642C8590B2164)
  %p10 = call double @llvm.fma.f64(double %s2, double %p11, double 0x3FA8618618618618)
  %p9 = call double @llvm.fma.f64(double %s2, double %p10, double 0x3FAAF286BCA1AF28)
  %p8 = call double @llvm.fma.f64(double %s2, double %p9, double 0x3FAE1E1E1E1E1E1E)
  %p7 = call double @llvm.fma.f64(double %s2, double %p8, double 0x3FB1111111111111)
  %p6 = call double @llvm.fma.f64(double %s2, double %p7, double 0x3FB3B13B13B13B14)
  %p5 = call double @llvm.fma.f64(double %s2, double %p6, double 0x3FB745D1745D1746)
  %p4 = call double @llvm.fma.f64(double %s2, double %p5, double 0x3FBC71C71C71C71C)
  %p3 = call double @llvm.fma.f64(double %s2, double %p4, double 0x3FC2492492492492)
  %p2 = call double @llvm.fma.f64(double %s2, double %p3, double 0x3FC999999999999A)
  %p1 = call double @llvm.fma.f64(double %s2, double %p2, double 0x3FD5555555555555)
  %q = fmul double %s2, %p1
  %q2 = fmul double %q, 2.0
  ; 2 s = f - s f, and f is exact: the small parts are summed first.
  %inner = fsub double %f, %q2
  %low = fmul double %s, %inner
  %e_low = fmul double %e, 0x3E4BE8E7BCD5E4F2
  %tail = fsub double %e_low, %low
  %high = fmul double %e, 0x3FE62E42F8000000
  %fine = fadd double %f, %tail
  %l = fadd double %high, %fine
  %r1 = select i1 %is_infinite, double %x, double %l
  %r2 = select i1 %is_zero, double 0xFFF0000000000000, double %r1
  %r3 = select i1 %is_negative, double 0x7FF8000000000000, double %r2
  %r = select i1 %is_nan, double %x, double %r3
  ret double %r
}
define double @__nv_sinpi(double %x) {
  %n = call double @llvm.rint.f64(double %x)
  %r = fsub double %x, %n
  ; Odd: half of it is not whole. Infinities give NaN by the subtraction.
  %half = fmul double %n, 0.5
  %whole = call double @llvm.trunc.f64(double %half)
  %is_odd = fcmp une double %half, %whole
  %z = fmul double %r, 0x400921FB54442D18
  %z_minus = fneg double %z
  %z_error = call double @llvm.fma.f64(double %r, double 0x400921FB54442D18, double %z_minus)
  %z_low = call double @llvm.fma.f64(double %r, double 0x3CA1A62633145C07, double %z_error)
  %t = fmul double %z, %z
  %p10 = call double @llvm.fma.f64(double %t, double 0xBB4761B41316381A, double 0x3BD71B8EF6DCF572)
  %p9 = call double @llvm.fma.f64(double %t, double %p10, double 0xBC62F49B46814157)
  %p8 = call double @llvm.fma.f64(double %t, double %p9, double 0x3CE952C77030AD4A)
  %p7 = call double @llvm.fma.f64(double %t, double %p8, double 0xBD6AE7F3E733B81F)
  %p6 = call double @llvm.fma.f64(double %t, double %p7, double 0x3DE6124613A86D09)
  %p5 = call double @llvm.fma.f64(double %t, double %p6, double 0xBE5AE64567F544E4)
  %p4 = call double @llvm.fma.f64(double %t, double %p5, double 0x3EC71DE3A556C734)
  %p3 = call double @llvm.fma.f64(double %t, double %p4, double 0xBF2A01A01A01A01A)
  %p2 = call double @llvm.fma.f64(double %t, double %p3, double 0x3F81111111111111)
  %p1 = call double @llvm.fma.f64(double %t, double %p2, double 0xBFC5555555555555)
  %c = fmul double %z, %t
  %d = call double @llvm.fma.f64(double %c, double %p1, double %z_low)
  %v = fadd double %z, %d
  %minus = fneg double %v
  %u = select i1 %is_odd, double %minus, double %v
  ; Whole numbers give a zero of their own sign.
  %is_whole = fcmp oeq double %r, 0.0
  %zero = call double @llvm.copysign.f64(double 0.0, double %x)
  %w = select i1 %is_whole, double %zero, double %u
  ret double %w
}
