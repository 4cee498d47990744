"""Which run a configuration is: the part of it that decides the result, a hash of that part, and a name to read.

A run's *document* is what a user chose and set: the options of the groups and the values by dotted key. Paths of code
(`_target_` and the like) are not in it, so that a class can be renamed or moved. Two commands with the same document
are one run.

An option that is added to a group later gets a line in `ADDED` with the value that older runs had without saying so
(in a file outside this package: a line under `_added_` beside the option). At that value it is not in the document.

A deliberate change of numbers gets an entry in `REVISIONS`. The runs it applies to move to another identity.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
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
        "name",
        "logger",
        "dry",
        "dataset.root",
    }
)
# Options that older runs did not record, and the value they had: keys and groups as they stand in a document.
ADDED: dict[str, Any] = {
    "spectra": "ends",
    "layers@regularizer.layers": "weights",
    "regularizer.layers.split": None,
    "regularizer.layers.heads": False,
    "dataset.validation": 0,
    "schedule": "constant",
    "trainer.precision": "float32",
    "trainer.stop_when": None,
    "trainer.stop_when.patience": None,
    "trainer.stop_when.kappa": None,
    "trainer.stop_when.loss": None,
    "regularizer.engine.steps": None,
    "regularizer.engine.probes": None,
    "regularizer.engine.refresh": None,
    "regularizer.engine.turns": None,
}
# In a group's file: {option: the value that older runs had}, as `ADDED` but for options of one's own.
OWN_ADDED = "_added_"
NAME_LENGTH = 96
# Choices that stand in every name, the rest appear only where they differ from the default configuration.
NAMED_CHOICES = ("regularizer", "init")

Document = dict[str, Any]


@dataclass(frozen=True)
class Revision:
    """A deliberate change of the numbers of the runs whose document has all of the values `where`."""

    what: str
    where: Mapping[str, Any]

    def applies(self, document: Mapping[str, Any]) -> bool:
        return all(key in document and same(document[key], value) for key, value in self.where.items())


# Only ever added to: a run keeps the number of those that applied when it was made.
REVISIONS: tuple[Revision, ...] = (
    Revision(
        "auto takes the edges of every layer at every step and the moments of the layers in turn",
        {"regularizer.engine": "auto"},
    ),
    Revision("auto takes layers by turns, and follows edges by a Chebyshev filter", {"regularizer.engine": "auto"}),
    Revision("staggered likewise", {"regularizer.engine": "staggered"}),
    Revision("auto keeps more edge vectors and takes up to 8 turns", {"regularizer.engine": "auto"}),
    Revision("staggered likewise", {"regularizer.engine": "staggered"}),
    Revision("auto lets held moments follow the edges", {"regularizer.engine": "auto"}),
    Revision("staggered likewise", {"regularizer.engine": "staggered"}),
    Revision("auto keeps 20 edge vectors, moments for 4 evaluations", {"regularizer.engine": "auto"}),
    Revision("staggered likewise", {"regularizer.engine": "staggered"}),
)


@dataclass(frozen=True)
class Identity:
    """The hash of what decides a run's result, and where such a run is kept."""

    hash: str
    experiment: str
    name: str
    revision: int = 0

    @property
    def directory_name(self) -> str:
        return f"{self.name}-{self.hash}"

    def as_dict(self) -> dict[str, Any]:
        """For run.json. A run that no revision applies to has none."""
        return {key: value for key, value in asdict(self).items() if key != "revision" or value}


def document(choices: Mapping[str, Any], config: Mapping[str, Any], revision: int | None = None) -> Document:
    """What decides a run: the choices of groups and the values of `config` (plain, resolved), by dotted key.

    `revision` is the number that the run recorded; without one, that of a run made now.
    """
    chosen = _deciding_choices(choices).items()
    decided = {group: choice for group, choice in chosen if choice is not None and not _unsaid(group, choice, ADDED)}
    decided |= _values(config)
    if revision is None:
        revision = current_revision(decided)
    return {**decided, "revision": revision} if revision else decided


