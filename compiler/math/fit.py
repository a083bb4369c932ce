#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the coefficients that fast.h has: polynomials of least largest relative error, by Remez' exchange.

    fit.py [NAME ...]        needs python3-mpmath

Each fit says which function `target` a sum of c[k] * x^powers[k] stands for in [low, high], and by what `scale` an error
of the sum is multiplied to become a relative error of the whole function. Coefficients are rounded one after the other
to the type that they are used in, each time fitting the rest again.
"""

import sys

from mpmath import mp, mpf, cos, erf, exp, fabs, findroot, log, lu_solve, matrix, pi, sin, sqrt, asin, atan, tanh, linspace, diff, ln

mp.prec = 160


def remez(target, scale, powers, low, high):
    count = len(powers)
    nodes = [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * (count + 1))) for i in range(count + 1)][::-1]
    best = None
    for _ in range(30):
        rows = matrix(count + 1, count + 1)
        right = matrix(count + 1, 1)
        for i, x in enumerate(nodes):
            for k, power in enumerate(powers):
                rows[i, k] = x ** power * scale(x)
            rows[i, count] = mpf(-1) ** i
            right[i] = target(x) * scale(x)
        solved = lu_solve(rows, right)
        coefficients = [solved[k] for k in range(count)]
        error = lambda x: (sum(c * x ** p for c, p in zip(coefficients, powers)) - target(x)) * scale(x)
        # The largest error between each two sign changes, on a grid.
        grid = [low + (high - low) * (1 - cos(pi * i / 400)) / 2 for i in range(401)]
        values = [error(x) for x in grid]
        peaks = []
        for x, value in zip(grid, values):
            if peaks and (value > 0) == (peaks[-1][1] > 0):
                if fabs(value) > fabs(peaks[-1][1]):
                    peaks[-1] = (x, value)
            else:
                peaks.append((x, value))
        while len(peaks) > count + 1:
            peaks.pop(0 if fabs(peaks[0][1]) < fabs(peaks[-1][1]) else -1)
        worst = max(fabs(value) for _, value in peaks)
        if best is None or worst < best[0]:
            best = (worst, coefficients)
        if len(peaks) < count + 1:
            break
        moved = [x for x, _ in peaks]
        if max(fabs(a - b) for a, b in zip(moved, nodes)) < (high - low) * mpf(2) ** -40:
            break
        nodes = moved
    return best


def rounded(value, bits):
    if value == 0:
        return value
    mantissa, exponent = mp.frexp(value)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), int(exponent) - bits)


def fit(target, scale, powers, low, high, bits):
    fixed = []
    rest = list(powers)
    while rest:
        known = list(fixed)
        left = lambda x: target(x) - sum(c * x ** p for c, p in known)
        worst, coefficients = remez(left, scale, rest, low, high)
        fixed.append((rounded(coefficients[0], bits), rest.pop(0)))
    grid = [low + (high - low) * mpf(i) / 2000 for i in range(2001)]
    error = max(fabs((sum(c * x ** p for c, p in fixed) - target(x)) * scale(x)) for x in grid)
    return [c for c, _ in fixed], error


def quotient(function, series):
    """function(x), or its limit's series near 0 where the quotient cannot be computed."""
    return lambda x: series(x) if fabs(x) < mpf(2) ** -30 else function(x)


SMALL = mpf(2) ** -60
HALF_LN2 = ln(2) / 2 * mpf("1.001")
QUARTER = pi / 4 * mpf("1.001")

