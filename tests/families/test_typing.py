"""The Family protocol as type checkers see it, and what classes without a prior answer."""

import textwrap

import numpy as np
import pytest
from mypy import api
from numpy.testing import assert_array_equal

from streamclust.families import FAMILIES
from streamclust.moments import Moments

SNIPPET = """
from streamclust.families import AnyFamily, FamilyLike, Gaussian, Poisson, family
from streamclust.moments import Moments
from streamclust.refit.bkm.problem import Problem

fine: tuple[FamilyLike, ...] = ("gaussian", Gaussian, Poisson())

def right(problem: Problem, clusters: Moments) -> None:
    problem.family.labelling_cost(problem.family.posterior(clusters), clusters)
    family("poisson").check(clusters.mean)

def misspelt(problem: Problem, clusters: Moments) -> None:
    problem.family.posteriors(clusters)  # [attr-defined]

def of_another_family(mine: Gaussian, other: Poisson, clusters: Moments) -> None:
    mine.predictive(other.posterior(clusters), clusters.mean)  # [arg-type]

def parameters_for_a_posterior(mine: Gaussian, clusters: Moments) -> None:
    mine.predictive(mine.parameters(mine.posterior(clusters)), clusters.mean)  # [arg-type]

def attribute_of_one_family(any_family: AnyFamily) -> None:
    print(any_family.xi0)  # [attr-defined]

not_a_family: FamilyLike = 3  # [assignment]
"""


@pytest.mark.compiled
def test_type_checkers_hold_callers_to_the_protocol(tmp_path):
    snippet = tmp_path / "snippet.py"
    snippet.write_text(textwrap.dedent(SNIPPET))
    report, trouble, _ = api.run(
        ["--no-pretty", str(snippet)]
    )  # with the settings, and the cache, of `make lint`
    found = {int(line.split(":")[1]): line.split()[-1] for line in report.splitlines() if ": error:" in line}
    lines = enumerate(snippet.read_text().splitlines(), 1)
    assert found == {number: line.split("  # ")[1] for number, line in lines if "  # " in line}, (
        report + trouble
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_a_class_checks_and_prices_points_as_its_object_does(name):
    points = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    kind = FAMILIES[name]
    family = kind.informed(points)
    clusters = Moments.rows_of_points(points).to_groups(np.array([0, 0, 1, 1]), kind=kind.scatter)
    parameters = family.parameters(family.posterior(clusters))
    assert_array_equal(kind.log_density(parameters, points), family.log_density(parameters, points))
    kind.check(points)
    with pytest.raises(ValueError, match="row 1, column 0"):
        kind.check(np.array([[0.0, 1.0], [np.nan, 1.0]]))
