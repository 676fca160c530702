"""The sum of a model tells two that compute differently apart."""

import torch
from torch import nn

from robustbook._store import sums
from robustbook._store.sums import code_sum, model_sum, tensor_sum, tensors_sum
from robustbook.models import build_model


class Masked(nn.Module):
    def __init__(self, *, straight=False):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.straight = straight

    def forward(self, x):
        rounded = (x * 8).round() / 8
        return self.linear(x + (rounded - x).detach() if self.straight else rounded)


def twin(model, **options):
    other = type(model)(**options)
    other.load_state_dict(model.state_dict())
    return other


class Other(Masked):
    def forward(self, x):
        return super().forward(x) * 1.0


def test_weights_mode_switches_and_code_count():
    model, other = Masked(), Other()
    other.load_state_dict(model.state_dict())
    assert model_sum(model) == model_sum(twin(model))
    models = model, twin(model, straight=True), Masked(), twin(model).eval(), other
    assert len({model_sum(one) for one in models}) == 5
    assert code_sum(Masked()) == code_sum(Masked(straight=True))
    # Callables are compared by their source.
    assert model_sum(lambda x: x) != model_sum(lambda x: -x)  # one line, two texts
    assert model_sum(torch.relu) != model_sum(torch.sigmoid)


class Shifted(nn.Module):
    def __init__(self, mean, scale):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.scale = torch.tensor(scale)


def test_buffers_and_tensors_that_are_not_saved_count():
    models = [Shifted(*values) for values in ((0.1, 1.0), (0.2, 1.0), (0.1, 2.0))]
    assert len({model_sum(model) for model in models}) == 3
    assert model_sum(models[0]) == model_sum(Shifted(0.1, 1.0))


def test_imports_of_a_module_of_the_package_count(monkeypatch):
    model, twin_ = (
        build_model("cifar-resnet", seed=0, options={"blocks": 1}) for _ in range(2)
    )
    before = model_sum(model)
    assert before == model_sum(twin_)
    monkeypatch.setattr(sums, "fingerprint", lambda name: f"other {name}")
    assert model_sum(model) != before


def test_tensors_count_with_type_shape_and_name():
    x = torch.arange(6.0)
    several = {tensor_sum(x), tensor_sum(x.double()), tensor_sum(x.reshape(2, 3))}
    assert len(several) == 3
    assert tensors_sum({"a": x, "b": -x}) == tensors_sum({"b": -x, "a": x})
    assert tensors_sum({"a": x}) != tensors_sum({"b": x})
