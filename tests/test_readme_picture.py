"""The picture of README and the preface shows what its caption says."""

import runpy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

ROOT = Path(__file__).resolve().parents[1]
PREFACE = (ROOT / "book" / "intro.md").read_text(encoding="utf-8")
SCRIPT = ROOT / "book" / "_static" / "readme.py"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


def test_readme_and_preface_show_it(script):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page, narrow in product(script["PAGES"], (False, True)):
        path = page.file(narrow=narrow)
        assert path.relative_to(ROOT).as_posix() in readme
        assert path.relative_to(ROOT / "book").as_posix() in PREFACE
        assert path.stat().st_size < 300_000


def tau(network, rows):
    margins = network.logit_margins[rows], network.input_margins[rows]
    return kendalltau(*margins).statistic


@pytest.mark.slow
@pytest.mark.ranges
def test_what_the_caption_says(script):
    assert f"σ = {script['SIGMA']:g}," in PREFACE
    measure = script["measure"]
    measure.__globals__.update(COPIES=20, MEASURED=80, ATTACKS=(0.0, 0.15))
    plain, noise, adversarial = networks = list(measure())
    rates = [network.accuracy for network in networks]
    assert max(rates) - min(rates) < 0.02
    falls = [network.agreement[-1] for network in networks]
    assert falls == sorted(falls)
    kept = [network.survival.mean() for network in networks]
    assert kept[0] + 0.1 < min(kept[1:])
    assert abs(kept[1] - kept[2]) < 0.02
    assert adversarial.tau + 0.05 < min(plain.tau, noise.tau)
    # The same images, drawn again: the differences hold beyond their intervals.
    draws = np.random.default_rng(0).integers(0, 80, (300, 80))
    for other in (plain, noise):
        apart = [tau(other, rows) - tau(adversarial, rows) for rows in draws]
        assert np.quantile(apart, 0.025) > 0
    for network in networks:
        assert network.agreement[0] == pytest.approx(np.log(10))
