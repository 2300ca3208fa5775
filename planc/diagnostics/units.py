"""Numbers of bytes, for people."""


def gigabytes(number: float) -> str:
    """Bytes in GB (10⁹), or MB and kB where that is too coarse."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if number >= 0.1 * size:
            return f"{number / size:,.1f} {unit}"
    return f"{number / 1e3:,.1f} kB"
