"""Which run a configuration is: the part of it that decides the result, a hash of that part, and a name to read."""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Where results go, how fast and how loudly they are made: none of it decides what they are. `threads` and `device`
# change the last bits only, so they are recorded in run.json and compared on a resume instead.
INCIDENTAL = frozenset(
    {
        "hydra",
        "output_root",
        "threads",
        "spectral_threads",
        "device",
        "force",
        "on_failure",
        "debug",
        "progress",
        "dataset.root",
    }
)
NAME_LENGTH = 96
# Choices that stand in every name, the rest appear only where they differ from the default configuration.
NAMED_CHOICES = ("regularizer", "init")


@dataclass(frozen=True)
class Identity:
    """The hash of what decides a run's result, and where such a run is kept."""

    hash: str
    experiment: str
    name: str

    @property
    def directory_name(self) -> str:
        return f"{self.name}-{self.hash}"


def deciding_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` (plain, resolved) without the keys that cannot change a result."""
    return _without_incidental(config, prefix="")


def _without_incidental(node: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in node.items():
        path = f"{prefix}{key}"
        if path in INCIDENTAL:
            continue
        kept[str(key)] = _without_incidental(value, f"{path}.") if isinstance(value, Mapping) else _writable(value)
    return kept


def _writable(value: Any) -> Any:
    """`value` with text for inf and nan, which JSON cannot write."""
    if isinstance(value, list | tuple):
        return [_writable(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def config_hash(deciding: Mapping[str, Any]) -> str:
    """Eight hex digits of the SHA-256 of the configuration, whatever its key order and whether 1 is written 1.0."""
    text = json.dumps(_canonical(deciding), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def same_config(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two deciding configurations are one, the hash's shortness aside."""
    return bool(_canonical(one) == _canonical(other))


def readable_name(
    choices: Mapping[str, Any],
    config: Mapping[str, Any],
    default_choices: Mapping[str, Any],
    default_config: Mapping[str, Any],
) -> str:
    """A directory name for people, such as `cmr-kappa_stress-lam0.1-seed0`.

    It is a function of the composed configuration, never of what was typed, so that writing a default out
    (`regularizer.lam=0.02`) names the same run as leaving it away. `default_config` is the configuration that the
    same `choices` give without any other override. The name is cut where it grows too long: the hash keeps it apart.
    """
    parts = [str(choices[group]) for group in NAMED_CHOICES if choices.get(group) is not None]
    for group, choice in sorted(choices.items()):
        if group not in NAMED_CHOICES and group != "experiment" and choice != default_choices.get(group):
            parts.append(str(choice))
    default_leaves = dict(leaves(deciding_config(default_config)))
    for path, value in leaves(deciding_config(config)):
        key = path.rsplit(".", 1)[-1]
        if key.startswith("_") or path == "seed":
            continue
        if path not in default_leaves or not same_config({"": value}, {"": default_leaves[path]}):
            parts.append(f"{key}{_short(value)}")
    seed = f"seed{_short(config.get('seed'))}"
    body = _safe("-".join(parts))[: NAME_LENGTH - len(seed) - 1].rstrip("-._")
    return f"{body}-{_safe(seed)}" if body else _safe(seed)


def leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a nested configuration by dotted key."""
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return "_".join(_short(inner) for inner in value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text)