def _deciding_choices(choices: Mapping[str, Any]) -> dict[str, Any]:
    return {
        str(group): choice for group, choice in choices.items() if group not in INCIDENTAL and group != "experiment"
    }


def recorded_document(record: Mapping[str, Any]) -> Document:
    """The document of a run by its run.json, at the revision it was made."""
    choices, config, identity = (record.get(key) for key in ("choices", "config", "identity"))
    revision = identity.get("revision") if isinstance(identity, Mapping) else None
    return document(
        choices if isinstance(choices, Mapping) else {},
        config if isinstance(config, Mapping) else {},
        revision if isinstance(revision, int) else 0,
    )


def current_revision(decided: Mapping[str, Any]) -> int:
    """How many of the deliberate changes apply to a run that is made now."""
    return sum(revision.applies(decided) for revision in REVISIONS)


def without_seed(decided: Mapping[str, Any]) -> Document:
    """What the seeds of one experiment have in common. A copy of the seed (`dataset.seed: ${seed}`) is one too."""
    seed = decided.get("seed")
    return {
        key: value
        for key, value in decided.items()
        if key != "seed" and not (key.endswith(".seed") and same(value, seed))
    }


def document_hash(decided: Mapping[str, Any]) -> str:
    """Eight hex digits of the SHA-256 of the document, whatever its key order and whether 1 is written 1.0."""
    return hashlib.sha256(_text(decided).encode()).hexdigest()[:8]


def same(one: Any, other: Any) -> bool:
    """Whether two documents, or two values of them, are one."""
    return _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))


def _canonical(value: Any) -> Any:
    """`value` with 1 for 1.0, text for inf and nan, which JSON cannot write, and without the code of a list's nodes."""
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner) for key, inner in value.items() if not _of_code(key)}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else _writable(value)
    return value


def _values(node: Mapping[str, Any], prefix: str = "") -> Document:
    """The values below `node` by dotted key, those left out that code, speed or an older run's silence settles."""
    found: Document = {}
    own = node.get(OWN_ADDED)
    added = own if isinstance(own, Mapping) else {}
    for key, value in node.items():
        path = f"{prefix}{key}"
        if path in INCIDENTAL or _of_code(key) or _unsaid(path, value, ADDED) or _unsaid(key, value, added):
            continue
        if isinstance(value, Mapping):
            found |= _values(value, f"{path}.")
        else:
            found[_short_path(path)] = _canonical(value)
    return found


def _unsaid(key: str, value: Any, added: Mapping[str, Any]) -> bool:
    """Whether an option is at the value that runs had before there was the option."""
    return key in added and same(value, added[key])


def _of_code(key: Any) -> bool:
    """`_target_`, `_partial_` and the like: they say how to call. `_args_` are values."""
    return str(key).startswith("_") and key != "_args_"


def _short_path(path: str) -> str:
    """`regularizer.engine.name` is `regularizer.engine`: a part may be written as its name or as a node of options."""
    parent, _, last = path.rpartition(".")
    return parent if last == "name" and "." in parent else path


def deciding_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` (plain, resolved) as run.json keeps it: the values of the document, and the code they were given to."""
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
    if isinstance(value, Mapping):
        return {str(key): _writable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
    for group, choice in sorted(_deciding_choices(choices).items()):
        if group not in NAMED_CHOICES and choice != default_choices.get(group):
            parts.append(str(choice))
    defaults = _values(default_config)
    for path, value in _values(config).items():
        if path != "seed" and (path not in defaults or not same(value, defaults[path])):
            parts.append(f"{path.rpartition('.')[2]}{_short(value)}")
    seed = f"seed{_short(_canonical(config.get('seed')))}"
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
    if isinstance(value, float) or (type(value) is int and abs(value) >= 10**20):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return "_".join(_short(inner) for inner in value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text)
