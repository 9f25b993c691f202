"""Records and cases as bytes: a JSON header, then the raw bytes of the tensors. Never pickle.

``decode`` trusts nothing: types, dtypes and sizes come from lists of their own, and a message that does not add up is a
`WireError`.
"""

import dataclasses
import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import torch

from graders.inside.records import Case, Failure, Helper, Record

DTYPES = {str(d).removeprefix("torch."): d for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
DTYPES |= {str(d).removeprefix("torch."): d for d in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)}
DTYPES |= {"int64": torch.int64, "complex64": torch.complex64, "complex128": torch.complex128}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
TYPES = {t.__name__: t for t in (Case, Failure, Helper, Record)}
FIELDS: dict[type, dict[str, Any]] = {  # with what they are if not said
    t: {f.name: f.default for f in dataclasses.fields(t)} for t in TYPES.values()
}
PLAIN = {bool, int, str, tuple}  # what may be compared with a field's default: a float's sign would be lost
MAX_BYTES = 16 << 20  # of a message; those of the course are below 200 kB
MAX_HEADER = 1 << 20  # of its JSON, which takes 20 times as much when it is read
MAX_DEPTH = 32
MAX_DIM = 64  # as in torch


Message = dict[str, Any]  # a question, or its answer


class WireError(ValueError):
    """A message that is not what `encode` makes."""


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements of memory that a tensor of this shape and stride reaches over."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor without a graph, its numbers as they are: no negation or conjugation put off for later."""
    return tensor.detach().resolve_conj().resolve_neg()


def inexact(value: object) -> bool:
    """Return whether a value is a tensor that can have a gradient: of floating or complex numbers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements that a detached tensor reaches over, as a new 1-d tensor."""
    shape = (span(tensor.shape, tensor.stride()),)
    return tensor.as_strided(shape, (1,), tensor.storage_offset()).clone()


def _raw(tensor: torch.Tensor) -> bytes:
    """Return the bytes that a detached tensor reaches over."""
    if tensor.is_contiguous() and tensor.dtype is not torch.bfloat16:  # which numpy does not have
        return tensor.numpy().tobytes()
    return memory(tensor).view(torch.uint8).numpy().tobytes()


def _said(value: object) -> dict[str, object]:
    """Return the fields of a case or a record that are not what they are by default, in their order."""
    parts = {name: (getattr(value, name), default) for name, default in FIELDS[type(value)].items()}
    return {n: v for n, (v, d) in parts.items() if not (v is d or (type(v) is type(d) and type(v) in PLAIN and v == d))}


