"""The parameters of the streaming engine: names, types, defaults, limits and help, declared once.

`StreamClusterer`, `StreamEstimator`, `EngineSettings` and the service's section [engine] all take them. Their
signatures are written out, for editors and for scikit-learn; a test compares each with this table. The checks of
values, the defaults and comments of a settings file and the help of commands are made from it.

>>> PARAMETERS["half_life"].default is None
True
>>> print(help_of("background"))
Whether refits run in a thread beside the stream.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, get_args

FamilyName = Literal["gaussian", "diagonal", "spherical", "multinomial", "bernoulli", "poisson", "mixed"]
RefitName = Literal["bkm", "chunky-em", "dp-means"]
MixtureName = Literal["finite", "infinite", "uninformative"]
ShapeName = Literal["ellipse", "any"]
DriftChoice = Literal["follow", "ignore"]
Missing = Literal["zero", "impute", "error"]
Invalid = Literal["refuse", "raise"]
ScaleName = Literal["deviation", "unit"]
DetailName = Literal["auto", "fine", "coarse"]
Categorical = Literal["auto", False] | Collection[Hashable]
"""Which columns are categories: those that look so, none, or those named."""
TransformOf = Literal["log", "none"] | float
"""Of one feature: by logarithm with a knee from the data, as it is, or with this knee."""
Transforms = Literal["auto", "none"] | Mapping[Hashable, TransformOf]
"""Which skewed features are compared by their logarithm: those that the evidence says, none, or by name."""
Detail = DetailName | float
"""How fine clusters are: by name, or a number of events that tell two clusters apart."""
LevelName = int | Literal["fine"] | None
"""A level: a number of clusters, the finest, or (None) the one on show."""
NumberOfClusters = int | tuple[int, int] | None
"""How many clusters to show: a number, the least and the most, or None."""
MAX_UNREDUCED_FEATURES = 64
"""Events of more features than this are reduced, unless `max_directions` says otherwise."""
GAUSSIANS = ("gaussian", "diagonal", "spherical")
"""Families that every refit but "bkm" is for."""


class Parameter(NamedTuple):
    """A parameter: what it may be, and what it means."""

    type: Any
    default: Any
    help: str
    """One sentence: in docstrings, in the help of commands and in the comments of a settings file."""
    details: str = ""
    """Further sentences, for docstrings."""
    least: int = 1
    """The smallest whole number allowed, for a parameter of type int."""
    use_none_to: str = ""
    """Effect of None, to complete an error message: "use None to ..."."""


PARAMETERS: dict[str, Parameter] = {
    "family": Parameter(
        FamilyName,
        "gaussian",
        'What a cluster is: "gaussian" (any covariance), "diagonal", "spherical", "multinomial", "bernoulli", '
        '"poisson" or "mixed" (numbers beside categories).',
    ),
    "refit": Parameter(
        RefitName,
        "bkm",
        'How clusters are found: by "bkm" (Bayesian k-means: hard clusters, their number by free energy), "chunky-em" '
        '(a Gaussian mixture) or "dp-means" (clusters within a radius λ).',
        "λ² is `birth_penalty`; by default λ, in standard deviations of each feature within clusters, is the one whose "
        "clusters have the least free energy.",
    ),
    "mixture": Parameter(
        MixtureName,
        "finite",
        'Prior of the clusters\' shares under "bkm" and "dp-means": "finite" (Dirichlet), "infinite" (Dirichlet '
        'process) or "uninformative"; "chunky-em" takes "finite" alone.',
    ),
    "max_leaves": Parameter(
        int | None,
        None,
        "Number of leaves of the summary, at most: the bound on memory and on the cost of a refit; by default 512, and "
        "8 for each cluster where there are more than 64 of them, up to 4,096 or 64 MB.",
        use_none_to="let the number of clusters decide",
    ),
    "refit_every": Parameter(
        int,
        20_000,
        "Events between refits: at first they come more often, later only as evidence grows or the stream changes.",
    ),
    "warmup": Parameter(
        int | None,
        None,
        "Events before the first refit; by default 8 for each feature, but at least 20 and at most 100.",
        "Until then everything is one cluster. The next refits come each time the count has doubled.",
        use_none_to="let the number of features decide",
    ),
    "half_life": Parameter(
        float | None,
        None,
        "Half-life of an event's weight: a number of events or, if times are given, a time; by default none.",
        use_none_to="never forget",
    ),
    "drift": Parameter(
        DriftChoice,
        "follow",
        'Whether the clusters are those of the latest events ("follow") or of all events in any order ("ignore").',
        '"follow": clusters that the latest 30,000 events no longer hold are retired, and shares are theirs where they '
        "differ from those of all events. A stream that is sorted by cluster looks like one that changes: the clusters "
        'of its end remain. "ignore", for data that are finite or only badly mixed: nothing is retired and no event '
        "counts for more than another, so that `settle` finds what is in the whole.",
    ),
    "birth_penalty": Parameter(
        float | None,
        None,
        "Squared distance from every centre (λ² of DP-means) beyond which an event may open a cluster between refits "
        'and, with refit="dp-means", in them; by default the clusters\' own ellipsoids decide.',
        use_none_to="let the clusters' own ellipsoids decide",
    ),
    "shape": Parameter(
        ShapeName | None,
        None,
        'Whether each component that is found is a cluster ("ellipse"), or Gaussians that are pieces of one shape, a '
        'ring, say, are joined into one ("any"); by default "any" for Gaussians and refit="bkm", else "ellipse".',
        use_none_to="let refit and family decide",
    ),
    "detail": Parameter(
        Detail,
        "auto",
        'How fine the clusters shown are: "auto" (the level that stands out), "fine" (all that refits can tell apart), '
        '"coarse" (the next coarser level that stands out) or a number of events that tell two clusters apart.',
        "Refits find the finest clusters; a path of merges leads from them to one, and any level of it can be shown. "
        "It may be changed at any time, and takes effect at once.",
    ),
    "n_clusters": Parameter(
        NumberOfClusters,
        None,
        "Number of clusters to show, or the least and the most; by default `detail` decides.",
        "If there are fewer, all are shown. It may be changed at any time, and takes effect at once.",
        use_none_to="let detail decide",
    ),
    "missing": Parameter(
        Missing | None,
        None,
        'A feature that an event lacks is 0 ("zero"), unknown ("impute") or a reason to refuse the event ("error"); by '
        'default "zero" for counts and yes or no, else "impute".',
        '"zero" suits words that a document does not have. "impute" draws the value from the clusters, given the '
        "features that the event has, and integrates it out in predictions. The same holds for events before the first "
        "that has the feature.",
        use_none_to="let the family decide",
    ),
    "invalid": Parameter(
        Invalid,
        "refuse",
        "What to do with values and events that cannot be learnt: "
        '"refuse" counts them, warns once and goes on; "raise" raises.',
        "Such a value counts as missing (`n_invalid`); an event of which nothing is left is refused (`n_refused`).",
    ),
    "background": Parameter(
        bool,
        True,
        "Whether refits run in a thread beside the stream.",
        "The results are the same bit for bit.",
    ),
    "feature_order": Parameter(
        Sequence[Hashable] | None,
        None,
        "Features that first appear together get columns in this order; by default in the order of their names.",
        use_none_to="order features by their names",
    ),
    "on_event": Parameter(
        Callable[[Any], object] | None,
        None,
        "Called with each lifecycle event (`Change`) as it happens.",
        use_none_to="call nothing",
    ),
    "seed": Parameter(
        int,
        0,
        "The same seed and events give the same clusters, however the events were batched.",
        least=0,
    ),
    "max_time_step": Parameter(
        float | None,
        None,
        "How far one event may carry time forward; by default 4 half-lives.",
        "An event further ahead is refused: its clock is taken to be wrong, until more such events come than have "
        "agreed with the clock, 32 at most (each event in time takes one of them back). Then time moves to their "
        "median, and a pause as long is let pass from then on. Late events are learnt at the weight they would have by "
        "now; if as many as that are later than one step, the clock was wrong and is turned back, with all that was "
        "learnt.",
        use_none_to="allow 4 half-lives",
    ),
    "max_features": Parameter(
        int | None,
        None,
        'Events that would bring more features than this are refused; by default 256 for "gaussian", else 1024, and '
        "4096 if the first event has more than that.",
        'Memory grows with their number, and with its square for "gaussian" unless they are reduced.',
        use_none_to="let the family decide",
    ),
    "max_directions": Parameter(
        int | None,
        None,
        "Gaussian events of more features than this are reduced to this many directions at most; by default those of "
        "more than 64 features, to at most 16, or 64 where clusters of unit length overlap in those.",
        "The directions are those in which the first 1,024 events vary most above the noise; until then events wait, "
        "and all are one cluster. Clusters are found in these directions, and reported in the features.",
        use_none_to="reduce events of more than 64 features",
    ),
    "scale": Parameter(
        ScaleName,
        "deviation",
        'How wide events are compared: with each feature in its own deviations ("deviation"), or by their angle '
        '("unit"), for embeddings and texts.',
        '"unit" divides every event by its length first, however many features it has; an event of zeros is refused.',
    ),
    "categorical": Parameter(
        Categorical,
        "auto",
        'Fields that are categories: "auto" (text, and yes and no, if the first event has any), False or their names.',
        "A category's values count apart from all else: one that has nothing to do with the clusters changes nothing. "
        "New values may come at any time. Text that hardly repeats itself is left out, with a warning.",
    ),
    "max_categories": Parameter(
        int,
        50,
        "Number of values of a category that are told apart; later ones count as one.",
        least=2,
    ),
    "transforms": Parameter(
        Transforms,
        "auto",
        'Skewed features that are compared by their logarithm: "auto" (features without negative values that span '
        'more than a decade, where the clusters are much likelier so), "none", or a mapping of features to "log", '
        '"none" or the value (knee) below which the transform is linear.',
        'A feature\'s knee is the value that a tenth of its values are smaller than. "auto" decides when 128, 512 and '
        "2,048 events have come, and when `settle` is called before; then transforms stay. Features are reported in "
        "their own units: the mean of one that is transformed is a median.",
    ),
    "outliers": Parameter(
        float | None,
        None,
        "Events that are more novel than all but this share of recent events are outside every cluster, and have the "
        "id -1; by default every event has a cluster.",
        "`predict_one` of a stream returns None for them. It may be changed at any time.",
        use_none_to="label every event with its cluster",
    ),
    "leaf_size": Parameter(
        int,
        16,
        "Number of events that a leaf of the summary keeps as a sample, at most.",
        least=2,
    ),
}
"""All parameters, in the order of every signature."""

NOT_TAKEN: dict[str, dict[str, str]] = {
    "StreamClusterer": {
        "leaf_size": "no stream has needed another than the default",
    },
    "StreamEstimator": {
        "categorical": "its tables are numbers; BayesianKMeans takes categories",
        "max_categories": "its tables are numbers; BayesianKMeans takes categories",
        "missing": "NaN is a missing value",
        "invalid": "scikit-learn's estimators raise for invalid input",
        "feature_order": "columns keep the order of the table",
        "max_time_step": "points come without times",
        "max_features": "the first table fixes the columns",
        "leaf_size": "no stream has needed another than the default",
    },
    "EngineSettings": {
        "categorical": "the engine learns rows in which categories are columns of 0 and 1",
        "max_categories": "the engine learns rows in which categories are columns of 0 and 1",
        "missing": "the engine learns complete rows",
        "invalid": "the engine raises for rows it cannot learn; who holds it decides what to do with them",
        "feature_order": "the engine knows columns, not names",
        "on_event": "a function cannot be saved with the settings; the engine takes it beside them",
        "max_time_step": "the engine takes times as they come, from checked clocks",
        "max_features": "the engine is told its number of columns",
        "max_directions": "the engine learns rows that were reduced",
        "scale": "the engine learns rows that were scaled",
        "transforms": "the engine is told which columns are transformed, by whoever knows their names",
        "outliers": "labels are made by who asks the model",
    },
    "EngineSection": {
        "categorical": "fields of text are categories; numbers that are codes can be sent as text",
        "max_categories": "no stream has needed another than the default",
        "invalid": "the service sends events that cannot be learnt to the dead letters",
        "on_event": "the service sends lifecycle events to its outputs",
        "outliers": "the service tells the novelty of each event",
        "leaf_size": "no stream has needed another than the default",
    },
}
"""Why a parameter is not taken, by the class that does not take it."""


def taken_by(place: str) -> dict[str, Parameter]:
    """The parameters that a class takes.

    >>> [name for name in PARAMETERS if name not in taken_by("StreamClusterer")]
    ['leaf_size']
    """
    return {name: parameter for name, parameter in PARAMETERS.items() if name not in NOT_TAKEN[place]}


def help_of(name: str) -> str:
    """The meaning of a parameter, in one sentence."""
    return PARAMETERS[name].help


def documentation(names: Iterable[str], width: int = 116) -> str:
    """The text on parameters in the docstring of a class that takes them.

    >>> documentation(["background"]).splitlines()[-1]
    '    Whether refits run in a thread beside the stream. The results are the same bit for bit.'
    """
    lines = ["Parameters", "----------"]
    for name in names:
        text = f"{PARAMETERS[name].help} {PARAMETERS[name].details}".strip()
        lines += [name, textwrap.fill(text, width, initial_indent="    ", subsequent_indent="    ")]
    return "\n".join(lines)


def check_together(given: Mapping[str, Any]) -> None:
    """Raise ValueError for parameters that are allowed one by one but not together.

    >>> check_together({"refit": "chunky-em", "family": "poisson"})
    Traceback (most recent call last):
        ...
    ValueError: refit="chunky-em" fits Gaussians: family must be one of gaussian, diagonal, spherical, got 'poisson'; \
