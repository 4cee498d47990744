"""Numbers as people write them: 86.0, 3400, 3.9 × 10⁷."""

import math

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = 3) -> str:
    """`digits` significant digits, by powers of ten where plain digits would be hard to count."""
    if not math.isfinite(value):
        return "∞" if value == math.inf else "–"
    exponent = _exponent(value, digits)
    if -4 < exponent < 4:
        return f"{value:.{max(0, digits - 1 - exponent)}f}"
    return f"{value / 10.0**exponent:.{digits - 1}f} × {_power(exponent)}"


def plus_minus(value: float, spread: float, digits: int = 3) -> str:
    """`value ± spread` to the same decimal place; the value alone where there is no spread."""
    if not math.isfinite(spread) or not math.isfinite(value):
        return number(value, digits)
    exponent = _exponent(value, digits)
    if -4 < exponent < 4:
        places = max(0, digits - 1 - exponent)
        return f"{value:.{places}f} ± {spread:.{places}f}"
    scale = 10.0**exponent
    return f"({value / scale:.{digits - 1}f} ± {spread / scale:.{digits - 1}f}) × {_power(exponent)}"


def times_over(value: float, factor: float, digits: int = 3) -> str:
    """`value ×÷ factor`, the value alone where there is no spread."""
    if not math.isfinite(factor) or not math.isfinite(value):
        return number(value, digits)
    return f"{number(value, digits)} ×÷ {f'{factor:.2f}' if factor < 10 else number(factor)}"


def interval(low: float, high: float, digits: int = 3) -> str:
    return f"{number(low, digits)} to {number(high, digits)}" if math.isfinite(low) and math.isfinite(high) else "–"


def _exponent(value: float, digits: int) -> int:
    # Of the rounded value: 9.996 has three digits as 10.0.
    return int(f"{value:.{digits - 1}e}".partition("e")[2]) if value else 0


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"
