"""Helpers that know nothing of clustering: values, late imports, BLAS, interrupts, packed state, outliers."""
