"""A penalty on the layers' matrices that acts through its gradient, mixed in under the cap."""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from cmr_runner.checks import integer, number
from cmr_runner.regularizers.addition import Addition, Found, pulled_back
from cmr_runner.regularizers.attachment import Attachment
from cmr_runner.regularizers.base import OfLayers, Regularizer, StepNumbers
from cmr_runner.regularizers.exchange import exchanged, own_result
from cmr_runner.regularizers.groups import Groups
from cmr_runner.regularizers.layers import Layer, LayerRule, require_layers, unique_weights
from cmr_runner.regularizers.mixing import CappedMixing, Mixing, global_norm
from cmr_runner.regularizers.notices import Notices, shown
from cmr_runner.regularizers.overlap import Overlap
from cmr_runner.regularizers.processes import Alone, Processes
from cmr_runner.regularizers.sharded import PieceAddition, Shards, is_sharded, shards_of
from cmr_runner.regularizers.turns import Rounds
from cmr_runner.spectral.decomposition import check_finite
from cmr_runner.spectral.engines.chunks import LARGE, shared_workers
from cmr_runner.spectral.engines.workers import Task, without_autocast
from cmr_runner.spectral.penalty import Penalty
from cmr_runner.spectral.precision import full_precision, is_full_precision


class PenaltyOptions(TypedDict, total=False):
    """The keys that mean the same for every penalty, for subclasses that only hand them on."""

    rho_spec: float
    mixing: Mixing
    warmup: float
    every: int
    layers: LayerRule | None
    steps_per_epoch: int
    seed: int


