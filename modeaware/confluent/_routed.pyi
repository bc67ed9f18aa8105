from collections.abc import Callable
from typing import Any

class RoutedProduce:
    def __init__(
        self,
        base: Callable[..., Any],
        counts: dict[str, int],
        reports: dict[str, Callable[..., Any]],
        absent: int,
        hash_name: str,
        slow: Callable[..., Any],
        retry: Callable[..., Any],
        refused: type[BaseException],
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Forward:
    func: Callable[..., Any]
    def __init__(self, func: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __setstate__(self, state: tuple[Callable[..., Any], tuple[()], dict[str, Any], None]) -> None: ...

class FollowingMethod:
    function: Callable[..., Any]
    def __init__(self, function: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Reported:
    def __init__(self, report: Callable[..., Any], callback: Callable[..., Any]) -> None: ...
    def __call__(self, error: Any, message: Any) -> Any: ...
