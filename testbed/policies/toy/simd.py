"""Vectors of 8 or 16 float32 numbers in compiled loops.

Loops over eight neighbors, or over sums that should stay in registers, are slow when the compiler must find
the vectors: checks that arrays do not overlap cost more than the work. `load(a, i, j)` reads a[i, j:j+8],
`load_wide` 16 numbers, `load_some(a, i, j, n)` the first n of 8, with 0 for the rest; `store` writes them
back; `spread` repeats a number; +, -, *, / and `largest` work lane by lane. All processors can run them;
those with shorter registers need more instructions.

`compiled` makes loops and caches them on disk; `compiled_for_weights` those that Python calls.
"""

# ruff: noqa: ARG001  (the compiler says which arguments a function has that it calls)

import functools
import inspect
import operator
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import njit, typeof
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model

FUSED = ("contract", "reassoc", "nsz")
SHARED = "simd.py", "products.py"
"""Files with code used in loops of other files."""
CHECKSUM = zlib.crc32(b"".join(Path(__file__).with_name(name).read_bytes() for name in SHARED))


def compiled(loop: Callable[..., Any]) -> Any:
    """Compile a loop and cache it on disk until its file, this one or `products` changes.

    Numba compares its cache only with the loop's file, and finds it by the loop's name.
    """
    loop.__qualname__ += f"-{CHECKSUM:08x}"
    fast = {"contract", "reassoc", "nsz", "arcp"}
    return njit(cache=True, nogil=True, fastmath=fast, error_model="numpy")(loop)


def compiled_for_weights(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a loop, called from Python, once for weights of one replica and of many.

    Weights of many replicas are views into rows of parameters; those of one replica have no gaps, which is
    another type, and seconds of compiling. names: arguments that hold weights, or tuples of them.
    """

    def decorate(loop: Callable[..., Any]) -> Callable[..., Any]:
        order = list(inspect.signature(loop).parameters)
        places, made, lock = [order.index(name) for name in names], compiled(loop), threading.Lock()

        @functools.wraps(loop)
        def run(*arguments: Any) -> Any:
            if made.overloads:
                try:
                    return made(*arguments)
                except TypeError:  # no version takes these arguments yet
                    pass
            found = [typeof(one) for one in arguments]
            for place in places:
                found[place] = _with_gaps(found[place])
            with lock:
                made.disable_compile(False)
                made.compile(tuple(found))
                made.disable_compile()
            return made(*arguments)

        return run

    return decorate


def _with_gaps(kind: Any) -> Any:
    if isinstance(kind, types.Array):
        return kind.copy(layout="A")
    return kind.from_types([_with_gaps(one) for one in kind.types])


Vector: TypeAlias = Any
"""Eight or sixteen numbers, in compiled code."""


class Lanes(types.Type):
    """The compiler's type of a vector."""

    def __init__(self, count: int) -> None:
        super().__init__(f"Lanes({count})")
        self.count = count
        self.vector = ir.VectorType(ir.FloatType(), count)


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, lanes.vector)


NARROW, WIDE = Lanes(8), Lanes(16)
_BITS = ir.IntType(32)


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Pointer to the vector at a[i, j]."""
    array_type, *index_types = signature.args[:3]
    array = context.make_array(array_type)(context, builder, arguments[0])
    cast = lambda v, t: context.cast(builder, v, t, types.uintp)  # noqa: E731
    index = list(map(cast, arguments[1:3], index_types))
    return cgutils.get_item_pointer(context, builder, array_type, array, index)


def _splat(builder: Any, number: Any, count: int) -> Any:
    empty = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    one = builder.insert_element(empty, number, _BITS(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_BITS, count), [0] * count))


def _first(builder: Any, n: Any, lanes: Lanes) -> Any:
    """Mask of the first n lanes."""
    order = ir.Constant(ir.VectorType(_BITS, lanes.count), list(range(lanes.count)))
    return builder.icmp_unsigned("<", order, _splat(builder, builder.trunc(n, _BITS), lanes.count))


def _llvm(builder: Any, name: str, result: Any, *values: Any) -> Any:
    """Call LLVM's operation on vectors."""
    function_type = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, f"llvm.{name}"), values)


