"""The figure style: readable letters, colors that differ, no trace of software."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from robustbook import style
from robustbook.style import _looks


@pytest.fixture(autouse=True)
def _keep_style():
    with mpl.rc_context():
        yield


def test_the_style_sets_the_parameters_of_the_chapters():
    style.use_style()
    rc = mpl.rcParams
    # On a telephone, 350 px wide, no letter is below 9 px.
    points = min(rc["font.size"], rc["xtick.labelsize"], rc["legend.fontsize"])
    assert points / 72 * 350 / rc["figure.figsize"][0] >= 9
    assert (rc["figure.dpi"], rc["figure.facecolor"]) == (144, "white")
    assert not any(rc[f"axes.spines.{side}"] for side in ("top", "right"))
    wanted = mpl.RcParams(style.style_parameters())  # as matplotlib reads them
    assert {name: rc[name] for name in wanted} == dict(wanted)


def test_notebook_figures_name_no_software(monkeypatch):
    pytest.importorskip("matplotlib_inline")
    from IPython.core.interactiveshell import InteractiveShell
    from matplotlib_inline.config import InlineBackend

    shell = InteractiveShell.instance()
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    try:
        style.use_style()
        options = InlineBackend.instance().print_figure_kwargs
        assert options["metadata"] == {"Software": None}
    finally:
        InlineBackend.clear_instance()
        InteractiveShell.clear_instance()


#: Models that share a figure.
TOGETHER = {
    "cifar10": """
        resnet20 resnet4b_adv cnn_a_adv4 cnn_a_adv_alt oval_wide_kw conv_small_pgd
        marabou_large+jpeg-rs""",
    "mnist": """
        advertorch_lenet5_clean conv_small_nat advertorch_lenet5_adv cnn_a_adv
        madry_tiny_adv kw""",
    "digits": "linear-s0 cnn-s0 cnn-noise-s0 cnn-adv-s0 cnn-s0+jpeg-rs",
}


@pytest.mark.parametrize("dataset", TOGETHER)
@pytest.mark.parametrize("of", [style.color_of, style.marker_of, style.label_of])
def test_models_that_share_a_figure_differ(dataset, of):
    group = [f"{dataset}-{name}" for name in TOGETHER[dataset].split()]
    assert len({of(name) for name in group}) == len(group)


@pytest.mark.parametrize(
    ("look", "names"),
    [
        ("undefended", "cifar10-resnet20 mnist-advertorch_lenet5_clean digits-cnn"),
        ("jpeg-rs", "cifar10-marabou_large+jpeg-rs digits-linear-s3+jpeg-rs"),
        ("cnn-noise", "cnn-noise digits-cnn-noise digits-cnn-noise-s4 mnist-cnn-noise"),
    ],
)
def test_a_model_keeps_its_look_over_data_sets_and_seeds(look, names):
    for name in names.split():
        assert style.color_of(name) == style.COLORS[look]
        assert style.marker_of(name) == _looks.MARKERS[look]


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(KeyError, match="no label is reserved for 'digits-cnn\\+oak'"):
        style.label_of("digits-cnn+oak")
    with pytest.raises(KeyError, match=r"digits-oak.*accuracy"):
        style.color_of("digits-oak")


def test_colors_of_quantities_that_share_a_figure_differ():
    for group in (
        ("clean", "shifted"),
        ("pa", "shifted_accuracy", "same_answer_rate", "bound", "adam"),
        ("perfect", "constant", "random"),
        ("pa", "hard", "confidence"),
    ):
        assert len({style.COLORS[name] for name in group}) == len(group), group


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_band_takes_arrays_and_may_be_wider_above_than_below(kind):
    ax = Figure().add_subplot()
    errors = kind([[0.5, 0.5], [1.0, 2.0]])
    style.band(ax, kind([0.0, 1.0]), kind([2.0, 3.0]), errors, color="black")
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[:, 1].min() == 1.5
    assert corners[:, 1].max() == 5.0


@pytest.mark.parametrize(
    "pixels",
    [
        torch.full((5, 1, 2, 2), 0.5, requires_grad=True),
        torch.full((5, 3, 2, 2), 0.5, dtype=torch.bfloat16),
        np.full((5, 2, 2), 127.5 / 255),
        np.full((5, 2, 2), 128, np.uint8),
    ],
)
def test_image_grid_shows_each_image_once_and_alike_whatever_the_type(pixels):
    import matplotlib.pyplot as plt

    fig = style.image_grid(pixels, columns=3, titles=list("abcde"))
    assert [ax.get_title() for ax in fig.axes] == list("abcde")
    shown = fig.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, 0.5, atol=1 / 255)
    plt.close(fig)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 2, 2), {"columns": 0}, "columns"),
        ((2, 2, 8, 8), {}, "images"),
        ((2, 8, 8), {"titles": ["a"]}, "titles"),
        ((2, 8, 8), {"row_labels": "ab"}, "row_labels"),
    ],
)
def test_image_grid_refuses(shape, options, message):
    with pytest.raises(ValueError, match=f"{message}: expected"):
        style.image_grid(np.zeros(shape), **options)
    with pytest.raises(TypeError, match="images: expected floats"):
        style.image_grid(np.zeros((1, 2, 2), int))
