"""The one training loop: steps, scores of each epoch, going on after a stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

from robustbook._checks.arguments import check_count
from robustbook._store.provenance import fingerprint
from robustbook._store.sums import code_sum, tensors_sum
from robustbook.datasets import Dataset
from robustbook.training import _resume
from robustbook.training._learners import Learner
from robustbook.training._losses import Loss
from robustbook.training._resume import CODE, HISTORY, described, write_state

#: Batches of an epoch, images (D, n, C, H, W) and labels (D, n) of D domains, in an
#: order that a CPU generator draws.
Batches = Callable[[torch.Generator], Iterator[tuple[Tensor, Tensor]]]

#: Scores of an epoch by name.
Scores = Callable[[nn.Module], dict[str, float]]


@dataclass
class History:
    """Measurements of each epoch of one training.

    Attributes
    ----------
    rows : list of dict
        One for each epoch: "epoch" (from 1), "loss" and "risk" (nats), the measure's
        "NAME/accuracy" and so on of each validation pair, "test/NAME" of each test set.
    weights : dict of str to dict
        For each criterion that is kept, the weights of its best epoch.
    watched : dict of str to list of Tensor
        For each watched function, its values after each epoch.

    Examples
    --------
    >>> history = History(
    ...     rows=[{"epoch": 1, "ID/pa": 0.2}, {"epoch": 2, "ID/pa": 0.3}]
    ... )
    >>> history.best("ID/pa")["epoch"]
    2
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    weights: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    watched: dict[str, list[Tensor]] = field(default_factory=dict)

    def best(self, criterion: str) -> dict[str, float]:
        """Return the row of the first epoch with the largest value of a criterion.

        A criterion is a column of `rows`; NaN is worse than any number.
        """
        if not self.rows or criterion not in self.rows[0]:
            known = ", ".join(self.rows[0]) if self.rows else "none: no epoch yet"
            raise ValueError(f"criterion: expected one of {known}; got {criterion!r}")

        def value(row: dict[str, float]) -> float:
            return -math.inf if math.isnan(row[criterion]) else row[criterion]

        return max(self.rows, key=value)


def as_floats(images: Tensor) -> Tensor:
    """Pixels in [0, 1], also of uint8."""
    return images / 255 if images.dtype == torch.uint8 else images


def shuffled_batches(
    data: Dataset,
    batch_size: int,
    *,
    device: torch.device | str = "cpu",
    change: Callable[..., Tensor] | None = None,
) -> Batches:
    """Each image once, after `change`; the last batch may be smaller."""

    def batches(generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(data), generator=generator)
        for index in torch.split(order, batch_size):
            images = as_floats(data.images[index])
            if change is not None:
                images = change(images, generator=generator)
            yield images[None].to(device), data.labels[index][None].to(device)

    return batches


