"""What a rank does for a notebook: run its cells, call its functions, take and give its values.

Every function here runs on an engine, never raises, and answers with a plain dictionary, so that
an answer arrives whatever the reader's code does.
"""

from __future__ import annotations

import ast
import io
import pickle
import signal
import sys
import time
import traceback as traceback_module
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

Answer = dict[str, Any]

VALUE_LIMIT_BYTES = 256 * 2**20


def run_cell(source: str, number: int) -> Answer:
    """Run a cell's source in the engine's namespace.

    Args:
        source: As the reader wrote it; IPython's magics and ``!`` work.
        number: The cell's execution count in the notebook, shown in tracebacks.

    Returns:
        The value of the last expression, or the error.
    """
    shell = _shell()
    filename = ""

    def work() -> object:
        nonlocal filename
        transformed = shell.transform_cell(source)
        # Registers the source, so that tracebacks and inspect.getsource find it.
        filename = shell.compile.cache(transformed, number, raw_code=source)
        statements, expression = _compile(shell, transformed, filename)
        namespace = shell.user_ns
        if statements is not None:
            exec(statements, namespace)
        return eval(expression, namespace) if expression is not None else None

    return _answer(work, lambda: filename)


def call(function: Callable[..., object], arguments: tuple[object, ...]) -> Answer:
    """Call a function with arguments.

    Args:
        function: Defined in a module, or in the notebook.
        arguments: For it.

    Returns:
        What it returns, or the error.
    """
    return _answer(lambda: function(*arguments), lambda: function.__code__.co_filename)


def push(values: dict[str, object]) -> Answer:
    """Set variables in the engine's namespace.

    Args:
        values: By name.
    """
    return _answer(lambda: _shell().user_ns.update(values), lambda: "")


def pull(name: str) -> Answer:
    """Read a variable, or the value of an expression, from the engine's namespace.

    Args:
        name: Of the variable.
    """
    return _answer(lambda: eval(name, _shell().user_ns), lambda: "<string>")


def _answer(work: Callable[[], object], filename: Callable[[], str]) -> Answer:
    """Do some work so that Ctrl-C interrupts it and nothing else."""
    shell = _shell()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            shell.events.trigger("pre_execute")
            value = work()
            shell.events.trigger("post_execute")  # draws open figures, for example
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        answer = {"status": "ok", **_encode(value)}
    except BaseException as error:
        answer = {"status": "error", **_describe(error, filename())}
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        signal.signal(signal.SIGINT, handler)
    return {**answer, "time": time.time()}


def _compile(shell: Any, source: str, filename: str) -> tuple[CodeType | None, CodeType | None]:
    """Compile a cell's statements and, apart, its last expression."""
    tree = ast.parse(source, filename)
    expression = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not _is_silenced(source):
        last = tree.body.pop()
        assert isinstance(last, ast.Expr)
        expression = shell.compile(ast.Expression(last.value), filename, "eval")
    statements = shell.compile(tree, filename, "exec") if tree.body else None
    return statements, expression


def _is_silenced(source: str) -> bool:
    """Whether a cell ends with a semicolon, so that its last value isn't wanted."""
    import tokenize

    last = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.OP or token.string.strip():
            if token.type != tokenize.COMMENT:
                last = token.string
    return last == ";"


def _encode(value: object) -> Answer:
    """Pickle a value for the notebook, or at least describe it."""
    if value is None:
        return {"value": None}
    text = repr(value)
    try:
        data = io.BytesIO()
        _Pickler(data, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        if data.tell() > VALUE_LIMIT_BYTES:
            return {"text": text}
    except Exception:
        return {"text": text}
    return {"value": data.getvalue(), "text": text}


class _Pickler(pickle.Pickler):
    """Sends tensors from wherever they are, without their gradient's history."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and type(value) is torch.Tensor:
            if value.requires_grad or value.device.type != "cpu":
                return value.detach().cpu().__reduce_ex__(self.proto)
        return NotImplemented

    proto = pickle.HIGHEST_PROTOCOL


def _describe(error: BaseException, filename: str) -> Answer:
    """An error's name, message, line in the cell, and traceback without this module's frames."""
    trace = _cell_part(error.__traceback__, filename)
    line = trace.tb_lineno if trace is not None else getattr(error, "lineno", None)
    try:
        shell = _shell()
        if isinstance(error, SyntaxError) and trace is None:
            formatted = shell.SyntaxTB.structured_traceback(type(error), error, [])
        else:
            formatted = shell.InteractiveTB.structured_traceback(type(error), error, trace)
    except Exception:
        formatted = traceback_module.format_exception(type(error), error, trace)
    return {
        "name": type(error).__name__,
        "message": _text(error),
        "line": line,
        "traceback": [part for part in formatted],
        "is_interrupt": isinstance(error, KeyboardInterrupt),
    }


def _cell_part(trace: TracebackType | None, filename: str) -> TracebackType | None:
    """The traceback from the reader's first frame on."""
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    return trace


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:
        return f"<its message can't be shown: {second!r}>"


def _shell() -> Any:
    from IPython import get_ipython

    return get_ipython()
