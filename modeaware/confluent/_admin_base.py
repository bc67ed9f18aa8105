"""What the parts of our AdminClient share: the calls to the controller, and futures filled by a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any

from modeaware import librdkafka_admin
from modeaware.config import split_client_config, with_process_settings
from modeaware.confluent.controller_calls import ControllerCalls
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.wire.api_versions import SOFTWARE_NAME, UNDERLYING_NAME

REQUEST_TIMEOUT_S = 60.0


class AdminBase(librdkafka_admin.AdminClient):
    """The stock class with our settings taken out, a connection to the controller, and a few threads of its own."""

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        config, stock_conf = split_client_config(with_process_settings(conf))
        super().__init__({SOFTWARE_NAME: UNDERLYING_NAME, **stock_conf}, **kwargs)
        self._stock_conf = stock_conf
        self._calls = ControllerCalls(stock_conf, config)
        self._pool_lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Wait for what is on its way to the controller, and give the views back. Idempotent; it can be used again."""
        with self._pool_lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        self._calls.close()

    def __exit__(self, *exc_info: Any) -> bool | None:
        if isinstance(exc_info[1], KeyboardInterrupt):
            self._calls.give_up()  # nobody waits for it any more, and it must not be done minutes after Ctrl-C
        self.close()
        return super().__exit__(*exc_info)

    def _futures(
        self, keys: Iterable[Any], work: Callable[[], Mapping[Any, Any]], *, as_stock: bool = False
    ) -> dict[Any, Future[Any]]:
        """A future per key (a topic, say), filled from what ``work``, run in another thread, returns or raises.

        An exception among the values fails its own future alone; ``as_stock`` tells ours as KafkaExceptions.
        """
        futures: dict[Any, Future[Any]] = {key: Future() for key in keys}
        for future in futures.values():
            future.set_running_or_notify_cancel()
        if futures:
            with self._pool_lock:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="modeaware-admin")
                whole = self._pool.submit(work)
            whole.add_done_callback(partial(_fill, futures, as_stock))
        return futures


def stock_error(error: ModeAwareError) -> KafkaException:
    """Ours as the stock client's; ours is its cause."""
    code = KafkaError._FAIL if error.code is None else int(error.code)
    stock = KafkaException(KafkaError(code, error.message))
    stock.__cause__ = error
    return stock


def _fill(futures: Mapping[Any, Future[Any]], as_stock: bool, whole: Future[Mapping[Any, Any]]) -> None:
    failure = whole.exception()
    answers = whole.result() if failure is None else dict.fromkeys(futures, failure)
    for topic, future in futures.items():
        unanswered = ModeAwareError(f"topic {topic!r}: the answer does not mention it", topic=str(topic))
        answer = answers.get(topic, unanswered)
        if isinstance(answer, ModeAwareError) and as_stock:
            future.set_exception(stock_error(answer))
        elif isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