def domain_batches(
    domains: list[Dataset], batch_size: int, device: torch.device
) -> Batches:
    """Draw equally many images of each domain in a batch; small domains repeat."""
    images = [domain.images.to(device) for domain in domains]
    labels = [domain.labels.to(device) for domain in domains]
    wanted = -(-max(map(len, domains)) // batch_size) * batch_size

    def batches(generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        orders = []
        for domain in domains:
            orders_of_domain = [
                torch.randperm(len(domain), generator=generator)
                for _ in range(-(-wanted // len(domain)))
            ]
            order = torch.cat(orders_of_domain)[:wanted].to(device)
            orders.append(torch.split(order, batch_size))
        for index in zip(*orders, strict=True):
            batch = [as_floats(x[i]) for x, i in zip(images, index, strict=True)]
            classes = [y[i] for y, i in zip(labels, index, strict=True)]
            yield torch.stack(batch), torch.stack(classes)

    return batches


def cosine(lr: float, steps: int) -> list[float]:
    """Rates from `lr` to zero along half a cosine, one for each step.

    By the recursion of :class:`torch.optim.lr_scheduler.CosineAnnealingLR`: the closed
    form differs in the last bits, and so would the committed weights.
    """
    rates = [lr]
    for step in range(1, steps):
        now, before = (1 + math.cos(math.pi * s / steps) for s in (step, step - 1))
        rates.append(now / before * rates[-1])
    return rates


def trapezoid(lr: float, steps: int, *, rise: int, fall: int) -> list[float]:
    """Rates up to `lr` in `rise` steps, level, and down to zero in the last `fall`."""
    return [
        lr * max(0.0, min((step + 1) / rise, 1.0, (steps - step) / fall))
        for step in range(steps)
    ]


@dataclass
class Loop:
    """A training: all that defines it, and all of its state.

    `rates` has a learning rate for each step of all epochs, `averaging` is the decay of
    averaged weights in a step. `identity` holds whatever defines the training beside
    the fields here: plain values, functions, data sets, and lists
    and dictionaries of these.
    """

    model: nn.Module
    objective: Learner | Loss
    batches: Batches
    optimizer: torch.optim.Optimizer
    rates: list[float]
    epochs: int
    seed: int
    identity: Mapping[str, Any]
    autocast: bool = False
    averaging: float | None = None
    scores: Scores | None = None
    keep: tuple[str, ...] = ()
    watch: Mapping[str, Callable[[nn.Module], Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History()
        seed = check_count("seed", self.seed, minimum=0)
        if seed >= 2**63:
            raise ValueError(f"seed: expected less than 2**63, got {seed}")
        self.generator = torch.Generator().manual_seed(seed)
        self.average: AveragedModel | None = None
        if self.averaging is not None:
            average: Any = get_ema_multi_avg_fn(self.averaging)  # type: ignore[no-untyped-call]
            self.average = AveragedModel(
                self.model, multi_avg_fn=average, use_buffers=True
            )
        self.device = next(self.model.parameters()).device

    def run(
        self, *, checkpoint: Path | str | None = None, progress: bool = True
    ) -> History:
        """Train to the end, from where the checkpoint is."""
        path = None if checkpoint is None else Path(checkpoint)
        if path is not None:
            _resume.check_place(path)
            self._initial = tensors_sum(self.model.state_dict())
            if path.is_file():
                self._restore(path)
        rows = self.history.rows
        with tqdm(
            total=self.epochs,
            initial=len(rows),
            desc=getattr(self.objective, "name", "training"),
            unit="epoch",
            leave=False,
            disable=not progress,
        ) as bar:
            while len(rows) < self.epochs:
                row = self._epoch()
                if path is not None:
                    write_state(path, self._state())
                bar.update()
                # Drawn at once, however short an epoch is.
                bar.set_postfix({k: f"{row[k]:.3f}" for k in row if _is_shown(k)})
        if self.average is not None:
            self.model.load_state_dict(self.average.module.state_dict())
        self.model.eval()
        return self.history

    def _epoch(self) -> dict[str, float]:
        history = self.history
        number = len(history.rows)
        loss, risk = self._pass(number)
        row: dict[str, float] = {"epoch": number + 1, "loss": loss, "risk": risk}
        model = self.model if self.average is None else self.average.module
        model.eval()
        if self.scores is not None:
            row |= self.scores(model)
        history.rows.append(row)
        with torch.no_grad():
            for name, look in self.watch.items():
                value = look(model).detach().cpu().clone()
                history.watched.setdefault(name, []).append(value)
        for criterion in self.keep:
            if history.best(criterion) is row:
                history.weights[criterion] = {
                    name: value.detach().cpu().clone()
                    for name, value in model.state_dict().items()
                }
        return row

    def _pass(self, epoch: int) -> tuple[float, float]:
        """Step over all batches, and return the mean loss and risk of an image."""
        self.model.train()
        values, sizes = [], []
        rates = iter(self.rates[epoch * self._steps :])
        for images, labels in self.batches(self.generator):
            rate = next(rates)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            with torch.autocast(self.device.type, torch.bfloat16, self.autocast):
                loss, risk = self._loss(images, labels, epoch)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            self.optimizer.step()
            if self.average is not None:
                self.average.update_parameters(self.model)
            values.append(torch.stack([loss.detach(), risk.detach()]))
            sizes.append(labels.numel())
        shares = torch.tensor(sizes, dtype=torch.float64)
        shares /= shares.mean()
        losses, risks = torch.stack(values).cpu().double().T.contiguous()
        mean_loss, mean_risk = (losses * shares).mean(), (risks * shares).mean()
        self._check_finite(float(mean_loss), epoch)
        return float(mean_loss), float(mean_risk)

    def _loss(
        self, images: Tensor, labels: Tensor, epoch: int
    ) -> tuple[Tensor, Tensor]:
        objective: Any = self.objective
        if hasattr(objective, "loss"):
            options: Any = {"epoch": epoch, "generator": self.generator}
            return objective.loss(self.model, images, labels, **options)
        # A loss takes one batch: the images of all domains together.
        batch = images.flatten(0, 1), labels.flatten()
        value = objective(self.model, *batch, self.generator)
        return value, value

    @property
    def _steps(self) -> int:
        return len(self.rates) // self.epochs

    def _check_finite(self, loss: float, epoch: int) -> None:
        place = f"epoch {epoch + 1} of {self.epochs}"
        remedy = f"try an lr below {max(self.rates):g}"
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the training loss is {loss} in {place}; expected a finite number: "
                f"{remedy}, and look whether all images are finite"
            )
        for name, value in self.model.state_dict().items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise FloatingPointError(
                    f"the weights {name} are no longer finite after {place}: {remedy}"
                )

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """Values that must be the same for a training to go on."""
        # With all its options: momentum, decay.
        plain = {k: v for k, v in self.optimizer.defaults.items() if k != "lr"}
        weights = self.model.state_dict().items()
        shapes = [f"{name} {tuple(value.shape)}" for name, value in weights]
        return {
            "learner": described(self.objective), "lr": max(self.rates),
            "seed": self.seed, "autocast": self.autocast, "averaging": self.averaging,
            "optimizer": f"{type(self.optimizer).__name__}({plain})",
            "keep": list(self.keep), "watch": described(self.watch),
            "model": [code_sum(self.model), *shapes],
            **described(self.identity), "code": fingerprint(*CODE),
        }  # fmt: skip

    def _used_rates(self, rows: list[dict[str, float]]) -> list[float]:
        return self.rates[: len(rows) * self._steps]

    def _state(self) -> dict[str, Any]:
        return {
            "identity": self._identity,
            "initial": self._initial,
            "rates": self._used_rates(self.history.rows),
            "generator": self.generator.get_state(),
            **{name: part.state_dict() for name, part in self._parts.items()},
            **{name: getattr(self.history, name) for name in HISTORY},
        }

    @property
    def _parts(self) -> dict[str, Any]:
        average = {} if self.average is None else {"average": self.average}
        return {"model": self.model, "optimizer": self.optimizer, **average}

    def _restore(self, path: Path) -> None:
        """Go on from a file, or refuse it before anything is changed."""
        state = _resume.read_state(path)
        differing = _resume.differences(state, self._identity)
        # More or fewer epochs are the same training as long as their rates are.
        if not differing and state["rates"] != self._used_rates(state["rows"]):
            differing = ["epochs"]
        if differing:
            raise ValueError(
                f"checkpoint: {path} is of another training: {', '.join(differing)} "
                "differ; delete it, or name another file"
            )
        known = (state["initial"], tensors_sum(state["model"]))
        if self._initial not in known:
            raise ValueError(
                f"checkpoint: {path} is of a training that began with other weights; "
                "build the model again with the seed it had then, delete the file, or "
                "name another one"
            )
        self._initial = state["initial"]
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        self.generator.set_state(state["generator"])
        for name in HISTORY:
            setattr(self.history, name, state[name])


def _is_shown(column: str) -> bool:
    return column == "risk" or column.endswith(("/accuracy", "/robust", "/pa"))
