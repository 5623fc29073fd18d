"""A fit in one file, with all that predictions need."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide

from dgp_ppl._checks import check_kind, check_program, params_of, short_list
from dgp_ppl._errors import one_line, printable
from dgp_ppl._files import check_path, fingerprint, versions
from dgp_ppl._partition import TRACING, call_signature
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.datasets import Preprocessor
from dgp_ppl.datasets._arrow import is_frame
from dgp_ppl.datasets._preprocessor import Source
from dgp_ppl.datasets._read import Table
from dgp_ppl.inference import Chains, FitResult, LayerGuide, MCEMResult
from dgp_ppl.inference.runs._summary import program_name
from dgp_ppl.inference.samplers._chains import draws_of
from dgp_ppl.persistence._archive import (
    FORMAT,
    KIND,
    PLAIN,
    ArchiveReader,
    write_archive,
)  # fmt: skip
from dgp_ppl.persistence._content import Encoder, decode, import_path
from dgp_ppl.persistence._trust import check_trust
from dgp_ppl.prediction import Prediction, predict
from dgp_ppl.standardize import Standardizer

_INTERRUPTED = "interrupted"  # in the info of fits that Ctrl-C ended early
_ENCODED = (
    "model", "guide", "params", "kwargs", "standardizer", "posterior_samples", "losses",
)  # fmt: skip
_PREDICT_OPTIONS = ("num_samples", "standardizer", "posterior_samples", "site", "chunk_size")


@dataclasses.dataclass(frozen=True, eq=False)
class KeptFit:
    """A fit with all that its predictions need. `load` returns it, and `save` writes it.

    The attributes model, guide, params, standardizer, posterior_samples, columns, info and
    preprocessing are the arguments of `save`.

    Attributes:
        kwargs: the model's keyword arguments.
        losses: losses of the fit's steps, [steps].
        data: shapes and a hash of the training data.
        versions: versions of the packages that saved the fit, the device and the date.
    """

    model: Model
    guide: Model | None
    params: Params
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    standardizer: Standardizer | None = None
    posterior_samples: Chains | dict[str, Array] | None = None
    losses: np.ndarray | None = None
    columns: tuple[str, ...] | None = None
    data: dict[str, Any] | None = None
    info: dict[str, Any] = dataclasses.field(default_factory=dict)
    preprocessing: Any = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def predict(
        self, key: PRNGKey, x: ArrayLike | Source, *args: Any, unseen: str = "error", **options: Any
    ) -> Prediction:
        """Return the posterior predictive distribution at new inputs; see `dgp_ppl.predict`.

        The columns of a data frame, or of a .csv or .parquet file, are taken by their names, in any
        order. They pass through the `preprocessor`. An array has the columns in the fit's order.

        Args:
            key: random key. The same key gives the same prediction as before the fit was saved.
            x: inputs, [N, D], in the units of the data if there is a `standardizer`; or a table.
            *args: further arguments of the model.
            unseen: what to do about new categories of a table: "error" or "zeros"; see
                `Preprocessor.inputs`.
            **options: options of `dgp_ppl.predict`, and other values of the model's arguments.

        Raises:
            ValueError: if x is a table and the fit has no names of columns, and as
                `dgp_ppl.predict` does. A `DataError`, which is one, says what is wrong with a
                table.
        """
        kept = {"standardizer": self.standardizer, "posterior_samples": self.posterior_samples}
        options, rows = kept | self.kwargs | options, self._rows(x, unseen)
        model_options = {n: v for n, v in options.items() if n not in _PREDICT_OPTIONS}
        # Latents of rows, which predictions draw anew, have the rows of the fit.
        num = self.data["shapes"][0][0] if self.data else len(rows)
        fitted = np.zeros((num, *np.shape(rows)[1:]), np.float32)  # values do not matter
        _find_sites(self.guide, options.get("site", "y"), (fitted, *args), model_options)
        return predict(key, self.model, self.guide, self.params, rows, *args, **options)

    @cached_property
    def preprocessor(self) -> Preprocessor | None:
        """The map from tables to inputs: the one of `preprocessing`, or the `columns` as numbers.

        None if neither is known.

        Raises:
            DataError: if `preprocessing` is of a newer version.
        """
        if Preprocessor.is_state(self.preprocessing):
            return Preprocessor.from_state(self.preprocessing)
        return None if self.columns is None else Preprocessor.of_numbers(self.columns)

    def was_fitted_to(self, *data: ArrayLike) -> bool:
        """Return whether these arrays have the fingerprint of the data given to `save`.

        Raises:
            ValueError: if `save` got no data.
        """
        if self.data is None:
            raise ValueError(
                "was_fitted_to: this fit has no fingerprint of its data, wanted save(..., "
                "data=(x, y))"
            )
        return fingerprint(*data) == self.data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this fit to a file; see `save`."""
        encoder = Encoder()
        chains = self.posterior_samples
        if isinstance(chains, Chains):  # the kernel's state belongs to the run
            chains = dataclasses.replace(chains, state=None)
        values = {n: getattr(self, n) for n in _ENCODED} | {"posterior_samples": chains}
        try:
            content = {n: encoder.encode(v, n) for n, v in values.items()}
        except RecursionError:
            raise TypeError(
                "save: an argument holds itself, or is nested too deeply; wanted a tree of arrays"
            ) from None
        plain = {n: _checked_json(n, getattr(self, n)) for n in PLAIN}
        record = {"versions": versions(), "model": _name(self.model), **plain, "content": content}
        write_archive(path, KIND, FORMAT, record, encoder.members)

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C ended the fit before its last step."""
        return bool((self.info or {}).get(_INTERRUPTED))

    def __repr__(self) -> str:
        numbers = sum(int(np.size(a)) for a in jax.tree.leaves(self.params))
        parts = [_name(self.model), *([] if self.guide is None else [program_name(self.guide)])]
        parts.append(f"{len(self.params)} params of {numbers:,} numbers")
        if isinstance(self.posterior_samples, Chains):
            parts.append("{} chains of {} draws".format(*self.posterior_samples.shape))
        if self.is_interrupted:
            parts.append("interrupted before its last step")
        if self.versions:
            parts.append(f"saved {self.versions['date'][:10]} by {self.versions['dgp_ppl']}")
        return printable(f"KeptFit({'; '.join(parts)})")

    def _rows(self, x: Any, unseen: str) -> Any:
        """Return the inputs of a table, whose columns go by their names; else x itself."""
        if not (is_frame(x) or isinstance(x, str | os.PathLike | Table)):
            return x
        if self.preprocessor is None:
            raise ValueError(
                "predict: x is a table, and this fit has no names of columns, wanted an array "
                "[N, D], with the columns in the order of the fit; or save the fit with columns=..."
            )
        return self.preprocessor.inputs(x, unseen=unseen)


def save(
    path: str | os.PathLike[str],
    model: Model,
    guide: Model | None,
    params: Params | Fitted,
    *,
    standardizer: Standardizer | None = None,
    posterior_samples: Chains | Mapping[str, ArrayLike] | None = None,
    data: Sequence[ArrayLike] | None = None,
    columns: Sequence[str] | None = None,
    info: Mapping[str, Any] | None = None,
    preprocessing: Any = None,
    **kwargs: Any,
) -> None:
    """Keep a fit in one file, from which `load` makes the same predictions in a new process.

    It takes the arguments of `predict`. The file holds arrays and JSON, no pickles: functions and
    classes by the name that they are imported from, guides by their constructor's arguments. So the
    model, and functions among its arguments, must be defined at the top of a module::

        dgp.save("price.dgp", model, guide, fit, standardizer=scale, data=(x, y), z=z)
        dgp.load("price.dgp").predict(key, x_test).mean

    Args:
        path: the file. An earlier file is replaced when all is written.
        model: the model.
        guide: its guide, or None.
        params: the fit's result, whose losses (and chains) are kept too, or its params.
        standardizer: the training data's.
        posterior_samples: draws of the latent sites that predictions use instead of a guide; the
            chains of an `MCEMResult` by default.
        data: the training data, such as (x, y), to keep its fingerprint, not the data itself. (An
            `informed` `Diffusion` guide holds its data.) Predictions need it of a guide of
            NumPyro's that draws latents of the rows, such as the noise of hidden layers.
        columns: names of the inputs' columns.
        info: further values of JSON, for your own use.
        preprocessing: the state of a preprocessor of tables, as values of JSON; the state of a
            `Preprocessor` is applied to tables.
        **kwargs: the model's keyword arguments, as `predict` takes them.

    Raises:
        DataError: if the file cannot be written.
        TypeError: if a file cannot hold an argument, such as a lambda, or a function of
            ``__main__``. The message names it and says what to do. Also if the model has no
            argument of a name.
        ValueError: if `columns` is not a name for each column of `data`, or if there is a guide
            and `params` is empty.
    """
    for name, value, kinds, wanted in (
        ("data", data, list | tuple | None, "a tuple of arrays, such as (x, y)"),
        ("info", info, Mapping | None, "a dict of values of JSON"),
        ("standardizer", standardizer, Standardizer | None, "a Standardizer"),
    ):
        check_kind("save", name, value, kinds, wanted)
    check_path("save", path)
    check_program("save", "model", model)
    if guide is not None:
        check_program("save", "guide", guide)
    losses, info = None, dict(info or {})
    if isinstance(params, FitResult | MCEMResult):
        losses = params.losses
        if isinstance(params, FitResult) and params.interrupted:
            info.setdefault(_INTERRUPTED, True)
        if isinstance(params, MCEMResult) and posterior_samples is None:
            posterior_samples = params.chains
    try:
        found = None if data is None else fingerprint(data[0], *data[1:])
    except (TypeError, ValueError, IndexError) as error:
        raise TypeError(
            f"save: data holds no arrays ({one_line(error)}), wanted a tuple of them, such as "
            "(x, y); leave it out to keep no fingerprint"
        ) from error
    names = None
    if columns is not None:
        names = tuple(map(str, columns)) if np.ndim(columns) == 1 else ("", "")
        if len(set(names)) < len(names):
            kind = type(columns).__name__
            raise ValueError(f"save: columns is a {kind}, wanted a list of different names")
    shape = np.shape(data[0]) if data else ()
    if names is not None and len(shape) == 2 and shape[1] != len(names):
        raise ValueError(
            f"save: columns has {len(names)} names, wanted {shape[1]}, one for each column of "
            "data[0]"
        )
    draws: Any = draws_of("save", posterior_samples, guide)
    if draws is not None and not isinstance(draws, Chains):
        draws = {n: np.asarray(a) for n, a in draws.items()}
    values = params_of("save", params)
    if guide is not None and not values:
        raise ValueError(
            "save: params is empty, wanted the params of the model and of "
            f"{program_name(guide)}; pass the result of their fit, or its params"
        )
    _check_arguments(model, kwargs)
    KeptFit(
        model, guide, values, kwargs, standardizer, draws, losses, names, found, info,
        preprocessing,
    ).save(path)  # fmt: skip


def load(path: str | os.PathLike[str], trusted: Sequence[str] = ()) -> KeptFit:
    """Load a fit that `save` wrote.

    Loading imports the modules that the file names, which runs their statements, and predictions
    call the model that it names. A file may name what computes in dgp_ppl, NumPyro, JAX, NumPy,
    equinox and optax; your own modules are imported if they are `trusted`::

        dgp.load("price.dgp", trusted=["my_models"])

    Args:
        path: the file.
        trusted: further modules, with the modules in them. They run as any code that you import.

    Returns:
        The fit. It makes the same predictions as the fit that was saved: exactly under the same
        versions and device, and within rounding under others.

    Raises:
        DataError: if the file is not one of `save`, is damaged or of a later version; if the model,
            or another part, is of a module that is not trusted, or cannot be imported; if it was
            saved in float64 and JAX runs in float32.
    """
    check_path("load", path)
    if isinstance(trusted, str):
        raise TypeError(f"load: trusted is {trusted!r}, wanted a list of modules: [{trusted!r}]")
    archive = ArchiveReader(path)
    record = archive.about()
    with archive.reading():
        check_trust(path, archive.record["content"], trusted)
        content = {n: decode(archive, node) for n, node in archive.record["content"].items()}
        plain = {n: record[n] for n in PLAIN}
        if plain["columns"] is not None:
            plain["columns"] = tuple(plain["columns"])
        kept = KeptFit(**content, **plain, versions=record["versions"])
        _ = repr(kept)  # fails if its parts are of other types
    return kept


def _check_arguments(model: Model, kwargs: dict[str, Any]) -> None:
    """Raise unless the model, or `predict`, takes all keyword arguments."""
    parameters = call_signature(model).parameters.values()
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = [n for n in kwargs if n not in known and n not in _PREDICT_OPTIONS]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise TypeError(
            f"save: {program_name(model)} has no argument {', '.join(map(repr, unknown))}, wanted "
            f"some of {short_list(known, most=20)}; leave it out"
        )


def _find_sites(guide: Any, site: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Let a new automatic guide of NumPyro's, whose first call wants y, find its latent sites."""
    is_stock = isinstance(guide, AutoGuide) and not isinstance(guide, LayerGuide)
    if not is_stock or guide.prototype_trace is not None:
        return
    model = guide.model
    guide.model = handlers.block(model, hide=[site])
    try:
        with TRACING:
            handlers.seed(guide, 0)(*args, **kwargs)
    finally:
        guide.model = model


def _checked_json(name: str, value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"save: {name} is not JSON ({error}), wanted dicts, lists, strings and finite numbers"
        ) from error
    return value


def _name(model: Model) -> str:
    """Return the dotted import path of a model; of a handler, its type and the model inside."""
    try:
        return import_path(model).replace(":", ".")
    except ValueError:
        inner = getattr(model, "fn", getattr(model, "func", None))  # of handlers and partials
        kind = type(model).__name__.lstrip("_")
        return program_name(model) if inner is None else f"{kind}({_name(inner)})"
