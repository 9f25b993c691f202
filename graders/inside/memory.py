"""What an operation runs and makes, below autograd: its operators, and the memory that they take."""

import weakref
from collections.abc import Collection

from torch import Tensor, UntypedStorage
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Trace(TorchDispatchMode):
    """Notes each operator below autograd and the memory of what it returns.

    Args:
        known: storages that were there before, by address: views of them are not counted as made.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, which takes most of a second

    def __init__(self, known: Collection[int] = ()) -> None:
        super().__init__()
        self.known = known
        self.operators: set[str] = set()
        self.largest = self.peak = 0
        self._sizes: dict[int, int] = {}  # bytes of what was made and is still there, by its address
        self._refs: dict[int, weakref.ref[UntypedStorage]] = {}
        self._sum = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        self.operators.add(func.name())
        for tensor in (result,) if isinstance(result, Tensor) else tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._note(tensor.untyped_storage(), tensor.element_size())
        self.peak = max(self.peak, self._sum)  # now that all that was needed for the result alone is gone
        return result

    def alive(self) -> dict[int, int]:
        """Return what was made and is still there: the bytes of each storage."""
        return dict(self._sizes)

    def hold(self) -> list[StorageWeakRef]:
        """Return what keeps the addresses of what is still there from being taken again."""
        return [StorageWeakRef(storage) for ref in self._refs.values() if (storage := ref()) is not None]

    def _note(self, storage: UntypedStorage, itemsize: int) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        if key not in self._sizes:
            self._refs[key] = weakref.ref(storage, lambda _: self._gone(key))
        self._sum += size - self._sizes.get(key, 0)  # a student's resize may have changed it
        self._sizes[key] = size
        self.largest = max(self.largest, size // itemsize)

    def _gone(self, key: int) -> None:
        self._sum -= self._sizes.pop(key)
        del self._refs[key]
