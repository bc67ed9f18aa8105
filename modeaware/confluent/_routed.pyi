from collections.abc import Callable
from typing import Any

class RoutedProduce:
    def __init__(
        self,
        base: Callable[..., Any],
        counts: dict[str, int],
        absent: int,
        hash_name: str,
        slow: Callable[..., Any],
        retry: Callable[..., Any],
        refused: type[BaseException],
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
