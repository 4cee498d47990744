"""How long runs will take, by the finished runs of their kind."""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from cmr_runner.results.details import seconds
from cmr_runner.results.reading import Run
from cmr_runner.runs.identity import document_hash, recorded_document

LENGTH = "trainer.epochs"
# Keys that an epoch's time does not depend on, or hardly.
INDIFFERENT = re.compile(
    r"init(\..*)?|schedule(\..*)?|optimizer\..*|trainer\.(clip_norm|stop_when\..*)"
    r"|regularizer\.(lam|rho_spec|alpha1|alpha2|beta|eps|warmup)"
)


class Pace:
    """Seconds per epoch of complete runs. A run is compared with those that differ in seed and length alone; where
    there are none, with those whose other differences hardly change the time of an epoch."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._known: dict[str, list[float]] = defaultdict(list)
        for run in runs:
            epochs = run.expected_epochs
            if run.complete and epochs > 0 and "copied_from" not in run.provenance:
                for kind in _kinds(recorded_document(run.record)):
                    self._known[kind].append(seconds(run) / epochs)

    def seconds_per_epoch(self, document: Mapping[str, Any]) -> float | None:
        """Of a run with this document; None where no finished run is of its kind."""
        known = next((self._known[kind] for kind in _kinds(document) if kind in self._known), None)
        return statistics.median(known) if known else None


def _kinds(document: Mapping[str, Any]) -> list[str]:
    """The narrow kind and the wide one."""
    close = {key: value for key, value in document.items() if key != LENGTH and key.rpartition(".")[2] != "seed"}
    wide = {key: value for key, value in close.items() if not INDIFFERENT.fullmatch(key)}
    return [f"close {document_hash(close)}", f"wide {document_hash(wide)}"]


def duration(value: float) -> str:
    """Seconds as a person says them."""
    if value < 90:
        return f"{value:.0f} s" if value >= 9.95 else f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 90 * 60 else f"{value / 3600:.1f} h"
