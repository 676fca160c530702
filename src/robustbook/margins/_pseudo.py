"""A margin that is learned from features: the paper's pseudo-margin."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._checks.arguments import check_count, check_positive
from robustbook.margins._arrays import DOCS, check_features, check_vector

LAYERS: Final = 5
WIDTH: Final = 512


class PseudoMargin:
    """Predicts input margins from features: five layers of 512, mean squared error.

    The architecture is the paper's: dense layers with ReLU between and a sigmoid in the
    end. Features are standardized, and the sigmoid is stretched to the largest margin.
    Source: the margin paper, section 3.3 and appendix B.4; Chapter 28.

    Parameters
    ----------
    width : int, default 512
        Of each of the five layers.
    epochs : int, default 200
        At most.
    patience : int, default 20
        Epochs without a smaller error on the held-out part before it stops.
    batch_size : int, default 128
        Samples in a step.
    learning_rate : float, default 1e-3
        Of Adam.
    validation : float, default 0.2
        Share of the samples that is held out, in (0, 1).
    seed : int, default 0
        For the initial weights, the held-out part and the order of the samples.

    Attributes
    ----------
    history : list of tuple of float
        Root mean squared errors of each epoch, on the rest and on the held-out part, in
        the units of the margins.
    best_epoch : int
        The epoch whose weights were kept, from 0.

    Examples
    --------
    >>> features = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    >>> model = PseudoMargin(width=16, epochs=5).fit(features, features.mean(1))
    >>> tuple(model.predict(features).shape)
    (200,)
    """

    def __init__(
        self,
        *,
        width: int = WIDTH,
        epochs: int = 200,
        patience: int = 20,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        validation: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.width = check_count("width", width)
        self.epochs = check_count("epochs", epochs)
        self.patience = check_count("patience", patience)
        self.batch_size = check_count("batch_size", batch_size)
        self.learning_rate = check_positive("learning_rate", learning_rate)
        self.validation = check_positive("validation", validation)
        if self.validation >= 1:
            raise ValueError(
                f"validation: expected a number in (0, 1), got {validation:g}"
            )
        self.seed = check_count("seed", seed, minimum=0)
        self.history: list[tuple[float, float]] = []
        self.best_epoch = -1
        self._network: nn.Sequential | None = None
        self._mean = self._spread = torch.empty(0)
        self._scale = 1.0

    @torch.inference_mode(False)
    @DOCS.fill
    def fit(self, features: Any, input_margin: Any) -> PseudoMargin:
        """Learn from measured margins; return itself.

        Parameters
        ----------
        {features} {input_margin}

        Raises
        ------
        ValueError
            If samples are too few for a held-out part, not finite, or all margins are
            0.
        """
        inputs = check_features(features).clone()
        count = len(inputs)
        margins = check_vector("input_margin", input_margin, length=count, low=0.0)
        targets = torch.from_numpy(margins)
        if bool(torch.isinf(targets).any()):
            index = int(torch.isinf(targets).nonzero()[0])
            raise ValueError(
                f"input_margin: expected finite margins, got inf at index {index}; "
                "leave out the samples that no attack moved"
            )
        scale = float(targets.max())
        if scale == 0:
            raise ValueError("input_margin: expected margins above 0, got only zeros")
        held = round(self.validation * count)
        if not 0 < held < count:
            raise ValueError(
                f"features: expected enough samples for a held-out part of "
                f"{self.validation:g}, got {count}"
            )
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(count, generator=generator)
        known, rest = order[held:], order[:held]
        mean = inputs[known].mean(dim=0)
        spread = inputs[known].std(dim=0, correction=0)
        # Features that do not vary say nothing.
        spread = torch.where(spread > 1e-6 * mean.abs(), spread, torch.inf)
        inputs, targets = ((inputs - mean) / spread).float(), (targets / scale).float()
        network = _build(inputs.shape[1], self.width, self.seed)
        history, best = self._train(network, inputs, targets, known, rest, generator)
        # All at once: a fit that fails leaves the one before it as it was.
        self._mean, self._spread, self._scale = mean, spread, scale
        self.history = [(a * scale, b * scale) for a, b in history]
        self.best_epoch, self._network = best, network.eval()
        return self

    def _train(
        self,
        network: nn.Sequential,
        inputs: Tensor,
        targets: Tensor,
        known: Tensor,
        rest: Tensor,
        generator: torch.Generator,
    ) -> tuple[list[tuple[float, float]], int]:
        """Train; return the history, in units of the sigmoid, and the best epoch."""

        def loss_on(rows: Tensor) -> Tensor:
            return nn.functional.mse_loss(network(inputs[rows])[:, 0], targets[rows])

        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        history: list[tuple[float, float]] = []
        best, best_epoch, weights = torch.inf, -1, {}
        for epoch in range(self.epochs):
            shuffled = known[torch.randperm(len(known), generator=generator)]
            total = 0.0
            with torch.enable_grad():
                for rows in torch.split(shuffled, self.batch_size):
                    loss = loss_on(rows)
                    optimizer.zero_grad()
                    torch.autograd.backward(loss)
                    optimizer.step()
                    total += float(loss.detach()) * len(rows)
            with torch.no_grad():
                error = float(loss_on(rest))
            history.append(((total / len(known)) ** 0.5, error**0.5))
            if error < best:
                best, best_epoch = error, epoch
                weights = {k: v.clone() for k, v in network.state_dict().items()}
            elif epoch - best_epoch >= self.patience:
                break
        if not weights:
            raise ValueError(
                "learning_rate: expected training that converges, got errors that "
                f"are not finite; try less than {self.learning_rate:g}"
            )
        network.load_state_dict(weights)
        return history, best_epoch

    def predict(self, features: Any) -> Tensor:
        """Predict margins, float64 (N,), in the units of those of the fit.

        Parameters
        ----------
        features : Tensor or array, shape (N, D)
            As in the fit.

        Raises
        ------
        RuntimeError
            If it was not fitted.
        ValueError
            If the number of features differs from that of the fit.
        """
        if self._network is None:
            raise RuntimeError("PseudoMargin: expected a fitted model; call fit")
        inputs = check_features(features)
        if inputs.shape[1] != len(self._mean):
            raise ValueError(
                f"features: expected {len(self._mean)} a sample, as in the fit, got "
                f"{inputs.shape[1]}"
            )
        inputs = ((inputs - self._mean) / self._spread).float()
        with torch.no_grad():
            parts = torch.split(inputs, 8192)
            margins = torch.cat([self._network(part)[:, 0] for part in parts])
        return margins.double() * self._scale


def _build(features: int, width: int, seed: int) -> nn.Sequential:
    """Five hidden layers; the caller's random numbers are left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        layers: list[nn.Module] = []
        for size in [features, *[width] * (LAYERS - 1)]:
            layers += [nn.Linear(size, width), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, 1), nn.Sigmoid())
