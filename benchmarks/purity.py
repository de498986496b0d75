"""How good the trees are: dendrogram purity (table 2 of the Bayesian k-means paper), and the relaxed-BHC paper's tests.

Purity on random subsets of pendigits (100 cases), spambase (200, binarised, Bernoulli) and scikit-learn's digits (100),
for single, complete, average and Ward linkage, ABC under the paper's prior (22) and under B0 = mean(NN²)/D, RBHC and
BHC. Then how often RBHC's costs are not reducible, and adjusted Rand indices on synthetic Poisson, multinomial and
Gaussian data of 1,000 points in 6 clusters and 2,000 in 12.

    python benchmarks/purity.py --data DIR     DIR has pendigits.tra and spambase.data of the UCI repository
    python benchmarks/purity.py                digits alone
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from streamclust.batch import AgglomerativeBayesian, BayesianHierarchical, RelaxedBHC
from streamclust.families import FAMILIES
from streamclust.hierarchy import Dendrogram, agglomerate, threshold_rule
from streamclust.hierarchy.problem import MergeProblem
from streamclust.hierarchy.rbhc import Relaxed
from streamclust.moments import Moments

LINKAGES = ("single", "complete", "average", "ward")


def of_linkage(Z: np.ndarray, x: np.ndarray) -> Dendrogram:
    """SciPy's tree as one of ours: purity has one implementation."""
    return Dendrogram.of_merges(
        Z[:, :2].astype(np.int64), Z[:, 2].copy(), Moments.rows_of_points(x), "linkage", True
    )


def purities(x: np.ndarray, y: np.ndarray, family: str) -> dict[str, float]:
    trees = {name: of_linkage(linkage(x, name), x) for name in LINKAGES}
    trees["RBHC"] = RelaxedBHC(family, n_clusters=1).fit(x).dendrogram_
    if family == "gaussian":
        trees["RBHC sph."] = RelaxedBHC("spherical", n_clusters=1).fit(x).dendrogram_
        trees["ABC (22)"] = AgglomerativeBayesian(family, prior="agglomerative").fit(x).dendrogram_
    trees["ABC"] = AgglomerativeBayesian(family).fit(x).dendrogram_
    trees["BHC"] = BayesianHierarchical(family).fit(x).dendrogram_
    return {name: tree.purity(y) for name, tree in trees.items()}


def table(name: str, x: np.ndarray, y: np.ndarray, size: int, family: str, subsets: int) -> None:
    found: dict[str, list[float]] = {}
    for seed in range(subsets):
        chosen = np.random.default_rng(seed).choice(len(x), size, replace=False)
        for method, value in purities(x[chosen], y[chosen], family).items():
            found.setdefault(method, []).append(value)
    print(f"\n{name}: {size} cases, {subsets} random subsets, {family}")
    for method, values in found.items():
        print(f"  {method:<10} {np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}", flush=True)


def load(folder: Path | None) -> list[tuple[str, np.ndarray, np.ndarray, int, str]]:
    digits = load_digits()
    sets = [("digits", digits.data, digits.target, 100, "gaussian")]
    if folder is None:
        print("(!) no --data: pendigits and spambase are left out")
        return sets
    for file, size, family in (("pendigits.tra", 100, "gaussian"), ("spambase.data", 200, "bernoulli")):
        if not (folder / file).is_file():
            print(f"(!) {file} is not in {folder}: left out")
            continue
        values = np.loadtxt((folder / file).read_text().splitlines(), delimiter=",")
        x = (values[:, :-1] > 0).astype(float) if family == "bernoulli" else values[:, :-1]
        sets.append((file.split(".")[0], x, values[:, -1].astype(int), size, family))
    return sets


# ---------------------------------------------------------------- the relaxed-BHC paper


