"""Missing values drawn from Gaussians, row by row and by matrix inverses."""

import numpy as np


def drawn(row, missing, uniform, log_share, mean, covariance):
    """The row with its missing values drawn by pairs of uniform numbers: for each feature, and for the component."""
    known, d = ~missing, len(row)
    score = np.array(log_share)
    for k in range(len(mean)):
        own = covariance[k][np.ix_(known, known)]
        gap = row[known] - mean[k][known]
        score[k] += -0.5 * gap @ np.linalg.inv(own) @ gap - 0.5 * np.log(np.linalg.det(own))
    share = np.exp(score - score.max())
    k = int(np.searchsorted(np.cumsum(share) / share.sum(), uniform[d, 0], side="right"))
    across = covariance[k][np.ix_(missing, known)] @ np.linalg.inv(covariance[k][np.ix_(known, known)])
    centre = mean[k][missing] + across @ (row[known] - mean[k][known])
    spread = covariance[k][np.ix_(missing, missing)] - across @ covariance[k][np.ix_(known, missing)]
    u = uniform[:d][missing]
    normal = np.sqrt(-2 * np.log(1 - u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
    found = row.copy()
    found[missing] = centre + np.linalg.cholesky(spread) @ normal
    return found
