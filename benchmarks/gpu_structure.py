"""Count what one training step would launch on an H200, by compiling for it without one.

    python -m pip install "dgp_ppl[gpu-structure]"
    python benchmarks/gpu_structure.py [--shapes a2,c2,o2] [--guides diffusion] [--json FILE]

For every guide and shape of guide_time.py the script compiles three programs: one ``SVI.update``
(``update``), 100 steps of `dgp_ppl.fit` (``chunk``), and, for `MeanField`, 100 steps of 20 fits as
`dgp_ppl.fit_many` makes them (``many``). It prints for one step:

- launches of kernels, copies and library calls, each as often as loops repeat it, and how many of
  them are outside CUDA graphs;
- loops, and those whose number of turns the compiler does not know: each turn waits for the host,
  and so does a branch;
- calls of cuSOLVER and cuBLAS in the program, and its temporary memory.

No GPU, driver or CUDA is needed. This is structure, not time: nothing runs, and XLA does not tune
its kernels. The record keeps the ``XLA_FLAGS`` that were set.
"""

# ruff: noqa: E402 - XLA reads its flags when it is imported
import argparse
import collections
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

FLAGS = os.environ.get("XLA_FLAGS", "")
DUMP = tempfile.mkdtemp()  # where XLA writes what it compiles
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    f"{FLAGS} --xla_dump_to={DUMP} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*target.*"
)

import jax
import jax.numpy as jnp
import optax
from guide_time import guides
from jax import lax, random
from numpyro.infer import SVI
from step_time import problem

import dgp_ppl as dgp
from dgp_ppl import inference

TARGET = pathlib.Path(__file__).with_name("h200.txtpb")  # of XLA: what it knows of an H200
STEPS, FITS = 100, 20
GROUPS = {"kSequential", "kDynamicSliceFusion", "kConditional"}  # of launches, listed below them
GUIDES = "mean_field,global_inducing,diffusion,implicit,decoupled_500_100,sghmc"


@dataclasses.dataclass
class Structure:
    """What one step of a compiled program launches."""

    launches: float
    launches_alone: float
    loops: int
    loops_unknown: int
    branches: int
    library_calls: dict[str, int]
    temporary_mib: float
    compile_s: float


@dataclasses.dataclass
class Scope:
    """A part of XLA's list of launches: its indent, how often it runs, whether it is a graph."""

    indent: int
    times: int
    graph: bool


def launched(lines: list[str], turns: dict[int, int | None]) -> Iterator[tuple[str, int, bool]]:
    """Yield each launch of XLA's list: its kind, how often it runs, and whether in a CUDA graph.

    `turns` has the number of turns of each loop by its number in the list, None if the compiler
    does not know it. Then the body counts once, and so does the condition. A loop with a known
    number of turns does not evaluate its condition.
    """
    scopes = [Scope(-1, 1, False)]
    known, in_condition = True, False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() in ("condition:", "body:"):
            in_condition = line.strip() == "condition:"
        for n, match in enumerate(re.finditer(r"(\d{3,}): (k\w+)", line)):
            number, kind, at = int(match[1]), match[2], indent + 2 * n
            while not in_condition and at <= scopes[-1].indent:
                scopes.pop()
            scope = scopes[-1]
            if kind == "kWhile":
                known = turns[number] is not None
                scopes.append(Scope(at, scope.times * (turns[number] or 1), scope.graph))
            elif kind == "kCommandBuffer":
                scopes.append(Scope(at, scope.times, True))
            elif kind not in GROUPS and not (in_condition and known):
                yield kind, scope.times, scope.graph


def turns_of_loops(metadata: str, hlo: str) -> dict[int, int | None]:
    """Return the number of turns of every loop by its number in the list of launches."""
    pattern = r'profile_annotation: "([^"]+)"\s+thunk_id: (\d+)\s+}\s+thunk_kind: "kWhile"'
    loops = {int(number): name for name, number in re.findall(pattern, metadata)}
    found: dict[int, int | None] = {}
    for number, name in loops.items():
        line = re.search(rf"^ *(?:ROOT )?%{re.escape(name)} = .*$", hlo, re.MULTILINE)
        known = line and re.search(r'"known_trip_count":{"n":"(\d+)"}', line[0])
        found[number] = int(known[1]) if known else None
    return found