def clusters_of(family: str, sizes: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Three clusters from one distribution, as in the paper's test of reducibility."""
    if family == "poisson":
        rate = rng.uniform(0, 100)
        return [rng.poisson(rate, size=(s, 1)).astype(float) for s in sizes]
    if family == "multinomial":
        probability = rng.dirichlet(np.ones(10))
        return [rng.multinomial(5, probability, size=s).astype(float) for s in sizes]
    root = rng.normal(size=(10, 10))
    mean = rng.normal(size=10)
    return [mean + rng.normal(size=(s, 10)) @ root.T for s in sizes]


def reducibility(trials: int) -> None:
    print(f"\nNot reducible among {trials:,} triples of clusters of 20 to 100 points of one distribution")
    for family in ("poisson", "multinomial", "gaussian"):
        rng = np.random.default_rng(0)
        broken = 0
        for _ in range(trials):
            parts = clusters_of(family, rng.integers(20, 101, size=3), rng)
            x = np.concatenate(parts)
            labels = np.repeat(np.arange(3), [len(part) for part in parts])
            smoothed = FAMILIES[family].informed(x)
            rows = Moments.rows_of_points(x).to_groups(labels, kind=smoothed.scatter)
            problem = MergeProblem.of(Relaxed(), smoothed, rows)
            cost = np.array([problem.costs(i, np.arange(3)) for i in range(3)])
            a, b = np.unravel_index(cost.argmin(), cost.shape)
            c = 3 - a - b
            union = rows.to_groups(np.where(np.arange(3) == c, 1, 0))
            after = MergeProblem.of(Relaxed(), smoothed, union).costs(0, np.array([1]))[0]
            broken += after < min(cost[a, c], cost[b, c]) - 1e-12
        print(f"  {family:<12} {broken} ({100 * broken / trials:.2f}%)", flush=True)


def synthetic(family: str, n: int, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Clusters of the paper's three kinds. Its text has lost the generators' numbers: these are ours."""
    z = np.arange(n) % k
    if family == "poisson":
        return rng.poisson(rng.uniform(0, 100, size=(k, 3))[z]).astype(float), z
    if family == "multinomial":
        d, words = (10, 20) if n <= 1000 else (20, 20)
        probability = rng.dirichlet(np.ones(d), size=k)
        return np.array([rng.multinomial(words, probability[c]) for c in z], dtype=float), z
    d = 3 if n <= 1000 else 6
    means = rng.normal(size=(k, d)) * 4
    roots = rng.normal(size=(k, d, d)) / np.sqrt(d)
    return means[z] + np.einsum("nij,nj->ni", roots[z], rng.normal(size=(n, d))), z


def indices(family: str, n: int, k: int, sets: int) -> None:
    found: dict[str, list[float]] = {}
    counts: list[int] = []
    for seed in range(sets):
        x, z = synthetic(family, n, k, np.random.default_rng(seed))
        rows = Moments.rows_of_points(x)
        smoothed = FAMILIES[family].informed(x)
        level = threshold_rule(smoothed, rows, k)
        cuts = {
            "RBHC chain": agglomerate(smoothed, rows, "rbhc", "chain", level).best_cut(),
            "RBHC greedy": agglomerate(smoothed, rows, "rbhc", "lazy", level).best_cut(),
            "RBHC chain, K": agglomerate(smoothed, rows, "rbhc", "chain").cut(k=k),
            "RBHC greedy, K": agglomerate(smoothed, rows, "rbhc", "lazy").cut(k=k),
            "BHC": agglomerate(family, rows, "bhc").best_cut(),
            "ABC": agglomerate(family, rows, "abc").best_cut(),
        }
        for name in ("single", "complete", "ward"):
            cuts[f"{name}, K"] = fcluster(linkage(x, name), k, criterion="maxclust")
        counts.append(int(cuts["RBHC chain"].max()) + 1)
        for name, labels in cuts.items():
            found.setdefault(name, []).append(adjusted_rand_score(z, labels))
    print(f"\n{family}, {n} points in {k} clusters: ARI over {sets} sets; λ gave {counts} clusters")
    for name, values in found.items():
        print(f"  {name:<15} {np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with pendigits.tra and spambase.data")
    parser.add_argument("--quick", action="store_true", help="5 subsets, 2 synthetic sets, 500 triples")
    parser.add_argument("--subsets", type=int, default=20, help="random subsets per data set (default: 20)")
    parser.add_argument("--part", choices=["purity", "reducibility", "ari"], help="one part only")
    arguments = parser.parse_args()
    if arguments.part in (None, "purity"):
        for name, x, y, size, family in load(arguments.data):
            table(name, x, y, size, family, 5 if arguments.quick else arguments.subsets)
    if arguments.part in (None, "reducibility"):
        reducibility(500 if arguments.quick else 20_000)
    if arguments.part in (None, "ari"):
        for family in ("poisson", "multinomial", "gaussian"):
            for n, k in ((1000, 6), (2000, 12)):
                indices(family, n, k, 2 if arguments.quick else 10)


if __name__ == "__main__":
    main()
