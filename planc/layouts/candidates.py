"""Every way to deal ranks out to the axes of the dense mesh."""

from collections.abc import Iterator

from planc.layouts.layout import Layout


def dense_meshes(world_size: int) -> Iterator[Layout]:
    """All layouts of `world_size` ranks without expert parallelism, whether a model takes them or not."""
    for pp in divisors(world_size):
        for dp_replicate in divisors(world_size // pp):
            rest = world_size // pp // dp_replicate
            for fsdp in divisors(rest):
                yield Layout(pp_size=pp, dp_replicate_size=dp_replicate, fsdp_size=fsdp, tp_size=rest // fsdp)


def divisors(number: int) -> list[int]:
    """Every divisor of `number`, in order."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]