class Compiler:
    """Compiles programs for an H200."""

    def __init__(self) -> None:
        from jax.experimental import topologies

        config = TARGET.read_text()
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=config, topology="1x1x1"
        )
        mesh = topologies.make_mesh(topology, (1,), ("x",))
        self.sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self.dump = pathlib.Path(DUMP)

    def structure(self, program: Callable[..., Any], *arrays: Any, steps: int = 1) -> Structure:
        """Compile a program of several steps; returns the structure of one step."""

        def there(a: Any) -> Any:
            return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=self.sharding)

        def target(*arrays: Any) -> Any:
            return program(*arrays)

        lowered = jax.jit(target).lower(*jax.tree.map(there, arrays))
        begun = time.perf_counter()
        compiled: Any = lowered.compile()
        seconds = time.perf_counter() - begun
        thunks, metadata = (
            self._only(f"*jit_target.{n}.txt").read_text()
            for n in ("thunk_sequence_after_thunk_passes", "thunk_metadata")
        )
        hlo = compiled.as_text()
        for path in self.dump.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        turns = turns_of_loops(metadata, hlo)
        counts: collections.Counter[str] = collections.Counter()
        for kind, times, graph in launched(thunks.splitlines(), turns):
            counts["all"] += times
            counts["alone"] += 0 if graph else times
            counts[kind] += times
        calls = collections.Counter(re.findall(r'custom_call_target="([^"]+)"', hlo))
        return Structure(
            launches=counts["all"] / steps,
            launches_alone=counts["alone"] / steps,
            loops=len(turns),
            loops_unknown=sum(n is None for n in turns.values()),
            branches=len(re.findall(r" conditional\(", hlo)),
            library_calls=dict(calls),
            temporary_mib=compiled.memory_analysis().temp_size_in_bytes / 2**20,
            compile_s=seconds,
        )

    def _only(self, pattern: str) -> pathlib.Path:
        (path,) = self.dump.glob(pattern)
        return path


def programs(shape: str, name: str) -> Iterator[tuple[str, int, Callable[..., Any], Any]]:
    """Yield the programs of a guide: name, steps, function and arrays."""
    model, x, y, kwargs = problem(shape, random.key(0))
    guide, kwargs = guides(model, x, kwargs)[name]
    if isinstance(guide, dgp.SGHMC):
        state = guide.init(random.key(1), 10, None, (x, y), kwargs)
        step = lambda s, x, y: guide.sample(s, (x, y), kwargs)  # noqa: E731
        yield "update", 1, step, (state, x, y)
        many = lambda s, x, y: lax.fori_loop(0, STEPS, lambda _, s: step(s, x, y), s)  # noqa: E731
        yield "chunk", STEPS, many, (state, x, y)
        return
    svi = SVI(model, guide, optax.adam(1e-2), guide.default_loss)
    state = svi.init(random.key(1), x, y, **kwargs)
    yield "update", 1, lambda s, x, y: svi.update(s, x, y, **kwargs), (state, x, y)
    run, state, data = inference.fit_program(random.key(1), model, guide, x, y, num=STEPS, **kwargs)
    yield "chunk", STEPS, run, (state, data)
    if name == "mean_field":
        states = jax.tree.map(lambda a: jnp.stack([a] * FITS), state)
        yield "many", STEPS, jax.vmap(run, in_axes=(0, None)), (states, data)


def missing() -> str | None:
    """Return why programs cannot be compiled for a GPU here, or None."""
    if importlib.util.find_spec("jax_plugins") is None or not importlib.util.find_spec(
        "jax_plugins.xla_cuda12"
    ):
        wheels = f"jax-cuda12-plugin=={jax.__version__} jax-cuda12-pjrt=={jax.__version__}"
        return (
            "gpu_structure: skipped: it compiles for a GPU with two wheels that are not installed; "
            f"no GPU is needed: python -m pip install {wheels}"
        )
    if (found := importlib.metadata.version("jax-cuda12-plugin")) != jax.__version__:
        return f"gpu_structure: skipped: jax-cuda12-plugin is {found}, wanted {jax.__version__}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="a2,c2,o2", help="comma-separated")
    parser.add_argument("--guides", default=GUIDES, help="comma-separated")
    parser.add_argument("--programs", default="update,chunk,many", help="comma-separated")
    parser.add_argument("--json", type=pathlib.Path, help="add the rows to this file")
    args = parser.parse_args()
    if why := missing():
        print(why)
        return
    jax.config.update("jax_enable_compilation_cache", False)
    compiler, rows = Compiler(), _earlier(args.json)
    for shape in args.shapes.split(","):
        for name in args.guides.split(","):
            for kind, steps, function, arrays in programs(shape, name):
                if kind not in args.programs.split(","):
                    continue
                which = {"shape": shape, "guide": name, "program": kind}
                rows = [r for r in rows if not which.items() <= r.items()]
                try:
                    found = vars(compiler.structure(function, *arrays, steps=steps))
                except jax.errors.JaxRuntimeError as error:  # XLA has no untuned kernel for it
                    found = {"error": str(error).partition("\n")[0][:200]}
                rows.append(which | found)
                print(*(f"{k} {_short(v)}" for k, v in rows[-1].items()), sep=", ", flush=True)
                jax.clear_caches()
                if args.json:
                    record = {
                        "device": "NVIDIA H200, compiled for it without one; nothing was run",
                        "command": "python benchmarks/gpu_structure.py --json FILE",
                        "xla_flags": FLAGS,
                        "versions": {"python": platform.python_version(), "jax": jax.__version__},
                        "date": datetime.date.today().isoformat(),
                        "rows": rows,
                    }
                    args.json.write_text(json.dumps(record, indent=1) + "\n")


def _earlier(path: pathlib.Path | None) -> list[dict[str, Any]]:
    """Return the rows of an earlier record, which stay if this run does not make them anew."""
    if path is None or not path.exists():
        return []
    record = json.loads(path.read_text())
    same = record["xla_flags"] == FLAGS and record["versions"]["jax"] == jax.__version__
    return record["rows"] if same else []


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
