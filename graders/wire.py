"""Records and cases as bytes: a JSON header, then the raw bytes of the tensors. Never pickle.

``decode`` trusts nothing: types, dtypes and sizes come from lists of their own, and a message that does not add up is a
`WireError`.
"""

import dataclasses
import json
import math
import struct

import torch

from graders.records import Case, Failure, Helper, Record

DTYPES = {str(d).removeprefix("torch."): d for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
DTYPES |= {str(d).removeprefix("torch."): d for d in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)}
DTYPES |= {"int64": torch.int64, "complex64": torch.complex64, "complex128": torch.complex128}
TYPES = {t.__name__: t for t in (Case, Failure, Helper, Record)}
MAX_BYTES = 64 << 20


class WireError(ValueError):
    """A message that is not what `encode` makes."""


def span(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """The number of elements of memory that a tensor of this shape and stride reaches over."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without a graph, its numbers as they are: no negation or conjugation put off for later."""
    return tensor.detach().resolve_conj().resolve_neg()


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that a plain tensor reaches over, as a new 1-d tensor."""
    shape = (span(tensor.shape, tensor.stride()),)
    return tensor.as_strided(shape, (1,), tensor.storage_offset()).clone()


def laid_out(elements: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """A tensor (no view of another) of this shape and stride over 1-d `elements`."""
    return torch.empty(0, dtype=elements.dtype).set_(elements.untyped_storage(), 0, shape, stride)


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """The same values and strides in memory of its own, without a graph."""
    tensor = plain(tensor)
    if tensor.is_contiguous() and (clone := tensor.clone()).stride() == tensor.stride():  # the usual case, and fast
        return clone
    return laid_out(memory(tensor), tensor.shape, tensor.stride())


def encode(value: object) -> bytes:
    """Bytes for a tree of tensors, numbers, strings, None, lists, tuples, dicts with string keys, cases and records."""
    blobs: list[bytes] = []

    def tree(v: object) -> object:
        if v is None or isinstance(v, bool | int | float | str):
            return v
        if isinstance(v, torch.Tensor):
            v = plain(v)
            blobs.append(bytes(memory(v).view(torch.uint8).numpy()) if v.numel() else b"")
            return {"tensor": str(v.dtype).removeprefix("torch."), "shape": list(v.shape), "stride": list(v.stride())}
        if isinstance(v, tuple):
            return {"tuple": [tree(x) for x in v]}
        if isinstance(v, list):
            return [tree(x) for x in v]
        if isinstance(v, dict):
            return {"dict": {k: tree(x) for k, x in v.items()}}
        if type(v).__name__ in TYPES:
            return {"is": type(v).__name__, "of": {f.name: tree(getattr(v, f.name)) for f in dataclasses.fields(v)}}
        raise WireError(f"cannot send a {type(v).__name__}")

    header = json.dumps(tree(value)).encode()
    return struct.pack(">Q", len(header)) + header + b"".join(blobs)


def decode(data: bytes) -> object:
    """The tree that `encode` was given.

    Raises:
        WireError: a damaged or forged message.
    """
    if len(data) < 8 or len(data) > MAX_BYTES:
        raise WireError(f"a message of {len(data)} bytes")
    end = 8 + struct.unpack(">Q", data[:8])[0]
    position = end

    def tensor(v: dict) -> torch.Tensor:
        nonlocal position
        dtype, shape, stride = DTYPES[v["tensor"]], v["shape"], v["stride"]
        if not all(isinstance(n, int) and n >= 0 for n in [*shape, *stride]) or math.prod(shape) > MAX_BYTES:
            raise WireError("a tensor of no possible size")
        size = span(shape, stride) * dtype.itemsize
        if position + size > len(data):
            raise WireError("a tensor that is cut off")
        raw = bytearray(data[position : position + size])
        position += size
        elements = torch.frombuffer(raw, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        return laid_out(elements.clone(), shape, stride)

    def tree(v: object) -> object:
        if isinstance(v, list):
            return [tree(x) for x in v]
        if not isinstance(v, dict):
            return v
        if "tensor" in v:
            return tensor(v)
        if "tuple" in v:
            return tuple(tree(x) for x in v["tuple"])
        if "dict" in v:
            return {k: tree(x) for k, x in v["dict"].items()}
        return TYPES[v["is"]](**{k: tree(x) for k, x in v["of"].items()})

    try:
        value = tree(json.loads(data[8:end]))
    except (ValueError, KeyError, TypeError, RuntimeError, RecursionError) as error:
        raise WireError(f"a message that does not add up: {error}") from None
    if position != len(data):
        raise WireError("a message with something left over")
    return value
