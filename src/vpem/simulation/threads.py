"""Threads of a simulated pass, and of BLAS: however many there are, the results have the same bits."""

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
    """Results in the order of the items; threads are never far ahead, and idle at the end."""
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
    """Do all tasks, in their order but for those that need not wait for each other; raise the first error."""
    remaining, done = deque(enumerate(tasks)), [False] * len(tasks)
    errors: dict[int, BaseException] = {}
    changed = Condition()

    def work() -> None:
        while True:
            try:
                number, task = remaining.popleft()
            except IndexError:
                return
            if not all(done[earlier] for earlier in task.after):  # others were given these before, so that they end
                with changed:
                    changed.wait_for(lambda after=task.after: all(done[earlier] for earlier in after))  # type: ignore[misc]
            try:
                if number < min(list(errors), default=len(tasks)):  # which holds for none that needs one that failed
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
        remaining.clear()  # an interrupt ends what has begun, and no more
        wait(workers)
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            errors.clear()  # with their frames they would keep what the tasks hold


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class one_blas_thread(ContextDecorator):  # noqa: N801 (a context manager, as contextlib's are named)
    """Let BLAS use one thread, so that the number of its threads changes no bit, and does not multiply ours.

    For a function or a block of code. The limit is the whole process's: it holds until the last of those that asked
    for it, in any thread, has ended.
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
