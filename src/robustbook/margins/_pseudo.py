"""A margin that is learned from features: the paper's pseudo-margin."""

from __future__ import annotations

from copy import deepcopy
from typing import Final

import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from robustbook._checks.arguments import ArrayLike, check_count, check_features
from robustbook.margins._arrays import check_vector

LAYERS: Final = 5
#: Share of the samples that is held out.
HELD_OUT: Final = 0.2
#: Samples in a step of Adam, and its step size.
BATCH: Final = 128
LEARNING_RATE: Final = 1e-3


class PseudoMargin(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts input margins from features: five layers of 512, mean squared error.

    The architecture is the paper's: dense layers with ReLU between them and a sigmoid
    at the end. Features are standardized, and the sigmoid is scaled to the largest
    margin. It is a regressor of scikit-learn. Source: the margin paper, section 3.3 and
    appendix B.4; Chapter 30.

    Parameters
    ----------
    width : int, default 512
        Units in each of the five layers.
    epochs : int, default 200
        Largest number of epochs.
    patience : int, default 20
        Epochs without a smaller error on held-out samples, a fifth of all, after which
        training stops. The weights of the best epoch are kept.
    seed : int, default 0
        Seed of the initial weights, the held-out samples and the order of the others.

    Examples
    --------
    >>> features = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    >>> model = PseudoMargin(width=16, epochs=5).fit(features, features.mean(1))
    >>> model, tuple(model.predict(features).shape)
    (PseudoMargin(epochs=5, width=16), (200,))
    """

    def __init__(
        self, *, width: int = 512, epochs: int = 200, patience: int = 20, seed: int = 0
    ) -> None:
        self.width = width
        self.epochs = epochs
        self.patience = patience
        self.seed = seed

    @torch.inference_mode(False)
    def fit(self, features: ArrayLike, input_margin: ArrayLike) -> PseudoMargin:
        """Learn from measured margins; return the estimator itself.

        Parameters
        ----------
        features : Tensor or array, shape (N, D)
            Features, for example of the penultimate layer.
        input_margin : Tensor or array, shape (N,)
            Measured margins, at least 0; ``inf`` where no attack found another class.

        Raises
        ------
        ValueError
            If an option is out of range, there are fewer than 3 samples, a number is
            not finite, or all margins are 0.
        """
        for name in ("width", "epochs", "patience"):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, minimum=0)
        inputs = check_features("features", features).cpu()
        count, self.n_features_in_ = inputs.shape
        margins = check_vector("input_margin", input_margin, length=count, low=0.0)
        self._scale = float(margins.max())
        if not 0 < self._scale < torch.inf:
            raise ValueError(
                "input_margin: expected finite margins, some of them above 0, got "
                f"{self._scale:g} as the largest; leave out the samples that no attack "
                "moved"
            )
        if count < 3:
            raise ValueError(
                f"features: expected enough samples to hold out a fifth, got {count}"
            )
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(count, generator=generator)
        held_out, rows = order.tensor_split([round(HELD_OUT * count)])
        self._mean = inputs[rows].mean(dim=0)
        spread = inputs[rows].std(dim=0, correction=0)
        # A feature that does not vary is set to 0.
        varies = spread > 1e-6 * self._mean.abs()
        self._spread = torch.where(varies, spread, torch.inf)
        inputs = self._standardized(inputs)
        targets = (torch.from_numpy(margins) / self._scale).float()
        network = self._build()
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

        def loss_on(part: Tensor) -> Tensor:
            return nn.functional.mse_loss(network(inputs[part])[:, 0], targets[part])

        least, best_epoch, weights = torch.inf, -1, {}
        for epoch in range(self.epochs):
            shuffled = rows[torch.randperm(len(rows), generator=generator)]
            with torch.enable_grad():
                for part in torch.split(shuffled, BATCH):
                    optimizer.zero_grad()
                    torch.autograd.backward(loss_on(part))
                    optimizer.step()
            with torch.no_grad():
                error = float(loss_on(held_out))
            if error < least:
                least, best_epoch = error, epoch
                weights = deepcopy(network.state_dict())
            elif epoch - best_epoch >= self.patience:
                break
        network.load_state_dict(weights)
        self.network_ = network.eval()
        return self

    def _build(self) -> nn.Sequential:
        """Build the layers without moving the caller's random numbers."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            layers: list[nn.Module] = []
            for size in [self.n_features_in_, *[self.width] * (LAYERS - 1)]:
                layers += [nn.Linear(size, self.width), nn.ReLU()]
            return nn.Sequential(*layers, nn.Linear(self.width, 1), nn.Sigmoid())

    def _standardized(self, inputs: Tensor) -> Tensor:
        return ((inputs - self._mean) / self._spread).float()

    def predict(self, features: ArrayLike) -> Tensor:
        """Predict margins, float64 (N,), in the units of those of the fit.

        Parameters
        ----------
        features : Tensor or array, shape (N, D)
            The same features as in the fit.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If `fit` was not called.
        ValueError
            If the number of features differs from that of the fit.
        """
        check_is_fitted(self)
        inputs = check_features("features", features).cpu()
        if inputs.shape[1] != self.n_features_in_:
            raise ValueError(
                f"features: expected {self.n_features_in_} per sample, as in the fit, "
                f"got {inputs.shape[1]}"
            )
        with torch.no_grad():
            parts = torch.split(self._standardized(inputs), 8192)
            margins = torch.cat([self.network_(part)[:, 0] for part in parts])
        return margins.double() * self._scale
