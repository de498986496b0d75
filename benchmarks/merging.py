"""Trees of 64 shards, merged, beside one tree of everything: clusters found, spread within leaves, worth of the sample.

Shards are random, sorted by cluster, one for each cluster, or sorted in space. "at once" pools all trees (`merge_all`),
"in turn" merges one after the other into the first, "in pairs" merges neighbours. ARI is of points nobody has seen;
spread and worth (Kish's effective size of the sample) are relative to one tree's. Then the cost per leaf of ever more
trees at once.

    python benchmarks/merging.py             640,000 events, D = 2, 8, three data sets each
    python benchmarks/merging.py --quick     128,000 events, one data set each
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
from sklearn.metrics import adjusted_rand_score

from streamclust.refit.bkm.fit import refit_bkm
from streamclust.tree import SummaryTree, merge_all
from streamclust_connectors.synthetic import SyntheticMixture

K, SHARDS, LEAVES = 10, 64, 512


def tree_of(rows: np.ndarray, seed: int) -> SummaryTree:
    tree = SummaryTree(rows.shape[1], max_leaves=LEAVES, seed=seed)
    tree.insert(rows)
    return tree


def shards_of(rows: np.ndarray, labels: np.ndarray) -> dict[str, list[np.ndarray]]:
    def by(values: np.ndarray) -> list[np.ndarray]:
        return np.array_split(rows[np.argsort(values, kind="stable")], SHARDS)

    return {
        "random": np.array_split(rows, SHARDS),
        "sorted by cluster": by(labels),
        "one for each cluster": [rows[labels == k] for k in range(K)],
        "sorted in space": by(rows[:, 0]),
    }


def in_turn(trees: list[SummaryTree]) -> SummaryTree:
    merged = trees[0].copy()
    for tree in trees[1:]:
        merged.merge(tree)
    return merged


def in_pairs(trees: list[SummaryTree]) -> SummaryTree:
    while len(trees) > 1:
        trees = [merge_all(trees[i : i + 2]) for i in range(0, len(trees), 2)]
    return trees[0]


def worth(tree: SummaryTree) -> float:
    _, weight = tree.sample()
    return float(weight.sum() ** 2 / (weight**2).sum())


def compare(d: int, n: int, tau: float, seed: int) -> None:
    mixture = SyntheticMixture(d, n_clusters=K, tau=tau, seed=seed)
    rows, labels = mixture.sample(n)
    unseen, truth = mixture.sample(20_000)

    def score(tree: SummaryTree) -> tuple[int, float]:
        found = refit_bkm("gaussian", tree)
        return found.n_clusters, float(adjusted_rand_score(truth, found.assign(unseen)))

    one = tree_of(rows, 0)
    spread, sample, (k, best) = float(one.leaves().trace.sum()), worth(one), score(one)
    print(f"{d:>2} {seed:>4}  {'one tree':<22} {'':<9} {k:>3}  {best:.4f}", flush=True)
    for shards, parts in shards_of(rows, labels).items():
        trees = [tree_of(part, i + 1) for i, part in enumerate(parts)]
        for how, merge in (("at once", merge_all), ("in turn", in_turn), ("in pairs", in_pairs)):
            start = perf_counter()
            merged = merge(trees)
            seconds = perf_counter() - start
            k, ari = score(merged)
            print(
                f"{d:>2} {seed:>4}  {shards:<22} {how:<9} {k:>3}  {ari:.4f} ({ari - best:+.4f})  "
                f"spread {float(merged.leaves().trace.sum()) / spread:.2f}  worth {worth(merged) / sample:.2f}  "
                f"{seconds:.2f} s",
                flush=True,
            )


def cost(d: int) -> None:
    """Seconds per leaf: near constant, however many trees are merged at once."""
    mixture = SyntheticMixture(d, n_clusters=K, seed=0)
    trees = [tree_of(mixture.sample(10_000)[0], seed) for seed in range(SHARDS)]
    merge_all(trees[:2])
    for n in (4, 16, 64):
        runs = []
        for _ in range(3):
            start = perf_counter()
            merge_all(trees[:n])
            runs.append(perf_counter() - start)
        leaves = sum(tree.n_leaves for tree in trees[:n])
        print(
            f"D = {d}: {n:>2} trees, {leaves:>6,} leaves: {1e6 * min(runs) / leaves:.1f} µs a leaf",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=640_000)
    parser.add_argument("--seeds", type=int, default=3, help="data sets per dimension (default: 3)")
    parser.add_argument("--tau", type=float, default=2.0, help="separation (default: 2)")
    parser.add_argument("--quick", action="store_true", help="128,000 events, one data set per dimension")
    args = parser.parse_args()
    n, seeds = (128_000, 1) if args.quick else (args.events, args.seeds)
    print(" D seed  shards                 merged      K  ARI (against one tree's)")
    for d in (2, 8):
        for seed in range(seeds):
            compare(d, n, args.tau, seed)
    for d in (2, 8):
        cost(d)


if __name__ == "__main__":
    main()