def laid_out(elements: torch.Tensor, shape: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """Return a tensor (no view of another) of this shape and stride over 1-d `elements`."""
    return torch.empty(0, dtype=elements.dtype).set_(elements.untyped_storage(), 0, shape, stride)


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same values and strides in memory of its own, without a graph."""
    tensor = detached(tensor)
    if tensor.is_contiguous() and (clone := tensor.clone()).stride() == tensor.stride():  # the usual case, and fast
        return clone
    return laid_out(memory(tensor), tensor.shape, tensor.stride())


def encode(value: object) -> bytes:
    """Return bytes for a tree of tensors, numbers, strings, None, lists, tuples, dicts, cases and records."""
    blobs: list[bytes] = []

    def tree(v: object) -> object:
        if v is None or isinstance(v, bool | int | float | str):
            return v
        if isinstance(v, torch.Tensor):
            v = detached(v)
            blobs.append(_raw(v) if v.numel() else b"")
            return {"tensor": NAMES.get(v.dtype, str(v.dtype)), "shape": v.shape, "stride": v.stride()}
        if isinstance(v, tuple):
            return {"tuple": [tree(x) for x in v]}
        if isinstance(v, list):
            return [tree(x) for x in v]
        if isinstance(v, dict):
            return {"dict": {k: tree(x) for k, x in v.items()}}
        if isinstance(v, Case | Failure | Helper | Record):
            return {"is": type(v).__name__, "of": {name: tree(x) for name, x in _said(v).items()}}
        raise WireError(f"cannot send a {type(v).__name__}")

    header = json.dumps(tree(value)).encode()
    return struct.pack(">Q", len(header)) + header + b"".join(blobs)


def decode(data: bytes) -> object:
    """Return the tree that `encode` was given.

    Whoever sent it, this costs no more than a few times `MAX_BYTES` of memory and a fraction of a second. What types
    the fields of a record have, it does not look at: see `answered`.

    Raises:
        WireError: a damaged or forged message.
    """
    if len(data) < 8 or len(data) > MAX_BYTES:
        raise WireError(f"a message of {len(data)} bytes")
    size = struct.unpack(">Q", data[:8])[0]
    if size > min(len(data) - 8, MAX_HEADER):
        raise WireError("a header that is cut off or too long")
    position = 8 + size
    reach = 0  # the bytes of all tensors, if each were written out

    def tensor(name: str, shape: list[int], stride: list[int]) -> torch.Tensor:
        nonlocal position, reach
        dtype = DTYPES[name]
        if type(shape) is not list or type(stride) is not list or not len(shape) == len(stride) <= MAX_DIM:
            raise WireError("a tensor of no possible shape")
        if not all(type(n) is int and 0 <= n <= MAX_BYTES for n in [*shape, *stride]):
            raise WireError("a tensor of no possible size")
        reach += math.prod(shape) * dtype.itemsize
        if reach > MAX_BYTES:
            raise WireError("more numbers than a message may hold")
        size = span(shape, stride) * dtype.itemsize
        if position + size > len(data):
            raise WireError("a tensor that is cut off")
        raw = bytearray(data[position : position + size])
        position += size
        if dtype is torch.bool:
            raw = raw.translate(bytes([0] + [1] * 255))
        elements = torch.frombuffer(raw, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        if elements.numel() == math.prod(shape):
            contiguous = elements.reshape(shape).clone()
            if contiguous.stride() == tuple(stride):  # the usual case, and fast
                return contiguous
        return laid_out(elements.clone(), shape, stride)

    def tree(v: object, depth: int = 0) -> object:
        if depth > MAX_DEPTH:
            raise WireError("too many layers")
        if isinstance(v, list):
            return [tree(x, depth + 1) for x in v]
        if isinstance(v, str) and not v.isascii():
            v.encode()  # half a character cannot be printed
        if not isinstance(v, dict):
            return v
        form = tuple(v)
        if form == ("tensor", "shape", "stride"):
            return tensor(*v.values())
        if form == ("tuple",) and isinstance(v["tuple"], list):
            return tuple(tree(x, depth + 1) for x in v["tuple"])
        if form == ("dict",):
            return {tree(k): tree(x, depth + 1) for k, x in v["dict"].items()}
        if form != ("is", "of"):
            raise WireError("a thing of no known form")
        kind = TYPES[v["is"]]
        if [*v["of"]] != [name for name in FIELDS[kind] if name in v["of"]]:
            raise WireError(f"a {kind.__name__} with other fields")
        parts: dict[str, Any] = {k: tree(x, depth + 1) for k, x in v["of"].items()}  # of which types: see `answered`
        return kind(**parts)

    try:
        header = data[8 : 8 + size].decode()
        value = tree(json.loads(header, object_pairs_hook=_each_once))
    except WireError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, MemoryError) as error:
        raise WireError(f"a message that does not add up: {_short(error)}") from None
    if position != len(data):
        raise WireError("a message with something left over")
    return value


def decode_message(data: bytes) -> Message:
    """Return the message that `encode` was given.

    Raises:
        WireError: it is damaged or forged, or something else than a message.
    """
    message = decode(data)
    if not isinstance(message, dict):
        raise WireError("something else than a message")
    return message


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise WireError("a name that comes twice")
    return found


def _short(error: Exception) -> str:
    return str(error)[:100].encode("ascii", "backslashreplace").decode()