def _loader(lanes: Lanes) -> Callable[..., Any]:
    @intrinsic
    def load(typing_context: Any, a: Any, i: Any, j: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.bitcast(_place(context, builder, signature, arguments), lanes.vector.as_pointer())
            return builder.load(place, align=4)

        return lanes(a, i, j), generate

    return load


load, load_wide = _loader(NARROW), _loader(WIDE)


@intrinsic
def store(typing_context: Any, a: Any, i: Any, j: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(_place(context, builder, signature, arguments), x.vector.as_pointer())
        builder.store(arguments[3], place, align=4)

    return types.void(a, i, j, x), generate


@intrinsic
def load_some(typing_context: Any, a: Any, i: Any, j: Any, n: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(_place(context, builder, signature, arguments), NARROW.vector.as_pointer())
        rest = ir.Constant(NARROW.vector, [0.0] * NARROW.count)
        mask = _first(builder, arguments[3], NARROW)
        return _llvm(builder, "masked.load.v8f32.p0", NARROW.vector, place, _BITS(4), mask, rest)

    return NARROW(a, i, j, types.uintp), generate


@intrinsic
def store_some(typing_context: Any, a: Any, i: Any, j: Any, x: Any, n: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(_place(context, builder, signature, arguments), NARROW.vector.as_pointer())
        mask = _first(builder, arguments[4], NARROW)
        _llvm(builder, "masked.store.v8f32.p0", ir.VoidType(), arguments[3], place, _BITS(4), mask)

    return types.void(a, i, j, x, types.uintp), generate


def _spreader(lanes: Lanes) -> Callable[..., Any]:
    @intrinsic
    def spread(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _splat(builder, arguments[0], lanes.count)

        return lanes(types.float32), generate

    return spread


spread, spread_wide = _spreader(NARROW), _spreader(WIDE)


def _define(symbol: Callable[..., Any] | None, build: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Register an operation on two vectors of one type with the compiler."""

    @intrinsic
    def apply(typing_context: Any, x: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return build(builder, *arguments)

        return x(x, y), generate

    def typed(x: Any, y: Any) -> Callable[..., Any] | None:
        return (lambda x, y: apply(x, y)) if isinstance(x, Lanes) and x == y else None

    if symbol is not None:
        overload(symbol, strict=False)(typed)
    return apply


_define(operator.add, lambda builder, x, y: builder.fadd(x, y, flags=FUSED))
_define(operator.sub, lambda builder, x, y: builder.fsub(x, y, flags=FUSED))
_define(operator.mul, lambda builder, x, y: builder.fmul(x, y, flags=FUSED))
_define(operator.truediv, lambda builder, x, y: builder.fdiv(x, y))


def _below(builder: Any, x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", x, y), then, otherwise)


largest = _define(None, lambda builder, x, y: _below(builder, x, y, y, x))
"""The larger of both, lane by lane; NaN in the first place stays NaN."""

_none = lambda bias: ir.Constant(bias.type, [0.0] * bias.type.count)  # noqa: E731
hide = _define(None, lambda builder, x, bias: _below(builder, bias, _none(bias), bias, x))
"""The bias where it is below 0, x elsewhere."""

# 2^t = sum_i c_i t^i on [-1/2, 1/2], relative error 2e-9: least squares on Chebyshev nodes.
_NODES = 0.5 * np.cos(np.pi * (np.arange(512) + 0.5) / 512)
_POWERS = _NODES[:, None] ** np.arange(7) / 2.0 ** _NODES[:, None]
COEFFICIENTS = np.linalg.lstsq(_POWERS, np.ones(512), rcond=None)[0].astype(np.float32)
LOWEST = -126.0


@intrinsic
def root(typing_context: Any, x: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _llvm(builder, f"sqrt.v{x.count}f32", x.vector, *arguments)

    return x(x), generate


@intrinsic
def total(typing_context: Any, x: Any) -> Any:
    """Sum over the lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half, vector = x.count // 2, arguments[0]
        while half:
            order = ir.Constant(ir.VectorType(_BITS, 2 * half), [*range(half, 2 * half), *range(half)])
            vector = builder.fadd(vector, builder.shuffle_vector(vector, vector, order))
            low = ir.Constant(ir.VectorType(_BITS, half), list(range(half)))
            vector, half = builder.shuffle_vector(vector, vector, low), half // 2
        return builder.extract_element(vector, _BITS(0))

    return types.float32(x), generate


@intrinsic
def exp2(typing_context: Any, exponent: Any) -> Any:
    """2^exponent for exponents up to 0, within 1e-7; exactly 0 below -126; NaN stays NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (x,), lanes = arguments, signature.return_type

        def constant(value: float) -> Any:
            return ir.Constant(lanes.vector, [float(value)] * lanes.count)

        def whole_number(value: int) -> Any:
            return ir.Constant(ir.VectorType(_BITS, lanes.count), [value] * lanes.count)

        clamped = _below(builder, x, constant(LOWEST), constant(LOWEST), x)
        half_up = builder.fadd(clamped, constant(0.5))
        whole = _llvm(builder, f"floor.v{lanes.count}f32", lanes.vector, half_up)
        t = builder.fsub(clamped, whole)
        mantissa = constant(COEFFICIENTS[-1])
        for coefficient in COEFFICIENTS[-2::-1]:
            mantissa = builder.fadd(
                builder.fmul(mantissa, t, flags=FUSED), constant(coefficient), flags=FUSED
            )
        exponent_bits = builder.add(builder.fptosi(whole, whole_number(0).type), whole_number(127))
        power = builder.bitcast(builder.shl(exponent_bits, whole_number(23)), lanes.vector)
        return _below(builder, x, constant(LOWEST), constant(0.0), builder.fmul(mantissa, power))

    return exponent(exponent), generate
