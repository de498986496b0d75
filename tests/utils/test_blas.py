"""Products of matrices in pieces that BLAS does not share among threads."""

import numpy as np
import pytest

from streamclust.utils.blas import UNSHARED_PRODUCTS, product, weighted_sum


@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(0, 3, 2), (5, 0, 4), (1, 1, 1), (3000, 16, 40), (3, 600, 600)]
)
def test_a_product_in_pieces_is_the_product(rows, inner, columns):
    a, b = (
        np.random.default_rng(0).normal(size=(rows, inner)),
        np.random.default_rng(1).normal(size=(inner, columns)),
    )
    np.testing.assert_allclose(product(a, b), a @ b, atol=1e-9)
    np.testing.assert_allclose(product(a, np.asfortranarray(b)), a @ b, atol=1e-9)


def test_no_piece_is_shared(monkeypatch):
    sizes = []
    matmul = np.matmul
    monkeypatch.setattr(
        np, "matmul", lambda a, b, out: sizes.append(a.size * b.shape[1]) or matmul(a, b, out=out)
    )
    product(np.ones((5000, 16)), np.ones((16, 120)))
    assert len(sizes) > 1
    assert max(sizes) <= UNSHARED_PRODUCTS


def test_a_weighted_sum_is_that_of_the_rows():
    rng = np.random.default_rng(0)
    weight, rows = rng.uniform(size=70), rng.normal(size=(70, 9))
    np.testing.assert_allclose(weighted_sum(weight, rows), weight @ rows)
