"""Discrete events: the kinds of shoppers in a stream of baskets, as Bernoulli or multinomial clusters.

A basket says which of two dozen things were bought (family "bernoulli") or how many of each ("multinomial").
Four kinds of shoppers were planted; a fifth, with coal and sausages, comes when summer does, halfway. What
one sees: the kinds that were found, each by what sets it apart; a table of what they buy; and when the summer
guests were noticed.

Run it: python examples/baskets.py [--family multinomial] [--events N] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer

KINDS = {
    "breakfast": ["bread", "butter", "milk", "coffee", "jam", "eggs"],
    "family": ["nappies", "milk", "juice", "apples", "pasta", "crisps"],
    "office lunch": ["sandwich", "salad", "water", "yoghurt", "coffee", "apples"],
    "handyman": ["nails", "paint", "glue", "gloves", "tape", "water"],
    "barbecue": ["coal", "sausages", "beer", "crisps", "salad", "ketchup"],
}
THINGS = sorted({thing for things in KINDS.values() for thing in things})
OFTEN, SELDOM = 0.6, 0.03
"""How probable it is that a shopper buys a thing of the own kind, and any other."""
ITEMS = 8
"""What a basket holds where things are counted."""
BATCH = 500


def main() -> None:
    """Parse the arguments, learn the baskets, say and draw what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=["bernoulli", "multinomial"], default="bernoulli")
    parser.add_argument("--events", type=int, default=60_000, help="how many baskets (default: 60,000)")
    parser.add_argument("--quick", action="store_true", help="a short stream")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the pictures go")
    arguments = parser.parse_args()
    n = 20_000 if arguments.quick else arguments.events
    counted = arguments.family == "multinomial"

    rng = np.random.default_rng(0)
    model = StreamClusterer(family=arguments.family, refit_every=2500, half_life=n / 10)
    for first in range(0, n, BATCH):
        rows, kinds = baskets(rng, BATCH, summer=first >= n / 2, counted=counted)
        model.learn_many([dict(zip(THINGS, row, strict=True)) for row in rows.tolist()])

    print(
        f"found    {model.n_clusters} kinds of shoppers in {n:,} baskets; {len(KINDS)} are there at the end"
    )
    usual = sum(cluster.share * np.array([*cluster.mean.values()]) for cluster in model.clusters)
    for cluster in model.clusters:
        lift = np.array([*cluster.mean.values()]) - usual
        best = [THINGS[k] for k in np.argsort(-lift)[:5]]
        print(
            f"  cluster {cluster.id:2d}  {cluster.share:5.1%}  since basket {cluster.born:>6,}  {', '.join(best)}"
        )
    rows, kinds = baskets(rng, 2000, summer=True, counted=counted)
    print(
        f"agreed   adjusted Rand index {adjusted_rand_score(kinds, model.predict_many(rows)):.3f} on 2,000 new baskets"
    )
    odd = dict.fromkeys(THINGS, 0.0) | dict.fromkeys(("nails", "jam", "sausages"), 3.0 if counted else 1.0)
    print(f"novel    nails, jam and sausages: {model.tail_one(odd):.1%} of the latest baskets are as novel")

    arguments.output.mkdir(parents=True, exist_ok=True)
    picture = arguments.output / f"baskets_{arguments.family}.png"
    figure, (above, below) = pyplot.subplots(2, figsize=(9, 8), layout="constrained")
    model.plot(ax=above)
    model.lineage.plot(ax=below)
    below.set_xlabel("baskets seen")
    figure.savefig(picture, dpi=150)
    print(f"picture  {picture}")


def baskets(rng: np.random.Generator, n: int, summer: bool, counted: bool) -> tuple[np.ndarray, np.ndarray]:
    """What n shoppers buy, and their kinds; in summer some of them are there for a barbecue."""
    share = [0.3, 0.2, 0.2, 0.1, 0.2] if summer else [0.4, 0.25, 0.25, 0.1, 0.0]
    kinds = rng.choice(len(KINDS), n, p=share)
    chance = np.where([[thing in things for thing in THINGS] for things in KINDS.values()], OFTEN, SELDOM)
    if counted:
        return rng.multinomial(ITEMS, (chance / chance.sum(axis=1, keepdims=True))[kinds]).astype(
            float
        ), kinds
    return (rng.random((n, len(THINGS))) < chance[kinds]).astype(float), kinds


if __name__ == "__main__":
    main()
