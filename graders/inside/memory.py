"""What an operation runs and makes, below autograd: its operators, and the memory that they take."""

from collections.abc import Collection

from torch import Tensor
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
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}
        self.largest = self.peak = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        self.operators.add(func.name())
        more = False
        for tensor in (result,) if isinstance(result, Tensor) else tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                ref, size = StorageWeakRef(storage), storage.nbytes()
                if ref.cdata not in self.known:
                    more |= self.made.get(ref.cdata, (ref, -1))[1] != size
                    self.made[ref.cdata] = ref, size
                    self.largest = max(self.largest, size // tensor.element_size())
        if more:  # a view makes no peak
            self.peak = max(self.peak, sum(self.alive().values()))
        return result

    def alive(self) -> dict[int, int]:
        """What was made and is still there: the bytes of each storage."""
        self.made = {key: (ref, size) for key, (ref, size) in self.made.items() if not ref.expired()}
        return {key: size for key, (_, size) in self.made.items()}
