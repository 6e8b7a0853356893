"""Writes power_tables.h: `python native/base/power_tables.py > native/base/power_tables.h`.

Both functions are cut into 16 equal segments. u in [0, 1) is the place inside a segment, where a
polynomial interpolates the function at Chebyshev-Lobatto points. These include both ends, so that
neighbouring segments meet and the first one starts exactly at log2(1) = 0 and 2^0 = 1. All
arithmetic is rational or decimal with 60 digits: the output is the same everywhere.
"""

from collections.abc import Callable
from decimal import Decimal, getcontext
from fractions import Fraction

SEGMENTS = 16
LOG2_POINTS = ("0", "0.0954915", "0.3454915", "0.6545085", "0.9045085", "1")
EXP2_POINTS = ("0", "0.1464466", "0.5", "0.8535534", "1")
LOG2_SCALE = 1 << 38
EXP2_SCALE = 1 << 39


def log2(x: Fraction) -> Fraction:
    """log2(1 + x), to 60 digits."""
    value = Decimal((1 + x).numerator) / Decimal((1 + x).denominator)
    return Fraction(value.ln() / Decimal(2).ln())


def exp2(x: Fraction) -> Fraction:
    """2^x, to 60 digits."""
    return Fraction(Decimal(2) ** (Decimal(x.numerator) / Decimal(x.denominator)))


def interpolate(points: list[Fraction], values: list[Fraction]) -> list[Fraction]:
    """Coefficients, lowest first, of the polynomial through the points: Newton's form, expanded."""
    divided = list(values)
    for order in range(1, len(points)):
        for i in range(len(points) - 1, order - 1, -1):
            divided[i] = (divided[i] - divided[i - 1]) / (points[i] - points[i - order])
    result = [Fraction(0)] * len(points)
    for i in range(len(points) - 1, -1, -1):
        shifted = [Fraction(0), *result[:-1]]
        result = [s - points[i] * r for s, r in zip(shifted, result, strict=True)]
        result[0] += divided[i]
    return result


def coefficients(
    function: Callable[[Fraction], Fraction], points: tuple[str, ...], scale: int
) -> list[list[int]]:
    """[degree + 1][SEGMENTS] magnitudes in units of 1 / scale, rounded to nearest."""
    nodes = [Fraction(p) for p in points]
    columns = []
    for segment in range(SEGMENTS):
        values = [function((segment + u) / SEGMENTS) for u in nodes]
        columns.append([abs(round(c * scale)) for c in interpolate(nodes, values)])
    return [list(row) for row in zip(*columns, strict=True)]


def table(name: str, rows: list[list[int]]) -> str:
    """One C array of rows of coefficients."""
    lines = [f"static const uint64_t {name}[{len(rows)}][{SEGMENTS}] RP_POWER_ALIGNED = {{"]
    for row in rows:
        lines.append("    {")
        for at in range(0, SEGMENTS, 4):
            lines.append("        " + " ".join(f"{value:#012x}," for value in row[at : at + 4]))
        lines.append("    },")
    return "\n".join([*lines, "};"])


def header() -> str:
    """The text of power_tables.h."""
    getcontext().prec = 60
    return f"""/* power_tables.h: coefficients of log2 and exp2, private to power*.c.
 *
 * Written by power_tables.py, which explains the approximation; a test compares the two.
 *
 * [degree][segment]; u = w / 2^28 is the place in the segment, all magnitudes below are >= 0.
 *   log2(1 + (segment + u) / 16) * 2^38 = c0 + u * (c1 - u * (c2 - u * (c3 - u * (c4 - u * c5))))
 *   2^((segment + u) / 16) * 2^39       = d0 + u * (d1 + u * (d2 + u * (d3 + u * d4)))
 * evaluated from the inside out as u * a = (w * a) >> 28; no product reaches 2^64.
 */
#ifndef RP_POWER_TABLES_H
#define RP_POWER_TABLES_H

#include <stdint.h>

#define RP_POWER_ALIGNED __attribute__((aligned(64)))

{table("rp_power_log2", coefficients(log2, LOG2_POINTS, LOG2_SCALE))}

{table("rp_power_exp2", coefficients(exp2, EXP2_POINTS, EXP2_SCALE))}

#endif
"""


if __name__ == "__main__":
    print(header(), end="")