class GradientPenalty(Regularizer):
    """λ Σ_layers penalty(W), decoupled from the task: g = g_task + g̃ by `CappedMixing`.

    lam, rho_spec, mixing: see CappedMixing. warmup: T_w in epochs of `steps_per_epoch` steps, so with the default
    steps_per_epoch = 1 it is in steps. every: evaluate the penalty every so many steps; between, the last gradient is
    used again under a fresh cap.

    A subclass may give lengths that a round may have. Then, while the task's gradient is in charge, a step takes every
    t-th layer, by turns, and its gradient counts t times: over a round of t steps each layer gets what it would get
    otherwise, for a part of the work. When a round begins, t is the longest for which what each turn adds stays within
    ρ_spec of the task's gradient. Beyond, the cap would cut the larger gradient of a turn by more, and an optimiser
    such as Adam would divide it by its larger root mean square, so the penalty would be weaker: there t is 1, every
    layer at every step.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lam: float,
        rho_spec: float = 0.5,
        mixing: Mixing = "penalty_cap",
        warmup: float = 0.0,
        every: int = 1,
        layers: LayerRule | None = None,
        steps_per_epoch: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(model, layers=layers, steps_per_epoch=steps_per_epoch, seed=seed)
        require_layers(model, self.rule)
        self.every = integer("every", every, least=1)
        self.mixer = CappedMixing(lam, rho_spec, mixing, number("warmup", warmup, least=0) * steps_per_epoch)
        self.step = 0
        self._weights = unique_weights(self.layers)
        self._found: Found = []  # the last evaluation
        self._effective: dict[str, Tensor] = {}  # parametrised weights, with the graph that leads to their parameters
        self._gathered: dict[str, Tensor] = {}  # weights that the processes hold in pieces, those of this one whole
        self._pieces: PieceAddition | None = None  # of the last evaluation, where they do
        self.groups = Groups()
        self._numbers: list[OfLayers] = []  # of each layer's last evaluation, a later one overriding an earlier
        self.rounds = Rounds()
        self._agreed = False  # the processes, on the length of the round
        self._task: Task[Found] | None = None
        self._overlap = Overlap()
        self._notices = Notices()
        self.divide_over(Alone())

    def divide_over(self, processes: Processes) -> None:
        """Share the layers with other processes: each computes its own, then they exchange gradients."""
        self.processes = processes

    @abstractmethod
    def penalty(self, W: Tensor, *, group: str) -> Penalty:
        """The penalty of same-shape matrices W (B, m, n), at least float32, and its closed-form gradient.

        W may be read during this call, not changed. The result's tensors, unless `kept`, are the caller's to overwrite.
        """

    def round_lengths(self) -> tuple[int, ...]:
        """That rounds of turns may have, see Rounds."""
        return (1,)

    def forget(self, group: str) -> None:
        """Drop what `penalty` keeps of a group from step to step: its layers are not those of the last step."""

    def attach(self, optimizer: torch.optim.Optimizer, *, clip_norm: float | None = None) -> Attachment:
        """From now on plain `optimizer.step()` begins with add_gradients(); `.remove()` of what is returned undoes it.

        clip_norm: clip the global norm after mixing, the paper's order. A clip of your own comes before the step, so
        before the mixing: then the sum may exceed it by rho_spec.
        """
        return Attachment(self, optimizer, clip_norm)

    @torch.no_grad()
    def add_gradients(self) -> None:
        """Add g̃ to the `.grad` of the regularised parameters. Call after backward (and after GradScaler.unscale_)."""
        self._follow_replacements()
        parameters = [p for weight in self._weights for p in weight.parameters]
        self._notices.before_adding(parameters)
        try:
            with full_precision(), without_autocast():  # a parametrised weight is read and pulled back here
                self._add()
        finally:
            self._drop_started()  # only if it raised is there anything left
        self._notices.after_adding(parameters)
        self.step += 1
        self._overlap.step_ended()

    def _add(self) -> None:
        shards = shards_of(self.model, self._weights, self._turns)
        if shards is not None:
            self.processes = shards.processes
        if not self._agreed:
            self.rounds.length, self._agreed = self._of_first_process(self.rounds.length), True
        gradients = [p.grad for p in self.model.parameters() if p.requires_grad and p.grad is not None]
        norm_task = global_norm(gradients) if shards is None else shards.norm(gradients)
        if self.rounds.length > 1 and shards is None and not math.isfinite(norm_task):
            for weight in self._weights:  # the engine looks only at those whose turn it is
                check_finite(weight.effective().detach())
        addition = self._addition() if shards is None else self._addition_in_pieces(shards)
        lambda_t = self.mixer.lambda_at(self.step)
        t = self.rounds.length
        factor, cap = self.mixer.factor(norm_task, t * addition.norm, lambda_t)
        factor = t * factor
        addition.add_(factor, overwrite=self.every == 1)
        self._effective = {}
        self._note_numbers()
        self.last = StepNumbers(
            norm_task=norm_task,
            norm_spec=factor * addition.norm,
            cap=cap,
            lambda_t=lambda_t,
            skipped=sum(penalty.skipped for _, penalty in self._found),
            fallbacks=sum(penalty.fallbacks for _, penalty in self._found),
            of_layers=self._numbers,
            layers=[layer.name for layer in self.layers],
        )
        if self.step == 0:
            self._notices.singular(self.last.kappa_by_layer())
        if self.rounds.more_than_one:
            self._choose_round(addition.norms, self.mixer.compared(lambda_t), float(norm_task))

    def _choose_round(self, norms: dict[str, Tensor], compared: float, norm_task: float) -> None:
        """How long a round the next step belongs to."""
        if norms:
            found = torch.stack([norm.reshape(()) for norm in norms.values()]).tolist()
            self.rounds.norms |= dict(zip(norms, found, strict=True))
        if (self.step + 1) % self.rounds.length == 0:
            most = self.mixer.rho_spec * norm_task / compared if compared else math.inf
            length = self.rounds.next_length(self.step + 1, self.layers, most)
            self.rounds.length = self._of_first_process(length)

    def _of_first_process(self, length: int) -> int:
        """What the first process says: the layers that the processes exchange depend on it."""
        if self.processes.size == 1:
            return length
        said = self._like.new_full((1,), length if self.processes.rank == 0 else 0)
        return int(self.processes.sum_(said))

    def _note_numbers(self) -> None:
        found: list[OfLayers] = [
            ([layer.name for layer in layers], penalty.value, penalty.sigma_max, penalty.sigma_min)
            for layers, penalty in self._found
        ]
        now = {name for names, *_ in found for name in names}
        self._numbers = [old for old in self._numbers if not now.issuperset(old[0])] + found

    def _addition(self) -> Addition:
        if self._due:
            self._found = self._evaluated()
        return Addition(self._found, self._effective)

    def _addition_in_pieces(self, shards: Shards) -> PieceAddition:
        """The same where the processes hold the weights in pieces: see `sharded`."""
        if self._pieces is None or self._due:
            owned = {weight.name for weight in shards.mine}
            self._regroup([i for i, layer in enumerate(self.layers) if layer.weight.name in owned and not layer.frozen])
            shards = shards.only({layer.weight.name for layer in self._in_turn})
            self._gathered = shards.gathered()
            mine = own_result(shared_workers().submit(self._evaluate))
            self._found = exchanged(mine, self._in_turn, self.processes, self._like, gradients=False)
            of_weight: dict[str, dict[int, Tensor]] = {weight.name: {} for weight in shards.mine}
            for layers, penalty in mine:
                for layer, gradient in zip(layers, penalty.gradient, strict=True):
                    of_weight[layer.weight.name][layer.index] = gradient
            whole = {w.name: pulled_back(w, of_weight[w.name], self._gathered)[0][1] for w in shards.mine}
            norms = {layer.name: p.norm for (layer,), p in self._found if p.norm is not None}
            self._pieces = PieceAddition(shards.weights, shards.scattered(whole), norms)
            self._gathered = {}
        return self._pieces

    def start(self) -> None:
        """Begin this step's spectral work beside the forward and backward: it needs the weights alone.

        Where that makes steps slower (a network that keeps every core busy), it is noticed and left to add_gradients;
        no result depends on it. Not with a parametrised weight: spectral_norm writes its vectors in the forward, so
        the weight would move. Not with a sharded one: it has to be gathered. Not where float32 products are reduced:
        that setting is the network's meanwhile.
        """
        if self._task is not None:  # of a step that never came to add_gradients
            return
        workers = shared_workers()
        if not workers.helpers or not self._due or any(weight.is_parametrised for weight in self._weights):
            return
        if not is_full_precision() or any(is_sharded(p) for weight in self._weights for p in weight.behind):
            return
        if not self._agreed and self.processes.size > 1:
            return
        if self._overlap.worth_it():
            self._regroup()
            self._task = workers.submit(self._evaluate)

    @property
    def _due(self) -> bool:
        return not self._found or self.step % self.every == 0

    @property
    def _in_turn(self) -> list[Layer]:
        """The layers of this evaluation: what is frozen is left alone, what was unfrozen joins."""
        return [layer for layer in self.rounds.in_turn(self.layers, self.step) if not layer.frozen]

    def _regroup(self, own: list[int] | None = None) -> None:
        """The groups of this step; own: the layers that are this process's, by default as the processes divide them."""
        self.groups.take(self.layers, self._own_layers() if own is None else own, self.rounds, self.step)

    def _own_layers(self) -> list[int]:
        own = [i for i, layer in enumerate(self.layers) if not layer.frozen]
        if self.processes.size == 1:
            return own
        longest = self.rounds.lengths[0]
        owners = self.processes.owners([cost(self.layers[i]) for i in own], [i % longest for i in own])
        return [i for i, rank in zip(own, owners, strict=True) if rank == self.processes.rank]

    @property
    def _turns(self) -> dict[str, int]:
        """Of each weight: its first layer's turn in the longest round."""
        longest = self.rounds.lengths[0]
        return {layer.weight.name: i % longest for i, layer in reversed(list(enumerate(self.layers)))}

    def _evaluated(self) -> Found:
        # Through the workers whether it was started early or not, so that rounding is the same.
        task, self._task = self._task, None
        if task is None:
            self._regroup()
        if self.processes.size == 1:
            if not self.groups.parts:
                return []
            return task.result() if task is not None else shared_workers().map([self._evaluate])[0]
        if not self._in_turn:
            return []
        task = task if task is not None else shared_workers().submit(self._evaluate)
        return exchanged(own_result(task), self._in_turn, self.processes, self._like)

    def _evaluate(self) -> Found:
        """The penalty of this process's layers, each group of the same shape as one batch, the groups side by side."""
        with torch.enable_grad():  # the pull-back needs the graph
            self._effective = {weight.name: weight.effective() for weight in self._weights if weight.is_parametrised}
        self._effective |= self._gathered
        self._forget_other_layers()
        # The largest first, so that the small ones fill what is left of the time. Where all are small no other thread
        # takes part: waking it for each operation would take longer than the operations.
        sizes = {group: size(part.layers) for group, part in self.groups.parts.items()}
        largest_first = sorted(sizes, key=lambda group: -sizes[group])
        shared = largest_first if sizes and sizes[largest_first[0]] >= LARGE else []
        found = shared_workers().map([partial(self._evaluate_group, group) for group in shared])
        results = dict(zip(shared, found, strict=True))
        return [
            (part.layers, results[group] if group in results else self._evaluate_group(group))
            for group, part in self.groups.parts.items()
        ]

    def _forget_other_layers(self) -> None:
        """What is kept of a group belongs to its layers of the last step; if they are others now, they start anew."""
        for group, gone in self.groups.changed():
            self.forget(group)
            self._numbers = [numbers for numbers in self._numbers if not gone.intersection(numbers[0])]

    def _evaluate_group(self, group: str) -> Penalty:
        return self.penalty(self.groups.stacked(group, self._effective), group=group)

    @property
    def _like(self) -> Tensor:
        """A tensor of the dtype and device that the processes speak in, the same for each of them."""
        first = next(self.model.parameters())
        return torch.empty(0, dtype=torch.promote_types(first.dtype, torch.float32), device=first.device)

    def _follow_replacements(self) -> None:
        """A module of the model that was replaced since: its new weight takes the place of the old one."""
        replaced = [weight.name for weight in self._weights if not weight.belongs_to(self.model)]
        if replaced:
            self._notices.say("replaced", f"replaced since the regulariser was made, and followed: {shown(replaced)}")
            self.layers = require_layers(self.model, self.rule)
            self._weights = unique_weights(self.layers)
            self._drop_started()
            self.rounds = Rounds(self.round_lengths())
            self._found, self._pieces, self._numbers = [], None, []
            self.groups.start_anew()

    def _drop_started(self) -> None:
        """What began early is not wanted any more: wait until it no longer writes, and forget it."""
        task, self._task = self._task, None
        if task is not None:
            with suppress(Exception):
                task.result()

    def state_dict(self) -> dict[str, Any]:
        """To be taken between two steps, not between start() and add_gradients()."""
        # Pieces are not kept: a resumed run evaluates afresh.
        found = self._found if self.every > 1 and self._pieces is None else []
        held = [([layer.name for layer in layers], asdict(penalty)) for layers, penalty in found]
        return {
            "step": self.step,
            "held": held,
            "members": dict(self.groups.members),
            "round": {"length": self.rounds.length, "norms": dict(self.rounds.norms)},
            "numbers": [(list(names), *values) for names, *values in self._numbers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._drop_started()
        self.step = state["step"]
        # Of an older state, without these, the layers are taken to be the same, and the next step takes all of them.
        self.groups.members = dict(state.get("members", {}))
        self.rounds, self._agreed = Rounds(self.round_lengths()), False
        if (of_round := state.get("round")) and of_round["length"] in self.rounds.lengths:
            self.rounds.length, self.rounds.norms = of_round["length"], dict(of_round["norms"])
        device = self._like.device
        self._numbers = [
            (names, *(value if value is None else value.to(device) for value in values))
            for names, *values in state.get("numbers", [])
        ]
        self._pieces = None
        by_name = {layer.name: layer for layer in self.layers}
        self._found = [
            ([by_name[name] for name in names], restored(held, by_name[names[0]].weight.behind[0].device))
            for names, held in state["held"]
        ]


def restored(held: dict[str, Any], device: torch.device) -> Penalty:
    """A penalty from its fields, which may have been loaded on another device."""
    kinds = {field.name for field in fields(Penalty)}
    moved: dict[str, Any] = {key: v.to(device) if isinstance(v, Tensor) else v for key, v in held.items()}
    return Penalty(**{key: v for key, v in moved.items() if key in kinds})


def cost(layer: Layer) -> float:
    """Of its products, as processes share them."""
    m, n = layer.shape
    return m * n * min(m, n)


def size(layers: list[Layer]) -> int:
    """Entries of all matrices."""
    return sum(math.prod(layer.shape) for layer in layers)
