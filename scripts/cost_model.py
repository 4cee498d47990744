"""What an evaluation by each engine costs by formula: operations, passes over W, bytes held and exchanged.

For one layer m × n with the short side r and the long side M, K moments. A step evaluates every layer, with `staggered`
one in `turns`:

    edges       `fast`        2·16 r²           operations, on the Gram matrix it has anyway
                `stochastic`  4·8 Mr            two thin products for each of 8 Lanczos steps
                `staggered`   2·20(2·6 + 2) Mr  of b = 20 rows, twice for each degree of the filter, once to project and
                                                (of two rows, counted as b) once to check
    rows        Lanczos: 4·j·r for each time that a row is cleared of the j found before
                `staggered`: `qr` of 2b rows, 16b²r, the projection 8b²M, and what is made of it, 8b²r
    moments     by products   2(q+1)Mr² + 2(q−1)r³,  q = ⌈K/2⌉ (K = 5: q = 2, the traces of T_5 come from W T_2)
                by probes     2·2p(3q + 2)Mr,  q = ⌊K/2⌋
                              `staggered`: once in `refresh` evaluations
    passes      over arrays of W's size that no product makes: counted in the code
    held        `staggered`   mn + 20r numbers; the others 2r
    exchanged   mn numbers, summed over the ranks, whatever the engine
"""

from dataclasses import dataclass, replace
from math import ceil

from cmr_runner.spectral.engines import fast, staggered, stochastic
from cmr_runner.spectral.engines.subspace import ROWS

FLOAT32 = 4  # bytes
# Reads and writes of arrays of W's size: checks, Ĝ, traces, combinations, norms, the rank-2 part.
PASSES_OF_PRODUCTS = 24
PASSES_OF_PROBES = 6
ROWS_OF_PROBES = 2 * stochastic.PROBES * 6  # drawn, cast, and the recurrence's sums


@dataclass(frozen=True)
class Cost:
    """Of one layer (or many) and one evaluation."""

    edges: float  # operations in products of ROWS rows with W, or of one row
    probes: float  # in products of 2p rows with W
    products: float  # in products of matrices
    rows: float  # in keeping rows orthogonal
    passes: float  # numbers read or written beside products
    held: float  # bytes between evaluations
    exchanged: float  # bytes that each rank puts into the sum

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def times(self, count: float) -> "Cost":
        return Cost(*(count * value for value in vars(self).values()))

    def in_turns(self, turns: int) -> "Cost":
        """Of one step, if a layer is evaluated at one in so many."""
        return replace(self.times(1 / turns), held=self.held)

    @property
    def operations(self) -> float:
        return self.edges + self.probes + self.products + self.rows


def product_work(M: int, r: int, K: int) -> float:
    q = 2 if K == 5 else ceil(K / 2)
    return 2 * (q + 1) * M * r**2 + 2 * (q - 1) * r**3


def probe_work(M: int, r: int, K: int, probes: int) -> float:
    q = K // 2
    return 2 * 2 * probes * (3 * q + 2) * M * r


def lanczos_rows(steps: int, r: int) -> float:
    """Each new row cleared twice of those before it."""
    return sum(2 * 4 * j * r for j in range(steps))


def filter_rows(b: int, M: int, r: int) -> float:
    """The kept rows and the filtered ones made orthonormal, the projection, and what comes out of it."""
    return 16 * b**2 * r + 8 * b**2 * M + 8 * b**2 * r


def cost(engine: str, shape: tuple[int, int], *, K: int = 5, refresh: int = staggered.REFRESH) -> Cost:
    r, M = sorted(shape)
    W, kept = M * r, 2 * FLOAT32 * r
    if engine == "fast":
        return Cost(
            edges=2 * fast.STEPS * r**2,
            probes=0,
            products=product_work(M, r, K),
            rows=lanczos_rows(fast.STEPS, r),
            passes=PASSES_OF_PRODUCTS * W,
            held=kept,
            exchanged=FLOAT32 * W,
        )
    if engine == "stochastic":
        return Cost(
            edges=4 * stochastic.STEPS * W,
            probes=probe_work(M, r, K, stochastic.PROBES),
            products=0,
            rows=lanczos_rows(stochastic.STEPS, r),
            passes=PASSES_OF_PROBES * (W + ROWS_OF_PROBES * r),
            held=kept,
            exchanged=FLOAT32 * W,
        )
    if engine == "staggered":
        by_products, rows = staggered.by_products(shape), ROWS
        moments = PASSES_OF_PRODUCTS * W if by_products else PASSES_OF_PROBES * (W + ROWS_OF_PROBES * r)
        return Cost(
            edges=2 * rows * (2 * staggered.STEPS + 2) * W,
            probes=0 if by_products else probe_work(M, r, K, stochastic.PROBES) / refresh,
            products=product_work(M, r, K) / refresh if by_products else 0,
            rows=filter_rows(rows, M, r),
            passes=W + moments / refresh,  # the first: the edges' part against what is held
            held=FLOAT32 * (W + ROWS * r),
            exchanged=FLOAT32 * W,
        )
    raise ValueError(f"no model of {engine}")


@dataclass(frozen=True)
class Transformer:
    """The matrices of the blocks, without embeddings, and what a training step of it usually takes."""

    name: str
    depth: int
    block: tuple[tuple[int, int], ...]
    tokens: int  # in the batch of one step, over all ranks
    ranks: int

    @property
    def parameters(self) -> int:
        return self.depth * sum(m * n for m, n in self.block)

    @property
    def step_operations(self) -> float:
        """Forward and backward: 6 for each weight and token."""
        return 6.0 * self.parameters * self.tokens

    def cost(self, engine: str) -> Cost:
        """Of one step."""
        total = Cost(0, 0, 0, 0, 0, 0, 0)
        for shape in self.block:
            total += cost(engine, shape).times(self.depth)
        return total.in_turns(staggered.TURNS if engine == "staggered" else 1)


def _gpt(name: str, depth: int, width: int, tokens: int, ranks: int) -> Transformer:
    return Transformer(name, depth, ((width, width),) * 4 + ((width, 4 * width),) * 2, tokens, ranks)


TRANSFORMERS = (
    _gpt("GPT-2 124M", 12, 768, 2**19, 8),
    _gpt("1.3B", 24, 2048, 2**20, 64),
    Transformer("7B", 32, ((4096, 4096),) * 4 + ((4096, 11008),) * 3, 2**22, 256),
)
