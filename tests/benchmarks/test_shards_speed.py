"""Agreement over processes against gathering all logits on one of them.

`make bench` prints the ratios. Nothing here asserts a time.
"""

from robustbook.studies.cost_model import CostSetting, over_ranks

SIZES = (5000, 10), (100_000, 10), (5000, 1000)


def test_sharded_agreement_against_gathering_all_logits_on_one_rank(benchmark, capsys):
    timed = benchmark.enabled
    setting = CostSetting(
        sizes=(), spread=SIZES if timed else ((200, 10),), threads=(), streamed=0,
        ranks=(1, 2, 4, 8) if timed else (1, 2), repeat=7 if timed else 2,
    )  # fmt: skip
    rows = benchmark.pedantic(lambda: list(over_ranks(setting, seed=0)), rounds=1)
    assert len(rows) == len(setting.ranks) * len(setting.spread)
    with capsys.disabled():
        print()
        for row in rows:
            print(
                f"  {row['ranks']} ranks, N={row['samples']}, K={row['classes']}: "
                f"sharded {row['solve']:.3f} s, gathered "
                f"{row['gather'] / row['solve']:.2f} times as long"
            )
