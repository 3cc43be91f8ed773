"""Threads of a simulated pass, and of BLAS: the results are bitwise independent of their number."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ContextDecorator, contextmanager
from functools import cache
from itertools import islice
from threading import Condition, Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from vpem.core.network.steps import Task

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def ordered_map(
    threads: ThreadPoolExecutor, n_threads: int, work: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Iterator[Result]]:
    """Yield an iterator over the results, in the order of the items.

    Threads work only a few items ahead, and are idle at the end of the block.
    """
    items = list(items)
    n = min(n_threads, len(items))
    if n == 1:
        yield map(work, items)
        return
    waiting: deque[Future[Result]] = deque()

    def results() -> Iterator[Result]:
        remaining = iter(items)
        waiting.extend(threads.submit(work, item) for item in islice(remaining, 2 * n))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(threads.submit(work, item) for item in islice(remaining, 1))
            yield result

    try:
        yield results()
    finally:
        for future in waiting:
            future.cancel()
        wait(waiting)


def do_tasks(threads: ThreadPoolExecutor, n_threads: int, tasks: Sequence[Task]) -> None:
    """Run all tasks, independent ones in parallel; raise the error of the first task that failed."""
    remaining, done = deque(enumerate(tasks)), [False] * len(tasks)
    errors: dict[int, BaseException] = {}
    changed = Condition()

    def work() -> None:
        while True:
            try:
                number, task = remaining.popleft()
            except IndexError:
                return
            if not all(done[earlier] for earlier in task.after):  # earlier tasks are already running, so they end
                with changed:
                    changed.wait_for(lambda after=task.after: all(done[earlier] for earlier in after))  # type: ignore[misc]
            try:
                if number < min(list(errors), default=len(tasks)):  # skips tasks after a failed one: some need it
                    task.work()
            except BaseException as error:
                errors[number] = error
            with changed:
                done[number] = True
                changed.notify_all()

    workers = []
    try:
        workers += [threads.submit(work) for _ in range(min(n_threads, len(tasks)))]
        wait(workers)
    finally:
        remaining.clear()  # on interrupt, tasks that have not started are dropped
        wait(workers)
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            errors.clear()  # their frames would keep the tasks' data alive


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class one_blas_thread(ContextDecorator):  # noqa: N801 (a context manager, as contextlib's are named)
    """Limit BLAS to one thread, so that results do not depend on its threads, and they do not multiply with ours.

    Use it as a decorator or a context manager. The limit applies to the whole process, until the last block that
    requested it, in any thread, has ended.
    """

    _lock, _n_users, _limit = Lock(), 0, None

    def __enter__(self) -> None:
        kind: Any = one_blas_thread
        with kind._lock:
            if kind._n_users == 0:
                kind._limit = _controller().limit(limits=1, user_api="blas")
            kind._n_users += 1

    def __exit__(self, *_: object) -> None:
        kind: Any = one_blas_thread
        with kind._lock:
            kind._n_users -= 1
            if kind._n_users == 0:
                kind._limit.restore_original_limits()
                kind._limit = None