FITS = {
    # e^r = 1 + r + r^2 q(r)
    "exp_f32": (quotient(lambda r: (exp(r) - 1 - r) / r ** 2, lambda r: mpf(1) / 2 + r / 6 + r ** 2 / 24),
                lambda r: r ** 2 / exp(r), range(5), -HALF_LN2, HALF_LN2, 24),
    # e^r - 1 = r + r^2 q(r), relative to itself.
    "expm1_f32": (quotient(lambda r: (exp(r) - 1 - r) / r ** 2, lambda r: mpf(1) / 2 + r / 6 + r ** 2 / 24),
                  lambda r: r if fabs(r) < SMALL else r ** 2 / (exp(r) - 1), range(6), -HALF_LN2, HALF_LN2, 24),
    # 2^f = 1 + f q(f)
    "exp2_f32": (quotient(lambda f: (mpf(2) ** f - 1) / f, lambda f: ln(2) + f * ln(2) ** 2 / 2),
                 lambda f: f / mpf(2) ** f, range(6), mpf("-0.5"), mpf("0.5"), 24),
    # log(1 + f) = f - f^2 / 2 + f^3 q(f)
    "log_f32": (quotient(lambda f: (log(1 + f) - f + f ** 2 / 2) / f ** 3, lambda f: mpf(1) / 3 - f / 4 + f ** 2 / 5),
                lambda f: f ** 2 if fabs(f) < SMALL else f ** 3 / log(1 + f), range(8), sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1, 24),
    # sin(r) = r + r^3 q(r^2), cos(r) = 1 - z / 2 + z^2 q(z), z = r^2
    "sin_f32": (quotient(lambda z: (sin(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3, lambda z: -mpf(1) / 6 + z / 120),
                lambda z: z if z < SMALL else sqrt(z) ** 3 / sin(sqrt(z)), range(3), mpf(0), QUARTER ** 2, 24),
    "cos_f32": (quotient(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z ** 2, lambda z: mpf(1) / 24 - z / 720),
                lambda z: z ** 2 / cos(sqrt(z)), range(3), mpf(0), QUARTER ** 2, 24),
    # asin(a) = a + a z q(z), atan(t) = t + t z q(z)
    "asin_f32": (quotient(lambda z: (asin(sqrt(z)) / sqrt(z) - 1) / z, lambda z: mpf(1) / 6 + z * 3 / 40),
                 lambda z: z if z < SMALL else z * sqrt(z) / asin(sqrt(z)), range(5), mpf(0), mpf("0.2502"), 24),
    "atan_f32": (quotient(lambda z: (atan(sqrt(z)) / sqrt(z) - 1) / z, lambda z: -mpf(1) / 3 + z / 5),
                 lambda z: z if z < SMALL else z * sqrt(z) / atan(sqrt(z)), range(4), mpf(0), mpf("0.1717"), 24),
    # erf(x) = x + x q(x^2) up to 0.95; 1 - exp(-x q(x)) beyond it, to 4.
    "erf_low_f32": (quotient(lambda z: erf(sqrt(z)) / sqrt(z) - 1, lambda z: 2 / sqrt(pi) - 1 - z * 2 / sqrt(pi) / 3),
                    lambda z: mpf(1) if z < SMALL else sqrt(z) / erf(sqrt(z)), range(6), mpf(0), mpf("0.92"), 24),
    "erf_high_f32": (lambda x: -log(1 - erf(x)) / x, lambda x: x * (1 - erf(x)) / erf(x), range(8), mpf("0.92"), mpf("4.1"), 24),
    # tanh(a) = a + a z q(z), z = a^2, on devices with functions of their own.
    "tanh_f32": (quotient(lambda z: (tanh(sqrt(z)) / sqrt(z) - 1) / z, lambda z: -mpf(1) / 3 + z * 2 / 15),
                 lambda z: z if z < SMALL else z * sqrt(z) / tanh(sqrt(z)), range(4), mpf(0), mpf("0.391"), 24),
    # log2(m) = s c(s^2), s = (m - 1) / (m + 1), in double for pow_f32.
    "log2_pow": (quotient(lambda z: log((1 + sqrt(z)) / (1 - sqrt(z)), 2) / sqrt(z), lambda z: 2 / ln(2) * (1 + z / 3)),
                 lambda z: mpf(1) if z < SMALL else sqrt(z) / log((1 + sqrt(z)) / (1 - sqrt(z)), 2), range(6), mpf(0), mpf("0.02945"), 53),
    # e^r in double: 1 + r + r^2 q(r).
    "exp_f64": (quotient(lambda r: (exp(r) - 1 - r) / r ** 2, lambda r: mpf(1) / 2 + r / 6 + r ** 2 / 24),
                lambda r: r ** 2 / exp(r), range(10), -HALF_LN2 * mpf("1.01"), HALF_LN2, 53),
    # 2^f in double: 1 + f q(f).
    "exp2_f64": (quotient(lambda f: (mpf(2) ** f - 1) / f, lambda f: ln(2) + f * ln(2) ** 2 / 2),
                 lambda f: f / mpf(2) ** f, range(12), mpf("-0.5"), mpf("0.5"), 53),
    # log(m) = 2 s + s z q(z), s = f / (2 + f), z = s^2.
    "log_f64": (quotient(lambda z: (log((1 + sqrt(z)) / (1 - sqrt(z))) / sqrt(z) - 2) / z, lambda z: mpf(2) / 3 + z * 2 / 5),
                lambda z: z if z < SMALL else z * sqrt(z) / log((1 + sqrt(z)) / (1 - sqrt(z))), range(7), mpf(0), mpf("0.02945"), 53),
    "sin_f64": (quotient(lambda z: (sin(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3, lambda z: -mpf(1) / 6 + z / 120),
                lambda z: z if z < SMALL else sqrt(z) ** 3 / sin(sqrt(z)), range(6), mpf(0), QUARTER ** 2, 53),
    "cos_f64": (quotient(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z ** 2, lambda z: mpf(1) / 24 - z / 720),
                lambda z: z ** 2 / cos(sqrt(z)), range(6), mpf(0), QUARTER ** 2, 53),
}


def hexadecimal(value):
    """A C literal; exact, since the value was rounded to at most 53 bits."""
    return float(value).hex()


def main():
    for name in sys.argv[1:] or FITS:
        target, scale, powers, low, high, bits = FITS[name]
        coefficients, error = fit(target, scale, list(powers), low, high, bits)
        print(f"{name}: 2^{float(log(error, 2)):.1f}")
        print("  " + ", ".join(hexadecimal(c) for c in coefficients))


main()