use refit="bkm" for it
    """
    if given.get("refit", "bkm") != "bkm" and given.get("family") not in GAUSSIANS:
        raise ValueError(
            f'refit="{given["refit"]}" fits Gaussians: family must be one of {", ".join(GAUSSIANS)}, '
            f'got {given.get("family")!r}; use refit="bkm" for it'
        )
    if given.get("mixture") == "uninformative" and given.get("family", "gaussian") != "gaussian":
        raise ValueError(
            f'mixture="uninformative" is for family="gaussian", got {given["family"]!r}; use mixture="finite" for it'
        )
    if given.get("refit") == "chunky-em" and given.get("mixture", "finite") != "finite":
        raise ValueError(
            f'refit="chunky-em" chooses the number of components by BIC, which has no prior of shares: '
            f'mixture must be "finite", got {given["mixture"]!r}; use refit="bkm" for it'
        )
    if given.get("shape") == "any" and given.get("family") not in GAUSSIANS:
        raise ValueError(
            f'shape="any" joins Gaussians: family must be one of {", ".join(GAUSSIANS)}, '
            f'got {given.get("family")!r}; use shape="ellipse" for it'
        )


def wishes_by_column(transform: Transforms, names: Sequence[Hashable]) -> dict[int, TransformOf]:
    """The transforms asked for by the columns of the features that are known.

    >>> wishes_by_column({"amount": "log", "age": "none"}, ["age", "channel"])
    {0: 'none'}
    """
    if isinstance(transform, str):
        return {}
    return {j: transform[name] for j, name in enumerate(names) if name in transform}


def check_detail(detail: object) -> None:
    """Raise ValueError for a detail there is not."""
    if isinstance(detail, str):
        if detail in get_args(DetailName):
            return
        raise ValueError(
            f"detail must be {', '.join(map(repr, get_args(DetailName)))} or a number, got {detail!r}"
        )
    if isinstance(detail, bool) or not isinstance(detail, Real) or not 0 < float(detail) < math.inf:
        raise ValueError(
            f"detail must be one of {', '.join(get_args(DetailName))}, or a positive number of events, got {detail!r}"
        )


def check_n_clusters(n_clusters: object) -> None:
    """Raise ValueError for a number or a range of clusters there cannot be."""
    if n_clusters is None:
        return
    numbers = n_clusters if isinstance(n_clusters, tuple) else (n_clusters,)
    whole = all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) >= 1 for n in numbers)
    if not whole or (isinstance(n_clusters, tuple) and len(numbers) != 2):
        raise ValueError(
            f"n_clusters must be a whole number of at least 1 or a pair of them, (least, most), got {n_clusters!r}"
        )
    if numbers[0] > numbers[-1]:
        raise ValueError(f"n_clusters must go from least to most, got {n_clusters!r}; use {numbers[::-1]!r}")
