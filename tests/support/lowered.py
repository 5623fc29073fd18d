"""What programs are on a GPU; no GPU and no plugin is needed."""

import jax
from jax import lax


def use_gpu_branches(monkeypatch):
    """Let programs take the branches for a GPU, which a CPU can run too.

    Functions that are compiled already keep their branches.
    """

    def chosen(*args, default, **_):
        return default(*args)

    monkeypatch.setattr(lax, "platform_dependent", chosen)


def open_loops(function, *args):
    """Return the loops of a program for CUDA whose number of turns is not static.

    A static loop counts from a constant to a constant. Any other condition depends on data.
    """
    lowered = jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",))
    found = []

    def visit(operation):
        if operation.name == "stablehlo.while" and not _is_counted(operation):
            found.append(str(operation.location))
        for region in operation.regions:
            for block in region:
                for inner in block:
                    visit(inner.operation)

    visit(lowered.compiler_ir("stablehlo").operation)
    return found


def _is_counted(loop):
    """Return whether a loop's condition compares a counter of constant steps with a constant."""
    condition, body = (region.blocks[0] for region in loop.regions)
    operations = [o.operation for o in condition if not _is_constant(o.operation)]
    if [o.name for o in operations] != ["stablehlo.compare", "stablehlo.return"]:
        return False
    counter, limit = operations[0].operands
    places = [i for i, argument in enumerate(condition.arguments) if argument == counter]
    if not places or not _is_constant(limit.owner):
        return False
    (place,) = places
    step = list(body)[-1].operation.operands[place].owner
    return (
        _is_constant(loop.operands[place].owner)
        and getattr(step, "name", None) == "stablehlo.add"
        and step.operands[0] == body.arguments[place]
        and _is_constant(step.operands[1].owner)
    )


def _is_constant(owner):
    return getattr(owner, "name", None) == "stablehlo.constant"
